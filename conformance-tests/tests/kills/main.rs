//! Real kills on both sides of every commit: a child process stops at a named boundary of a verb and is killed there
//! with SIGKILL. What is stored then is all or nothing of the verb, and its repetition by another process leads to where an
//! undisturbed one leads (L1, L7, L8, L12). And a worker killed with all it holds is replaced, as is a leader that is frozen (L10).
//!
//! The boundary is a store around the store, which only this test has: nothing of it is in what users run.

#![expect(clippy::unwrap_used, reason = "a test")]

mod boundary;
mod child;
mod frozen;
mod picture;
mod place;
mod takeover;
mod verb;

use boundary::Side;
use libtest_mimic::{Arguments, Failed, Trial};
use place::{Ground, Place};
use std::time::{Duration, Instant};
use verb::{Call, Verb};

/// How long a database may take to notice that a process is gone.
const PATIENCE: Duration = Duration::from_secs(30);

fn main() {
    if let Some(order) = child::Order::from_environment() {
        order.obey();
    }
    takeover::die_if_told();
    frozen::freeze_if_told();
    let args = Arguments::from_args();
    let takeover = |place: Place| {
        let name = format!("{}::a_killed_worker_with_1000_leases_is_replaced_before_the_next_poll", place.name());
        Trial::test(name, move || takeover::all_are_taken_over(place))
    };
    let mut trials: Vec<Trial> = Place::ALL.into_iter().map(takeover).collect();
    trials.extend(Place::ALL.map(|place| {
        let name = format!("{}::a_frozen_leader_is_replaced_and_writes_nothing_when_it_thaws", place.name());
        Trial::test(name, move || frozen::is_replaced(place))
    }));
    for place in Place::ALL {
        for verb in Verb::ALL {
            for side in [Side::BeforeCommit, Side::AfterCommit] {
                let name = format!("{}::{}_is_whole_when_killed_{}", place.name(), verb.name(), side.name());
                trials.push(Trial::test(name, move || kill(place, verb, side)));
            }
        }
    }
    libtest_mimic::run(&args, trials).exit();
}

fn kill(place: Place, verb: Verb, side: Side) -> Result<(), Failed> {
    // What an undisturbed call leads to, on a store of its own.
    let undisturbed = Ground::new(place)?;
    let store = undisturbed.open()?;
    let call = verb.prepare(&undisturbed)?;
    let before = picture::of(store.as_ref())?;
    let answer = call.perform(store.as_ref(), false)?;
    let after = picture::of(store.as_ref())?;
    if before == after {
        return Err("the verb changes nothing, so this shows nothing".into());
    }

    let ground = Ground::new(place)?;
    let call = verb.prepare(&ground)?;
    child::run_to_its_death(&ground, verb, side)?;
    let store = ground.open()?;
    let found = picture::of(store.as_ref())?;
    let expected = if side == Side::BeforeCommit { &before } else { &after };
    assert_eq!(found, *expected, "after the kill");
    // Another process says the same again. What the dead one held is freed once the database has noticed.
    let again = repeat(&call, store.as_ref(), &before)?;
    assert_eq!(picture::of(store.as_ref())?, after, "after the repetition");
    if verb.answers_alike() {
        assert_eq!(again, answer, "the first answer");
    }
    Ok(())
}

/// Repeats a call until it has an effect, if it had none yet.
fn repeat(call: &Call, store: &dyn leasehold_core::store::Store, before: &[String]) -> Result<String, Failed> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = call.perform(store, true)?;
        if picture::of(store)? != before {
            return Ok(answer);
        }
        if Instant::now() > deadline {
            return Err(format!("the repetition has no effect: {answer}").into());
        }
        std::thread::yield_now();
    }
}
