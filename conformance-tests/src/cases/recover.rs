//! Taking expired leases back (L7, L8).

use crate::case::cases;
use crate::scenario::{LEASE, microseconds, name};
use crate::verbs::failure;
use crate::world::transact;
use crate::{Outcome, Planted, Scenario, World};
use leasehold_core::model::{Fence, OpError, RetryPolicy};
use leasehold_core::state::OpStatus;
use leasehold_core::store::rows::AttemptOutcome;
use leasehold_core::store::{BoxError, TxKind};
use leasehold_core::transitions::{BatchLimit, Ended, recover_leases};
use std::collections::BTreeSet;

cases! {
    a_lease_is_recovered_at_its_expiry_and_not_before proves ["L7", "T5"];
    a_recovered_op_is_ready_at_once proves ["L8"];
    a_recovery_is_bounded_and_the_rest_stays_for_the_next proves ["L7"];
    a_batch_of_nothing_is_refused_and_never_clamped proves ["L7"];
    the_longest_expired_is_recovered_first proves ["L7"];
    a_heartbeat_between_listing_and_taking_wins proves ["L7"];
    a_completion_between_listing_and_taking_wins proves ["L7"];
    a_lease_that_was_replaced_since_it_was_listed_is_left_alone proves ["L7", "L6"];
    a_recovery_counts_a_loss_and_no_failure proves ["L8"];
    the_last_loss_fails_the_op_with_worker_lost proves ["L8"];
    a_restart_never_costs_a_one_attempt_op proves ["L8"];
    an_abandoned_attempt_is_in_the_ledger proves ["L9"];
    a_recovery_gives_the_slot_of_its_queue_back proves ["L8", "Q1"];
    recovering_twice_changes_nothing_more proves ["L7", "L12"];
    what_expired_before_a_restart_is_recovered_after_it proves ["L7", "L15"] needs [Restart];
}

/// `count` ops leased one microsecond after the other.
fn leased(w: &World, count: usize) -> Result<Planted, BoxError> {
    let planted = Scenario::new().ops("a", count).build(w)?;
    for _ in 0..count {
        w.claim_one("w1")?;
        w.clock().advance(microseconds(1))?;
    }
    Ok(planted)
}

fn recovered(w: &World, limit: i64) -> Result<Vec<String>, BoxError> {
    Ok(w.recover(limit)?.ops.iter().map(|op| op.op.to_string()).collect())
}

fn a_lease_is_recovered_at_its_expiry_and_not_before(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
    w.clock().advance(microseconds(LEASE.get() - 1))?;
    assert_eq!(recovered(w, 10)?, [""; 0]);
    assert_eq!(w.status(&planted, "a")?, OpStatus::Running);
    w.clock().advance(microseconds(1))?;
    let pass = w.recover(10)?;
    let [op] = pass.ops.as_slice() else { panic!("one lease is expired: {pass:?}") };
    assert_eq!((&op.workflow, op.op.as_str(), op.lease, op.status), (&planted.id, "a", planted.lease("a"), OpStatus::Ready));
    Ok(())
}

fn a_recovered_op_is_ready_at_once(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").op("b").after(&["a"]).build(w)?;
    w.clock().advance(LEASE)?;
    w.recover(10)?;
    let view = w.view(planted.op("a"))?;
    assert_eq!((view.status, view.due_at), (OpStatus::Ready, Some(w.now())), "without back-off");
    assert_eq!(w.status(&planted, "b")?, OpStatus::Pending, "a lost worker moves no child");
    let again = w.claim_one("w2")?;
    assert_eq!(again.lease.key.fence, planted.lease("a").fence.next());
    assert_ne!(again.lease.key.token, planted.lease("a").token);
    Ok(())
}

fn a_recovery_is_bounded_and_the_rest_stays_for_the_next(w: &mut World) -> Outcome {
    leased(w, 7)?;
    w.clock().advance(LEASE)?;
    let mut all = BTreeSet::new();
    for expected in [3, 3, 1, 0] {
        let pass = recovered(w, 3)?;
        assert_eq!(pass.len(), expected);
        all.extend(pass);
    }
    assert_eq!(all.len(), 7, "each once");
    Ok(())
}

fn a_batch_of_nothing_is_refused_and_never_clamped(w: &mut World) -> Outcome {
    for limit in [0, -1, i64::MIN, i64::MAX] {
        assert!(BatchLimit::new(limit).is_err(), "{limit}");
    }
    assert_eq!(BatchLimit::DEFAULT.get(), 100);
    leased(w, 120)?;
    w.clock().advance(LEASE)?;
    assert_eq!(recovered(w, 1)?.len(), 1);
    assert_eq!(recovered(w, 110)?.len(), 110, "a limit above the default is taken as it is");
    Ok(())
}

fn the_longest_expired_is_recovered_first(w: &mut World) -> Outcome {
    leased(w, 5)?;
    w.clock().advance(LEASE)?;
    let mut pass = recovered(w, 2)?;
    pass.sort();
    assert_eq!(pass, ["a0", "a1"]);
    Ok(())
}

/// What happens between the listing of an expired lease and its taking decides.
fn recover_what_was_listed(w: &World, between: impl Fn() -> Outcome) -> Result<usize, BoxError> {
    w.clock().advance(LEASE)?;
    let listed = w.read(|tx| tx.expired_leases(10))?;
    assert_eq!(listed.len(), 1);
    // The clock of a host may be behind the one that listed it.
    w.clock().go_back(microseconds(1))?;
    between()?;
    w.clock().advance(microseconds(1))?;
    let pass = transact(w.store().as_ref(), TxKind::Maintenance, |tx| recover_leases(tx, &listed))?;
    Ok(pass.ops.len())
}

fn a_heartbeat_between_listing_and_taking_wins(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
    let count = recover_what_was_listed(w, || {
        w.heartbeat(&[planted.lease("a")])?;
        Ok(())
    })?;
    assert_eq!(count, 0);
    w.complete_one(&planted.claimed("a"), "1")?;
    Ok(())
}

fn a_completion_between_listing_and_taking_wins(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").op("b").after(&["a"]).build(w)?;
    let count = recover_what_was_listed(w, || w.complete_one(&planted.claimed("a"), "1"))?;
    assert_eq!(count, 0);
    assert_eq!(w.statuses(&planted, &["a", "b"])?, [OpStatus::Succeeded, OpStatus::Ready]);
    Ok(())
}

fn a_lease_that_was_replaced_since_it_was_listed_is_left_alone(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
    w.clock().advance(LEASE)?;
    let listed = w.read(|tx| tx.expired_leases(10))?;
    w.recover(10)?;
    let next = w.claim_one("w2")?;
    w.clock().advance(LEASE)?;
    let pass = transact(w.store().as_ref(), TxKind::Maintenance, |tx| recover_leases(tx, &listed))?;
    assert_eq!(pass.ops, [], "the listed lease is not the one that is expired now");
    assert_eq!(w.stored_lease(next.lease.key)?, Some(next.lease.clone()));
    assert_eq!(w.view(planted.op("a"))?.state.losses, 1);
    Ok(())
}

fn a_recovery_counts_a_loss_and_no_failure(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").retry(RetryPolicy::default().attempts(2)).build(w)?;
    let first = w.claim_one("w1")?;
    let Ended::Retried { due_at } = w.finish_one(failure(&first))? else { panic!("an attempt is left") };
    w.clock().set(due_at)?;
    for losses in 1..=3 {
        w.claim_one("w1")?;
        w.clock().advance(LEASE)?;
        w.recover(10)?;
        let state = w.view(planted.op("a"))?.state;
        assert_eq!((state.failures, state.losses), (1, losses), "the classes never mix");
    }
    let last = w.claim_one("w1")?;
    assert_eq!(last.failures, 1, "the handler is told of failures, not of losses");
    assert!(matches!(w.finish_one(failure(&last))?, Ended::Failed { .. }), "the second failure is the last");
    Ok(())
}

fn the_last_loss_fails_the_op_with_worker_lost(w: &mut World) -> Outcome {
    let retry = RetryPolicy { max_lost: 3, ..RetryPolicy::default() };
    let planted = Scenario::new().op("a").retry(retry).op("b").after(&["a"]).op("c").after_settled(&["a"]).build(w)?;
    for loss in 1..=3 {
        w.claim_kind("w1", "a", 1)?;
        w.clock().advance(LEASE)?;
        let pass = w.recover(10)?;
        assert_eq!(pass.ops.iter().map(|op| op.status == OpStatus::Failed).collect::<Vec<_>>(), [loss == 3]);
    }
    assert_eq!(w.statuses(&planted, &["a", "b", "c"])?, [OpStatus::Failed, OpStatus::Blocked, OpStatus::Ready]);
    let view = w.view(planted.op("a"))?;
    assert_eq!(view.error.map(|error| error.code), Some(OpError::WORKER_LOST.to_owned()));
    w.retry_op(&planted, "a")?;
    assert_eq!(w.view(planted.op("a"))?.state.losses, 0, "a retry renews the budget");
    assert_eq!(w.drain("w1")?, 3);
    Ok(())
}

fn a_restart_never_costs_a_one_attempt_op(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").retry(RetryPolicy::once()).leased_by("w1").build(w)?;
    w.clock().advance(LEASE)?;
    w.recover(10)?;
    assert_eq!(w.status(&planted, "a")?, OpStatus::Ready);
    w.complete_one(&w.claim_one("w2")?, "1")?;
    Ok(())
}

fn an_abandoned_attempt_is_in_the_ledger(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
    w.clock().advance(LEASE)?;
    w.clock().advance(LEASE)?;
    w.recover(10)?;
    let attempts = w.read(|tx| tx.attempts(planted.op("a"), Fence::NONE, 10))?;
    let [attempt] = attempts.as_slice() else { panic!("there was one attempt: {attempts:?}") };
    assert_eq!((attempt.key, attempt.outcome, &attempt.result), (planted.lease("a"), AttemptOutcome::Abandoned, &None));
    assert_eq!((&attempt.worker, attempt.ended_at), (&name("w1"), w.now()));
    Ok(())
}

fn a_recovery_gives_the_slot_of_its_queue_back(w: &mut World) -> Outcome {
    w.set_policies(&[crate::verbs::limit("q", 1)])?;
    Scenario::new().op("a").queue("q").leased_by("w1").op("b").queue("q").priority(1).build(w)?;
    w.clock().advance(LEASE)?;
    assert_eq!(w.claim("w2", 10)?, [], "an expired lease holds its slot until it is recovered");
    w.recover(10)?;
    assert_eq!(w.claim("w2", 10)?.len(), 1);
    Ok(())
}

fn recovering_twice_changes_nothing_more(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
    w.clock().advance(LEASE)?;
    w.recover(10)?;
    let before = w.fingerprint(&planted)?;
    assert_eq!(recovered(w, 10)?, [""; 0]);
    assert_eq!(w.fingerprint(&planted)?, before);
    Ok(())
}

fn what_expired_before_a_restart_is_recovered_after_it(w: &mut World) -> Outcome {
    leased(w, 5)?;
    w.clock().advance(LEASE)?;
    assert_eq!(recovered(w, 2)?.len(), 2);
    w.restart()?;
    assert_eq!(recovered(w, 10)?.len(), 3, "the rest stayed durable");
    assert_eq!(w.drain("w2")?, 5);
    Ok(())
}
