//! Ops whose effect must not be repeated: dispatch, unknown outcomes and verdicts (L9, L16, S11).

use super::race::at_once;
use crate::case::cases;
use crate::scenario::{LEASE, json, microseconds};
use crate::verbs::{abandonment, completion, failure, giving_back, settling, suspension};
use crate::{Outcome, Planted, Scenario, World};
use leasehold_core::model::{Fence, OpError, RetryPolicy};
use leasehold_core::state::{OpStatus, WorkflowStatus};
use leasehold_core::store::BoxError;
use leasehold_core::store::rows::{Attempt, AttemptOutcome, EventKind, WaitReason};
use leasehold_core::transitions::{Actor, DispatchOutcome, Ended, OpVerdict, SettleOp, TransitionError, Until};

cases! {
    a_dispatched_op_whose_worker_is_lost_waits_for_a_verdict proves ["L9", "L16"];
    an_op_that_was_not_dispatched_is_released_without_a_loss proves ["L16", "L8"];
    an_op_that_may_be_repeated_is_ready_again_although_it_was_dispatched proves ["L8", "L9"];
    the_outcome_is_asked_for_also_behind_the_last_attempt proves ["L9"];
    an_attempt_without_an_answer_is_abandoned_and_keeps_what_happened proves ["L9"];
    a_release_behind_the_dispatch_is_an_unknown_outcome proves ["L15", "L16"];
    an_answer_of_the_handler_is_known_whatever_it_is proves ["L9"];
    dispatching_twice_keeps_the_first_instant proves ["L12", "L16"];
    a_repeated_abandonment_gets_its_first_answer proves ["L12", "L9"];
    a_verdict_to_retry_makes_the_op_ready_with_a_new_budget proves ["L9", "S11"];
    a_verdict_with_a_result_succeeds_the_op_and_frees_its_children proves ["L9", "S11"];
    a_verdict_of_failure_fails_the_op_and_blocks_its_children proves ["L9", "S11"];
    a_verdict_on_another_attempt_is_a_conflict proves ["L9", "S11"];
    a_repeated_verdict_gets_its_first_answer proves ["L12", "S11"];
    only_an_op_that_waits_for_a_verdict_is_settled proves ["S1", "S11"];
    an_op_that_waits_for_a_verdict_can_be_retried_and_a_workflow_retry_leaves_it proves ["S5", "L9"];
    a_cancel_behind_the_dispatch_leaves_the_attempt_abandoned proves ["L9", "S6"];
    waits_for_a_verdict_are_listed_page_by_page_and_never_woken proves ["L9", "W2"];
    unknown_outcomes_and_verdicts_leave_their_events proves ["O2", "O4", "P8"];
    of_two_verdicts_at_once_one_counts proves ["L9", "S11"];
    an_unknown_outcome_survives_a_restart proves ["L9", "L16"] needs [Restart];
}

/// How often each pair of calls meets.
const ROUNDS: usize = 25;

/// `a`, whose effect must not be repeated, leased and dispatched; `b` requires it and `c` waits for it.
fn dispatched(w: &World, retry: RetryPolicy) -> Result<Planted, BoxError> {
    let scenario = Scenario::new().op("a").retry(retry).effect_once().leased_by("w1").op("b").after(&["a"]).op("c").after_settled(&["a"]);
    let planted = scenario.build(w)?;
    assert_eq!(w.dispatch(&[planted.lease("a")])?, [DispatchOutcome::Dispatched]);
    Ok(planted)
}

/// The same, once its worker is lost.
fn unknown(w: &World) -> Result<Planted, BoxError> {
    let planted = dispatched(w, RetryPolicy::default())?;
    w.clock().advance(LEASE)?;
    assert_eq!(w.recover(10)?.ops.len(), 1);
    Ok(planted)
}

fn attempts(w: &World, of: &Planted) -> Result<Vec<Attempt>, BoxError> {
    Ok(w.read(|tx| tx.attempts(of.op("a"), Fence::NONE, 10))?)
}

fn succeed(result: &str) -> OpVerdict {
    OpVerdict::Succeed { result: json(result) }
}

fn a_dispatched_op_whose_worker_is_lost_waits_for_a_verdict(w: &mut World) -> Outcome {
    let planted = dispatched(w, RetryPolicy::default())?;
    w.clock().advance(LEASE)?;
    let pass = w.recover(10)?;
    assert_eq!(pass.ops.iter().map(|op| op.status).collect::<Vec<_>>(), [OpStatus::Waiting]);
    let view = w.view(planted.op("a"))?;
    let wait = view.wait.ok_or("the op shows no wait")?;
    assert_eq!((view.status, wait.reason, wait.key.fence), (OpStatus::Waiting, WaitReason::Verdict, planted.lease("a").fence));
    assert_eq!((wait.since, wait.due_at), (w.now(), None));
    assert_eq!(view.error.map(|error| error.code), Some(OpError::WORKER_LOST.to_owned()));
    assert_eq!(attempts(w, &planted)?.iter().map(|line| line.outcome).collect::<Vec<_>>(), [AttemptOutcome::Abandoned]);
    assert_eq!(w.statuses(&planted, &["b", "c"])?, [OpStatus::Pending, OpStatus::Pending], "its children wait with it");
    assert_eq!(w.claim("w2", 10)?.len(), 0, "nobody runs it again");
    assert_eq!(w.finish_one(completion(&planted.claimed("a"), "1"))?, Ended::LeaseLost, "and the lost worker can say nothing any more");
    Ok(())
}

fn an_op_that_was_not_dispatched_is_released_without_a_loss(w: &mut World) -> Outcome {
    let retry = RetryPolicy { max_attempts: 1, max_lost: 1, ..RetryPolicy::default() };
    let planted = Scenario::new().op("a").retry(retry).effect_once().leased_by("w1").build(w)?;
    w.clock().advance(LEASE)?;
    assert_eq!(w.recover(10)?.ops.iter().map(|op| op.status).collect::<Vec<_>>(), [OpStatus::Ready]);
    let state = w.view(planted.op("a"))?.state;
    assert_eq!((state.failures, state.losses), (0, 0), "nothing of it ever began");
    assert_eq!(attempts(w, &planted)?.iter().map(|line| line.outcome).collect::<Vec<_>>(), [AttemptOutcome::Released]);
    assert_eq!(w.claim_one("w2")?.lease.dispatched_at, None, "the next lease is not dispatched either");
    Ok(())
}

fn an_op_that_may_be_repeated_is_ready_again_although_it_was_dispatched(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
    w.dispatch(&[planted.lease("a")])?;
    w.clock().advance(LEASE)?;
    w.recover(10)?;
    let view = w.view(planted.op("a"))?;
    assert_eq!((view.status, view.state.losses), (OpStatus::Ready, 1));
    Ok(())
}

fn the_outcome_is_asked_for_also_behind_the_last_attempt(w: &mut World) -> Outcome {
    let planted = dispatched(w, RetryPolicy { max_attempts: 1, max_lost: 1, ..RetryPolicy::default() })?;
    w.clock().advance(LEASE)?;
    w.recover(10)?;
    assert_eq!(w.status(&planted, "a")?, OpStatus::Waiting);
    assert_eq!(w.workflow(&planted.id)?.status, WorkflowStatus::Running);
    Ok(())
}

fn an_attempt_without_an_answer_is_abandoned_and_keeps_what_happened(w: &mut World) -> Outcome {
    let planted = dispatched(w, RetryPolicy::default())?;
    let plain = Scenario::new().op("x").leased_by("w1").build(w)?;
    let undispatched = Scenario::new().op("y").effect_once().leased_by("w1").build(w)?;
    let ends = [planted.claimed("a"), plain.claimed("x"), undispatched.claimed("y")].map(|claimed| abandonment(&claimed));
    assert_eq!(w.finish(&ends)?, [Ended::Abandoned, Ended::Released, Ended::Released]);
    assert_eq!(w.status(&planted, "a")?, OpStatus::Waiting);
    let lines = attempts(w, &planted)?;
    let [line] = lines.as_slice() else { panic!("one attempt has ended: {lines:?}") };
    assert_eq!((line.outcome, line.error.as_ref().map(|error| error.code.as_str())), (AttemptOutcome::Abandoned, Some(OpError::TIMED_OUT)));
    assert_eq!(w.view(planted.op("a"))?.state.failures, 0, "what is not known is no failure");
    assert_eq!((w.status(&plain, "x")?, w.status(&undispatched, "y")?), (OpStatus::Ready, OpStatus::Ready));
    Ok(())
}

fn a_release_behind_the_dispatch_is_an_unknown_outcome(w: &mut World) -> Outcome {
    let planted = dispatched(w, RetryPolicy::default())?;
    let before = Scenario::new().op("x").effect_once().leased_by("w1").build(w)?;
    let outcomes = w.finish(&[giving_back(&planted.claimed("a")), giving_back(&before.claimed("x"))])?;
    assert_eq!(outcomes, [Ended::Abandoned, Ended::Released]);
    assert_eq!((w.status(&planted, "a")?, w.status(&before, "x")?), (OpStatus::Waiting, OpStatus::Ready));
    Ok(())
}

fn an_answer_of_the_handler_is_known_whatever_it_is(w: &mut World) -> Outcome {
    let [done, failed, waits] = [(); 3].map(|()| dispatched(w, RetryPolicy::default()));
    let (done, failed, waits) = (done?, failed?, waits?);
    let ends = [completion(&done.claimed("a"), "1"), failure(&failed.claimed("a")), suspension(&waits.claimed("a"), Until::For(LEASE))];
    let outcomes = w.finish(&ends)?;
    assert!(
        matches!(outcomes.as_slice(), [Ended::Succeeded, Ended::Retried { .. }, Ended::Suspended { .. }]),
        "as of any other op: {outcomes:?}"
    );
    assert_eq!(w.view(waits.op("a"))?.wait.map(|wait| wait.reason), Some(WaitReason::Timer));
    Ok(())
}

fn dispatching_twice_keeps_the_first_instant(w: &mut World) -> Outcome {
    let planted = dispatched(w, RetryPolicy::default())?;
    let first = w.now();
    w.clock().advance(microseconds(5))?;
    let key = planted.lease("a");
    assert_eq!(w.dispatch(&[key, key])?, [DispatchOutcome::Dispatched, DispatchOutcome::Dispatched]);
    let lease = w.stored_lease(key)?.ok_or("the lease is gone")?;
    assert_eq!((lease.dispatched_at, lease.expires_at), (Some(first), planted.claimed("a").lease.expires_at), "and it extends nothing");
    w.heartbeat(&[key])?;
    assert_eq!(w.stored_lease(key)?.and_then(|lease| lease.dispatched_at), Some(first), "a renewal takes nothing back");
    Ok(())
}

fn a_repeated_abandonment_gets_its_first_answer(w: &mut World) -> Outcome {
    let planted = dispatched(w, RetryPolicy::default())?;
    let item = abandonment(&planted.claimed("a"));
    assert_eq!(w.finish_one(item.clone())?, Ended::Abandoned);
    let before = w.fingerprint(&planted)?;
    assert_eq!(w.finish_one(item.clone())?, Ended::Abandoned);
    assert_eq!(w.fingerprint(&planted)?, before);
    assert_eq!(w.finish_one(completion(&planted.claimed("a"), "1"))?, Ended::LeaseLost, "another end is another question");
    let lost = unknown(w)?;
    assert_eq!(w.finish_one(abandonment(&lost.claimed("a")))?, Ended::LeaseLost, "what a recovery ended, its worker did not");
    Ok(())
}

fn a_verdict_to_retry_makes_the_op_ready_with_a_new_budget(w: &mut World) -> Outcome {
    let planted = unknown(w)?;
    w.clock().advance(microseconds(3))?;
    assert_eq!(w.settle(&planted, "a", planted.lease("a").fence, OpVerdict::Retry)?, OpStatus::Ready);
    let view = w.view(planted.op("a"))?;
    assert_eq!((view.status, view.wait, view.due_at), (OpStatus::Ready, None, Some(w.now())));
    assert_eq!((view.state.failures, view.state.losses), (0, 0));
    let again = w.claim_one("w2")?;
    assert_eq!(again.lease.key.fence, planted.lease("a").fence.next(), "the numbering goes on");
    w.complete_one(&again, "1")
}

fn a_verdict_with_a_result_succeeds_the_op_and_frees_its_children(w: &mut World) -> Outcome {
    let planted = unknown(w)?;
    let fence = planted.lease("a").fence;
    assert_eq!(w.settle(&planted, "a", fence, succeed("{\"paid\": 7}"))?, OpStatus::Succeeded);
    let view = w.view(planted.op("a"))?;
    assert_eq!((view.status, view.wait, view.finished_at), (OpStatus::Succeeded, None, Some(w.now())));
    assert_eq!(view.result, Some(json("{\"paid\": 7}")));
    assert_eq!(w.statuses(&planted, &["b", "c"])?, [OpStatus::Ready, OpStatus::Ready]);
    let lines = attempts(w, &planted)?;
    let told: Vec<_> = lines.iter().map(|line| (line.key.fence, line.outcome, line.worker.as_str())).collect();
    assert_eq!(told, [(fence, AttemptOutcome::Abandoned, "w1"), (fence.next(), AttemptOutcome::Succeeded, "operator")]);
    w.drain("w2")?;
    assert_eq!(w.workflow(&planted.id)?.status, WorkflowStatus::Succeeded);
    Ok(())
}

fn a_verdict_of_failure_fails_the_op_and_blocks_its_children(w: &mut World) -> Outcome {
    let planted = unknown(w)?;
    let verdict = OpVerdict::Fail { message: "it was never sent".to_owned() };
    assert_eq!(w.settle(&planted, "a", planted.lease("a").fence, verdict)?, OpStatus::Failed);
    assert_eq!(w.statuses(&planted, &["a", "b", "c"])?, [OpStatus::Failed, OpStatus::Blocked, OpStatus::Ready]);
    let error = w.view(planted.op("a"))?.error.ok_or("a failed op shows why")?;
    assert_eq!((error.code.as_str(), error.message.as_str()), (OpError::VERDICT, "it was never sent"));
    w.retry_op(&planted, "a")?;
    assert_eq!(w.statuses(&planted, &["a", "b"])?, [OpStatus::Ready, OpStatus::Pending], "and can be repaired like any failure");
    Ok(())
}

fn a_verdict_on_another_attempt_is_a_conflict(w: &mut World) -> Outcome {
    let planted = unknown(w)?;
    let stale = planted.lease("a").fence;
    w.settle(&planted, "a", stale, OpVerdict::Retry)?;
    let again = w.claim_one("w2")?;
    w.dispatch(&[again.lease.key])?;
    w.clock().advance(LEASE)?;
    w.recover(10)?;
    let before = w.fingerprint(&planted)?;
    for verdict in [OpVerdict::Retry, succeed("1"), OpVerdict::Fail { message: "no".to_owned() }] {
        match w.settle(&planted, "a", stale, verdict) {
            Err(TransitionError::OtherAttempt { given, wanted, .. }) => assert_eq!((given, wanted), (stale, again.lease.key.fence)),
            other => panic!("a verdict of a stale page was answered with {other:?}"),
        }
    }
    assert_eq!(w.fingerprint(&planted)?, before);
    Ok(())
}

fn a_repeated_verdict_gets_its_first_answer(w: &mut World) -> Outcome {
    for (verdict, status) in [
        (OpVerdict::Retry, OpStatus::Ready),
        (succeed("1"), OpStatus::Succeeded),
        (OpVerdict::Fail { message: "no".to_owned() }, OpStatus::Failed),
    ] {
        let planted = unknown(w)?;
        let call = settling(&planted, "a", planted.lease("a").fence, verdict);
        assert_eq!(w.settle_with(&call)?, status);
        let before = w.fingerprint(&planted)?;
        assert_eq!(w.settle_with(&call)?, status);
        assert_eq!(w.fingerprint(&planted)?, before);
        match w.settle_with(&SettleOp { verdict: succeed("2"), ..call }) {
            Err(TransitionError::RequestReused(_)) => {}
            other => panic!("the same request with another verdict was answered with {other:?}"),
        }
        w.cancel(&planted).ok();
    }
    Ok(())
}

fn only_an_op_that_waits_for_a_verdict_is_settled(w: &mut World) -> Outcome {
    let scenario = Scenario::new().op("done").succeeded().op("failed").failed().op("runs").leased_by("w1").op("waits").leased_by("w1");
    let planted = scenario.op("ready").op("pending").after(&["ready"]).op("blocked").after(&["failed"]).build(w)?;
    w.suspend_one(&planted.claimed("waits"), Until::For(LEASE))?;
    let canceled = Scenario::new().op("canceled").build(w)?;
    w.cancel(&canceled)?;
    let before = w.fingerprint(&planted)?;
    for (of, op, expected) in [
        (&planted, "done", OpStatus::Succeeded),
        (&planted, "failed", OpStatus::Failed),
        (&planted, "runs", OpStatus::Running),
        (&planted, "waits", OpStatus::Waiting),
        (&planted, "ready", OpStatus::Ready),
        (&planted, "pending", OpStatus::Pending),
        (&planted, "blocked", OpStatus::Blocked),
        (&canceled, "canceled", OpStatus::Canceled),
    ] {
        let fence = w.view(of.op(op))?.state.fence;
        for verdict in [OpVerdict::Retry, succeed("1"), OpVerdict::Fail { message: "no".to_owned() }] {
            match w.settle(of, op, fence, verdict) {
                Err(TransitionError::OpStatus { status, .. }) => assert_eq!(status, expected),
                other => panic!("a verdict on {op} was answered with {other:?}"),
            }
        }
    }
    assert_eq!(w.fingerprint(&planted)?, before);
    Ok(())
}

fn an_op_that_waits_for_a_verdict_can_be_retried_and_a_workflow_retry_leaves_it(w: &mut World) -> Outcome {
    let planted = unknown(w)?;
    w.add(&planted, &Scenario::new().op("bad"))?;
    w.fail_for_good(&w.claim_one("w1")?)?;
    let bad = w.retry(&planted, leasehold_core::transitions::RetryTarget::AllFailed)?;
    assert_eq!(
        (bad, w.status(&planted, "a")?),
        (vec!["bad".to_owned()], OpStatus::Waiting),
        "a retry of all that failed decides nothing else"
    );
    assert_eq!(w.retry_op(&planted, "a")?, ["a"]);
    let view = w.view(planted.op("a"))?;
    assert_eq!((view.status, view.wait, view.state.losses), (OpStatus::Ready, None, 0));
    Ok(())
}

fn a_cancel_behind_the_dispatch_leaves_the_attempt_abandoned(w: &mut World) -> Outcome {
    let planted = dispatched(w, RetryPolicy::default())?;
    let canceled = w.cancel(&planted)?;
    assert_eq!((canceled.ops, canceled.running), (3, 1));
    assert_eq!(w.status(&planted, "a")?, OpStatus::Canceled);
    assert_eq!(attempts(w, &planted)?.iter().map(|line| line.outcome).collect::<Vec<_>>(), [AttemptOutcome::Abandoned]);
    let before = Scenario::new().op("a").effect_once().leased_by("w1").build(w)?;
    w.cancel(&before)?;
    assert_eq!(attempts(w, &before)?.iter().map(|line| line.outcome).collect::<Vec<_>>(), [AttemptOutcome::Canceled], "it never began");
    let waiting = unknown(w)?;
    w.cancel(&waiting)?;
    assert_eq!(w.status(&waiting, "a")?, OpStatus::Canceled, "also while it waits for a verdict");
    Ok(())
}

fn waits_for_a_verdict_are_listed_page_by_page_and_never_woken(w: &mut World) -> Outcome {
    let all: Vec<_> = (0..5).map(|_| Ok(unknown(w)?.op("a"))).collect::<Result<_, BoxError>>()?;
    let timer = Scenario::new().op("t").leased_by("w1").build(w)?;
    w.suspend_one(&timer.claimed("t"), Until::For(LEASE))?;
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = w.read(|tx| tx.waits_for(WaitReason::Verdict, after, 2))?;
        assert!(page.len() <= 2);
        let Some(last) = page.last() else { break };
        after = Some(last.key.op);
        seen.extend(page.iter().map(|wait| wait.key.op));
    }
    assert_eq!(seen, all);
    assert_eq!(w.read(|tx| tx.waits_for(WaitReason::Timer, None, 10))?.len(), 1);
    w.clock().advance(leasehold_core::model::Micros::from_secs(u32::MAX))?;
    assert_eq!(w.wake(100)?.ops.iter().map(|op| op.op.as_str()).collect::<Vec<_>>(), ["t"]);
    Ok(())
}

fn unknown_outcomes_and_verdicts_leave_their_events(w: &mut World) -> Outcome {
    let planted = unknown(w)?;
    let call = settling(&planted, "a", planted.lease("a").fence, succeed("1"));
    w.settle_with(&SettleOp { actor: Actor { name: "ann".to_owned(), reason: Some("the bank says so".to_owned()) }, ..call })?;
    let events = w.fingerprint(&planted)?.events;
    let told: Vec<_> = events
        .iter()
        .filter(|row| row.op_id.as_ref().is_some_and(|op| op.as_str() == "a"))
        .map(|row| (row.event.kind, row.event.actor.as_deref(), row.event.detail.as_deref()))
        .collect();
    assert_eq!(
        told,
        [
            (EventKind::OpAbandoned, Some("w1"), Some(OpError::WORKER_LOST)),
            (EventKind::OpWaiting, Some("w1"), Some("verdict")),
            (EventKind::OpSucceeded, Some("ann"), Some("the bank says so")),
        ]
    );
    Ok(())
}

fn of_two_verdicts_at_once_one_counts(w: &mut World) -> Outcome {
    for _ in 0..ROUNDS {
        let planted = unknown(w)?;
        let fence = planted.lease("a").fence;
        let fail = OpVerdict::Fail { message: "no".to_owned() };
        let say = |verdict: OpVerdict| match w.settle(&planted, "a", fence, verdict) {
            Ok(status) => Ok(Some(status)),
            Err(TransitionError::OpStatus { .. }) => Ok(None),
            Err(other) => Err(BoxError::from(other)),
        };
        let (first, second) = at_once(|| say(succeed("1")), || say(fail))?;
        let answers: Vec<OpStatus> = first.into_iter().chain(second).collect();
        assert_eq!(answers.len(), 1, "the first wins, the other is refused");
        assert_eq!(answers, [w.status(&planted, "a")?]);
    }
    Ok(())
}

fn an_unknown_outcome_survives_a_restart(w: &mut World) -> Outcome {
    let planted = dispatched(w, RetryPolicy::default())?;
    w.restart()?;
    w.clock().advance(LEASE)?;
    w.recover(10)?;
    w.restart()?;
    assert_eq!(w.status(&planted, "a")?, OpStatus::Waiting);
    assert_eq!(w.settle(&planted, "a", planted.lease("a").fence, OpVerdict::Retry)?, OpStatus::Ready);
    Ok(())
}
