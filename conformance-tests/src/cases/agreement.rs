//! Random histories, on the store and on the in-memory specification side by side: equal after every step.

use crate::case::cases;
use crate::scenario::{LEASE, json, name};
use crate::verbs::{abandonment, claim_request, completion, failure, giving_back, limit, permanent_failure, rate, suspension};
use crate::{Opened, Outcome, Planted, Scenario, World, start};
use leasehold_core::memory::MemoryStore;
use leasehold_core::model::{Effect, Jitter, Micros, Record, RetryPolicy, WorkflowId, WorkflowSpec};
use leasehold_core::store::rows::{ClaimedOp, OpView, WorkflowPage};
use leasehold_core::store::{BoxError, Clock, ManualClock, Store};
use leasehold_core::transitions::{ClaimRequest, End, Ended, Finish, HeartbeatOutcome, OpVerdict, RetryTarget, Until};
use std::fmt::Debug;
use std::sync::Arc;

cases! {
    random_histories_agree_with_the_specification proves ["S1", "S2", "S3", "S4", "S5", "S6", "S8", "L1", "L4", "L7", "L8", "Q1", "Q2", "T5", "T8", "W1", "W2", "L9", "L16"];
    random_histories_of_limited_queues_agree_with_the_specification proves ["Q1", "Q2", "Q5", "L8"];
}

/// The same numbers for a seed everywhere, and a seed is all that a failure has to tell.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    /// A number below `end`.
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end.max(1)).unwrap_or(1)).unwrap_or(0)
    }
    fn one_in(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }
    fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.below(of.len()))
    }
}

/// The store and the specification, with what the workers of both hold.
struct Pair<'w> {
    store: &'w World,
    spec: World,
    held: Vec<(ClaimedOp, ClaimedOp)>,
    workflows: Vec<WorkflowId>,
    made: usize,
}

fn specification() -> World {
    let clock = Arc::new(ManualClock::at(start()));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::clone(&clock) as Arc<dyn Clock>));
    World::new(Opened::new(store, clock))
}

/// Keys differ from store to store, and chance is drawn from them: so no jitter.
const RETRY: RetryPolicy = RetryPolicy {
    max_attempts: 3,
    backoff: leasehold_core::model::Backoff::Linear,
    base: Micros::from_secs(4),
    cap: Micros::from_secs(60),
    jitter: Jitter::None,
    max_lost: 2,
    effect: Effect::Repeatable,
};

const QUEUES: [&str; 3] = ["p", "q", "r"];

/// Some ops with edges to earlier ones and, when they are added, to ops that are there.
fn graph(chance: &mut Chance, prefix: &str, there: &[String]) -> Scenario {
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

impl Pair<'_> {
    /// Runs the same on both; the answers must be equal.
    fn both<T: PartialEq + Debug>(&self, what: &str, verb: impl Fn(&World) -> Result<T, BoxError>) -> Result<T, BoxError> {
        let (real, expected) = (verb(self.store), verb(&self.spec));
        match (real, expected) {
            (Ok(real), Ok(expected)) => {
                assert_eq!(real, expected, "{what}: the answers differ");
                Ok(real)
            }
            (Err(real), Err(expected)) => {
                assert_eq!(real.to_string(), expected.to_string(), "{what}: the refusals differ");
                Err(real)
            }
            (Ok(real), Err(expected)) => panic!("{what}: the store answers {real:?}, the specification refuses: {expected}"),
            (Err(real), Ok(expected)) => panic!("{what}: the store refuses ({real}), the specification answers {expected:?}"),
        }
    }

    fn planted(&self, world: &World, chance: &mut Chance) -> Result<Option<Planted>, BoxError> {
        chance.pick(&self.workflows).map(|id| Planted::find(world, id)).transpose()
    }

    fn create(&mut self, chance: &mut Chance) -> Outcome {
        self.made += 1;
        let scenario = graph(chance, "a", &[]).id(&format!("w{}", self.made));
        let spec: WorkflowSpec = scenario.spec(self.store);
        self.both("create", |w| Ok(w.create(spec.clone())?))?;
        self.workflows.push(spec.id);
        Ok(())
    }

    fn claim(&mut self, chance: &mut Chance) -> Outcome {
        let capacity = u32::try_from(1 + chance.below(6))?;
        let kinds = chance.one_in(3).then(|| vec![name(format!("k{}", chance.below(3)))]);
        let request = ClaimRequest { kinds, ..claim_request("w1", capacity) };
        let claim = |w: &World| -> Result<Vec<ClaimedOp>, BoxError> {
            let mut ops = w.claim_with(&request)?.ops;
            ops.sort_by(|a, b| (&a.workflow_id, &a.op_id).cmp(&(&b.workflow_id, &b.op_id)));
            Ok(ops)
        };
        let (real, expected) = (claim(self.store)?, claim(&self.spec)?);
        let shown = |ops: &[ClaimedOp]| -> Vec<String> {
            let show = |op: &ClaimedOp| {
                let (lease, due_at) = (&op.lease, op.due_at);
                format!("{}/{} {:?} {} {} {due_at}", op.workflow_id, op.op_id, lease.key.fence, lease.expires_at, op.failures)
            };
            ops.iter().map(show).collect()
        };
        assert_eq!(shown(&real), shown(&expected), "claim: other ops");
        self.held.extend(real.into_iter().zip(expected));
        Ok(())
    }

    /// Ends some of what is held, alive or not, each in its own way.
    fn finish(&mut self, chance: &mut Chance) -> Outcome {
        let mut batch: Vec<(Finish, Finish)> = Vec::new();
        for _ in 0..=chance.below(4) {
            if self.held.is_empty() {
                break;
            }
            let (real, expected) = self.held.swap_remove(chance.below(self.held.len()));
            let how = chance.below(12);
            let end = |claimed: &ClaimedOp| match how {
                0 | 1 => failure(claimed),
                2 => permanent_failure(claimed),
                3 => giving_back(claimed),
                4 => suspension(claimed, Until::For(Micros::from_secs(5))),
                5 => abandonment(claimed),
                _ => recording(claimed),
            };
            batch.push((end(&real), end(&expected)));
            if chance.one_in(4) {
                // It is tried again later, as after a lost reply.
                self.held.push((real, expected));
            }
        }
        let (real, expected): (Vec<Finish>, Vec<Finish>) = batch.into_iter().unzip();
        let (real, expected): (Vec<Ended>, Vec<Ended>) = (self.store.finish(&real)?, self.spec.finish(&expected)?);
        assert_eq!(real, expected, "finish: the answers differ");
        Ok(())
    }

    fn heartbeat(&self) -> Outcome {
        let beat = |w: &World, keys: Vec<_>| -> Result<Vec<String>, BoxError> {
            let show = |outcome: &HeartbeatOutcome| match outcome {
                HeartbeatOutcome::Held(lease) => format!("held until {}", lease.expires_at),
                other => format!("{other:?}"),
            };
            Ok(w.heartbeat(&keys)?.iter().map(show).collect())
        };
        let real = beat(self.store, self.held.iter().map(|(real, _)| real.lease.key).collect())?;
        let expected = beat(&self.spec, self.held.iter().map(|(_, expected)| expected.lease.key).collect())?;
        assert_eq!(real, expected, "heartbeat: the answers differ");
        Ok(())
    }

    fn recover(&self) -> Outcome {
        // All of them: which of those that expired at one instant come first is a store's own affair.
        self.both("recover", |w| {
            let mut ops: Vec<String> = w.recover(10_000)?.ops.iter().map(|op| format!("{}/{} {}", op.workflow, op.op, op.status)).collect();
            ops.sort();
            Ok(ops)
        })
        .map(drop)
    }

    /// Dispatches some of what is held, alive or not.
    fn dispatch(&self, chance: &mut Chance) -> Outcome {
        let some: Vec<_> = self.held.iter().filter(|_| chance.one_in(2)).collect();
        let real = self.store.dispatch(&some.iter().map(|(real, _)| real.lease.key).collect::<Vec<_>>())?;
        let expected = self.spec.dispatch(&some.iter().map(|(_, expected)| expected.lease.key).collect::<Vec<_>>())?;
        assert_eq!(real, expected, "dispatch: the answers differ");
        Ok(())
    }

    /// A verdict on the last attempt of any op, whether one is wanted or not.
    fn settle(&self, of: &Planted, op: &str, how: usize) {
        let verdict = match how {
            0 => OpVerdict::Retry,
            1 => OpVerdict::Succeed { result: json("[2]") },
            _ => OpVerdict::Fail { message: "no".to_owned() },
        };
        // A refusal is as good as an answer.
        let _ = self.both("settle", |w| {
            let found = Planted::find(w, &of.id)?;
            let fence = w.view(found.op(op))?.state.fence;
            Ok(w.settle(&found, op, fence, verdict.clone())?)
        });
    }

    fn wake(&self) -> Outcome {
        self.both("wake", |w| {
            let mut ops: Vec<String> =
                w.wake(10_000)?.ops.iter().map(|op| format!("{}/{} {:?}", op.workflow, op.op, op.wait.fence)).collect();
            ops.sort();
            Ok(ops)
        })
        .map(drop)
    }

    fn operate(&mut self, chance: &mut Chance) -> Outcome {
        let Some(planted) = self.planted(self.store, chance)? else { return Ok(()) };
        let find = |w: &World| Planted::find(w, &planted.id);
        let ids: Vec<String> = planted.ops.keys().cloned().collect();
        // A refusal is as good as an answer: both must give the same.
        let _ = match chance.below(11) {
            0 => self
                .both("cancel", |w| {
                    let canceled = w.cancel(&find(w)?)?;
                    Ok((canceled.ops, canceled.running))
                })
                .map(drop),
            1..=3 => self
                .both("retry all", |w| {
                    let mut ops = w.retry(&find(w)?, RetryTarget::AllFailed)?;
                    ops.sort();
                    Ok(ops)
                })
                .map(drop),
            4 | 5 => {
                let op = chance.pick(&ids).cloned().unwrap_or_default();
                self.both("retry", |w| Ok(w.retry_op(&find(w)?, &op)?)).map(drop)
            }
            6..=8 => {
                let op = chance.pick(&ids).cloned().unwrap_or_default();
                self.settle(&planted, &op, chance.below(3));
                Ok(())
            }
            _ => {
                self.made += 1;
                let mut added = graph(chance, &format!("b{}.", self.made), &ids);
                if chance.one_in(3)
                    && let Some(target) = chance.pick(&ids)
                {
                    added = added.op(&format!("b{}.before", self.made)).before(&[target]).retry(RETRY);
                }
                self.both("add", |w| {
                    let mut told: Vec<String> = w
                        .add(&find(w)?, &added)?
                        .iter()
                        .map(|op| format!("{} {} {} {}", op.id, op.holder, op.status, op.created))
                        .collect();
                    told.sort();
                    Ok(told)
                })
                .map(drop)
            }
        };
        Ok(())
    }

    fn pass_time(&self, chance: &mut Chance) -> Outcome {
        let by = Micros::new(1 + i64::try_from(chance.below(9_000_000))?)?;
        for w in [self.store, &self.spec] {
            match by.get() % 13 {
                0 => w.clock().go_back(Micros::new(by.get() % 2_000_000 + 1)?)?,
                1 => w.clock().advance(LEASE)?,
                _ => w.clock().advance(by)?,
            }
        }
        Ok(())
    }

    fn compare(&self) -> Outcome {
        let (real, expected) = (shown(self.store)?, shown(&self.spec)?);
        for (real, expected) in real.iter().zip(&expected) {
            assert_eq!(real, expected, "the stores differ");
        }
        assert_eq!(real.len(), expected.len(), "the stores differ");
        Ok(())
    }
}

/// A completion that leaves a record.
fn recording(claimed: &ClaimedOp) -> Finish {
    let record = Record { collection: name("c"), key: name(claimed.op_id.as_str()), value: json(&claimed.lease.key.fence.0.to_string()) };
    let end = End::Complete { result: json("[1]"), artifacts: Vec::new(), records: vec![record], emitted: None };
    Finish { end, ..completion(claimed, "0") }
}

/// All that is stored, without the keys that a store gives out as it likes.
fn shown(w: &World) -> Result<Vec<String>, BoxError> {
    let op = |view: &OpView| {
        let state = &view.state;
        let lease = view.lease.as_ref().map(|lease| (lease.key.fence, lease.acquired_at, lease.expires_at, lease.dispatched_at));
        let counts = (state.unmet, state.broken, state.fence, state.failures, state.losses);
        let error = view.error.as_ref().map(|error| &error.code);
        let wait = view.wait.as_ref().map(|wait| (wait.key.fence, wait.reason, wait.since, wait.due_at));
        format!(
            "{} {} {counts:?} due {:?} {lease:?} {wait:?} {:?} {error:?} {:?}",
            state.id, view.status, view.due_at, view.result, view.finished_at
        )
    };
    let page = WorkflowPage { limit: 10_000, ..WorkflowPage::default() };
    let mut lines = Vec::new();
    for row in w.read(|tx| tx.list_workflows(&page))? {
        lines.push(format!("{} {} {:?} {:?} {:?}", row.id, row.status, row.cancel_requested, row.counters, row.finished_at));
        let ops = w.all_ops(row.seq)?;
        lines.extend(ops.iter().map(op));
        let (events, records) =
            w.read(|tx| Ok((tx.events_since(None, Some(row.seq), 10_000)?, tx.records(row.seq, &name("c"), None, 10_000)?)))?;
        let mut told: Vec<String> =
            events.iter().map(|row| format!("{:?} {:?} {} {:?}", row.event.kind, row.op_id, row.event.at, row.event.detail)).collect();
        // A batch tells of its ops in the order in which the store named them.
        told.sort();
        lines.extend(told);
        lines.extend(records.iter().map(|row| format!("{} = {}", row.record.key, row.record.value)));
    }
    Ok(lines)
}

/// Steps of one history.
const STEPS: usize = 300;

fn history(w: &World, seed: u64, limited: bool) -> Outcome {
    let mut chance = Chance(seed);
    let mut pair = Pair { store: w, spec: specification(), held: Vec::new(), workflows: Vec::new(), made: 0 };
    for step in 0..STEPS {
        match chance.below(20) {
            0..=2 => pair.create(&mut chance)?,
            3..=7 => pair.claim(&mut chance)?,
            8..=11 => pair.finish(&mut chance)?,
            12 if chance.one_in(2) => pair.dispatch(&mut chance)?,
            12 => pair.heartbeat()?,
            13 | 14 => pair.recover()?,
            18 => pair.wake()?,
            15 | 16 => pair.operate(&mut chance)?,
            17 if limited => {
                let queue = chance.pick(&QUEUES).copied().unwrap_or("p");
                let policy = if chance.one_in(2) {
                    limit(queue, u32::try_from(chance.below(4))?)
                } else {
                    rate(queue, 0.5, u32::try_from(1 + chance.below(3))?)
                };
                pair.both("policy", |w| Ok(w.set_policies(std::slice::from_ref(&policy))?))?;
            }
            _ => pair.pass_time(&mut chance)?,
        }
        if step % 10 == 9 {
            pair.compare()?;
            crate::recount(w)?;
        }
    }
    pair.compare()
}

/// Tells the seed of a history that panicked.
struct Told(u64);

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the history of seed {} failed; {SEED}={} runs it again", self.0, self.0);
        }
    }
}

/// The variable that names another seed than a case's own.
const SEED: &str = "LEASEHOLD_SEED";

fn told(w: &World, own: u64, limited: bool) -> Outcome {
    let seed = match std::env::var(SEED) {
        Ok(text) => text.parse().map_err(|_| BoxError::from(format!("{SEED}={text:?} is not a number")))?,
        Err(_) => own,
    };
    let _told = Told(seed);
    history(w, seed, limited).map_err(|error| BoxError::from(format!("the history of seed {seed} failed: {error}")))
}

fn random_histories_agree_with_the_specification(w: &mut World) -> Outcome {
    told(w, 1, false)
}

fn random_histories_of_limited_queues_agree_with_the_specification(w: &mut World) -> Outcome {
    told(w, 2, true)
}
