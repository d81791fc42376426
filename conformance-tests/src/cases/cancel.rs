//! Canceling workflows (S6).

use crate::case::cases;
use crate::scenario::{LEASE, name};
use crate::verbs::{completion, failure, giving_back};
use crate::{Outcome, Planted, Scenario, World};
use leasehold_core::model::{Fence, RequestId};
use leasehold_core::state::OpStatus::{self, Canceled, Failed, Succeeded};
use leasehold_core::state::WorkflowStatus;
use leasehold_core::store::rows::AttemptOutcome;
use leasehold_core::transitions::{Actor, CancelWorkflow, Ended, HeartbeatOutcome, TransitionError};

cases! {
    a_cancel_stops_everything_that_could_move proves ["S6"];
    a_cancel_keeps_what_has_ended proves ["S6", "S2"];
    a_cancel_revokes_leases_and_ends_their_attempts proves ["S6", "L9"];
    nothing_of_a_canceled_workflow_is_claimed_recovered_or_promoted proves ["S6"];
    a_failed_workflow_can_be_canceled proves ["S8"];
    a_succeeded_workflow_cannot_be_canceled proves ["S8"];
    canceling_twice_changes_nothing_more proves ["S6", "L12"];
    a_repeated_cancel_gets_its_first_answer proves ["L12"];
    canceling_what_is_not_there_is_refused proves ["S6"];
    a_cancel_leaves_other_workflows_alone proves ["S6"];
    a_cancel_gives_the_slots_of_its_queues_back proves ["S6", "Q1"];
}

/// A workflow with an op in every status there is without waiting.
fn every_status(w: &World) -> Result<Planted, leasehold_core::store::BoxError> {
    let planted = Scenario::new()
        .op("ready")
        .op("run")
        .leased_by("w1")
        .op("later")
        .leased_by("w1")
        .op("done")
        .succeeded()
        .op("bad")
        .failed()
        .op("pending")
        .after(&["ready"])
        .op("blocked")
        .after(&["bad"])
        .build(w)?;
    assert!(matches!(w.finish_one(failure(&planted.claimed("later")))?, Ended::Retried { .. }));
    Ok(planted)
}

fn a_cancel_stops_everything_that_could_move(w: &mut World) -> Outcome {
    let planted = every_status(w)?;
    let answer = w.cancel(&planted)?;
    assert_eq!((answer.ops, answer.running), (5, 1));
    let stopped = ["ready", "run", "later", "pending", "blocked"];
    assert!(w.statuses(&planted, &stopped)?.iter().all(|status| *status == Canceled));
    for op in stopped {
        let view = w.view(planted.op(op))?;
        assert_eq!((view.lease, view.due_at, view.finished_at), (None, None, Some(w.now())), "{op}");
    }
    let row = w.workflow(&planted.id)?;
    assert_eq!((row.status, row.cancel_requested, row.finished_at), (WorkflowStatus::Canceled, true, Some(w.now())));
    Ok(())
}

fn a_cancel_keeps_what_has_ended(w: &mut World) -> Outcome {
    let planted = every_status(w)?;
    let before = (w.view(planted.op("done"))?, w.view(planted.op("bad"))?);
    w.cancel(&planted)?;
    assert_eq!(w.statuses(&planted, &["done", "bad"])?, [Succeeded, Failed]);
    assert_eq!((w.view(planted.op("done"))?, w.view(planted.op("bad"))?), before);
    Ok(())
}

fn a_cancel_revokes_leases_and_ends_their_attempts(w: &mut World) -> Outcome {
    let planted = every_status(w)?;
    let claimed = planted.claimed("run");
    w.cancel(&planted)?;
    let attempts = w.read(|tx| tx.attempts(planted.op("run"), Fence::NONE, 10))?;
    assert_eq!(attempts.iter().map(|a| (a.key, a.outcome)).collect::<Vec<_>>(), [(claimed.lease.key, AttemptOutcome::Canceled)]);
    let before = w.fingerprint(&planted)?;
    assert_eq!(w.heartbeat(&[claimed.lease.key])?, [HeartbeatOutcome::Lost], "the worker is told on its next heartbeat");
    for item in [completion(&claimed, "1"), failure(&claimed), giving_back(&claimed)] {
        assert_eq!(w.finish_one(item)?, Ended::LeaseLost);
    }
    assert_eq!(w.fingerprint(&planted)?, before);
    Ok(())
}

fn nothing_of_a_canceled_workflow_is_claimed_recovered_or_promoted(w: &mut World) -> Outcome {
    let planted = every_status(w)?;
    w.cancel(&planted)?;
    for _ in 0..20 {
        w.clock().advance(LEASE)?;
    }
    assert_eq!(w.claim("w1", 100)?, []);
    assert_eq!(w.recover(100)?.ops, []);
    assert_eq!(w.tx(|tx| tx.promote(100))?, 0);
    Ok(())
}

fn a_failed_workflow_can_be_canceled(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("bad").failed().op("down").after(&["bad"]).build(w)?;
    assert_eq!(w.workflow(&planted.id)?.status, WorkflowStatus::Failed);
    assert_eq!(w.cancel(&planted)?.ops, 1);
    assert_eq!(w.statuses(&planted, &["bad", "down"])?, [Failed, Canceled]);
    assert_eq!(w.workflow(&planted.id)?.status, WorkflowStatus::Canceled, "an explicit cancel is final");
    Ok(())
}

fn a_succeeded_workflow_cannot_be_canceled(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").succeeded().build(w)?;
    let before = w.fingerprint(&planted)?;
    let outcome = w.cancel(&planted);
    assert!(matches!(outcome, Err(TransitionError::WorkflowStatus { status: WorkflowStatus::Succeeded, .. })), "{outcome:?}");
    assert_eq!(w.fingerprint(&planted)?, before);
    Ok(())
}

fn canceling_twice_changes_nothing_more(w: &mut World) -> Outcome {
    let planted = every_status(w)?;
    w.cancel(&planted)?;
    let before = w.fingerprint(&planted)?;
    w.clock().advance(LEASE)?;
    let again = w.cancel(&planted)?;
    assert_eq!((again.ops, again.running), (0, 0));
    assert_eq!(w.fingerprint(&planted)?, before);
    Ok(())
}

fn a_repeated_cancel_gets_its_first_answer(w: &mut World) -> Outcome {
    let planted = every_status(w)?;
    let call = CancelWorkflow { request: RequestId::random(), actor: Actor::new("ann"), workflow: planted.id.clone() };
    let first = w.cancel_with(&call)?;
    let before = w.fingerprint(&planted)?;
    let again = w.cancel_with(&call)?;
    assert_eq!((again.ops, again.running), (first.ops, first.running));
    assert_eq!(again.notices, [], "nobody hears of it twice");
    assert_eq!(w.fingerprint(&planted)?, before);
    let other = Scenario::new().op("a").build(w)?;
    let outcome = w.cancel_with(&CancelWorkflow { workflow: other.id.clone(), ..call.clone() });
    assert!(matches!(outcome, Err(TransitionError::RequestReused(id)) if id == call.request), "{outcome:?}");
    Ok(())
}

fn canceling_what_is_not_there_is_refused(w: &mut World) -> Outcome {
    let call = CancelWorkflow { request: RequestId::random(), actor: Actor::new("ann"), workflow: name("nowhere") };
    let outcome = w.cancel_with(&call);
    assert!(matches!(&outcome, Err(TransitionError::NoWorkflow(id)) if id.as_str() == "nowhere"), "{outcome:?}");
    assert_eq!(w.read(|tx| tx.act(call.request))?, None, "what was refused was not done");
    Ok(())
}

fn a_cancel_leaves_other_workflows_alone(w: &mut World) -> Outcome {
    let kept = every_status(w)?;
    w.clock().advance(leasehold_core::model::Micros::from_secs(1))?;
    let gone = Scenario::new().op("x").leased_by("w1").op("y").build(w)?;
    let before = w.fingerprint(&kept)?;
    w.cancel(&gone)?;
    assert_eq!(w.fingerprint(&kept)?, before);
    assert_eq!(w.status(&kept, "run")?, OpStatus::Running);
    Ok(())
}

fn a_cancel_gives_the_slots_of_its_queues_back(w: &mut World) -> Outcome {
    w.set_policies(&[crate::verbs::limit("q", 1)])?;
    let gone = Scenario::new().op("a").queue("q").leased_by("w1").build(w)?;
    Scenario::new().op("b").queue("q").build(w)?;
    assert_eq!(w.claim("w1", 10)?, []);
    w.cancel(&gone)?;
    assert_eq!(w.claim("w1", 10)?.len(), 1);
    Ok(())
}
