//! What a transaction makes of another that is open: the same races as in `race.rs`, held still at their worst moment (T6,
//! S6, S7, L1, Q1, B3).
//!
//! A transaction does its part and stays open; another begins, and goes on or waits; the first commits when the other is
//! done or was given time. On a store with one writer the other always waits, and must come to the same end.

use crate::case::cases;
use crate::scenario::{LEASE, microseconds};
use crate::verbs::{claim_request, completion, failure, limit};
use crate::{Outcome, Planted, Scenario, World};
use leasehold_core::state::OpStatus;
use leasehold_core::store::rows::LeaseKey;
use leasehold_core::store::{BoxError, StoreError, StoreExt, StoreResult, Tx, TxKind, Wait};
use leasehold_core::transitions::{self, Ended, HeartbeatOutcome, Until};
use std::cell::Cell;
use std::sync::mpsc;
use std::time::Duration;

cases! {
    an_end_beside_an_open_end_leaves_their_child_ready proves ["S7"];
    a_limit_holds_beside_an_open_claim proves ["Q1"];
    a_claim_passes_over_what_an_open_claim_took proves ["B3", "Q1"] needs [OverlappingWriters];
    a_workflow_that_is_held_is_left_out_or_waited_for_but_briefly proves ["B3", "L13"] needs [OverlappingWriters];
    a_recovery_passes_over_a_workflow_that_is_held proves ["B3", "L7"] needs [OverlappingWriters];
    a_wake_up_passes_over_a_workflow_that_is_held proves ["B3", "W2"] needs [OverlappingWriters];
    a_completion_is_judged_behind_the_lease_it_waited_for proves ["T6", "L1", "T5"];
    a_completion_is_judged_behind_the_workflow_it_waited_for proves ["T6", "L1", "T5"];
    a_heartbeat_is_judged_behind_the_lease_it_waited_for proves ["T6", "L4", "T5"];
    nothing_is_leased_behind_a_cancel_that_met_an_open_claim proves ["S6"];
    nothing_is_ready_behind_a_cancel_that_met_an_open_promotion proves ["S6"];
}

/// How long a transaction stays open for another that may have to wait for it: what a store with one writer takes, and
/// enough for any other to reach the place where they meet. A slower machine only makes a broken store luckier.
pub(super) const PATIENCE: Duration = Duration::from_millis(300);
/// The same for another that must not wait at all.
pub(super) const LONG: Duration = Duration::from_secs(20);

/// Lets the other begin, from inside an open transaction.
pub(super) struct Meeting {
    begin: mpsc::Sender<()>,
    done: mpsc::Receiver<()>,
    patience: Duration,
    begun: Cell<bool>,
    in_time: Cell<bool>,
}

impl Meeting {
    /// Lets the other begin, and returns when it is done or was given time. A body that runs again does so alone.
    pub(super) fn meet(&self) {
        if self.begun.replace(true) {
            return;
        }
        // Whoever does not listen any more has panicked, which is told where it is waited for.
        let _ = self.begin.send(());
        self.in_time.set(self.done.recv_timeout(self.patience).is_ok());
    }
}

/// How both ended.
pub(super) struct Met<A, B> {
    pub(super) first: A,
    pub(super) other: B,
    /// The other was done while the first stood open.
    pub(super) beside: bool,
}

/// Runs `first`, which lets `other` begin by its meeting.
pub(super) fn beside<A, B: Send>(
    patience: Duration,
    first: impl FnOnce(&Meeting) -> Result<A, BoxError>,
    other: impl FnOnce() -> Result<B, BoxError> + Send,
) -> Result<Met<A, B>, BoxError> {
    std::thread::scope(|scope| {
        let (begin, begun) = mpsc::channel();
        let (ended, done) = mpsc::channel();
        let other = scope.spawn(move || {
            // A first that fails before they met leaves the other to itself.
            let _ = begun.recv();
            let answer = other();
            let _ = ended.send(());
            answer
        });
        let meeting = Meeting { begin, done, patience, begun: Cell::new(false), in_time: Cell::new(false) };
        let first = first(&meeting);
        let beside = meeting.in_time.get();
        drop(meeting);
        let other = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok(Met { first: first?, other: other?, beside })
    })
}

/// Runs `steps` in a transaction of `w` that stays open for `other`, and `then` before it commits.
fn open_until<A, B: Send>(
    w: &World,
    patience: Duration,
    mut steps: impl FnMut(&mut dyn Tx) -> StoreResult<A>,
    then: impl FnOnce() -> Outcome,
    other: impl FnOnce() -> Result<B, BoxError> + Send,
) -> Result<Met<A, B>, BoxError> {
    let mut then = Some(then);
    let first = |meeting: &Meeting| {
        let mut after = Ok(());
        let done = w.tx(|tx| {
            let done = steps(tx)?;
            meeting.meet();
            if let Some(then) = then.take() {
                after = then();
            }
            Ok(done)
        })?;
        after.map(|()| done)
    };
    beside(patience, first, other)
}

/// Runs `steps` in a transaction of `w` that stays open for `other`.
fn open<A, B: Send>(
    w: &World,
    patience: Duration,
    steps: impl FnMut(&mut dyn Tx) -> StoreResult<A>,
    other: impl FnOnce() -> Result<B, BoxError> + Send,
) -> Result<Met<A, B>, BoxError> {
    open_until(w, patience, steps, || Ok(()), other)
}

fn an_end_beside_an_open_end_leaves_their_child_ready(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").op("b").leased_by("w2").op("join").after(&["a", "b"]).build(w)?;
    let (a, b) = ([completion(&planted.claimed("a"), "1")], completion(&planted.claimed("b"), "2"));
    let met = open(w, PATIENCE, |tx| transitions::finish(tx, &a, Wait::Block), || Ok(w.finish_one(b)?))?;
    assert_eq!((met.first.outcomes.as_slice(), met.other), ([Ended::Succeeded].as_slice(), Ended::Succeeded));
    assert_eq!(w.status(&planted, "join")?, OpStatus::Ready);
    assert_eq!(w.drain("w1")?, 1);
    Ok(())
}

fn a_limit_holds_beside_an_open_claim(w: &mut World) -> Outcome {
    w.set_policies(&[limit("q", 1)])?;
    Scenario::new().op("a").queue("q").op("b").queue("q").build(w)?;
    let request = claim_request("w1", 5);
    let met = open(w, PATIENCE, |tx| transitions::claim(tx, &request), || Ok(w.claim("w2", 5)?))?;
    assert_eq!((met.first.ops.len(), met.other.len()), (1, 0), "one runs, and the limit is one");
    Ok(())
}

fn a_claim_passes_over_what_an_open_claim_took(w: &mut World) -> Outcome {
    Scenario::new().ops("k", 2).build(w)?;
    let request = claim_request("w1", 1);
    let met = open(w, LONG, |tx| transitions::claim(tx, &request), || Ok(w.claim("w2", 1)?))?;
    let [first] = met.first.ops.as_slice() else { panic!("two are ready") };
    let [other] = met.other.as_slice() else { panic!("one is ready besides: {:?}", met.other) };
    assert!(met.beside, "a claim waits for nobody");
    assert_ne!(first.lease.key.op, other.lease.key.op);
    Ok(())
}

fn a_workflow_that_is_held_is_left_out_or_waited_for_but_briefly(w: &mut World) -> Outcome {
    let (held, free) = (Scenario::new().op("a").build(w)?, Scenario::new().op("a").build(w)?);
    let both = [held.workflow, free.workflow];
    let locking = |wait: Wait| w.store().with(TxKind::Client, |tx| tx.lock_workflows(&both, wait));
    let other = || Ok((locking(Wait::Skip)?, locking(Wait::Briefly)));
    let met = open(w, LONG, |tx| tx.lock_workflows(&[held.workflow], Wait::Block), other)?;
    let (left_out, briefly) = met.other;
    assert!(met.beside, "neither waits for as long as it takes");
    assert_eq!(left_out.iter().map(|row| row.seq).collect::<Vec<_>>(), [free.workflow]);
    assert!(matches!(briefly, Err(StoreError::Conflict(_) | StoreError::Busy(_))), "{briefly:?}");
    Ok(())
}

fn a_recovery_passes_over_a_workflow_that_is_held(w: &mut World) -> Outcome {
    let held = Scenario::new().op("a").leased_by("w1").build(w)?;
    let free = Scenario::new().op("a").leased_by("w1").build(w)?;
    w.clock().advance(LEASE)?;
    let met = open(w, LONG, |tx| tx.lock_workflows(&[held.workflow], Wait::Block), || Ok(w.recover(10)?.ops))?;
    assert!(met.beside, "a recovery waits for nobody");
    assert_eq!(met.other.iter().map(|op| &op.workflow).collect::<Vec<_>>(), [&free.id]);
    assert_eq!(w.recover(10)?.ops.len(), 1, "and comes back");
    Ok(())
}

fn a_wake_up_passes_over_a_workflow_that_is_held(w: &mut World) -> Outcome {
    let held = Scenario::new().op("a").leased_by("w1").build(w)?;
    let free = Scenario::new().op("a").leased_by("w1").build(w)?;
    for planted in [&held, &free] {
        w.suspend_one(&planted.claimed("a"), Until::For(LEASE))?;
    }
    w.clock().advance(LEASE)?;
    let met = open(w, LONG, |tx| tx.lock_workflows(&[held.workflow], Wait::Block), || Ok(w.wake(10)?.ops))?;
    assert!(met.beside, "a pass that wakes waits for nobody");
    assert_eq!(met.other.iter().map(|op| &op.workflow).collect::<Vec<_>>(), [&free.id]);
    assert_eq!(w.wake(10)?.ops.len(), 1, "and comes back");
    Ok(())
}

/// Holds the lease's row as a renewal does that leaves it as it is.
fn holding_the_lease(tx: &mut dyn Tx, lease: LeaseKey) -> StoreResult<()> {
    tx.extend_leases(&[lease], microseconds(1)).map(drop)
}

fn a_completion_is_judged_behind_the_lease_it_waited_for(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
    let (lease, item) = (planted.lease("a"), completion(&planted.claimed("a"), "1"));
    let late = || w.clock().advance(LEASE);
    let met = open_until(w, PATIENCE, |tx| holding_the_lease(tx, lease), late, || Ok(w.finish_one(item)?))?;
    assert_eq!(met.other, Ended::LeaseLost, "what counts is when it had the lease's row");
    Ok(())
}

fn a_completion_is_judged_behind_the_workflow_it_waited_for(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
    let item = completion(&planted.claimed("a"), "1");
    let late = || w.clock().advance(LEASE);
    let lock = |tx: &mut dyn Tx| tx.lock_workflows(&[planted.workflow], Wait::Block);
    let met = open_until(w, PATIENCE, lock, late, || Ok(w.finish_one(item)?))?;
    assert_eq!(met.other, Ended::LeaseLost, "what counts is when it had the workflow's row");
    Ok(())
}

fn a_heartbeat_is_judged_behind_the_lease_it_waited_for(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
    let lease = planted.lease("a");
    let late = || w.clock().advance(LEASE);
    let met = open_until(w, PATIENCE, |tx| holding_the_lease(tx, lease), late, || Ok(w.heartbeat(&[lease])?))?;
    assert_eq!(met.other, [HeartbeatOutcome::Lost], "what counts is when it had the lease's row");
    Ok(())
}

fn nothing_is_leased_behind_a_cancel_that_met_an_open_claim(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").op("b").build(w)?;
    let request = claim_request("w1", 1);
    let met = open(w, PATIENCE, |tx| transitions::claim(tx, &request), || Ok(w.cancel(&planted)?))?;
    assert_eq!((met.first.ops.len(), met.other.ops), (1, 2));
    all_is_canceled(w, &planted)
}

fn nothing_is_ready_behind_a_cancel_that_met_an_open_promotion(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
    w.finish_one(failure(&planted.claimed("a")))?;
    w.clock().advance(LEASE)?;
    let met = open(w, PATIENCE, |tx| tx.promote(10), || Ok(w.cancel(&planted)?))?;
    assert_eq!((met.first, met.other.ops), (1, 1));
    all_is_canceled(w, &planted)
}

fn all_is_canceled(w: &World, planted: &Planted) -> Outcome {
    let ops = w.all_ops(planted.workflow)?;
    assert!(ops.iter().all(|op| op.status == OpStatus::Canceled && op.lease.is_none() && op.due_at.is_none()), "{ops:?}");
    assert_eq!(w.claim("w2", 10)?, []);
    Ok(())
}
