//! All that one transition writes: a statement for each part that is not empty.

use crate::set::{self, Cell, Set, cells};
use crate::tx::SqliteTx;
use crate::wait::{INSERT_WAITS, PUT_WAKES, waits, wakes};
use diesel::sql_types::{BigInt, Text};
use leasehold_core::model::{AgentName, DedupKey, Json, Micros, OpSeq, Timestamp};
use leasehold_core::store::StoreResult;
use leasehold_core::store::rows::{
    Act, Attempt, Edge, NewArtifact, NewEvent, NewOp, NewRecord, OpChange, QueuedOp, WorkflowChange, WriteSet,
};
use leasehold_sql::{rows, statement};

pub(crate) const INSERT_LANES: &str = "
    INSERT INTO lanes (key, gate, site, queue, kind, agent)
    SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5
      FROM jsonb_each(?1)
     WHERE true
        ON CONFLICT (key) DO NOTHING";

pub(crate) const INSERT_GATES: &str = "
    INSERT INTO gates (key, site, queue)
    SELECT value ->> 1, value ->> 2, value ->> 3
      FROM jsonb_each(?1)
     WHERE true
        ON CONFLICT (key) DO NOTHING";

pub(crate) const INSERT_OPS: &str = "
    INSERT INTO ops (seq, workflow, id, parent, lane, priority, input, metadata, retry, dedup_key, time_limit_us, spec,
                     status, unmet, broken, created_at_us)
    SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
           value ->> 8, value ->> 9, value ->> 10, value ->> 11, value ->> 12, value ->> 13, value ->> 14, value ->> 15
      FROM jsonb_each(?1)";

pub(crate) const INSERT_EDGES: &str = "
    INSERT INTO op_dependencies (child, parent, required)
    SELECT value ->> 0, value ->> 1, value ->> 2
      FROM jsonb_each(?1)";

pub(crate) const CHANGE_OPS: &str = "
    UPDATE ops
       SET status = c.value ->> 2, unmet = c.value ->> 3, broken = c.value ->> 4,
           fence = coalesce(c.value ->> 5, fence), failures = coalesce(c.value ->> 6, failures),
           losses = coalesce(c.value ->> 7, losses), finished_at_us = c.value ->> 8
      FROM jsonb_each(?1) AS c
     WHERE ops.seq = c.value ->> 0 AND ops.status = c.value ->> 1
    RETURNING seq";

pub(crate) const INSERT_READY: &str = "
    INSERT INTO ready (op, lane, priority, due_at_us, fence, failures)
    SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5
      FROM jsonb_each(?1)";

pub(crate) const INSERT_DELAYED: &str = "
    INSERT INTO delayed (op, lane, priority, due_at_us, fence, failures)
    SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5
      FROM jsonb_each(?1)";

pub(crate) const INSERT_ATTEMPTS: &str = "
    INSERT INTO attempts (op, fence, workflow, token, worker, acquired_at_us, ended_at_us, outcome,
                          result, error_code, error_message, error_details)
    SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
           value ->> 8, value ->> 9, value ->> 10, value ->> 11
      FROM jsonb_each(?1)";

// A later attempt's artifact takes the row of the earlier one, whose key people may hold.
pub(crate) const PUT_ARTIFACTS: &str = "
    INSERT INTO artifacts (workflow, op, name, kind, content_type, metadata, size, sha256, fence, at_us, content)
    SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
           value ->> 8, value ->> 9, unhex(value ->> 10)
      FROM jsonb_each(?1)
     WHERE true
        ON CONFLICT (op, name) DO UPDATE
       SET workflow = excluded.workflow, kind = excluded.kind, content_type = excluded.content_type,
           metadata = excluded.metadata, size = excluded.size, sha256 = excluded.sha256, fence = excluded.fence,
           at_us = excluded.at_us, content = excluded.content";

pub(crate) const PUT_RECORDS: &str = "
    INSERT INTO records (workflow, collection, key, op, value, at_us)
    SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5
      FROM jsonb_each(?1)
     WHERE true
        ON CONFLICT (workflow, collection, key) DO UPDATE
       SET op = excluded.op, value = excluded.value, at_us = excluded.at_us";

// Numbered in the order of the array.
pub(crate) const INSERT_EVENTS: &str = "
    INSERT INTO events (at_us, kind, workflow, op, fence, actor, detail)
    SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6
      FROM jsonb_each(?1)";

pub(crate) const CHANGE_WORKFLOWS: &str = "
    UPDATE workflows
       SET status = c.value ->> 1, cancel_requested = c.value ->> 2, pending = c.value ->> 3, blocked = c.value ->> 4,
           open = c.value ->> 5, waiting = c.value ->> 6, succeeded = c.value ->> 7, failed = c.value ->> 8,
           canceled = c.value ->> 9, finished_at_us = c.value ->> 10, updated_at_us = max(c.value ->> 11, ?1)
      FROM jsonb_each(?2) AS c
     WHERE workflows.seq = c.value ->> 0";

pub(crate) const INSERT_ACT: &str = "INSERT INTO acts (request, question, answer, actor, at_us) VALUES (?1, ?2, ?3, ?4, ?5)";

pub(crate) fn write(tx: &mut SqliteTx<'_>, set: &WriteSet) -> StoreResult<Vec<OpSeq>> {
    for part in lanes(set) {
        tx.execute(statement(INSERT_LANES).bind::<Text, _>(&part))?;
        tx.execute(statement(INSERT_GATES).bind::<Text, _>(&part))?;
    }
    tx.execute_set(INSERT_OPS, ops(&set.ops))?;
    tx.execute_set(INSERT_EDGES, edges(&set.edges))?;
    let moved = tx.load_set::<rows::Seq>(CHANGE_OPS, changes(&set.changes))?;
    tx.wrote(moved.len());
    tx.execute_set(INSERT_READY, queued(&set.ready))?;
    tx.execute_set(INSERT_DELAYED, queued(&set.delayed))?;
    tx.execute_set(INSERT_WAITS, waits(&set.waits))?;
    tx.execute_set(PUT_WAKES, wakes(&set.wakes))?;
    tx.execute_set(INSERT_ATTEMPTS, attempts(&set.attempts))?;
    tx.execute_set(PUT_ARTIFACTS, artifacts(&set.artifacts))?;
    tx.execute_set(PUT_RECORDS, records(&set.records))?;
    tx.execute_set(INSERT_EVENTS, events(&set.events))?;
    for part in workflows(&set.workflows) {
        let past = tx.updated_past()?;
        tx.execute(statement(CHANGE_WORKFLOWS).bind::<BigInt, _>(past).bind::<Text, _>(part))?;
    }
    if let Some(Act { request, question, answer, actor, at }) = &set.act {
        tx.execute(
            statement(INSERT_ACT)
                .bind::<Text, _>(request.to_string())
                .bind::<Text, _>(question)
                .bind::<Text, _>(answer.as_str())
                .bind::<Text, _>(actor)
                .bind::<BigInt, _>(at.as_micros()),
        )?;
    }
    Ok(moved)
}

fn lanes(set: &WriteSet) -> Set {
    set::rows(&set.lanes, |lane| {
        cells![
            lane.key.0,
            lane.gate.0,
            lane.site.as_str(),
            lane.queue.as_str(),
            lane.kind.as_str(),
            lane.agent.as_ref().map(AgentName::as_str),
        ]
    })
}

fn ops(ops: &[NewOp]) -> Set {
    // Ops of one call mostly share their policy.
    let mut retry = (None, String::new());
    set::rows(in_order(ops, |op| op.seq), move |op| {
        if retry.0 != Some(op.retry) {
            retry = (Some(op.retry), serde_json::to_string(&op.retry).unwrap_or_default());
        }
        cells![
            op.seq.0,
            op.workflow.0,
            op.id.as_str(),
            op.parent.map(|parent| parent.0),
            op.lane.key.0,
            op.priority,
            op.input.as_str(),
            op.metadata.as_str(),
            retry.1.clone(),
            op.dedup_key.as_ref().map(DedupKey::as_str),
            op.time_limit.map(Micros::get),
            op.spec.to_string(),
            op.status.as_str(),
            op.unmet,
            op.broken,
            op.created_at.as_micros(),
        ]
    })
}

fn edges(edges: &[Edge]) -> Set {
    set::rows(in_order(edges, |edge| (edge.child, edge.parent)), |edge| cells![edge.child.0, edge.parent.0, edge.required])
}

fn changes(changes: &[OpChange]) -> Set {
    set::rows(in_order(changes, |change| change.op), |change| {
        cells![
            change.op.0,
            change.from.as_str(),
            change.to.as_str(),
            change.unmet,
            change.broken,
            change.fence.map(|fence| fence.0),
            change.failures,
            change.losses,
            change.finished_at.map(Timestamp::as_micros),
        ]
    })
}

fn queued(ops: &[QueuedOp]) -> Set {
    set::rows(in_order(ops, |queued| queued.op), |queued| {
        cells![queued.op.0, queued.lane.0, queued.priority, queued.due_at.as_micros(), queued.fence.0, queued.failures]
    })
}

fn attempts(attempts: &[Attempt]) -> Set {
    set::rows(in_order(attempts, |attempt| attempt.key), |attempt| {
        let error = attempt.error.as_ref();
        cells![
            attempt.key.op.0,
            attempt.key.fence.0,
            attempt.workflow.0,
            attempt.key.token.to_string(),
            attempt.worker.as_str(),
            attempt.acquired_at.as_micros(),
            attempt.ended_at.as_micros(),
            attempt.outcome.as_str(),
            attempt.result.as_ref().map(Json::as_str),
            error.map(|error| error.code.as_str()),
            error.map(|error| error.message.as_str()),
            error.map(|error| error.details.as_str()),
        ]
    })
}

fn artifacts(artifacts: &[NewArtifact]) -> Set {
    set::rows(in_order(artifacts, |new| (new.op, new.artifact.name.clone())), |new| {
        cells![
            new.workflow.0,
            new.op.0,
            new.artifact.name.as_str(),
            new.artifact.kind.as_str(),
            new.artifact.content_type.as_str(),
            new.artifact.metadata.as_str(),
            i64::try_from(new.artifact.content.len()).ok(),
            new.sha256.to_string(),
            new.fence.0,
            new.at.as_micros(),
            Cell::Bytes(&new.artifact.content),
        ]
    })
}

fn records(records: &[NewRecord]) -> Set {
    let key = |new: &NewRecord| (new.workflow, new.record.collection.clone(), new.record.key.clone());
    set::rows(in_order(records, key), |new| {
        cells![
            new.workflow.0,
            new.record.collection.as_str(),
            new.record.key.as_str(),
            new.op.0,
            new.record.value.as_str(),
            new.at.as_micros(),
        ]
    })
}

fn events(events: &[NewEvent]) -> Set {
    set::rows(events, |event| {
        cells![
            event.at.as_micros(),
            event.kind.as_str(),
            event.workflow.map(|workflow| workflow.0),
            event.op.map(|op| op.0),
            event.fence.map(|fence| fence.0),
            event.actor.as_deref(),
            event.detail.as_deref(),
        ]
    })
}

fn workflows(changes: &[WorkflowChange]) -> Set {
    set::rows(in_order(changes, |change| change.seq), |change| {
        let counters = change.counters;
        cells![
            change.seq.0,
            change.status.as_str(),
            change.cancel_requested,
            counters.pending,
            counters.blocked,
            counters.open,
            counters.waiting,
            counters.succeeded,
            counters.failed,
            counters.canceled,
            change.finished_at.map(Timestamp::as_micros),
            change.at.as_micros(),
        ]
    })
}

/// Rows go in key order: neighbours share a page.
fn in_order<T, K: Ord>(items: &[T], key: impl FnMut(&T) -> K) -> Vec<&T> {
    let mut key = key;
    let mut sorted: Vec<&T> = items.iter().collect();
    sorted.sort_by_cached_key(|item| key(item));
    sorted
}
