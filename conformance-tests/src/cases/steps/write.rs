//! What `write` promises of each of its parts.

use crate::case::cases;
use crate::scenario::{json, name};
use crate::{Outcome, Planted, Scenario, World};
use leasehold_core::model::{Artifact, ArtifactKind, Digest, EventSeq, Fence, Json, OpSeq, Record, RequestId, Timestamp};
use leasehold_core::state::StoredStatus;
use leasehold_core::store::rows::{
    Act, Attempt, AttemptOutcome, Edge, EventKind, LeaseKey, NewArtifact, NewEvent, NewRecord, OpChange, QueuedOp, WorkflowChange, WriteSet,
};
use leasehold_core::store::{StoreError, StoreResult, Wait};

cases! { steps:
    a_change_applies_only_while_the_row_says_its_from proves ["S1", "L1"];
    a_change_writes_what_it_names_and_leaves_the_rest proves ["S1"];
    an_edge_is_stored_once proves ["S9"];
    an_op_id_is_unique_in_its_workflow proves ["S9"];
    a_dedup_key_is_unique_in_its_workflow proves ["I4"];
    an_op_is_queued_once proves ["Q1"];
    an_attempt_is_written_once proves ["L9"];
    a_request_is_answered_once proves ["L12"];
    a_refused_write_leaves_nothing_of_itself proves ["L2"];
    an_artifact_replaces_the_one_of_its_name proves ["K2"];
    a_record_replaces_the_one_of_its_key proves ["K3"];
    an_act_is_found_by_its_request proves ["L12"];
    events_are_numbered_in_the_order_given proves ["O2"];
    instants_are_kept_to_the_microsecond_from_year_1_to_9999 proves ["T1", "T4"];
    updates_grow_although_the_clock_stands_still_or_goes_back proves ["O3"];
    taking_ops_out_of_their_queues_leaves_the_others proves ["S6"];
    a_policy_replaces_the_one_of_its_site_and_queue proves ["Q5"];
}

/// Writes `set` with the scenario's workflow locked.
pub(crate) fn write(w: &World, planted: &Planted, set: &WriteSet) -> StoreResult<Vec<OpSeq>> {
    w.tx(|tx| {
        tx.lock_workflows(&[planted.workflow], Wait::Block)?;
        tx.write(set)
    })
}

pub(crate) fn attempt(planted: &Planted, key: LeaseKey, outcome: AttemptOutcome) -> Attempt {
    Attempt {
        key,
        workflow: planted.workflow,
        worker: name("w1"),
        acquired_at: crate::start(),
        ended_at: crate::start(),
        outcome,
        result: None,
        error: None,
    }
}

fn change(op: OpSeq, from: StoredStatus, to: StoredStatus) -> OpChange {
    OpChange { op, from, to, unmet: 0, broken: 0, fence: None, failures: None, losses: None, finished_at: None }
}

fn refused(outcome: &StoreResult<Vec<OpSeq>>, what: &str) {
    assert!(matches!(outcome, Err(StoreError::Rejected(_))), "{what}: {outcome:?}");
}

fn a_change_applies_only_while_the_row_says_its_from(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").op("b").op("c").row(StoredStatus::Canceled).plant(w)?;
    let (a, b, c) = (planted.op("a"), planted.op("b"), planted.op("c"));
    let changes = vec![
        change(a, StoredStatus::Open, StoredStatus::Succeeded),
        change(b, StoredStatus::Pending, StoredStatus::Blocked),
        change(c, StoredStatus::Open, StoredStatus::Failed),
        change(OpSeq(c.0 + 1_000), StoredStatus::Open, StoredStatus::Failed),
    ];
    assert_eq!(write(w, &planted, &WriteSet { changes, ..WriteSet::default() })?, [a]);
    let states = w.read(|tx| tx.ops(&[a, b, c]))?;
    let statuses: Vec<StoredStatus> = states.iter().map(|state| state.status).collect();
    assert_eq!(statuses, [StoredStatus::Succeeded, StoredStatus::Open, StoredStatus::Canceled]);
    Ok(())
}

fn a_change_writes_what_it_names_and_leaves_the_rest(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").plant(w)?;
    let a = planted.op("a");
    let first = OpChange {
        unmet: 3,
        broken: 2,
        fence: Some(Fence(4)),
        failures: Some(5),
        losses: Some(6),
        finished_at: Some(w.now()),
        ..change(a, StoredStatus::Open, StoredStatus::Blocked)
    };
    write(w, &planted, &WriteSet { changes: vec![first], ..WriteSet::default() })?;
    let view = w.view(a)?;
    let state = &view.state;
    assert_eq!((state.unmet, state.broken, state.fence, state.failures, state.losses), (3, 2, Fence(4), 5, 6));
    assert_eq!(view.finished_at, Some(w.now()));
    let second = change(a, StoredStatus::Blocked, StoredStatus::Pending);
    write(w, &planted, &WriteSet { changes: vec![second], ..WriteSet::default() })?;
    let view = w.view(a)?;
    let state = &view.state;
    assert_eq!((state.unmet, state.broken, state.fence, state.failures, state.losses), (0, 0, Fence(4), 5, 6));
    assert_eq!(view.finished_at, None);
    Ok(())
}

fn an_edge_is_stored_once(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").op("b").after(&["a"]).plant(w)?;
    let edge = Edge { child: planted.op("b"), parent: planted.op("a"), required: false };
    refused(&write(w, &planted, &WriteSet { edges: vec![edge], ..WriteSet::default() }), "an edge that is there");
    Ok(())
}

/// The ops of a scenario that is planted elsewhere, put into `planted`'s workflow.
fn more_ops(w: &World, planted: &Planted, scenario: &Scenario) -> StoreResult<Vec<OpSeq>> {
    w.tx(|tx| {
        tx.lock_workflows(&[planted.workflow], Wait::Block)?;
        let ops = scenario.new_ops(tx, w, planted.workflow)?;
        tx.write(&WriteSet { ops, ..WriteSet::default() })
    })
}

fn an_op_id_is_unique_in_its_workflow(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").plant(w)?;
    let other = Scenario::new().op("b").plant(w)?;
    let again = Scenario::new().op("a");
    refused(&more_ops(w, &planted, &again), "an id that is taken");
    more_ops(w, &other, &again)?;
    let found = w.read(|tx| tx.ops_by_id(&[(planted.workflow, name("a")), (other.workflow, name("a"))]))?;
    assert_eq!(found.len(), 2, "other workflows have ids of their own");
    Ok(())
}

fn a_dedup_key_is_unique_in_its_workflow(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").dedup_key("k").plant(w)?;
    let other = Scenario::new().op("a").plant(w)?;
    let again = Scenario::new().op("b").dedup_key("k");
    refused(&more_ops(w, &planted, &again), "a dedup key that is taken");
    more_ops(w, &other, &again)?;
    let none = Scenario::new().op("c").op("d");
    more_ops(w, &planted, &none)?;
    Ok(())
}

fn an_op_is_queued_once(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").plant(w)?;
    let [lane] = planted.lanes.as_slice() else { panic!("one op has one lane") };
    let place = QueuedOp { op: planted.op("a"), lane: lane.key, priority: 0, due_at: w.now(), fence: Fence::NONE, failures: 0 };
    refused(&write(w, &planted, &WriteSet { ready: vec![place], ..WriteSet::default() }), "an op that is ready");
    let set = WriteSet { delayed: vec![place, place], ..WriteSet::default() };
    refused(&write(w, &planted, &set), "an op that is delayed twice");
    Ok(())
}

fn an_attempt_is_written_once(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").plant(w)?;
    let line = attempt(&planted, planted.lease("a"), AttemptOutcome::Released);
    let set = WriteSet { attempts: vec![line], ..WriteSet::default() };
    write(w, &planted, &set)?;
    refused(&write(w, &planted, &set), "an attempt that has ended");
    Ok(())
}

fn act(request: RequestId, answer: &str) -> Act {
    Act { request, question: "what?".to_owned(), answer: json(answer), actor: "ann".to_owned(), at: crate::start() }
}

fn a_request_is_answered_once(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").plant(w)?;
    let request = RequestId::random();
    write(w, &planted, &WriteSet { act: Some(act(request, "1")), ..WriteSet::default() })?;
    refused(&write(w, &planted, &WriteSet { act: Some(act(request, "2")), ..WriteSet::default() }), "a request that was answered");
    assert_eq!(w.read(|tx| tx.act(request))?.map(|act| act.answer), Some(json("1")));
    Ok(())
}

fn an_act_is_found_by_its_request(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").plant(w)?;
    let act = act(RequestId::random(), r#"{ "said" : "so" }"#);
    write(w, &planted, &WriteSet { act: Some(act.clone()), ..WriteSet::default() })?;
    assert_eq!(w.read(|tx| tx.act(act.request))?, Some(act));
    assert_eq!(w.read(|tx| tx.act(RequestId::random()))?, None);
    Ok(())
}

fn a_refused_write_leaves_nothing_of_itself(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").op("b").after(&["a"]).plant(w)?;
    let before = (w.workflow(&planted.id)?, w.all_ops(planted.workflow)?);
    let request = RequestId::random();
    write(w, &planted, &WriteSet { act: Some(act(request, "1")), ..WriteSet::default() })?;
    let set = WriteSet {
        changes: vec![change(planted.op("a"), StoredStatus::Open, StoredStatus::Failed)],
        records: vec![record(&planted, "k", "1")],
        events: vec![event(&planted, "x")],
        act: Some(act(request, "2")),
        ..WriteSet::default()
    };
    refused(&write(w, &planted, &set), "a set whose last part is refused");
    assert_eq!((w.workflow(&planted.id)?, w.all_ops(planted.workflow)?), before);
    assert_eq!(w.read(|tx| tx.records(planted.workflow, &name("c"), None, 10))?, []);
    assert_eq!(w.read(|tx| tx.events_since(None, Some(planted.workflow), 10))?, []);
    Ok(())
}

pub(crate) fn artifact(planted: &Planted, op: &str, artifact: &str, fence: i64, content: &[u8]) -> NewArtifact {
    NewArtifact {
        op: planted.op(op),
        workflow: planted.workflow,
        fence: Fence(fence),
        artifact: Artifact {
            name: name(artifact),
            kind: ArtifactKind::Binary,
            content_type: "application/octet-stream".to_owned(),
            metadata: Json::null(),
            content: content.to_vec(),
        },
        sha256: Digest::of_bytes(content),
        at: crate::start(),
    }
}

fn an_artifact_replaces_the_one_of_its_name(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").op("b").plant(w)?;
    let first = vec![artifact(&planted, "a", "report", 1, b"one"), artifact(&planted, "b", "report", 1, b"other")];
    write(w, &planted, &WriteSet { artifacts: first, ..WriteSet::default() })?;
    let mut second = artifact(&planted, "a", "report", 2, b"two!");
    second.artifact.kind = ArtifactKind::Text;
    second.artifact.metadata = json("[1]");
    write(w, &planted, &WriteSet { artifacts: vec![second.clone()], ..WriteSet::default() })?;
    let rows = w.read(|tx| tx.artifacts(planted.workflow, Some(planted.op("a")), None, 10))?;
    let [row] = rows.as_slice() else { panic!("one name is one artifact: {rows:?}") };
    assert_eq!((row.fence, row.size, row.kind, row.sha256), (Fence(2), 4, ArtifactKind::Text, second.sha256));
    assert_eq!(row.metadata, json("[1]"));
    assert_eq!(w.read(|tx| tx.artifact_content(planted.op("a"), &name("report")))?, Some(b"two!".to_vec()));
    assert_eq!(w.read(|tx| tx.artifact_content(planted.op("b"), &name("report")))?, Some(b"other".to_vec()));
    Ok(())
}

pub(crate) fn record(planted: &Planted, key: &str, value: &str) -> NewRecord {
    let op = planted.ops.values().next().copied().unwrap_or(OpSeq(0));
    let record = Record { collection: name("c"), key: name(key), value: json(value) };
    NewRecord { workflow: planted.workflow, op, record, at: crate::start() }
}

fn a_record_replaces_the_one_of_its_key(w: &mut World) -> Outcome {
    let (planted, other) = (Scenario::new().op("a").plant(w)?, Scenario::new().op("a").plant(w)?);
    write(w, &planted, &WriteSet { records: vec![record(&planted, "k", "1"), record(&planted, "l", "2")], ..WriteSet::default() })?;
    write(w, &other, &WriteSet { records: vec![record(&other, "k", "3")], ..WriteSet::default() })?;
    write(w, &planted, &WriteSet { records: vec![record(&planted, "k", "4")], ..WriteSet::default() })?;
    let read = |of: &Planted| w.read(|tx| tx.records(of.workflow, &name("c"), None, 10));
    assert_eq!(read(&planted)?, [record(&planted, "k", "4"), record(&planted, "l", "2")]);
    assert_eq!(read(&other)?, [record(&other, "k", "3")]);
    Ok(())
}

pub(crate) fn event(planted: &Planted, detail: &str) -> NewEvent {
    NewEvent {
        at: crate::start(),
        kind: EventKind::OpReleased,
        workflow: Some(planted.workflow),
        op: Some(planted.op("a")),
        fence: Some(Fence(7)),
        actor: Some("ann".to_owned()),
        detail: Some(detail.to_owned()),
    }
}

fn events_are_numbered_in_the_order_given(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").plant(w)?;
    let mut given = Vec::new();
    for round in 0..3 {
        // Spelled so that no sorting by content gives this order.
        let events: Vec<NewEvent> = ["z", "a", "m"].map(|detail| event(&planted, &format!("{detail}{round}"))).to_vec();
        write(w, &planted, &WriteSet { events: events.clone(), ..WriteSet::default() })?;
        given.extend(events);
    }
    let read = w.read(|tx| tx.events_since(None, None, 100))?;
    assert_eq!(read.iter().map(|row| row.event.clone()).collect::<Vec<_>>(), given);
    let numbers: Vec<EventSeq> = read.iter().map(|row| row.seq).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    assert!(read.iter().all(|row| row.workflow_id.as_ref() == Some(&planted.id) && row.op_id == Some(name("a"))), "{read:?}");
    Ok(())
}

fn instants_are_kept_to_the_microsecond_from_year_1_to_9999(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").plant(w)?;
    let mut instants = vec![Timestamp::MIN, Timestamp::MAX];
    for micros in [-1, 0, 1, 1_769_851_800_999_999, i64::from(u32::MAX) + 1] {
        instants.push(Timestamp::from_micros(micros)?);
    }
    let mut attempts = Vec::new();
    for (fence, at) in (1..).zip(&instants) {
        let key = LeaseKey { op: planted.op("a"), token: leasehold_core::model::LeaseToken::random(), fence: Fence(fence) };
        attempts.push(Attempt { acquired_at: *at, ended_at: *at, ..attempt(&planted, key, AttemptOutcome::Released) });
    }
    write(w, &planted, &WriteSet { attempts: attempts.clone(), ..WriteSet::default() })?;
    assert_eq!(w.read(|tx| tx.attempts(planted.op("a"), Fence::NONE, 100))?, attempts);
    Ok(())
}

/// Touches the workflow at the clock's time; returns its new `updated_at`.
fn touch(w: &World, planted: &Planted) -> Result<Timestamp, leasehold_core::store::BoxError> {
    let row = w.workflow(&planted.id)?;
    let change = WorkflowChange {
        seq: row.seq,
        status: row.status,
        cancel_requested: row.cancel_requested,
        counters: row.counters,
        finished_at: row.finished_at,
        at: w.now(),
    };
    write(w, planted, &WriteSet { workflows: vec![change], ..WriteSet::default() })?;
    Ok(w.workflow(&planted.id)?.updated_at)
}

fn updates_grow_although_the_clock_stands_still_or_goes_back(w: &mut World) -> Outcome {
    let (a, b) = (Scenario::new().op("a").plant(w)?, Scenario::new().op("a").plant(w)?);
    let mut last = w.workflow(&b.id)?.updated_at;
    for (at, planted) in [&a, &b, &a, &a, &b].into_iter().enumerate() {
        match at {
            3 => w.clock().go_back(crate::scenario::LEASE)?,
            4 => w.clock().advance(leasehold_core::model::Micros::from_secs(3_600))?,
            _ => {}
        }
        let updated = touch(w, planted)?;
        assert!(updated > last, "update {at}: {updated} is not after {last}");
        assert!(updated >= w.now(), "update {at}: {updated} is before its transition");
        last = updated;
    }
    assert_eq!(last, w.now(), "once the clock is ahead again its time is taken");
    Ok(())
}

fn taking_ops_out_of_their_queues_leaves_the_others(w: &mut World) -> Outcome {
    let later = w.now().after(crate::scenario::LEASE)?;
    let planted = Scenario::new().op("a").op("b").op("c").due(later).op("d").due(later).plant(w)?;
    w.tx(|tx| tx.unqueue(&[planted.op("a"), planted.op("c")]))?;
    let queued: Vec<bool> = w.all_ops(planted.workflow)?.iter().map(|op| op.due_at.is_some()).collect();
    assert_eq!(queued, [false, true, false, true]);
    Ok(())
}

fn a_policy_replaces_the_one_of_its_site_and_queue(w: &mut World) -> Outcome {
    use crate::verbs::{limit, rate};
    let at = |site: &str, max| leasehold_core::model::QueuePolicy { site: Some(name(site)), ..limit("q", max) };
    w.set_policies(&[limit("q", 1), at("s", 2), limit("p", 3)])?;
    w.set_policies(&[at("s", 4), rate("p", 0.5, 7)])?;
    assert_eq!(w.read(|tx| tx.policies())?, [rate("p", 0.5, 7), limit("q", 1), at("s", 4)], "by queue, then any site first");
    Ok(())
}
