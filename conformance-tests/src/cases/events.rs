//! What is told of a change (O1, O2, O4).

use crate::case::cases;
use crate::scenario::{LEASE, microseconds, name};
use crate::verbs::{completion, failure, giving_back, permanent_failure};
use crate::world::transact;
use crate::{Outcome, Planted, Scenario, World};
use leasehold_core::model::{EventSeq, Limits, RequestId, RetryPolicy};
use leasehold_core::store::rows::{EventKind, EventRow};
use leasehold_core::store::{BoxError, TxKind, Wait};
use leasehold_core::transitions::{self, Actor, CancelWorkflow, CreateMode, CreateRequest, Finish, Notice, RetryOps, RetryTarget};
use std::collections::BTreeSet;

cases! {
    every_verb_leaves_its_events proves ["O2", "O4"];
    observers_hear_what_the_history_holds proves ["O1", "O2"];
    a_transition_that_did_not_happen_leaves_no_event proves ["O1", "O4"];
    each_success_is_told_once_although_it_is_repeated proves ["O4", "L12"];
    an_event_names_who_and_why proves ["O2", "P8"];
    claims_and_heartbeats_leave_no_event proves ["O4"];
    a_reader_with_a_cursor_sees_every_event_once proves ["O4"];
    events_come_in_the_order_of_their_commits proves ["O1", "O4"];
}

fn events(w: &World, of: &Planted) -> Result<Vec<EventRow>, BoxError> {
    Ok(w.read(|tx| tx.events_since(None, Some(of.workflow), 1_000))?)
}

/// The events behind `after`, as (kind, op).
fn told(w: &World, of: &Planted, after: usize) -> Result<Vec<(EventKind, String)>, BoxError> {
    let all = events(w, of)?;
    let mut told: Vec<(EventKind, String)> = all
        .iter()
        .skip(after)
        .map(|row| (row.event.kind, row.op_id.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string)))
        .collect();
    told.sort();
    Ok(told)
}

fn every_verb_leaves_its_events(w: &mut World) -> Outcome {
    let scenario = Scenario::new().op("a").op("b").after(&["a"]).op("c").after_settled(&["b"]);
    let planted = scenario.build(w)?;
    let mut seen = 0;
    let mut step = |what: &str, expected: &[(EventKind, &str)]| -> Outcome {
        let told = told(w, &planted, seen)?;
        seen += told.len();
        let mut expected: Vec<(EventKind, String)> = expected.iter().map(|(kind, op)| (*kind, (*op).to_owned())).collect();
        expected.sort();
        assert_eq!(told, expected, "{what}");
        Ok(())
    };
    step("create", &[(EventKind::WorkflowCreated, "-")])?;
    w.finish_one(giving_back(&w.claim_one("w1")?))?;
    step("release", &[(EventKind::OpReleased, "a")])?;
    w.finish_one(failure(&w.claim_one("w1")?))?;
    step("a failure that is tried again", &[(EventKind::OpRetried, "a")])?;
    w.clock().advance(LEASE)?;
    w.claim_one("w1")?;
    w.clock().advance(LEASE)?;
    w.recover(10)?;
    step("recovery", &[(EventKind::OpAbandoned, "a")])?;
    w.finish_one(permanent_failure(&w.claim_one("w1")?))?;
    // The soft child runs on, so the workflow does.
    step("a failure for good", &[(EventKind::OpFailed, "a"), (EventKind::OpBlocked, "b")])?;
    w.complete_one(&w.claim_one("w1")?, "1")?;
    step("the last op that could move", &[(EventKind::OpSucceeded, "c"), (EventKind::WorkflowUpdated, "-")])?;
    w.retry_op(&planted, "a")?;
    step("retry", &[(EventKind::OpReopened, "a"), (EventKind::OpUnblocked, "b"), (EventKind::WorkflowUpdated, "-")])?;
    w.add(&planted, &Scenario::new().op("d"))?;
    step("add", &[(EventKind::WorkflowUpdated, "-")])?;
    w.cancel(&planted)?;
    step(
        "cancel",
        &[(EventKind::OpCanceled, "a"), (EventKind::OpCanceled, "b"), (EventKind::OpCanceled, "d"), (EventKind::WorkflowUpdated, "-")],
    )
}

/// Whether the notices are the stored events, one for one.
fn same(w: &World, of: &Planted, notices: &[Notice], what: &str) -> Outcome {
    let stored = events(w, of)?;
    let tail = stored.get(stored.len().saturating_sub(notices.len())..).unwrap_or_default();
    let stored: Vec<Notice> = tail
        .iter()
        .map(|row| Notice {
            at: row.event.at,
            kind: row.event.kind,
            workflow: row.workflow_id.clone(),
            op: row.op_id.clone(),
            fence: row.event.fence,
            actor: row.event.actor.clone(),
            detail: row.event.detail.clone(),
        })
        .collect();
    assert_eq!(stored, notices, "{what}");
    assert!(!notices.is_empty(), "{what} was told of");
    Ok(())
}

fn observers_hear_what_the_history_holds(w: &mut World) -> Outcome {
    let store = w.store().as_ref();
    let spec = Scenario::new().op("a").op("b").after(&["a"]).spec(w);
    let id = spec.id.clone();
    let request = CreateRequest::new(spec, RequestId::random(), CreateMode::Start, &Limits::default())?;
    let report = transact(store, TxKind::Client, |tx| transitions::create(tx, std::slice::from_ref(&request)))?;
    let planted = Planted::find(w, &id)?;
    same(w, &planted, &report.notices, "create")?;
    let finish = |item: Finish| transact(store, TxKind::Commit, |tx| transitions::finish(tx, std::slice::from_ref(&item), Wait::Block));
    same(w, &planted, &finish(permanent_failure(&w.claim_one("w1")?))?.notices, "failure")?;
    let retry = RetryOps { request: RequestId::random(), actor: Actor::new("ann"), workflow: id.clone(), target: RetryTarget::AllFailed };
    same(w, &planted, &transact(store, TxKind::Client, |tx| transitions::retry(tx, &retry))?.notices, "retry")?;
    same(w, &planted, &finish(completion(&w.claim_one("w1")?, "1"))?.notices, "completion")?;
    w.claim_one("w1")?;
    w.clock().advance(LEASE)?;
    same(w, &planted, &w.recover(10)?.notices, "recovery")?;
    let cancel = CancelWorkflow {
        request: RequestId::random(),
        actor: Actor { name: "ann".to_owned(), reason: Some("enough".to_owned()) },
        workflow: id,
    };
    same(w, &planted, &w.cancel_with(&cancel)?.notices, "cancel")
}

fn a_transition_that_did_not_happen_leaves_no_event(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
    let before = events(w, &planted)?;
    w.clock().advance(LEASE)?;
    w.finish(&[completion(&planted.claimed("a"), "1")])?;
    assert!(w.retry_op(&planted, "a").is_err());
    assert!(w.add(&planted, &Scenario::new().op("x").after(&["nowhere"])).is_err());
    assert_eq!(events(w, &planted)?, before);
    Ok(())
}

fn each_success_is_told_once_although_it_is_repeated(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
    let item = completion(&planted.claimed("a"), "1");
    for _ in 0..3 {
        let report = transact(w.store().as_ref(), TxKind::Commit, |tx| transitions::finish(tx, std::slice::from_ref(&item), Wait::Block))?;
        assert!(report.notices.len() == 2 || report.notices.is_empty(), "{:?}", report.notices);
    }
    let successes = events(w, &planted)?.iter().filter(|row| row.event.kind == EventKind::OpSucceeded).count();
    assert_eq!(successes, 1);
    Ok(())
}

fn an_event_names_who_and_why(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("wörker 7").build(w)?;
    w.clock().advance(microseconds(5))?;
    let claimed = planted.claimed("a");
    w.fail_for_good(&claimed)?;
    let failed_at = w.now();
    let actor = Actor { name: "ann".to_owned(), reason: Some("the disk is back".to_owned()) };
    w.retry_with(&RetryOps { request: RequestId::random(), actor, workflow: planted.id.clone(), target: RetryTarget::Op(name("a")) })?;
    let all = events(w, &planted)?;
    let of = |kind| all.iter().find(|row| row.event.kind == kind).map(|row| &row.event).ok_or("the event is there");
    let failed = of(EventKind::OpFailed)?;
    assert_eq!((failed.at, failed.fence, failed.op), (failed_at, Some(claimed.lease.key.fence), Some(planted.op("a"))));
    assert_eq!((failed.actor.as_deref(), failed.detail.as_deref()), (Some("wörker 7"), Some("broken")), "the worker and the error's code");
    let reopened = of(EventKind::OpReopened)?;
    assert_eq!((reopened.actor.as_deref(), reopened.detail.as_deref()), (Some("ann"), Some("the disk is back")));
    Ok(())
}

fn claims_and_heartbeats_leave_no_event(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").build(w)?;
    let before = events(w, &planted)?;
    let claimed = w.claim_one("w1")?;
    w.heartbeat(&[claimed.lease.key])?;
    assert_eq!(events(w, &planted)?, before);
    Ok(())
}

/// A reader follows while writers commit; nothing is skipped and nothing comes twice.
fn a_reader_with_a_cursor_sees_every_event_once(w: &mut World) -> Outcome {
    const WRITERS: usize = 3;
    const ROUNDS: usize = 15;
    let world = &*w;
    let mut seen: Vec<EventSeq> = Vec::new();
    std::thread::scope(|scope| -> Outcome {
        let writers: Vec<_> = (0..WRITERS)
            .map(|_| {
                scope.spawn(|| (0..ROUNDS).try_for_each(|_| Scenario::new().op("a").retry(RetryPolicy::once()).build(world).map(drop)))
            })
            .collect();
        let expected = WRITERS * ROUNDS;
        while seen.len() < expected {
            let rows = world.read(|tx| tx.events_since(seen.last().copied(), None, 7))?;
            seen.extend(rows.iter().map(|row| row.seq));
            if rows.is_empty() && writers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                // The last look after the last writer has ended.
                seen.extend(world.read(|tx| tx.events_since(seen.last().copied(), None, 1_000))?.iter().map(|row| row.seq));
                break;
            }
        }
        writers.into_iter().try_for_each(|writer| writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    assert!(seen.is_sorted_by(|a, b| a < b), "in number order, none twice");
    let all: Vec<EventSeq> = w.read(|tx| tx.events_since(None, None, 1_000))?.iter().map(|row| row.seq).collect();
    assert_eq!(seen, all, "none was skipped");
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), WRITERS * ROUNDS);
    Ok(())
}

fn events_come_in_the_order_of_their_commits(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").op("b").after(&["a"]).build(w)?;
    w.drain("w1")?;
    let order: Vec<EventKind> = events(w, &planted)?.iter().map(|row| row.event.kind).collect();
    assert_eq!(order, [EventKind::WorkflowCreated, EventKind::OpSucceeded, EventKind::OpSucceeded, EventKind::WorkflowUpdated]);
    let ids: Vec<Option<String>> = events(w, &planted)?.iter().map(|row| row.op_id.as_ref().map(ToString::to_string)).collect();
    assert_eq!(ids, [None, Some("a".to_owned()), Some("b".to_owned()), None]);
    Ok(())
}
