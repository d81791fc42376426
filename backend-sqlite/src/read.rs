//! Steps that only clients and operators need.

use crate::claim::join_policy;
use crate::set;
use crate::tx::SqliteTx;
use diesel::sql_types::{BigInt, Nullable, Text};
use leasehold_core::model::{
    ArtifactName, CollectionName, EventSeq, Fence, Json, OpSeq, QueuePolicy, RecordKey, SiteName, SubjectId, Timestamp, WorkflowName,
    WorkflowSeq,
};
use leasehold_core::state::{Counters, StoredStatus, WorkflowStatus};
use leasehold_core::store::rows::{
    ArtifactRow, Attempt, EventRow, NewRecord, OpPage, OpView, QueueStatus, Totals, UpdateCursor, WorkflowPage, WorkflowRow,
};
use leasehold_core::store::{ReadTx, StoreResult};
use leasehold_sql::{attempt_columns, op_view_columns, policy_columns, rows, statement, workflow_columns};
use std::collections::HashMap;

// The filter that an index serves is an equation; the others pass when they are not asked for.
macro_rules! list_workflows {
    ($name:literal, $subject:literal) => {
        concat!(
            "SELECT ",
            workflow_columns!(),
            " FROM workflows AS w
              WHERE w.seq < ?1
                AND (?2 IS NULL OR w.site = ?2)
                AND (?3 IS NULL OR w.status = ?3)
                AND w.created_at_us >= ?4
                AND w.created_at_us < ?5
                AND ",
            $name,
            " AND ",
            $subject,
            " ORDER BY w.seq DESC LIMIT ?8 + 0"
        )
    };
}
pub(crate) const LIST_WORKFLOWS: &str = list_workflows!("(?6 IS NULL OR w.name = ?6)", "(?7 IS NULL OR w.subject = ?7)");
pub(crate) const LIST_WORKFLOWS_BY_NAME: &str = list_workflows!("w.name = ?6", "(?7 IS NULL OR w.subject = ?7)");
pub(crate) const LIST_WORKFLOWS_BY_SUBJECT: &str = list_workflows!("(?6 IS NULL OR w.name = ?6)", "w.subject = ?7");

// Commits raise `updated_at_us` one after the other, so no row can still come before what is seen.
pub(crate) const WORKFLOWS_SINCE: &str = concat!(
    "SELECT ",
    workflow_columns!(),
    " FROM workflows AS w
      WHERE (w.updated_at_us, w.seq) > (?1, ?2)
      ORDER BY w.updated_at_us, w.seq
      LIMIT ?3 + 0"
);

// Leases are as many as workers can hold, so they have no index of workflows.
pub(crate) const RUNNING_COUNTS: &str = "
    SELECT workflow, count(*) AS running
      FROM leases
     WHERE workflow IN (SELECT value FROM json_each(?1))
     GROUP BY workflow";

macro_rules! op_views {
    ($from:literal, $where:literal) => {
        concat!(
            "SELECT ",
            op_view_columns!(),
            ", coalesce(r.due_at_us, d.due_at_us) AS due_at_us,
             CASE WHEN o.status = 'succeeded'
                  THEN (SELECT s.result FROM attempts AS s
                         WHERE s.op = o.seq AND s.outcome = 'succeeded' ORDER BY s.fence DESC LIMIT 1) END AS result,
             a.error_code, a.error_message, a.error_details
              FROM ",
            $from,
            " CROSS JOIN lanes AS l ON l.key = o.lane
              LEFT JOIN leases AS le ON le.op = o.seq
              LEFT JOIN waits AS wa ON wa.op = o.seq
              LEFT JOIN ready AS r ON r.op = o.seq
              LEFT JOIN delayed AS d ON d.op = o.seq
              LEFT JOIN attempts AS a ON a.op = o.seq AND a.fence = (SELECT max(fence) FROM attempts WHERE op = o.seq) ",
            $where
        )
    };
}
pub(crate) const LIST_OPS: &str =
    op_views!("ops AS o", "WHERE o.workflow = ?1 AND o.seq > ?2 AND (?3 IS NULL OR o.status = ?3) ORDER BY o.seq LIMIT ?4 + 0");
pub(crate) const OP_VIEWS: &str = op_views!("json_each(?1) AS j CROSS JOIN ops AS o ON o.seq = j.value", "");

pub(crate) const RESULTS: &str = "
    SELECT o.seq AS op,
           (SELECT s.result FROM attempts AS s
             WHERE s.op = o.seq AND s.outcome = 'succeeded' ORDER BY s.fence DESC LIMIT 1) AS result
      FROM json_each(?1) AS j
     CROSS JOIN ops AS o ON o.seq = j.value
     WHERE o.status = 'succeeded' AND result IS NOT NULL";

pub(crate) const ATTEMPTS: &str =
    concat!("SELECT ", attempt_columns!(), " FROM attempts AS a WHERE a.op = ?1 AND a.fence > ?2 ORDER BY a.fence LIMIT ?3 + 0");

macro_rules! artifacts {
    ($filter:literal) => {
        concat!(
            "SELECT a.op, o.id AS op_id, a.name, a.kind, a.content_type, a.metadata, a.size, a.sha256, a.fence, a.at_us
               FROM artifacts AS a
              CROSS JOIN ops AS o ON o.seq = a.op
              WHERE a.workflow = ?1 AND (a.op, a.name) > (?2, ?3) AND ",
            $filter,
            " ORDER BY a.op, a.name LIMIT ?5 + 0"
        )
    };
}
pub(crate) const ARTIFACTS: &str = artifacts!("?4 IS NULL");
pub(crate) const ARTIFACTS_OF_OP: &str = artifacts!("a.op = ?4");

pub(crate) const ARTIFACT_CONTENT: &str = "SELECT content FROM artifacts WHERE op = ?1 AND name = ?2";

pub(crate) const RECORDS: &str = "
    SELECT workflow, collection, key, op, value, at_us
      FROM records
     WHERE workflow = ?1 AND collection = ?2 AND key > ?3
     ORDER BY key
     LIMIT ?4 + 0";

macro_rules! events_since {
    ($filter:literal) => {
        concat!(
            "SELECT e.seq, e.at_us, e.kind, e.workflow, e.op, e.fence, e.actor, e.detail, w.id AS workflow_id, o.id AS op_id
               FROM events AS e
              LEFT JOIN workflows AS w ON w.seq = e.workflow
               LEFT JOIN ops AS o ON o.seq = e.op
              WHERE e.seq > ?1 AND ",
            $filter,
            " ORDER BY e.seq LIMIT ?3 + 0"
        )
    };
}
// Numbers are given and committed in one order, because there is one writer.
pub(crate) const EVENTS_SINCE: &str = events_since!("?2 IS NULL");
pub(crate) const EVENTS_OF_WORKFLOW: &str = events_since!("e.workflow = ?2");

pub(crate) const POLICIES: &str = concat!("SELECT ", policy_columns!(), " FROM policies AS p ORDER BY p.queue, p.site");

pub(crate) const QUEUE_STATUSES: &str = concat!(
    "SELECT g.site, g.queue, g.micro_tokens, g.counted_at_us, ",
    policy_columns!(),
    ", coalesce(q.ready, 0) AS ready, coalesce(q.delayed, 0) AS delayed, q.oldest_due_at_us,
       (SELECT count(*) FROM leases WHERE gate = g.key) AS in_flight
       FROM gates AS g
       LEFT JOIN (SELECT l.gate, sum(i.ready) AS ready, sum(i.delayed) AS delayed, min(i.oldest_due_at_us) AS oldest_due_at_us
                    FROM (SELECT lane, count(*) AS ready, 0 AS delayed, min(due_at_us) AS oldest_due_at_us
                            FROM ready GROUP BY lane
                           UNION ALL
                          SELECT lane, sum(due_at_us <= ?1), sum(due_at_us > ?1), min(CASE WHEN due_at_us <= ?1 THEN due_at_us END)
                            FROM delayed GROUP BY lane) AS i
                    JOIN lanes AS l ON l.key = i.lane
                   GROUP BY l.gate) AS q ON q.gate = g.key",
    join_policy!("g"),
    "ORDER BY g.site, g.queue"
);

// Ops are counted by their workflows' counters, so history costs a row a workflow.
pub(crate) const WORKFLOW_TOTALS: &str = "
    SELECT status, count(*) AS workflows, sum(pending) AS pending, sum(blocked) AS blocked, sum(open) AS open,
           sum(waiting) AS waiting, sum(succeeded) AS succeeded, sum(failed) AS failed, sum(canceled) AS canceled
      FROM workflows
     GROUP BY status";

pub(crate) const LEASE_TOTALS: &str = "
    SELECT count(*) FILTER (WHERE expires_at_us > ?1) AS live, count(*) FILTER (WHERE expires_at_us <= ?1) AS expired FROM leases";

impl ReadTx for SqliteTx<'_> {
    fn list_workflows(&mut self, page: &WorkflowPage) -> StoreResult<Vec<WorkflowRow>> {
        let sql = match (&page.subject, &page.name) {
            (Some(_), _) => LIST_WORKFLOWS_BY_SUBJECT,
            (None, Some(_)) => LIST_WORKFLOWS_BY_NAME,
            (None, None) => LIST_WORKFLOWS,
        };
        let query = statement(sql)
            .bind::<BigInt, _>(page.before.map_or(i64::MAX, |before| before.0))
            .bind::<Nullable<Text>, _>(page.site.as_ref().map(SiteName::as_str))
            .bind::<Nullable<Text>, _>(page.status.map(WorkflowStatus::as_str))
            .bind::<BigInt, _>(page.created_from.map_or(i64::MIN, Timestamp::as_micros))
            .bind::<BigInt, _>(page.created_before.map_or(i64::MAX, Timestamp::as_micros))
            .bind::<Nullable<Text>, _>(page.name.as_ref().map(WorkflowName::as_str))
            .bind::<Nullable<Text>, _>(page.subject.as_ref().map(SubjectId::as_str))
            .bind::<BigInt, _>(i64::from(page.limit));
        self.read(|tx| tx.load::<rows::Workflow, _>(query))
    }

    fn workflows_since(&mut self, after: Option<UpdateCursor>, limit: u32) -> StoreResult<Vec<WorkflowRow>> {
        let (updated_at, seq) = after.map_or((i64::MIN, i64::MIN), |after| (after.updated_at.as_micros(), after.seq.0));
        let query = statement(WORKFLOWS_SINCE).bind::<BigInt, _>(updated_at).bind::<BigInt, _>(seq).bind::<BigInt, _>(i64::from(limit));
        self.read(|tx| tx.load::<rows::Workflow, _>(query))
    }

    fn running_counts(&mut self, workflows: &[WorkflowSeq]) -> StoreResult<Vec<(WorkflowSeq, i64)>> {
        let set = set::values(workflows.iter().map(|workflow| workflow.0));
        self.read(|tx| {
            let counts: HashMap<WorkflowSeq, i64> = tx.load_set::<rows::RunningCount>(RUNNING_COUNTS, set)?.into_iter().collect();
            Ok(workflows.iter().map(|workflow| (*workflow, counts.get(workflow).copied().unwrap_or_default())).collect())
        })
    }

    fn list_ops(&mut self, workflow: WorkflowSeq, page: &OpPage) -> StoreResult<Vec<OpView>> {
        let query = statement(LIST_OPS)
            .bind::<BigInt, _>(workflow.0)
            .bind::<BigInt, _>(page.after.map_or(i64::MIN, |after| after.0))
            .bind::<Nullable<Text>, _>(page.status.map(StoredStatus::as_str))
            .bind::<BigInt, _>(i64::from(page.limit));
        self.read(|tx| tx.load::<rows::OpView, _>(query))
    }

    fn op_views(&mut self, ops: &[OpSeq]) -> StoreResult<Vec<OpView>> {
        self.read(|tx| tx.load_set::<rows::OpView>(OP_VIEWS, crate::graph::of_ops(ops)))
    }

    fn results(&mut self, ops: &[OpSeq]) -> StoreResult<Vec<(OpSeq, Json)>> {
        self.read(|tx| tx.load_set::<rows::OpResult>(RESULTS, crate::graph::of_ops(ops)))
    }

    fn attempts(&mut self, op: OpSeq, after: Fence, limit: u32) -> StoreResult<Vec<Attempt>> {
        let query = statement(ATTEMPTS).bind::<BigInt, _>(op.0).bind::<BigInt, _>(after.0).bind::<BigInt, _>(i64::from(limit));
        self.read(|tx| tx.load::<rows::Attempt, _>(query))
    }

    fn artifacts(
        &mut self,
        workflow: WorkflowSeq,
        op: Option<OpSeq>,
        after: Option<(OpSeq, ArtifactName)>,
        limit: u32,
    ) -> StoreResult<Vec<ArtifactRow>> {
        let sql = if op.is_some() { ARTIFACTS_OF_OP } else { ARTIFACTS };
        let (after_op, after_name) = after.map_or((i64::MIN, String::new()), |(op, name)| (op.0, name.into()));
        let query = statement(sql)
            .bind::<BigInt, _>(workflow.0)
            .bind::<BigInt, _>(after_op)
            .bind::<Text, _>(after_name)
            .bind::<Nullable<BigInt>, _>(op.map(|op| op.0))
            .bind::<BigInt, _>(i64::from(limit));
        self.read(|tx| tx.load::<rows::Artifact, _>(query))
    }

    fn artifact_content(&mut self, op: OpSeq, name: &ArtifactName) -> StoreResult<Option<Vec<u8>>> {
        let query = statement(ARTIFACT_CONTENT).bind::<BigInt, _>(op.0).bind::<Text, _>(name.as_str());
        self.read(|tx| Ok(tx.load_rows::<rows::Content, _>(query)?.pop().map(|row| row.content)))
    }

    fn records(
        &mut self,
        workflow: WorkflowSeq,
        collection: &CollectionName,
        after: Option<&RecordKey>,
        limit: u32,
    ) -> StoreResult<Vec<NewRecord>> {
        let query = statement(RECORDS)
            .bind::<BigInt, _>(workflow.0)
            .bind::<Text, _>(collection.as_str())
            // A key is never empty.
            .bind::<Text, _>(after.map_or("", RecordKey::as_str))
            .bind::<BigInt, _>(i64::from(limit));
        self.read(|tx| tx.load::<rows::Record, _>(query))
    }

    fn events_since(&mut self, after: Option<EventSeq>, workflow: Option<WorkflowSeq>, limit: u32) -> StoreResult<Vec<EventRow>> {
        let sql = if workflow.is_some() { EVENTS_OF_WORKFLOW } else { EVENTS_SINCE };
        let query = statement(sql)
            .bind::<BigInt, _>(after.map_or(i64::MIN, |after| after.0))
            .bind::<Nullable<BigInt>, _>(workflow.map(|workflow| workflow.0))
            .bind::<BigInt, _>(i64::from(limit));
        self.read(|tx| tx.load::<rows::Event, _>(query))
    }

    fn policies(&mut self) -> StoreResult<Vec<QueuePolicy>> {
        self.read(|tx| Ok(tx.load::<rows::OuterPolicy, _>(statement(POLICIES))?.into_iter().flatten().collect()))
    }

    fn queue_statuses(&mut self) -> StoreResult<Vec<QueueStatus>> {
        self.read(|tx| {
            let query = statement(QUEUE_STATUSES).bind::<BigInt, _>(tx.now_us());
            tx.load::<rows::QueueStatus, _>(query)
        })
    }

    fn totals(&mut self) -> StoreResult<Totals> {
        self.read(|tx| {
            let mut totals = Totals::default();
            for (status, workflows, counters) in tx.load::<rows::StatusTotals, _>(statement(WORKFLOW_TOTALS))? {
                totals.workflows.push((status, workflows));
                totals.ops = sum(totals.ops, counters);
            }
            totals.workflows.sort_unstable();
            let query = statement(LEASE_TOTALS).bind::<BigInt, _>(tx.now_us());
            if let Some(rows::LeaseTotals { live, expired }) = tx.load_rows(query)?.pop() {
                (totals.leases_live, totals.leases_expired) = (live, expired);
            }
            Ok(totals)
        })
    }
}

fn sum(a: Counters, b: Counters) -> Counters {
    let mut sum = a;
    for (status, count) in [
        (StoredStatus::Pending, b.pending),
        (StoredStatus::Blocked, b.blocked),
        (StoredStatus::Open, b.open),
        (StoredStatus::Waiting, b.waiting),
        (StoredStatus::Succeeded, b.succeeded),
        (StoredStatus::Failed, b.failed),
        (StoredStatus::Canceled, b.canceled),
    ] {
        sum.add(status, count);
    }
    sum
}
