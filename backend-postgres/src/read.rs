//! Steps that only clients and operators need.

use crate::claim::policy_join;
use crate::graph::{ops, workflows};
use crate::tx::PgTx;
use diesel::pg::Pg;
use diesel::sql_types::{Array, BigInt, Nullable, Text};
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

const LIST_WORKFLOWS: &str = concat!("SELECT ", workflow_columns!(), " FROM workflows AS w WHERE TRUE");

pub(crate) const WORKFLOWS_SINCE: &str = concat!(
    "SELECT ",
    workflow_columns!(),
    " FROM workflows AS w
     WHERE (w.updated_at_us, w.seq) > ($1, $2) AND w.updated_at_us <= $3
     ORDER BY w.updated_at_us, w.seq LIMIT $4"
);

const RUNNING_COUNTS: &str = "
    SELECT k.workflow, count(le.op) AS running
      FROM (SELECT DISTINCT workflow FROM unnest($1) AS k (workflow)) AS k
      LEFT JOIN leases AS le ON le.workflow = k.workflow
     GROUP BY k.workflow ORDER BY k.workflow";

/// The tables that a view of an op is made of.
macro_rules! op_view {
    () => {
        concat!(
            "SELECT ",
            op_view_columns!(),
            ", coalesce(r.due_at_us, d.due_at_us) AS due_at_us,
               CASE WHEN o.status = 'succeeded' THEN (
                   SELECT a.result FROM attempts AS a WHERE a.op = o.seq AND a.outcome = 'succeeded'
                    ORDER BY a.fence DESC LIMIT 1) END AS result,
               la.error_code, la.error_message, la.error_details
              FROM ops AS o
              JOIN lanes AS l ON l.key = o.lane
              LEFT JOIN leases AS le ON le.op = o.seq
              LEFT JOIN waits AS wa ON wa.op = o.seq
              LEFT JOIN ready AS r ON r.op = o.seq
              LEFT JOIN delayed AS d ON d.op = o.seq
              LEFT JOIN LATERAL (
                  SELECT a.error_code, a.error_message, a.error_details FROM attempts AS a
                   WHERE a.op = o.seq ORDER BY a.fence DESC LIMIT 1) AS la ON TRUE "
        )
    };
}

// The page is cut before the other tables are joined to it.
pub(crate) const LIST_OPS: &str = concat!(
    op_view!(),
    "WHERE o.seq = ANY(ARRAY(
         SELECT s.seq FROM ops AS s
          WHERE s.workflow = $1 AND s.seq > $2 AND ($3::text IS NULL OR s.status = $3)
          ORDER BY s.seq LIMIT $4))
     ORDER BY o.seq"
);
pub(crate) const OP_VIEWS: &str = concat!(op_view!(), "WHERE o.seq = ANY($1) ORDER BY o.seq");

pub(crate) const RESULTS: &str = "
    SELECT o.seq AS op, s.result
      FROM ops AS o
     CROSS JOIN LATERAL (
         SELECT a.result FROM attempts AS a WHERE a.op = o.seq AND a.outcome = 'succeeded'
          ORDER BY a.fence DESC LIMIT 1) AS s
     WHERE o.seq = ANY($1) AND o.status = 'succeeded' AND s.result IS NOT NULL
     ORDER BY o.seq";

const ATTEMPTS: &str =
    concat!("SELECT ", attempt_columns!(), " FROM attempts AS a WHERE a.op = $1 AND a.fence > $2 ORDER BY a.fence LIMIT $3");

const ARTIFACTS: &str = "
    SELECT a.op, o.id AS op_id, a.name, a.kind, a.content_type, a.metadata, a.size, a.sha256, a.fence, a.at_us
      FROM artifacts AS a
      JOIN ops AS o ON o.seq = a.op
     WHERE a.workflow = $1 AND ($2::bigint IS NULL OR a.op = $2) AND (a.op, a.name) > ($3, $4)
     ORDER BY a.op, a.name LIMIT $5";

const ARTIFACT_CONTENT: &str = "SELECT content FROM artifacts WHERE op = $1 AND name = $2";

const RECORDS: &str = "
    SELECT workflow, collection, key, op, value, at_us FROM records
     WHERE workflow = $1 AND collection = $2 AND key > $3 ORDER BY key LIMIT $4";

/// Events up to the final mark, where `$of` holds.
macro_rules! events_since {
    ($of:literal, $limit:literal) => {
        concat!(
            "SELECT e.seq, e.at_us, e.kind, e.workflow, e.op, e.fence, e.actor, e.detail, w.id AS workflow_id, o.id AS op_id
               FROM (SELECT seq, at_us, kind, workflow, op, fence, actor, detail FROM events
                      WHERE seq > $1 AND seq <= $2 ",
            $of,
            " ORDER BY seq LIMIT ",
            $limit,
            ") AS e
               LEFT JOIN workflows AS w ON w.seq = e.workflow
               LEFT JOIN ops AS o ON o.seq = e.op
              ORDER BY e.seq"
        )
    };
}
pub(crate) const EVENTS_SINCE: &str = events_since!("", "$3");
pub(crate) const EVENTS_OF_WORKFLOW_SINCE: &str = events_since!("AND workflow = $3", "$4");

const POLICIES: &str = concat!("SELECT ", policy_columns!(), " FROM policies AS p ORDER BY p.queue, p.site");

const QUEUE_STATUSES: &str = concat!(
    "WITH clock AS MATERIALIZED (SELECT now_us() AS us),
     waiting AS (
         SELECT lane, count(*) AS due, 0 AS later, min(due_at_us) AS oldest_us FROM ready GROUP BY lane
         UNION ALL
         SELECT lane, count(*) FILTER (WHERE due_at_us <= us), count(*) FILTER (WHERE due_at_us > us),
                min(due_at_us) FILTER (WHERE due_at_us <= us)
           FROM delayed CROSS JOIN clock GROUP BY lane),
     by_gate AS (
         SELECT k.gate, sum(w.due)::bigint AS due, sum(w.later)::bigint AS later, min(w.oldest_us) AS oldest_us
           FROM waiting AS w JOIN lanes AS k ON k.key = w.lane GROUP BY k.gate),
     leased AS (SELECT gate, count(*) AS in_flight FROM leases GROUP BY gate)
     SELECT l.site, l.queue, coalesce(b.due, 0) AS ready, coalesce(b.later, 0) AS delayed,
            coalesce(le.in_flight, 0) AS in_flight, b.oldest_us AS oldest_due_at_us, ",
    policy_columns!(),
    ", l.micro_tokens, l.counted_at_us
      FROM gates AS l
      LEFT JOIN by_gate AS b ON b.gate = l.key
      LEFT JOIN leased AS le ON le.gate = l.key",
    policy_join!(),
    "ORDER BY l.site, l.queue"
);

const STATUS_TOTALS: &str = "
    SELECT status, count(*) AS workflows, sum(pending)::bigint AS pending, sum(blocked)::bigint AS blocked,
           sum(open)::bigint AS open, sum(waiting)::bigint AS waiting, sum(succeeded)::bigint AS succeeded,
           sum(failed)::bigint AS failed, sum(canceled)::bigint AS canceled
      FROM workflows GROUP BY status
     ORDER BY array_position(ARRAY['running', 'succeeded', 'failed', 'canceled'], status)";

const LEASE_TOTALS: &str = "
    WITH clock AS MATERIALIZED (SELECT now_us() AS us)
    SELECT count(*) FILTER (WHERE expires_at_us > us) AS live, count(*) FILTER (WHERE expires_at_us <= us) AS expired
      FROM leases CROSS JOIN clock";

impl ReadTx for PgTx<'_> {
    fn list_workflows(&mut self, page: &WorkflowPage) -> StoreResult<Vec<WorkflowRow>> {
        // Only the filters that are asked for, so that each combination gets the plan it needs.
        let texts = [
            ("name", page.name.as_ref().map(WorkflowName::as_str)),
            ("site", page.site.as_ref().map(SiteName::as_str)),
            ("status", page.status.map(WorkflowStatus::as_str)),
            ("subject", page.subject.as_ref().map(SubjectId::as_str)),
        ];
        let numbers = [
            ("created_at_us >=", page.created_from.map(Timestamp::as_micros)),
            ("created_at_us <", page.created_before.map(Timestamp::as_micros)),
            ("seq <", page.before.map(|before| before.0)),
        ];
        let texts: Vec<(&str, String)> = texts.into_iter().filter_map(|(name, value)| Some((name, value?.to_owned()))).collect();
        let numbers: Vec<(&str, i64)> = numbers.into_iter().filter_map(|(test, value)| Some((test, value?))).collect();
        let text_filters = texts.iter().map(|(name, _)| format!("w.{name} ="));
        let filters = text_filters.chain(numbers.iter().map(|(test, _)| format!("w.{test}")));
        let filters: Vec<String> = filters.zip(1..).map(|(test, number)| format!(" AND {test} ${number}")).collect();
        let filters = filters.concat();
        let last = texts.len() + numbers.len() + 1;
        let mut query = diesel::sql_query(format!("{LIST_WORKFLOWS}{filters} ORDER BY w.seq DESC LIMIT ${last}")).into_boxed::<Pg>();
        for (_, value) in texts {
            query = query.bind::<Text, _>(value);
        }
        for (_, value) in numbers {
            query = query.bind::<BigInt, _>(value);
        }
        self.load::<rows::Workflow, _>(query.bind::<BigInt, _>(i64::from(page.limit)))
    }

    fn workflows_since(&mut self, after: Option<UpdateCursor>, limit: u32) -> StoreResult<Vec<WorkflowRow>> {
        let mark = self.mark()?;
        let query = statement(WORKFLOWS_SINCE)
            .bind::<BigInt, _>(after.map_or(i64::MIN, |after| after.updated_at.as_micros()))
            .bind::<BigInt, _>(after.map_or(i64::MIN, |after| after.seq.0))
            .bind::<BigInt, _>(mark.updated_at_us)
            .bind::<BigInt, _>(i64::from(limit));
        self.load::<rows::Workflow, _>(query)
    }

    fn running_counts(&mut self, seqs: &[WorkflowSeq]) -> StoreResult<Vec<(WorkflowSeq, i64)>> {
        if seqs.is_empty() {
            return Ok(Vec::new());
        }
        self.load::<rows::RunningCount, _>(statement(RUNNING_COUNTS).bind::<Array<BigInt>, _>(workflows(seqs)))
    }

    fn list_ops(&mut self, workflow: WorkflowSeq, page: &OpPage) -> StoreResult<Vec<OpView>> {
        let query = statement(LIST_OPS)
            .bind::<BigInt, _>(workflow.0)
            .bind::<BigInt, _>(page.after.map_or(i64::MIN, |after| after.0))
            .bind::<Nullable<Text>, _>(page.status.map(StoredStatus::as_str))
            .bind::<BigInt, _>(i64::from(page.limit));
        self.load::<rows::OpView, _>(query)
    }

    fn op_views(&mut self, seqs: &[OpSeq]) -> StoreResult<Vec<OpView>> {
        if seqs.is_empty() {
            return Ok(Vec::new());
        }
        self.load::<rows::OpView, _>(statement(OP_VIEWS).bind::<Array<BigInt>, _>(ops(seqs)))
    }

    fn results(&mut self, seqs: &[OpSeq]) -> StoreResult<Vec<(OpSeq, Json)>> {
        if seqs.is_empty() {
            return Ok(Vec::new());
        }
        self.load::<rows::OpResult, _>(statement(RESULTS).bind::<Array<BigInt>, _>(ops(seqs)))
    }

    fn attempts(&mut self, op: OpSeq, after: Fence, limit: u32) -> StoreResult<Vec<Attempt>> {
        let query = statement(ATTEMPTS).bind::<BigInt, _>(op.0).bind::<BigInt, _>(after.0).bind::<BigInt, _>(i64::from(limit));
        self.load::<rows::Attempt, _>(query)
    }

    fn artifacts(
        &mut self,
        workflow: WorkflowSeq,
        op: Option<OpSeq>,
        after: Option<(OpSeq, ArtifactName)>,
        limit: u32,
    ) -> StoreResult<Vec<ArtifactRow>> {
        let query = statement(ARTIFACTS)
            .bind::<BigInt, _>(workflow.0)
            .bind::<Nullable<BigInt>, _>(op.map(|op| op.0))
            .bind::<BigInt, _>(after.as_ref().map_or(i64::MIN, |(op, _)| op.0))
            .bind::<Text, _>(after.as_ref().map_or("", |(_, name)| name.as_str()))
            .bind::<BigInt, _>(i64::from(limit));
        self.load::<rows::Artifact, _>(query)
    }

    fn artifact_content(&mut self, op: OpSeq, name: &ArtifactName) -> StoreResult<Option<Vec<u8>>> {
        let query = statement(ARTIFACT_CONTENT).bind::<BigInt, _>(op.0).bind::<Text, _>(name.as_str());
        let mut contents: Vec<rows::Content> = self.rows(query)?;
        Ok(contents.pop().map(|row| row.content))
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
            // No key is empty, so every key is behind the empty text.
            .bind::<Text, _>(after.map_or("", RecordKey::as_str))
            .bind::<BigInt, _>(i64::from(limit));
        self.load::<rows::Record, _>(query)
    }

    fn events_since(&mut self, after: Option<EventSeq>, workflow: Option<WorkflowSeq>, limit: u32) -> StoreResult<Vec<EventRow>> {
        let mark = self.mark()?;
        let after = after.map_or(i64::MIN, |after| after.0);
        match workflow {
            None => {
                let query =
                    statement(EVENTS_SINCE).bind::<BigInt, _>(after).bind::<BigInt, _>(mark.event).bind::<BigInt, _>(i64::from(limit));
                self.load::<rows::Event, _>(query)
            }
            Some(workflow) => {
                let query = statement(EVENTS_OF_WORKFLOW_SINCE)
                    .bind::<BigInt, _>(after)
                    .bind::<BigInt, _>(mark.event)
                    .bind::<BigInt, _>(workflow.0)
                    .bind::<BigInt, _>(i64::from(limit));
                self.load::<rows::Event, _>(query)
            }
        }
    }

    fn policies(&mut self) -> StoreResult<Vec<QueuePolicy>> {
        let policies = self.load::<rows::OuterPolicy, _>(statement(POLICIES))?;
        Ok(policies.into_iter().flatten().collect())
    }

    fn queue_statuses(&mut self) -> StoreResult<Vec<QueueStatus>> {
        self.load::<rows::QueueStatus, _>(statement(QUEUE_STATUSES))
    }

    fn totals(&mut self) -> StoreResult<Totals> {
        let mut totals = Totals::default();
        for (status, workflows, counters) in self.load::<rows::StatusTotals, _>(statement(STATUS_TOTALS))? {
            totals.workflows.push((status, workflows));
            add(&mut totals.ops, counters);
        }
        let leases: Vec<rows::LeaseTotals> = self.rows(statement(LEASE_TOTALS))?;
        for row in leases {
            (totals.leases_live, totals.leases_expired) = (row.live, row.expired);
        }
        Ok(totals)
    }
}

fn add(sum: &mut Counters, more: Counters) {
    sum.pending += more.pending;
    sum.blocked += more.blocked;
    sum.open += more.open;
    sum.waiting += more.waiting;
    sum.succeeded += more.succeeded;
    sum.failed += more.failed;
    sum.canceled += more.canceled;
}
