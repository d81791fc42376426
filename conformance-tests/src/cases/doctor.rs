//! Everything derived is recomputed, told apart and put right (P3), and a root cause is named (S10).

use crate::case::cases;
use crate::scenario::{LEASE, name};
use crate::{Outcome, Planted, Scenario, World};
use leasehold_core::doctor::{self, Diagnosis, Drift, WaitsFor, Why};
use leasehold_core::model::{Fence, OpSeq};
use leasehold_core::state::{Counters, OpStatus, StoredStatus, WorkflowStatus};
use leasehold_core::store::rows::{EventKind, LockedWorkflow, OpChange, OpWait, QueuedOp, WaitKey, WaitReason, WorkflowChange, WriteSet};
use leasehold_core::store::{BoxError, Tx, Wait};
use leasehold_core::transitions::{Actor, TransitionError};
use std::time::Duration;

cases! {
    a_sound_store_has_no_findings_and_a_repair_changes_nothing proves ["P3"];
    every_drift_of_an_op_is_found_and_repaired proves ["P3", "P8"];
    every_drift_of_a_workflow_is_found_and_repaired proves ["P3", "P8"];
    a_repair_spreads_to_the_fixed_point proves ["P3", "S2", "S3"];
    a_repair_never_hands_out_a_fence_again proves ["P3", "L6"];
    an_op_that_is_nowhere_is_claimed_after_a_repair proves ["P3"];
    what_survived_a_cancel_is_canceled_by_a_repair proves ["P3", "S6"];
    a_place_without_an_op_is_taken_away proves ["P3"];
    why_names_the_failed_op_through_any_depth proves ["S10"];
    why_names_what_a_pending_op_comes_down_to proves ["S10"];
    why_tells_what_a_ready_op_waits_for proves ["S10"];
}

/// No case's store is busy for longer.
const PATIENCE: Duration = Duration::from_secs(30);

fn examine(w: &World) -> Result<Diagnosis, BoxError> {
    Ok(doctor::examine(w.store().as_ref(), PATIENCE)?)
}

fn repair(w: &World) -> Result<Diagnosis, BoxError> {
    let actor = Actor { name: "doctor".to_owned(), reason: None };
    Ok(doctor::repair(w.store().as_ref(), &actor, PATIENCE)?.0)
}

fn why(w: &World, of: &Planted, op: &str) -> Result<Why, TransitionError> {
    let mut told = None;
    w.read(|tx| {
        told = Some(doctor::why(tx, &of.id, &name(op)));
        Ok(())
    })?;
    match told {
        Some(told) => told,
        None => unreachable!("the read ran"),
    }
}

/// What was found, as (op or workflow, drift).
fn found(diagnosis: &Diagnosis) -> Vec<(String, Drift)> {
    let place = |finding: &doctor::Finding| match (&finding.workflow, &finding.op) {
        (_, Some(op)) => op.to_string(),
        (Some(workflow), None) => workflow.to_string(),
        (None, None) => "nobody".to_owned(),
    };
    let mut found: Vec<(String, Drift)> = diagnosis.findings.iter().map(|finding| (place(finding), finding.drift)).collect();
    found.sort();
    found
}

/// A change of one row that no verb would make.
fn change(op: OpSeq, from: StoredStatus, to: StoredStatus) -> OpChange {
    OpChange { op, from, to, unmet: 0, broken: 0, fence: None, failures: None, losses: None, finished_at: None }
}

/// Writes rows as no verb would, holding the workflow.
fn tamper(w: &World, of: &Planted, mut body: impl FnMut(&mut dyn Tx, &LockedWorkflow) -> Result<WriteSet, BoxError>) -> Outcome {
    let mut failed = None;
    w.tx(|tx| {
        let Some(locked) = tx.lock_workflows(&[of.workflow], Wait::Block)?.pop() else { panic!("the workflow is there") };
        match body(tx, &locked) {
            Ok(set) => tx.write(&set).map(drop),
            Err(error) => {
                failed = Some(error);
                Ok(())
            }
        }
    })?;
    failed.map_or(Ok(()), Err)
}

fn changing(w: &World, of: &Planted, change: &OpChange) -> Outcome {
    tamper(w, of, |_, _| Ok(WriteSet { changes: vec![change.clone()], ..WriteSet::default() }))
}

fn a_sound_store_has_no_findings_and_a_repair_changes_nothing(w: &mut World) -> Outcome {
    let planted = Scenario::new()
        .op("done")
        .succeeded()
        .op("bad")
        .failed()
        .op("held")
        .leased_by("w1")
        .op("below")
        .after(&["bad"])
        .op("free")
        .after_settled(&["bad"])
        .op("later")
        .after(&["held"])
        .build(w)?;
    let diagnosis = examine(w)?;
    assert!(diagnosis.is_sound(), "{:?}", diagnosis.findings);
    assert_eq!((diagnosis.workflows, diagnosis.ops), (1, 6));
    let before = w.fingerprint(&planted)?;
    let diagnosis = repair(w)?;
    assert!(diagnosis.is_sound() && diagnosis.repaired.is_empty());
    assert_eq!(w.fingerprint(&planted)?, before);
    Ok(())
}

/// One way to spoil an op, and what is to be found of it.
struct Spoiled {
    drift: Drift,
    spoil: fn(&World, &Planted) -> Outcome,
}

fn every_drift_of_an_op_is_found_and_repaired(w: &mut World) -> Outcome {
    let ways = [
        Spoiled {
            drift: Drift::Counts,
            spoil: |w, p| changing(w, p, &OpChange { unmet: 7, ..change(p.op("x"), StoredStatus::Pending, StoredStatus::Pending) }),
        },
        Spoiled {
            drift: Drift::Status,
            spoil: |w, p| changing(w, p, &OpChange { unmet: 1, ..change(p.op("x"), StoredStatus::Pending, StoredStatus::Blocked) }),
        },
        Spoiled {
            drift: Drift::Nowhere,
            spoil: |w, p| tamper(w, p, |tx, _| Ok(tx.unqueue(&[p.op("parent")]).map(|()| WriteSet::default())?)),
        },
        Spoiled {
            drift: Drift::QueuedNotOpen,
            spoil: |w, p| tamper(w, p, |tx, _| Ok(WriteSet { ready: vec![place(tx, p, "x")?], ..WriteSet::default() })),
        },
        Spoiled {
            drift: Drift::InTwoPlaces,
            spoil: |w, p| {
                tamper(w, p, |tx, _| {
                    let mut place = place(tx, p, "parent")?;
                    place.due_at = place.due_at.after(LEASE)?;
                    Ok(WriteSet { delayed: vec![place], ..WriteSet::default() })
                })
            },
        },
        Spoiled {
            drift: Drift::PlaceWrong,
            spoil: |w, p| {
                tamper(w, p, |tx, _| {
                    let place = place(tx, p, "parent")?;
                    tx.unqueue(&[place.op])?;
                    Ok(WriteSet { ready: vec![QueuedOp { priority: place.priority + 1, ..place }], ..WriteSet::default() })
                })
            },
        },
        Spoiled {
            drift: Drift::WaitsNotWaiting,
            spoil: |w, p| {
                let key = WaitKey { op: p.op("x"), fence: Fence(1) };
                let wait = OpWait { key, workflow: p.workflow, reason: WaitReason::Timer, since: w.now(), due_at: None };
                tamper(w, p, |_, _| Ok(WriteSet { waits: vec![wait.clone()], ..WriteSet::default() }))
            },
        },
        Spoiled {
            drift: Drift::FinishedAt,
            spoil: |w, p| {
                let finished_at = Some(w.now());
                let change = change(p.op("x"), StoredStatus::Pending, StoredStatus::Pending);
                changing(w, p, &OpChange { unmet: 1, finished_at, ..change })
            },
        },
    ];
    for Spoiled { drift, spoil } in ways {
        let planted = Scenario::new().op("parent").op("x").after(&["parent"]).build(w)?;
        spoil(w, &planted)?;
        let diagnosis = examine(w)?;
        assert!(diagnosis.findings.iter().any(|finding| finding.drift == drift), "{drift}: found {:?}", found(&diagnosis));
        let diagnosis = repair(w)?;
        assert!(diagnosis.is_sound(), "{drift}: left {:?}", diagnosis.findings);
        assert!(diagnosis.repaired.iter().any(|finding| finding.drift == drift), "{drift}: repaired {:?}", diagnosis.repaired);
        let events = w.fingerprint(&planted)?.events;
        let told = events.iter().any(|row| row.event.kind == EventKind::Repaired && row.event.actor.as_deref() == Some("doctor"));
        assert!(told, "{drift}: the history names who repaired");
        assert_eq!(w.statuses(&planted, &["parent", "x"])?, [OpStatus::Ready, OpStatus::Pending], "{drift}");
        w.drain("w1")?;
        assert_eq!(w.workflow(&planted.id)?.status, WorkflowStatus::Succeeded, "{drift}");
    }
    Ok(())
}

/// The place that an op's row makes for it.
fn place(tx: &mut dyn Tx, of: &Planted, op: &str) -> Result<QueuedOp, BoxError> {
    let state = tx.ops(&[of.op(op)])?.pop().ok_or("the op is there")?;
    let due_at = tx.now()?;
    Ok(QueuedOp { op: state.seq, lane: state.lane, priority: state.priority, due_at, fence: state.fence, failures: state.failures })
}

fn every_drift_of_a_workflow_is_found_and_repaired(w: &mut World) -> Outcome {
    let planted = Scenario::new().id("spoiled").op("a").op("b").after(&["a"]).build(w)?;
    let (now, seq) = (w.now(), planted.workflow);
    let wrong = Counters { succeeded: 5, ..Counters::default() };
    let change = WorkflowChange {
        seq,
        status: WorkflowStatus::Succeeded,
        cancel_requested: false,
        counters: wrong,
        finished_at: Some(now),
        at: now,
    };
    tamper(w, &planted, |_, _| Ok(WriteSet { workflows: vec![change.clone()], ..WriteSet::default() }))?;
    let expected = [Drift::Counters, Drift::WorkflowStatus, Drift::WorkflowFinishedAt].map(|drift| ("spoiled".to_owned(), drift));
    assert_eq!(found(&examine(w)?), expected);
    let diagnosis = repair(w)?;
    assert!(diagnosis.is_sound(), "{:?}", diagnosis.findings);
    let row = w.workflow(&planted.id)?;
    assert_eq!((row.status, row.finished_at, row.counters.total()), (WorkflowStatus::Running, None, 2));
    let events = w.fingerprint(&planted)?.events;
    let last = events.last().map(|row| (row.event.kind, row.event.actor.clone(), row.event.detail.clone()));
    assert_eq!(last, Some((EventKind::WorkflowUpdated, Some("doctor".to_owned()), Some("running".to_owned()))));
    Ok(())
}

fn a_repair_spreads_to_the_fixed_point(w: &mut World) -> Outcome {
    let mut scenario = Scenario::new().op("root").op("c0").after(&["root"]);
    for at in 1..20 {
        let parent = format!("c{}", at - 1);
        scenario = scenario.op(&format!("c{at}")).after(&[&parent]);
    }
    let planted = scenario.op("soft").after_settled(&["c19"]).build(w)?;
    w.fail_for_good(&w.claim_one("w1")?)?;
    assert_eq!(w.status(&planted, "c19")?, OpStatus::Blocked);
    // The root comes back, and nobody tells those below.
    changing(w, &planted, &change(planted.op("root"), StoredStatus::Failed, StoredStatus::Open))?;
    let diagnosis = repair(w)?;
    assert!(diagnosis.is_sound(), "{:?}", diagnosis.findings);
    assert_eq!(w.statuses(&planted, &["root", "c0", "c19"])?, [OpStatus::Ready, OpStatus::Pending, OpStatus::Pending]);
    // It was ready for what is settled, and that is not taken back.
    assert_eq!(w.status(&planted, "soft")?, OpStatus::Ready);
    Ok(())
}

fn a_repair_never_hands_out_a_fence_again(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").build(w)?;
    let claimed = w.claim_one("w1")?;
    let finished_at = Some(w.now());
    changing(w, &planted, &OpChange { finished_at, ..change(planted.op("a"), StoredStatus::Open, StoredStatus::Failed) })?;
    assert!(found(&examine(w)?).contains(&("a".to_owned(), Drift::LeasedNotOpen)));
    assert!(repair(w)?.is_sound());
    assert!(w.stored_lease(claimed.lease.key)?.is_none());
    w.retry_op(&planted, "a")?;
    assert_eq!(w.claim_one("w2")?.lease.key.fence, Fence(2));
    Ok(())
}

fn an_op_that_is_nowhere_is_claimed_after_a_repair(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").build(w)?;
    tamper(w, &planted, |tx, _| Ok(tx.unqueue(&[planted.op("a")]).map(|()| WriteSet::default())?))?;
    assert!(w.claim("w1", 1)?.is_empty());
    assert_eq!(found(&examine(w)?), [("a".to_owned(), Drift::Nowhere)]);
    assert!(repair(w)?.is_sound());
    w.complete_one(&w.claim_one("w1")?, "1")
}

fn what_survived_a_cancel_is_canceled_by_a_repair(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").op("b").after(&["a"]).build(w)?;
    w.cancel(&planted)?;
    changing(w, &planted, &change(planted.op("a"), StoredStatus::Canceled, StoredStatus::Open))?;
    tamper(w, &planted, |tx, _| Ok(WriteSet { ready: vec![place(tx, &planted, "a")?], ..WriteSet::default() }))?;
    let claimed = w.claim_one("w1")?;
    assert!(found(&examine(w)?).contains(&("a".to_owned(), Drift::SurvivedCancel)));
    assert!(repair(w)?.is_sound());
    assert_eq!(w.statuses(&planted, &["a", "b"])?, [OpStatus::Canceled, OpStatus::Canceled]);
    assert!(w.stored_lease(claimed.lease.key)?.is_none(), "its worker does not own it any more");
    Ok(())
}

fn a_place_without_an_op_is_taken_away(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").build(w)?;
    tamper(w, &planted, |tx, _| {
        let Some(op) = tx.reserve_ops(1)?.pop() else { panic!("a key was asked for") };
        Ok(WriteSet { ready: vec![QueuedOp { op, ..place(tx, &planted, "a")? }], ..WriteSet::default() })
    })?;
    assert_eq!(found(&examine(w)?), [("nobody".to_owned(), Drift::Orphan)]);
    assert!(repair(w)?.is_sound());
    assert_eq!(w.drain("w1")?, 1);
    Ok(())
}

fn why_names_the_failed_op_through_any_depth(w: &mut World) -> Outcome {
    let mut scenario = Scenario::new().op("bad").op("fine").op("c0").after(&["bad", "fine"]);
    for at in 1..200 {
        let parent = format!("c{}", at - 1);
        scenario = scenario.op(&format!("c{at}")).after(&[&parent]);
    }
    let planted = scenario.build(w)?;
    let failed_at = w.now();
    w.fail_for_good(&w.claim_kind("w1", "bad", 1)?.pop().ok_or("it is ready")?)?;
    w.clock().advance(LEASE)?;
    let told = why(w, &planted, "c199")?;
    assert_eq!((told.status, told.unlisted), (Some(OpStatus::Blocked), 0));
    let roots: Vec<_> = told.roots.iter().map(|root| (root.op.as_str(), root.status, root.since)).collect();
    assert_eq!(roots, [("bad", OpStatus::Failed, Some(failed_at))], "what is fine is no cause");
    let error = told.roots.first().and_then(|root| root.error.as_ref()).map(|error| (error.code.as_str(), error.message.as_str()));
    assert_eq!(error, Some(("broken", "never works")));
    Ok(())
}

fn why_names_what_a_pending_op_comes_down_to(w: &mut World) -> Outcome {
    let planted = Scenario::new()
        .op("done")
        .succeeded()
        .op("runs")
        .leased_by("w1")
        .op("waits")
        .op("middle")
        .after(&["done", "runs"])
        .op("soft")
        .after_settled(&["waits"])
        .op("end")
        .after(&["middle", "soft", "done"])
        .build(w)?;
    let told = why(w, &planted, "end")?;
    let mut roots: Vec<_> = told.roots.iter().map(|root| (root.op.as_str(), root.status)).collect();
    roots.sort_unstable();
    assert_eq!((told.status, roots), (Some(OpStatus::Pending), vec![("runs", OpStatus::Running), ("waits", OpStatus::Ready)]));
    assert!(matches!(why(w, &planted, "nobody"), Err(TransitionError::NoOp { .. })));
    Ok(())
}

fn why_tells_what_a_ready_op_waits_for(w: &mut World) -> Outcome {
    w.set_policies(&[crate::verbs::limit("full", 1), crate::verbs::rate("slow", 0.001, 1)])?;
    let planted = Scenario::new()
        .op("first")
        .queue("full")
        .leased_by("w1")
        .op("full")
        .queue("full")
        .op("drop")
        .queue("slow")
        .leased_by("w1")
        .op("slow")
        .queue("slow")
        .op("free")
        .op("again")
        .build(w)?;
    let again = w.claim_kind("w1", "again", 1)?.pop().ok_or("it is ready")?;
    w.finish_one(crate::verbs::failure(&again))?;
    let waits_for =
        |op: &str| -> Result<Option<WaitsFor>, BoxError> { Ok(why(w, &planted, op)?.roots.pop().and_then(|root| root.waits_for)) };
    assert!(matches!(waits_for("full")?, Some(WaitsFor::QueueFull { limit: 1, .. })));
    assert!(matches!(waits_for("slow")?, Some(WaitsFor::QueueRate { .. })));
    assert!(matches!(waits_for("again")?, Some(WaitsFor::Instant { at }) if at > w.now()));
    assert!(matches!(waits_for("free")?, Some(WaitsFor::Worker { kind, .. }) if kind.as_str() == "free"));
    assert!(matches!(waits_for("first")?, Some(WaitsFor::ItsWorker { .. })));
    Ok(())
}
