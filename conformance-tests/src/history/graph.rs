//! Graphs that a seed tells.

use super::chance::Chance;
use crate::Scenario;
use leasehold_core::model::{Effect, Jitter, Micros, RetryPolicy};

/// Keys differ from store to store, and chance is drawn from them: so no jitter.
pub(super) const RETRY: RetryPolicy = RetryPolicy {
    max_attempts: 3,
    backoff: leasehold_core::model::Backoff::Linear,
    base: Micros::from_secs(4),
    cap: Micros::from_secs(60),
    jitter: Jitter::None,
    max_lost: 2,
    effect: Effect::Repeatable,
};

pub(super) const QUEUES: [&str; 3] = ["p", "q", "r"];

/// Some ops with edges to earlier ones and, when they are added, to ops that are there.
pub(super) fn graph(chance: &mut Chance, prefix: &str, there: &[String]) -> Scenario {
    let mut scenario = Scenario::new();
    let mut ids: Vec<String> = there.to_vec();
    for at in 0..=chance.below(7) {
        let id = format!("{prefix}{at}");
        scenario = scenario.op(&id).kind(&format!("k{}", chance.below(3))).queue(QUEUES.get(chance.below(3)).copied().unwrap_or("p"));
        let priority = i32::try_from(chance.below(3)).unwrap_or(0);
        scenario = scenario.priority(priority).retry(RETRY);
        if chance.one_in(4) {
            scenario = scenario.effect_once();
        }
        for _ in 0..chance.below(3) {
            if let Some(parent) = chance.pick(&ids) {
                scenario = if chance.one_in(3) { scenario.after_settled(&[parent]) } else { scenario.after(&[parent]) };
            }
        }
        ids.push(id);
    }
    scenario
}
