//! What one transition writes: a statement for each non-empty part.

use crate::tx::PgTx;
use diesel::sql_types::{Array, BigInt, Binary, Nullable, Text};
use leasehold_core::model::{AgentName, DedupKey, Json, Lane, OpSeq, Timestamp};
use leasehold_core::store::rows::{
    Act, Attempt, Edge, NewArtifact, NewEvent, NewOp, NewRecord, OpChange, QueuedOp, WorkflowChange, WriteSet,
};
use leasehold_core::store::{StoreError, StoreResult};
use leasehold_sql::{rejected, rows, statement};
use std::collections::BTreeMap;

// Lanes and gates are met by many transactions: both tables in key order, late, and nothing is locked that is there.
const INSERT_GATES: &str = "
    INSERT INTO gates (key, site, queue)
    SELECT key, site, queue FROM unnest($1, $2, $3) AS g (key, site, queue) ORDER BY key
    ON CONFLICT (key) DO NOTHING";
const INSERT_LANES: &str = "
    INSERT INTO lanes (key, gate, site, queue, kind, agent)
    SELECT key, gate, site, queue, kind, agent
      FROM unnest($1, $2, $3, $4, $5, $6) AS l (key, gate, site, queue, kind, agent)
     ORDER BY key
    ON CONFLICT (key) DO NOTHING";

const INSERT_OPS: &str = "
    INSERT INTO ops (seq, workflow, id, parent, lane, priority, input, metadata, retry, dedup_key, time_limit_us, spec,
                     status, unmet, broken, created_at_us)
    SELECT seq, workflow, id, parent, lane, priority, input, metadata, retry, dedup_key, time_limit_us, spec,
           status, unmet, broken, created_at_us
      FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
        AS n (seq, workflow, id, parent, lane, priority, input, metadata, retry, dedup_key, time_limit_us, spec,
              status, unmet, broken, created_at_us)";

const INSERT_EDGES: &str = "
    INSERT INTO op_dependencies (child, parent, required)
    SELECT child, parent, required FROM unnest($1, $2, $3) AS e (child, parent, required) ORDER BY child, parent";

// The workflow's lock is the ops' lock: their rows need none of their own.
pub(crate) const UPDATE_OPS: &str = "
    UPDATE ops AS o
       SET status = c.next, unmet = c.unmet, broken = c.broken, fence = coalesce(c.fence, o.fence),
           failures = coalesce(c.failures, o.failures), losses = coalesce(c.losses, o.losses),
           finished_at_us = c.finished_at_us
      FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
        AS c (op, status, next, unmet, broken, fence, failures, losses, finished_at_us)
     WHERE o.seq = c.op AND o.status = c.status
    RETURNING o.seq";

const INSERT_READY: &str = "
    INSERT INTO ready (op, lane, priority, due_at_us, fence, failures)
    SELECT op, lane, priority, due_at_us, fence, failures
      FROM unnest($1, $2, $3, $4, $5, $6) AS q (op, lane, priority, due_at_us, fence, failures)
     ORDER BY op";
const INSERT_DELAYED: &str = "
    INSERT INTO delayed (op, lane, priority, due_at_us, fence, failures)
    SELECT op, lane, priority, due_at_us, fence, failures
      FROM unnest($1, $2, $3, $4, $5, $6) AS q (op, lane, priority, due_at_us, fence, failures)
     ORDER BY op";

const INSERT_ATTEMPTS: &str = "
    INSERT INTO attempts (op, fence, workflow, token, worker, acquired_at_us, ended_at_us, outcome, result,
                          error_code, error_message, error_details)
    SELECT op, fence, workflow, token, worker, acquired_at_us, ended_at_us, outcome, result,
           error_code, error_message, error_details
      FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
        AS a (op, fence, workflow, token, worker, acquired_at_us, ended_at_us, outcome, result,
              error_code, error_message, error_details)
     ORDER BY op, fence";

const UPSERT_ARTIFACTS: &str = "
    INSERT INTO artifacts (workflow, op, name, kind, content_type, metadata, size, sha256, fence, at_us, content)
    SELECT workflow, op, name, kind, content_type, metadata, length(content), sha256, fence, at_us, content
      FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
        AS a (workflow, op, name, kind, content_type, metadata, sha256, fence, at_us, content)
     ORDER BY op, name COLLATE \"C\"
    ON CONFLICT (op, name) DO UPDATE
       SET kind = excluded.kind, content_type = excluded.content_type, metadata = excluded.metadata,
           size = excluded.size, sha256 = excluded.sha256, fence = excluded.fence, at_us = excluded.at_us,
           content = excluded.content";

const UPSERT_RECORDS: &str = "
    INSERT INTO records (workflow, collection, key, op, value, at_us)
    SELECT workflow, collection, key, op, value, at_us
      FROM unnest($1, $2, $3, $4, $5, $6) AS r (workflow, collection, key, op, value, at_us)
     ORDER BY workflow, collection COLLATE \"C\", key COLLATE \"C\"
    ON CONFLICT (workflow, collection, key) DO UPDATE
       SET op = excluded.op, value = excluded.value, at_us = excluded.at_us";

// The numbers follow the order of the set.
const INSERT_EVENTS: &str = "
    INSERT INTO events (at_us, kind, workflow, op, fence, actor, detail)
    SELECT at_us, kind, workflow, op, fence, actor, detail
      FROM unnest($1, $2, $3, $4, $5, $6, $7)
      WITH ORDINALITY AS e (at_us, kind, workflow, op, fence, actor, detail, place)
     ORDER BY place";

// The rows are held locked. Nothing that this transaction wrote counts as committed: rows with its own xmin are left
// out of `latest`, but what they already say is not taken back.
pub(crate) const UPDATE_WORKFLOWS: &str = "
    WITH latest AS MATERIALIZED (
        SELECT updated_at_us FROM workflows WHERE xmin <> pg_current_xact_id()::xid
         ORDER BY updated_at_us DESC, seq DESC LIMIT 1)
    UPDATE workflows AS w
       SET status = c.status, cancel_requested = c.cancel_requested, pending = c.pending, blocked = c.blocked,
           open = c.open, waiting = c.waiting, succeeded = c.succeeded, failed = c.failed, canceled = c.canceled,
           finished_at_us = c.finished_at_us,
           updated_at_us = greatest(c.at_us, w.updated_at_us, (SELECT updated_at_us + 1 FROM latest))
      FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
        AS c (seq, status, cancel_requested, pending, blocked, open, waiting, succeeded, failed, canceled,
              finished_at_us, at_us)
     WHERE w.seq = c.seq";

const INSERT_ACT: &str = "INSERT INTO acts (request, question, answer, actor, at_us) VALUES ($1, $2, $3, $4, $5)";

/// How much of a part travels in one statement: a message to Postgres ends at 1 GiB, and both sides hold it whole.
const STATEMENT_BYTES: usize = 64 * 1024 * 1024;

/// How many rows travel in one statement; a call of a million ops stays far from the message's end.
const STATEMENT_ROWS: usize = 100_000;

/// Splits a part where one statement would grow too large; an ordinary one stays whole, an empty one has no statement.
pub(crate) fn parts<T>(items: &[T], bytes: impl Fn(&T) -> usize) -> Vec<&[T]> {
    let mut parts = Vec::new();
    let (mut rest, mut size, mut count) = (items, 0, 0);
    for item in items {
        let more = bytes(item);
        if count > 0 && (size + more > STATEMENT_BYTES || count == STATEMENT_ROWS) {
            let (part, after) = rest.split_at(count);
            parts.push(part);
            (rest, size, count) = (after, 0, 0);
        }
        size += more;
        count += 1;
    }
    if !rest.is_empty() {
        parts.push(rest);
    }
    parts
}

/// A parameter: one value of each row.
pub(crate) fn column<'a, T, V>(rows: impl IntoIterator<Item = &'a T>, value: impl Fn(&'a T) -> V) -> Vec<V>
where
    T: 'a,
{
    rows.into_iter().map(value).collect()
}

impl PgTx<'_> {
    pub(crate) fn write_set(&mut self, set: &WriteSet) -> StoreResult<Vec<OpSeq>> {
        self.require_locks(set)?;
        for part in parts(&set.ops, |op| op.input.as_str().len() + op.metadata.as_str().len()) {
            self.insert_ops(part)?;
        }
        for part in parts(&set.edges, |_| 0) {
            self.insert_edges(part)?;
        }
        let mut moved = Vec::new();
        for part in parts(&set.changes, |_| 0) {
            moved.extend(self.update_ops(part)?);
        }
        for (sql, queued) in [(INSERT_DELAYED, &set.delayed), (INSERT_READY, &set.ready)] {
            for part in parts(queued, |_| 0) {
                self.insert_queued(sql, part)?;
            }
        }
        for part in parts(&set.waits, |_| 0) {
            self.insert_waits(part)?;
        }
        for part in parts(&set.wakes, |_| 0) {
            self.upsert_wakes(part)?;
        }
        for part in parts(&set.attempts, |line| line.result.as_ref().map_or(0, |result| result.as_str().len())) {
            self.insert_attempts(part)?;
        }
        for part in parts(&set.artifacts, |new| new.artifact.content.len() + new.artifact.metadata.as_str().len()) {
            self.upsert_artifacts(part)?;
        }
        for part in parts(&set.records, |new| new.record.value.as_str().len()) {
            self.upsert_records(part)?;
        }
        self.insert_lanes(&set.lanes)?;
        for part in parts(&set.events, |_| 0) {
            self.insert_events(part)?;
        }
        for part in parts(&set.workflows, |_| 0) {
            self.update_workflows(part)?;
        }
        if let Some(act) = &set.act {
            self.insert_act(act)?;
        }
        Ok(moved)
    }

    fn require_locks(&mut self, set: &WriteSet) -> StoreResult<()> {
        let named = set.ops.iter().map(|op| op.workflow.0).chain(set.workflows.iter().map(|change| change.seq.0));
        for workflow in named {
            self.require("workflow", self.workflows.contains(&workflow), &workflow)?;
        }
        Ok(())
    }

    fn insert_lanes(&mut self, lanes: &[Lane]) -> StoreResult<()> {
        if lanes.is_empty() {
            return Ok(());
        }
        let gates: BTreeMap<_, &Lane> = lanes.iter().map(|lane| (lane.gate, lane)).collect();
        let query = statement(INSERT_GATES)
            .bind::<Array<BigInt>, _>(gates.keys().map(|gate| gate.0).collect::<Vec<_>>())
            .bind::<Array<Text>, _>(gates.values().map(|lane| lane.site.as_str()).collect::<Vec<_>>())
            .bind::<Array<Text>, _>(gates.values().map(|lane| lane.queue.as_str()).collect::<Vec<_>>());
        self.execute(query)?;
        let query = statement(INSERT_LANES)
            .bind::<Array<BigInt>, _>(column(lanes, |lane| lane.key.0))
            .bind::<Array<BigInt>, _>(column(lanes, |lane| lane.gate.0))
            .bind::<Array<Text>, _>(column(lanes, |lane| lane.site.as_str()))
            .bind::<Array<Text>, _>(column(lanes, |lane| lane.queue.as_str()))
            .bind::<Array<Text>, _>(column(lanes, |lane| lane.kind.as_str()))
            .bind::<Array<Nullable<Text>>, _>(column(lanes, |lane| lane.agent.as_ref().map(AgentName::as_str)));
        self.execute(query).map(drop)
    }

    fn insert_ops(&mut self, ops: &[NewOp]) -> StoreResult<()> {
        let retry: Result<Vec<String>, _> = ops.iter().map(|op| serde_json::to_string(&op.retry)).collect();
        let retry = retry.map_err(|error| self.fail(StoreError::Rejected(error.into())))?;
        let query = statement(INSERT_OPS)
            .bind::<Array<BigInt>, _>(column(ops, |op| op.seq.0))
            .bind::<Array<BigInt>, _>(column(ops, |op| op.workflow.0))
            .bind::<Array<Text>, _>(column(ops, |op| op.id.as_str()))
            .bind::<Array<Nullable<BigInt>>, _>(column(ops, |op| op.parent.map(|parent| parent.0)))
            .bind::<Array<BigInt>, _>(column(ops, |op| op.lane.key.0))
            .bind::<Array<BigInt>, _>(column(ops, |op| i64::from(op.priority)))
            .bind::<Array<Text>, _>(column(ops, |op| op.input.as_str()))
            .bind::<Array<Text>, _>(column(ops, |op| op.metadata.as_str()))
            .bind::<Array<Text>, _>(retry)
            .bind::<Array<Nullable<Text>>, _>(column(ops, |op| op.dedup_key.as_ref().map(DedupKey::as_str)))
            .bind::<Array<Nullable<BigInt>>, _>(column(ops, |op| op.time_limit.map(i64::from)))
            .bind::<Array<Text>, _>(column(ops, |op| op.spec.to_string()))
            .bind::<Array<Text>, _>(column(ops, |op| op.status.as_str()))
            .bind::<Array<BigInt>, _>(column(ops, |op| i64::from(op.unmet)))
            .bind::<Array<BigInt>, _>(column(ops, |op| i64::from(op.broken)))
            .bind::<Array<BigInt>, _>(column(ops, |op| op.created_at.as_micros()));
        self.execute(query).map(drop)
    }

    fn insert_edges(&mut self, edges: &[Edge]) -> StoreResult<()> {
        let query = statement(INSERT_EDGES)
            .bind::<Array<BigInt>, _>(column(edges, |edge| edge.child.0))
            .bind::<Array<BigInt>, _>(column(edges, |edge| edge.parent.0))
            .bind::<Array<BigInt>, _>(column(edges, |edge| i64::from(edge.required)));
        self.execute(query).map(drop)
    }

    fn update_ops(&mut self, changes: &[OpChange]) -> StoreResult<Vec<OpSeq>> {
        let mut in_order: Vec<&OpChange> = changes.iter().collect();
        in_order.sort_unstable_by_key(|change| change.op);
        let changes = || in_order.iter().copied();
        let query = statement(UPDATE_OPS)
            .bind::<Array<BigInt>, _>(column(changes(), |change| change.op.0))
            .bind::<Array<Text>, _>(column(changes(), |change| change.from.as_str()))
            .bind::<Array<Text>, _>(column(changes(), |change| change.to.as_str()))
            .bind::<Array<BigInt>, _>(column(changes(), |change| i64::from(change.unmet)))
            .bind::<Array<BigInt>, _>(column(changes(), |change| i64::from(change.broken)))
            .bind::<Array<Nullable<BigInt>>, _>(column(changes(), |change| change.fence.map(|fence| fence.0)))
            .bind::<Array<Nullable<BigInt>>, _>(column(changes(), |change| change.failures.map(i64::from)))
            .bind::<Array<Nullable<BigInt>>, _>(column(changes(), |change| change.losses.map(i64::from)))
            .bind::<Array<Nullable<BigInt>>, _>(column(changes(), |change| change.finished_at.map(Timestamp::as_micros)));
        let mut moved = self.load::<rows::Seq, _>(query)?;
        moved.sort_unstable();
        Ok(moved)
    }

    fn insert_queued(&mut self, sql: &'static str, queued: &[QueuedOp]) -> StoreResult<()> {
        let query = statement(sql)
            .bind::<Array<BigInt>, _>(column(queued, |queued| queued.op.0))
            .bind::<Array<BigInt>, _>(column(queued, |queued| queued.lane.0))
            .bind::<Array<BigInt>, _>(column(queued, |queued| i64::from(queued.priority)))
            .bind::<Array<BigInt>, _>(column(queued, |queued| queued.due_at.as_micros()))
            .bind::<Array<BigInt>, _>(column(queued, |queued| queued.fence.0))
            .bind::<Array<BigInt>, _>(column(queued, |queued| i64::from(queued.failures)));
        self.execute(query).map(drop)
    }

    fn insert_attempts(&mut self, lines: &[Attempt]) -> StoreResult<()> {
        let query = statement(INSERT_ATTEMPTS)
            .bind::<Array<BigInt>, _>(column(lines, |line| line.key.op.0))
            .bind::<Array<BigInt>, _>(column(lines, |line| line.key.fence.0))
            .bind::<Array<BigInt>, _>(column(lines, |line| line.workflow.0))
            .bind::<Array<Text>, _>(column(lines, |line| line.key.token.to_string()))
            .bind::<Array<Text>, _>(column(lines, |line| line.worker.as_str()))
            .bind::<Array<BigInt>, _>(column(lines, |line| line.acquired_at.as_micros()))
            .bind::<Array<BigInt>, _>(column(lines, |line| line.ended_at.as_micros()))
            .bind::<Array<Text>, _>(column(lines, |line| line.outcome.as_str()))
            .bind::<Array<Nullable<Text>>, _>(column(lines, |line| line.result.as_ref().map(Json::as_str)))
            .bind::<Array<Nullable<Text>>, _>(column(lines, |line| line.error.as_ref().map(|error| error.code.as_str())))
            .bind::<Array<Nullable<Text>>, _>(column(lines, |line| line.error.as_ref().map(|error| error.message.as_str())))
            .bind::<Array<Nullable<Text>>, _>(column(lines, |line| line.error.as_ref().map(|error| error.details.as_str())));
        self.execute(query).map(drop)
    }

    fn upsert_artifacts(&mut self, artifacts: &[NewArtifact]) -> StoreResult<()> {
        let query = statement(UPSERT_ARTIFACTS)
            .bind::<Array<BigInt>, _>(column(artifacts, |new| new.workflow.0))
            .bind::<Array<BigInt>, _>(column(artifacts, |new| new.op.0))
            .bind::<Array<Text>, _>(column(artifacts, |new| new.artifact.name.as_str()))
            .bind::<Array<Text>, _>(column(artifacts, |new| new.artifact.kind.as_str()))
            .bind::<Array<Text>, _>(column(artifacts, |new| new.artifact.content_type.as_str()))
            .bind::<Array<Text>, _>(column(artifacts, |new| new.artifact.metadata.as_str()))
            .bind::<Array<Text>, _>(column(artifacts, |new| new.sha256.to_string()))
            .bind::<Array<BigInt>, _>(column(artifacts, |new| new.fence.0))
            .bind::<Array<BigInt>, _>(column(artifacts, |new| new.at.as_micros()))
            .bind::<Array<Binary>, _>(column(artifacts, |new| new.artifact.content.as_slice()));
        self.execute(query).map(drop)
    }

    fn upsert_records(&mut self, records: &[NewRecord]) -> StoreResult<()> {
        let query = statement(UPSERT_RECORDS)
            .bind::<Array<BigInt>, _>(column(records, |new| new.workflow.0))
            .bind::<Array<Text>, _>(column(records, |new| new.record.collection.as_str()))
            .bind::<Array<Text>, _>(column(records, |new| new.record.key.as_str()))
            .bind::<Array<BigInt>, _>(column(records, |new| new.op.0))
            .bind::<Array<Text>, _>(column(records, |new| new.record.value.as_str()))
            .bind::<Array<BigInt>, _>(column(records, |new| new.at.as_micros()));
        self.execute(query).map(drop)
    }

    fn insert_events(&mut self, events: &[NewEvent]) -> StoreResult<()> {
        let query = statement(INSERT_EVENTS)
            .bind::<Array<BigInt>, _>(column(events, |event| event.at.as_micros()))
            .bind::<Array<Text>, _>(column(events, |event| event.kind.as_str()))
            .bind::<Array<Nullable<BigInt>>, _>(column(events, |event| event.workflow.map(|workflow| workflow.0)))
            .bind::<Array<Nullable<BigInt>>, _>(column(events, |event| event.op.map(|op| op.0)))
            .bind::<Array<Nullable<BigInt>>, _>(column(events, |event| event.fence.map(|fence| fence.0)))
            .bind::<Array<Nullable<Text>>, _>(column(events, |event| event.actor.as_deref()))
            .bind::<Array<Nullable<Text>>, _>(column(events, |event| event.detail.as_deref()));
        self.execute(query).map(drop)
    }

    fn update_workflows(&mut self, changes: &[WorkflowChange]) -> StoreResult<()> {
        let query = statement(UPDATE_WORKFLOWS)
            .bind::<Array<BigInt>, _>(column(changes, |change| change.seq.0))
            .bind::<Array<Text>, _>(column(changes, |change| change.status.as_str()))
            .bind::<Array<BigInt>, _>(column(changes, |change| i64::from(change.cancel_requested)))
            .bind::<Array<BigInt>, _>(column(changes, |change| change.counters.pending))
            .bind::<Array<BigInt>, _>(column(changes, |change| change.counters.blocked))
            .bind::<Array<BigInt>, _>(column(changes, |change| change.counters.open))
            .bind::<Array<BigInt>, _>(column(changes, |change| change.counters.waiting))
            .bind::<Array<BigInt>, _>(column(changes, |change| change.counters.succeeded))
            .bind::<Array<BigInt>, _>(column(changes, |change| change.counters.failed))
            .bind::<Array<BigInt>, _>(column(changes, |change| change.counters.canceled))
            .bind::<Array<Nullable<BigInt>>, _>(column(changes, |change| change.finished_at.map(Timestamp::as_micros)))
            .bind::<Array<BigInt>, _>(changes.iter().map(|change| self.update_at(change.at)).collect::<Vec<_>>());
        if self.execute(query)? == changes.len() {
            Ok(())
        } else {
            Err(self.fail(rejected("a workflow to change is not there, or is named twice")))
        }
    }

    fn insert_act(&mut self, act: &Act) -> StoreResult<()> {
        let query = statement(INSERT_ACT)
            .bind::<Text, _>(act.request.to_string())
            .bind::<Text, _>(act.question.as_str())
            .bind::<Text, _>(act.answer.as_str())
            .bind::<Text, _>(act.actor.as_str())
            .bind::<BigInt, _>(act.at.as_micros());
        self.execute(query).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_part_is_one_statement_and_a_huge_one_a_few() {
        assert!(parts::<u8>(&[], |_| 1).is_empty());
        assert_eq!(parts(&vec![0; 10_000], |_| 1_000).len(), 1);
        let halves = parts(&[0; 4], |_| STATEMENT_BYTES / 2);
        assert_eq!(halves.iter().map(|part| part.len()).collect::<Vec<_>>(), [2, 2]);
        assert_eq!(parts(&[0; 2], |_| STATEMENT_BYTES * 2).len(), 2, "what is over by itself still travels");
        assert_eq!(parts(&vec![0; STATEMENT_ROWS + 1], |_| 0).len(), 2);
    }
}
