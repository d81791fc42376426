//! Random histories, on the store and on the in-memory specification side by side: equal after every step.

use crate::case::cases;
use crate::history::{Command, Lockstep, specification};
use crate::{Outcome, World};
use leasehold_core::store::BoxError;
use std::sync::Arc;

cases! {
    random_histories_agree_with_the_specification proves ["S1", "S2", "S3", "S4", "S5", "S6", "S8", "L1", "L4", "L7", "L8", "Q1", "Q2", "T5", "T8", "W1", "W2", "L9", "L16"];
    random_histories_of_limited_queues_agree_with_the_specification proves ["Q1", "Q2", "Q5", "L8"];
}

/// Steps of one history.
const STEPS: usize = 300;
/// What is stored is compared each so many steps; the answers of each step are.
const COMPARE_EACH: usize = 10;

/// The variable that names another seed than a case's own.
const SEED: &str = "LEASEHOLD_SEED";

fn history(w: &World, own: u64, limited: bool) -> Outcome {
    let seed = match std::env::var(SEED) {
        Ok(text) => text.parse().map_err(|_| BoxError::from(format!("{SEED}={text:?} is not a number")))?,
        Err(_) => own,
    };
    let store = w.through(Arc::clone(w.store()));
    let mut pair = Lockstep::new(vec![("the specification".to_owned(), specification()), ("the store".to_owned(), store)]);
    let told = |error| BoxError::from(format!("the history of seed {seed} failed, {SEED}={seed} runs it again: {error}"));
    pair.run(&Command::history(seed, STEPS, limited), COMPARE_EACH).map_err(told)
}

fn random_histories_agree_with_the_specification(w: &mut World) -> Outcome {
    history(w, 1, false)
}

fn random_histories_of_limited_queues_agree_with_the_specification(w: &mut World) -> Outcome {
    history(w, 2, true)
}
