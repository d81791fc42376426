//! Repairing what failed (S5, L12).

use crate::case::cases;
use crate::scenario::{LEASE, name};
use crate::verbs::failure;
use crate::{Outcome, Planted, Scenario, World};
use leasehold_core::model::{Fence, RequestId, RetryPolicy};
use leasehold_core::state::OpStatus::{self, Blocked, Canceled, Failed, Pending, Ready, Succeeded};
use leasehold_core::state::WorkflowStatus;
use leasehold_core::transitions::{Actor, Ended, RetryOps, RetryTarget, TransitionError};

cases! {
    a_retried_op_is_ready_at_once proves ["S5"];
    what_a_failure_blocked_reopens_to_the_fixed_point proves ["S5", "S2"];
    succeeded_siblings_are_not_touched proves ["S5"];
    a_retry_renews_the_budget_and_the_numbers_go_on proves ["S5", "L6"];
    only_a_failed_op_is_retried proves ["S5", "S1"];
    an_op_that_waits_for_its_next_attempt_is_not_retried proves ["S5"];
    a_canceled_workflow_is_never_retried proves ["S5", "S2"];
    retrying_a_workflow_retries_every_failed_op proves ["S5"];
    retrying_a_workflow_without_failures_is_refused proves ["S5"];
    a_repeated_retry_gets_its_first_answer proves ["L12", "S5"];
    a_request_id_is_good_for_one_question proves ["L12"];
    retrying_what_is_not_there_is_refused proves ["S5"];
    a_repair_may_fail_again proves ["S5", "S2"];
}

fn a_retried_op_is_ready_at_once(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").failed().build(w)?;
    w.clock().advance(LEASE)?;
    assert_eq!(w.retry_op(&planted, "a")?, ["a"]);
    let view = w.view(planted.op("a"))?;
    assert_eq!((view.status, view.due_at, view.finished_at, view.lease), (Ready, Some(w.now()), None, None));
    assert_eq!(w.workflow(&planted.id)?.status, WorkflowStatus::Running);
    w.complete_one(&w.claim_one("w1")?, "1")?;
    assert_eq!(w.workflow(&planted.id)?.status, WorkflowStatus::Succeeded);
    Ok(())
}

fn what_a_failure_blocked_reopens_to_the_fixed_point(w: &mut World) -> Outcome {
    let mut scenario = Scenario::new().op("0").failed();
    for at in 1..40 {
        scenario = scenario.op(&at.to_string()).after(&[&(at - 1).to_string()]);
    }
    let planted = scenario.build(w)?;
    let of = |status: OpStatus| -> Result<usize, leasehold_core::store::BoxError> {
        Ok(w.all_ops(planted.workflow)?.iter().filter(|op| op.status == status).count())
    };
    assert_eq!((of(Blocked)?, of(Failed)?), (39, 1));
    w.retry_op(&planted, "0")?;
    assert_eq!((of(Pending)?, of(Ready)?), (39, 1), "in the same transaction");
    assert_eq!(w.drain("w1")?, 40);
    Ok(())
}

fn succeeded_siblings_are_not_touched(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("good").succeeded().op("bad").failed().op("join").after(&["good", "bad"]).build(w)?;
    let before = w.view(planted.op("good"))?;
    w.retry_op(&planted, "bad")?;
    assert_eq!(w.view(planted.op("good"))?, before);
    assert_eq!(w.drain("w1")?, 2, "the sibling does not run again");
    Ok(())
}

fn a_retry_renews_the_budget_and_the_numbers_go_on(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").retry(RetryPolicy::default().attempts(2)).build(w)?;
    for round in 0..2 {
        for attempt in 1..=2 {
            let claimed = w.claim_one("w1")?;
            assert_eq!((claimed.lease.key.fence, claimed.failures), (Fence(round * 2 + attempt), u32::from(attempt == 2)));
            match w.finish_one(failure(&claimed))? {
                Ended::Retried { due_at } if attempt == 1 => w.clock().set(due_at)?,
                Ended::Failed { .. } if attempt == 2 => {}
                other => panic!("attempt {attempt} of round {round} got {other:?}"),
            }
        }
        w.retry_op(&planted, "a")?;
    }
    let attempts = w.read(|tx| tx.attempts(planted.op("a"), Fence::NONE, 10))?;
    assert_eq!(attempts.len(), 4, "what was stays in the ledger");
    Ok(())
}

/// Refuses to retry `op`, which stands at `status`, and changes nothing.
fn refused(w: &World, planted: &Planted, op: &str, status: OpStatus) -> Outcome {
    let before = w.fingerprint(planted)?;
    match w.retry_op(planted, op) {
        Err(TransitionError::OpStatus { op: named, status: found, .. }) => assert_eq!((named, found), (name(op), status)),
        other => panic!("retrying a {status} op got {other:?}"),
    }
    assert_eq!(w.fingerprint(planted)?, before);
    Ok(())
}

fn only_a_failed_op_is_retried(w: &mut World) -> Outcome {
    let planted = Scenario::new()
        .op("ready")
        .op("running")
        .leased_by("w1")
        .op("done")
        .succeeded()
        .op("pending")
        .after(&["ready"])
        .op("bad")
        .failed()
        .op("blocked")
        .after(&["bad"])
        .build(w)?;
    for (op, status) in [("ready", Ready), ("running", OpStatus::Running), ("done", Succeeded), ("pending", Pending), ("blocked", Blocked)]
    {
        refused(w, &planted, op, status)?;
    }
    w.retry_op(&planted, "bad")?;
    refused(w, &planted, "bad", Ready)
}

fn an_op_that_waits_for_its_next_attempt_is_not_retried(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
    w.finish_one(failure(&planted.claimed("a")))?;
    refused(w, &planted, "a", Ready)
}

fn a_canceled_workflow_is_never_retried(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("bad").failed().op("down").after(&["bad"]).op("open").build(w)?;
    w.cancel(&planted)?;
    let before = w.fingerprint(&planted)?;
    for target in [RetryTarget::Op(name("bad")), RetryTarget::Op(name("open")), RetryTarget::AllFailed] {
        let outcome = w.retry(&planted, target);
        assert!(matches!(outcome, Err(TransitionError::WorkflowStatus { status: WorkflowStatus::Canceled, .. })), "{outcome:?}");
    }
    assert_eq!(w.fingerprint(&planted)?, before);
    assert_eq!(w.statuses(&planted, &["bad", "down", "open"])?, [Failed, Canceled, Canceled]);
    Ok(())
}

fn retrying_a_workflow_retries_every_failed_op(w: &mut World) -> Outcome {
    let planted = Scenario::new()
        .op("a")
        .failed()
        .op("b")
        .failed()
        .op("good")
        .succeeded()
        .op("x")
        .after(&["a", "b", "good"])
        .op("y")
        .after(&["x"])
        .build(w)?;
    let mut retried = w.retry(&planted, RetryTarget::AllFailed)?;
    retried.sort();
    assert_eq!(retried, ["a", "b"]);
    assert_eq!(w.statuses(&planted, &["a", "b", "good", "x", "y"])?, [Ready, Ready, Succeeded, Pending, Pending]);
    assert_eq!(w.drain("w1")?, 4);
    Ok(())
}

fn retrying_a_workflow_without_failures_is_refused(w: &mut World) -> Outcome {
    let running = Scenario::new().op("a").build(w)?;
    let done = Scenario::new().op("d").succeeded().build(w)?;
    for (planted, status) in [(running, WorkflowStatus::Running), (done, WorkflowStatus::Succeeded)] {
        let before = w.fingerprint(&planted)?;
        match w.retry(&planted, RetryTarget::AllFailed) {
            Err(TransitionError::WorkflowStatus { status: found, .. }) => assert_eq!(found, status),
            other => panic!("a workflow without failures got {other:?}"),
        }
        assert_eq!(w.fingerprint(&planted)?, before);
    }
    Ok(())
}

fn call(planted: &Planted, request: RequestId, target: RetryTarget) -> RetryOps {
    RetryOps { request, actor: Actor::new("ann"), workflow: planted.id.clone(), target }
}

fn a_repeated_retry_gets_its_first_answer(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").failed().build(w)?;
    let call = call(&planted, RequestId::random(), RetryTarget::Op(name("a")));
    let first = w.retry_with(&call)?;
    let before = w.fingerprint(&planted)?;
    assert_eq!(w.retry_with(&call)?, first);
    assert_eq!(w.fingerprint(&planted)?, before);
    let claimed = w.claim_one("w1")?;
    w.fail_for_good(&claimed)?;
    assert_eq!(w.retry_with(&call)?, first, "the first answer, and no second retry");
    assert_eq!(w.status(&planted, "a")?, Failed);
    Ok(())
}

fn a_request_id_is_good_for_one_question(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").failed().op("b").failed().build(w)?;
    let other = Scenario::new().op("c").failed().build(w)?;
    let request = RequestId::random();
    w.retry_with(&call(&planted, request, RetryTarget::Op(name("a"))))?;
    let before = w.fingerprint(&planted)?;
    for call in [
        call(&planted, request, RetryTarget::Op(name("b"))),
        call(&planted, request, RetryTarget::AllFailed),
        call(&other, request, RetryTarget::Op(name("c"))),
    ] {
        let outcome = w.retry_with(&call);
        assert!(matches!(&outcome, Err(TransitionError::RequestReused(id)) if *id == request), "{outcome:?}");
    }
    assert_eq!(w.fingerprint(&planted)?, before);
    assert_eq!(w.status(&other, "c")?, Failed);
    Ok(())
}

fn retrying_what_is_not_there_is_refused(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").failed().build(w)?;
    let outcome = w.retry_op(&planted, "nowhere");
    assert!(matches!(&outcome, Err(TransitionError::NoOp { op, .. }) if op.as_str() == "nowhere"), "{outcome:?}");
    let nowhere = RetryOps { workflow: name("nowhere"), ..call(&planted, RequestId::random(), RetryTarget::AllFailed) };
    let outcome = w.retry_with(&nowhere);
    assert!(matches!(&outcome, Err(TransitionError::NoWorkflow(id)) if id.as_str() == "nowhere"), "{outcome:?}");
    Ok(())
}

fn a_repair_may_fail_again(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").failed().op("b").after(&["a"]).op("c").after(&["b"]).build(w)?;
    for _ in 0..3 {
        w.retry_op(&planted, "a")?;
        assert_eq!(w.statuses(&planted, &["a", "b", "c"])?, [Ready, Pending, Pending]);
        let claimed = w.claim_one("w1")?;
        w.fail_for_good(&claimed)?;
        assert_eq!(w.statuses(&planted, &["a", "b", "c"])?, [Failed, Blocked, Blocked]);
    }
    Ok(())
}
