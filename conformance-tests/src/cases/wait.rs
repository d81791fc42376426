//! Ops that wait for an instant, and their wake-ups (W1, W2).

use super::race::at_once;
use crate::case::cases;
use crate::scenario::{LEASE, microseconds};
use crate::verbs::{failure, limit, suspension};
use crate::world::transact;
use crate::{Outcome, Planted, Scenario, World};
use leasehold_core::model::{Fence, Micros, OpError, RetryPolicy, Timestamp};
use leasehold_core::state::{OpStatus, WorkflowStatus};
use leasehold_core::store::rows::{AttemptOutcome, EventKind, OpWait, WaitReason};
use leasehold_core::store::{BoxError, TxKind};
use leasehold_core::transitions::{Ended, TransitionError, Until, WokenOp, wake_waits};
use std::collections::BTreeSet;

cases! {
    a_suspended_op_waits_and_shows_until_when_and_since_when proves ["W1", "S10"];
    a_waiting_op_holds_no_slot_of_its_queue proves ["W1", "Q1", "L8"];
    a_suspension_costs_no_failure_and_no_loss proves ["L8", "W1"];
    a_suspended_attempt_is_in_the_ledger proves ["L9"];
    an_op_is_woken_at_its_instant_and_not_before proves ["W2", "T5"];
    an_instant_that_has_passed_is_due_at_once proves ["W1", "T5"];
    a_wait_that_would_end_past_year_9999_fails_the_op proves ["T4", "W1"];
    a_repeated_suspension_gets_its_first_answer proves ["L12", "W1"];
    waking_twice_fires_nothing_twice proves ["W2", "L12"];
    waking_is_bounded_and_the_rest_stays_for_the_next proves ["W2"];
    the_longest_due_is_woken_first proves ["W2"];
    a_clock_that_went_back_after_the_listing_wakes_nobody proves ["W2", "T8"];
    a_wait_that_was_replaced_since_it_was_listed_is_left_alone proves ["W2"];
    a_woken_op_is_claimed_in_the_order_in_which_it_was_due proves ["W2", "Q2"];
    a_woken_op_knows_what_it_waited_for_in_all_later_attempts proves ["W1", "W2"];
    a_waiting_op_holds_its_children_back_and_its_workflow_open proves ["S4", "S8", "W1"];
    a_waiting_op_cannot_be_retried proves ["S5"];
    a_canceled_op_waits_no_more_and_is_never_woken proves ["S6", "W2"];
    waiting_and_waking_leave_their_events proves ["O2", "O4"];
    of_two_passes_at_once_each_op_is_woken_by_one proves ["W2"];
    of_a_cancel_and_a_wake_up_all_agree proves ["S6", "W2"];
    a_wait_and_what_was_woken_survive_a_restart proves ["W1", "W2"] needs [Restart];
}

/// How often each pair of calls meets.
const ROUNDS: usize = 25;

/// One op that waits for `LEASE`, from now.
fn waiting(w: &World) -> Result<(Planted, Timestamp), BoxError> {
    let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
    let due_at = w.suspend_one(&planted.claimed("a"), Until::For(LEASE))?;
    Ok((planted, due_at))
}

/// `count` ops that wait, each due one microsecond after the one before.
fn many_waiting(w: &World, count: usize) -> Result<(Planted, Timestamp), BoxError> {
    let planted = Scenario::new().ops("a", count).build(w)?;
    let first = w.now().after(LEASE)?;
    for at in 0..count {
        let claimed = w.claim_one("w1")?;
        let due_at = Timestamp::from_micros(first.as_micros() + i64::try_from(at)?)?;
        w.suspend_one(&claimed, Until::At(due_at))?;
    }
    Ok((planted, first))
}

fn woken(w: &World, limit: i64) -> Result<Vec<String>, BoxError> {
    Ok(w.wake(limit)?.ops.iter().map(|op| op.op.to_string()).collect())
}

fn listed(w: &World) -> Result<Vec<OpWait>, BoxError> {
    Ok(w.read(|tx| tx.due_waits(10))?)
}

fn wake_listed(w: &World, listed: &[OpWait]) -> Result<Vec<WokenOp>, BoxError> {
    Ok(transact(w.store().as_ref(), TxKind::Maintenance, |tx| wake_waits(tx, listed))?.ops)
}

fn a_suspended_op_waits_and_shows_until_when_and_since_when(w: &mut World) -> Outcome {
    let began = w.now();
    let (planted, due_at) = waiting(w)?;
    assert_eq!(due_at, began.after(LEASE)?);
    let view = w.view(planted.op("a"))?;
    assert_eq!((view.status, &view.lease, view.due_at), (OpStatus::Waiting, &None, None));
    let wait = view.wait.ok_or("the op shows no wait")?;
    assert_eq!((wait.key.op, wait.key.fence, wait.workflow), (planted.op("a"), planted.lease("a").fence, planted.workflow));
    assert_eq!((wait.reason, wait.since, wait.due_at), (WaitReason::Timer, began, Some(due_at)));
    assert_eq!(w.claim("w2", 1)?.len(), 0, "nobody takes an op that waits");
    Ok(())
}

fn a_waiting_op_holds_no_slot_of_its_queue(w: &mut World) -> Outcome {
    w.set_policies(&[limit("q", 1)])?;
    let planted = Scenario::new().op("a").queue("q").leased_by("w1").op("b").queue("q").build(w)?;
    assert_eq!(w.claim("w1", 1)?.len(), 0, "the queue is full");
    w.suspend_one(&planted.claimed("a"), Until::For(LEASE))?;
    assert_eq!(w.claim_one("w1")?.op_id.as_str(), "b");
    Ok(())
}

fn a_suspension_costs_no_failure_and_no_loss(w: &mut World) -> Outcome {
    let retry = RetryPolicy { max_attempts: 1, max_lost: 1, ..RetryPolicy::default() };
    let planted = Scenario::new().op("a").retry(retry).build(w)?;
    for round in 1..=5 {
        let claimed = w.claim_one("w1")?;
        assert_eq!((claimed.lease.key.fence, claimed.failures), (Fence(round), 0));
        w.suspend_one(&claimed, Until::For(LEASE))?;
        w.clock().advance(LEASE)?;
        assert_eq!(woken(w, 10)?, ["a"]);
    }
    let state = w.view(planted.op("a"))?.state;
    assert_eq!((state.failures, state.losses, state.fence), (0, 0, Fence(5)));
    w.complete_one(&w.claim_one("w1")?, "1")
}

fn a_suspended_attempt_is_in_the_ledger(w: &mut World) -> Outcome {
    let (planted, _) = waiting(w)?;
    let attempts = w.read(|tx| tx.attempts(planted.op("a"), Fence::NONE, 10))?;
    let [attempt] = attempts.as_slice() else { panic!("one attempt has ended: {attempts:?}") };
    assert_eq!((attempt.key, attempt.outcome), (planted.lease("a"), AttemptOutcome::Suspended));
    assert_eq!((&attempt.result, &attempt.error, attempt.ended_at), (&None, &None, w.now()));
    Ok(())
}

fn an_op_is_woken_at_its_instant_and_not_before(w: &mut World) -> Outcome {
    let (planted, due_at) = waiting(w)?;
    w.clock().set(Timestamp::from_micros(due_at.as_micros() - 1)?)?;
    assert_eq!(woken(w, 10)?, [""; 0]);
    assert_eq!(w.status(&planted, "a")?, OpStatus::Waiting);
    w.clock().set(due_at)?;
    let pass = w.wake(10)?;
    let [op] = pass.ops.as_slice() else { panic!("one op is due: {pass:?}") };
    assert_eq!((&op.workflow, op.op.as_str(), op.wait.op, op.wait.fence), (&planted.id, "a", planted.op("a"), planted.lease("a").fence));
    let view = w.view(planted.op("a"))?;
    assert_eq!((view.status, view.due_at, view.wait), (OpStatus::Ready, Some(due_at), None));
    assert_eq!(w.claim_one("w2")?.lease.key.fence, planted.lease("a").fence.next());
    Ok(())
}

fn an_instant_that_has_passed_is_due_at_once(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").op("b").op("c").build(w)?;
    for (op, instant) in w.claim("w1", 3)?.iter().zip([Timestamp::MIN, Timestamp::from_micros(w.now().as_micros() - 1)?, w.now()]) {
        assert_eq!(w.suspend_one(op, Until::At(instant))?, instant, "it is stored as it was given");
    }
    assert_eq!(woken(w, 10)?.len(), 3);
    assert_eq!(w.statuses(&planted, &["a", "b", "c"])?, [OpStatus::Ready; 3]);
    Ok(())
}

fn a_wait_that_would_end_past_year_9999_fails_the_op(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").op("b").leased_by("w1").build(w)?;
    let longest = Micros::new(Timestamp::MAX.as_micros() - w.now().as_micros())?;
    assert_eq!(w.suspend_one(&planted.claimed("a"), Until::For(longest))?, Timestamp::MAX);
    let over = suspension(&planted.claimed("b"), Until::For(microseconds(longest.get() + 1)));
    for _ in 0..2 {
        // The repetition gets the same.
        match w.finish_one(over.clone())? {
            Ended::Failed { error } => assert_eq!(error.code, OpError::BAD_WAIT),
            other => panic!("a wait without an end was answered with {other:?}"),
        }
    }
    assert_eq!(w.statuses(&planted, &["a", "b"])?, [OpStatus::Waiting, OpStatus::Failed]);
    Ok(())
}

fn a_repeated_suspension_gets_its_first_answer(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
    let item = suspension(&planted.claimed("a"), Until::For(LEASE));
    let first = w.finish_one(item.clone())?;
    w.clock().advance(microseconds(7))?;
    let before = w.fingerprint(&planted)?;
    assert_eq!(w.finish_one(item.clone())?, first, "the instant is that of the first call");
    assert_eq!(w.fingerprint(&planted)?, before);
    w.clock().advance(LEASE)?;
    w.wake(10)?;
    assert_eq!(w.finish_one(item.clone())?, first, "also when the wait is over");
    w.complete_one(&w.claim_one("w2")?, "1")?;
    assert_eq!(w.finish_one(item)?, first, "and when the op has ended");
    assert_eq!(w.finish_one(failure(&planted.claimed("a")))?, Ended::LeaseLost, "another end is another question");
    Ok(())
}

fn waking_twice_fires_nothing_twice(w: &mut World) -> Outcome {
    let (planted, due_at) = waiting(w)?;
    w.clock().set(due_at)?;
    let listed = listed(w)?;
    assert_eq!(wake_listed(w, &listed)?.len(), 1);
    let before = w.fingerprint(&planted)?;
    assert_eq!(wake_listed(w, &listed)?.len(), 0);
    assert_eq!(woken(w, 10)?, [""; 0]);
    assert_eq!(w.fingerprint(&planted)?, before);
    assert_eq!(w.read(|tx| tx.waits_of(&[planted.op("a")]))?, []);
    Ok(())
}

fn waking_is_bounded_and_the_rest_stays_for_the_next(w: &mut World) -> Outcome {
    let (_, first) = many_waiting(w, 7)?;
    w.clock().set(first.after(microseconds(7))?)?;
    let mut all = BTreeSet::new();
    for expected in [3, 3, 1, 0] {
        let pass = woken(w, 3)?;
        assert_eq!(pass.len(), expected);
        all.extend(pass);
    }
    assert_eq!(all.len(), 7, "each once");
    Ok(())
}

fn the_longest_due_is_woken_first(w: &mut World) -> Outcome {
    let (_, first) = many_waiting(w, 5)?;
    w.clock().set(first.after(microseconds(7))?)?;
    let mut pass = woken(w, 2)?;
    pass.sort();
    assert_eq!(pass, ["a0", "a1"]);
    Ok(())
}

fn a_clock_that_went_back_after_the_listing_wakes_nobody(w: &mut World) -> Outcome {
    let (planted, due_at) = waiting(w)?;
    w.clock().set(due_at)?;
    let listed = listed(w)?;
    assert_eq!(listed.len(), 1);
    w.clock().go_back(microseconds(1))?;
    assert_eq!(wake_listed(w, &listed)?, []);
    assert_eq!(w.status(&planted, "a")?, OpStatus::Waiting, "what is pending waits for its stored instant");
    w.clock().set(due_at)?;
    assert_eq!(wake_listed(w, &listed)?.len(), 1);
    w.clock().go_back(LEASE)?;
    assert_eq!(w.status(&planted, "a")?, OpStatus::Ready, "what has fired stays fired");
    Ok(())
}

fn a_wait_that_was_replaced_since_it_was_listed_is_left_alone(w: &mut World) -> Outcome {
    let (planted, due_at) = waiting(w)?;
    w.clock().set(due_at)?;
    let stale = listed(w)?;
    assert_eq!(woken(w, 10)?, ["a"]);
    // The next wait is due as well, but it is another one.
    w.suspend_one(&w.claim_one("w2")?, Until::At(due_at))?;
    assert_eq!(wake_listed(w, &stale)?, []);
    assert_eq!(w.status(&planted, "a")?, OpStatus::Waiting);
    assert_eq!(woken(w, 10)?, ["a"]);
    Ok(())
}

fn a_woken_op_is_claimed_in_the_order_in_which_it_was_due(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("late").kind("k").op("early").kind("k").build(w)?;
    let now = w.now();
    for claimed in w.claim("w1", 2)? {
        let by = if claimed.op_id.as_str() == "early" { 1 } else { 2 };
        w.suspend_one(&claimed, Until::At(now.after(microseconds(by))?))?;
    }
    w.clock().advance(LEASE)?;
    w.add(&planted, &Scenario::new().op("new").kind("k"))?;
    assert_eq!(w.wake(10)?.ops.len(), 2);
    let mut order = Vec::new();
    for _ in 0..3 {
        order.push(w.claim_one("w1")?.op_id.to_string());
    }
    assert_eq!(order, ["early", "late", "new"]);
    Ok(())
}

fn a_woken_op_knows_what_it_waited_for_in_all_later_attempts(w: &mut World) -> Outcome {
    let began = w.now();
    let (planted, due_at) = waiting(w)?;
    let op = planted.op("a");
    assert_eq!(w.read(|tx| tx.wakes_of(&[op]))?, [], "a wait that is not over is none that ended");
    w.clock().set(due_at.after(microseconds(5))?)?;
    w.wake(10)?;
    let woken_at = w.now();
    let known = |w: &World| -> Result<_, BoxError> {
        let mut wakes = w.read(|tx| tx.wakes_of(&[op]))?;
        let wake = wakes.pop().ok_or("nothing is known of the wait")?;
        Ok((wake.wait.key.fence, wake.wait.reason, wake.wait.since, wake.wait.due_at, wake.woken_at))
    };
    let first = (planted.lease("a").fence, WaitReason::Timer, began, Some(due_at), woken_at);
    assert_eq!(known(w)?, first);
    w.finish_one(failure(&w.claim_one("w2")?))?;
    w.clock().advance(LEASE)?;
    let again = w.claim_one("w2")?;
    assert_eq!(known(w)?, first, "an attempt that failed behind the wait takes nothing away");
    let second = w.suspend_one(&again, Until::For(LEASE))?;
    assert_eq!(known(w)?, first, "until the next wait is over");
    w.clock().set(second)?;
    w.wake(10)?;
    assert_eq!(known(w)?.3, Some(second));
    Ok(())
}

fn a_waiting_op_holds_its_children_back_and_its_workflow_open(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").op("b").after(&["a"]).op("c").after_settled(&["a"]).build(w)?;
    let due_at = w.suspend_one(&planted.claimed("a"), Until::For(LEASE))?;
    assert_eq!(w.statuses(&planted, &["b", "c"])?, [OpStatus::Pending, OpStatus::Pending]);
    w.add(&planted, &Scenario::new().op("d").after(&["a"]).op("e").after_settled(&["a"]))?;
    let planted = Planted::find(w, &planted.id)?;
    assert_eq!(w.statuses(&planted, &["d", "e"])?, [OpStatus::Pending, OpStatus::Pending]);
    let row = w.workflow(&planted.id)?;
    assert_eq!((row.status, row.counters.waiting, row.counters.pending, row.finished_at), (WorkflowStatus::Running, 1, 4, None));
    w.clock().set(due_at)?;
    w.wake(10)?;
    w.drain("w2")?;
    assert_eq!(w.workflow(&planted.id)?.status, WorkflowStatus::Succeeded);
    Ok(())
}

fn a_waiting_op_cannot_be_retried(w: &mut World) -> Outcome {
    let (planted, _) = waiting(w)?;
    let before = w.fingerprint(&planted)?;
    match w.retry_op(&planted, "a") {
        Err(TransitionError::OpStatus { status: OpStatus::Waiting, .. }) => {}
        other => panic!("a retry of an op that waits for its instant was answered with {other:?}"),
    }
    assert_eq!(w.fingerprint(&planted)?, before);
    Ok(())
}

fn a_canceled_op_waits_no_more_and_is_never_woken(w: &mut World) -> Outcome {
    let (planted, due_at) = waiting(w)?;
    let (other, _) = waiting(w)?;
    w.clock().set(due_at)?;
    let listed = listed(w)?;
    let canceled = w.cancel(&planted)?;
    assert_eq!((canceled.ops, canceled.running), (1, 0));
    assert_eq!(w.read(|tx| tx.waits_of(&[planted.op("a")]))?, []);
    let pass = wake_listed(w, &listed)?;
    assert_eq!(pass.iter().map(|op| &op.workflow).collect::<Vec<_>>(), [&other.id], "what was canceled is not woken, the rest is");
    assert_eq!(w.status(&planted, "a")?, OpStatus::Canceled);
    Ok(())
}

fn waiting_and_waking_leave_their_events(w: &mut World) -> Outcome {
    let (planted, due_at) = waiting(w)?;
    w.clock().set(due_at)?;
    w.wake(10)?;
    let events = w.fingerprint(&planted)?.events;
    let told: Vec<_> = events
        .iter()
        .skip(1)
        .map(|row| (row.event.kind, row.event.op, row.event.fence, row.event.actor.as_deref(), row.event.at))
        .collect();
    let (op, fence) = (Some(planted.op("a")), Some(planted.lease("a").fence));
    let began = planted.claimed("a").lease.acquired_at;
    assert_eq!(told, [(EventKind::OpWaiting, op, fence, Some("w1"), began), (EventKind::OpWoken, op, fence, None, due_at)]);
    Ok(())
}

fn of_two_passes_at_once_each_op_is_woken_by_one(w: &mut World) -> Outcome {
    for _ in 0..ROUNDS {
        let (planted, due_at) = waiting(w)?;
        w.clock().set(due_at)?;
        let (first, second) = at_once(|| woken(w, 10), || woken(w, 10))?;
        assert_eq!(first.len() + second.len(), 1);
        assert_eq!(w.status(&planted, "a")?, OpStatus::Ready);
        w.drain("w1")?;
    }
    Ok(())
}

fn of_a_cancel_and_a_wake_up_all_agree(w: &mut World) -> Outcome {
    for _ in 0..ROUNDS {
        let (planted, due_at) = waiting(w)?;
        w.clock().set(due_at)?;
        let (canceled, _) = at_once(|| Ok(w.cancel(&planted)?), || woken(w, 10))?;
        assert_eq!(canceled.ops, 1, "waiting or ready, it is canceled");
        assert_eq!(w.status(&planted, "a")?, OpStatus::Canceled);
        assert_eq!(woken(w, 10)?, [""; 0]);
        assert_eq!(w.claim("w1", 1)?.len(), 0);
    }
    Ok(())
}

fn a_wait_and_what_was_woken_survive_a_restart(w: &mut World) -> Outcome {
    let (planted, due_at) = waiting(w)?;
    w.restart()?;
    assert_eq!(w.view(planted.op("a"))?.wait.and_then(|wait| wait.due_at), Some(due_at), "a restart does not move it");
    w.clock().set(due_at)?;
    assert_eq!(woken(w, 10)?, ["a"]);
    w.restart()?;
    assert_eq!(woken(w, 10)?, [""; 0], "what has fired stays fired");
    assert_eq!(w.status(&planted, "a")?, OpStatus::Ready);
    assert_eq!(w.read(|tx| tx.wakes_of(&[planted.op("a")]))?.len(), 1);
    Ok(())
}
