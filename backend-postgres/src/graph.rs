//! Steps on workflows and their graphs.

use crate::tx::PgTx;
use crate::write::parts;
use diesel::sql_types::{Array, BigInt, Double, Nullable, Text};
use leasehold_core::model::{DedupKey, Digest, OpId, OpSeq, QueuePolicy, RequestId, SiteName, SubjectId, WorkflowId, WorkflowSeq};
use leasehold_core::state::StoredStatus;
use leasehold_core::store::rows::{Act, DownstreamEdge, LockedWorkflow, NewWorkflow, OpState, Reach, UpstreamEdge, WorkflowRow, WriteSet};
use leasehold_core::store::{GraphTx, StoreResult, Wait};
use leasehold_sql::{op_columns, rows, statement, workflow_columns, workflow_lock_columns};

// An id that an open transaction has inserted is waited for by the unique index itself.
const INSERT_WORKFLOWS: &str = "
    INSERT INTO workflows (id, request, name, digest, input, metadata, site, subject, status, created_at_us, updated_at_us)
    SELECT n.id, n.request, n.name, n.digest, n.input, n.metadata, n.site, n.subject, 'running', n.created_at_us,
           n.created_at_us
      FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
        AS n (id, request, name, digest, input, metadata, site, subject, created_at_us)
     ORDER BY n.id COLLATE \"C\"
    ON CONFLICT (id) DO NOTHING
    RETURNING id, seq";

pub(crate) const WORKFLOWS: &str = concat!("SELECT ", workflow_columns!(), " FROM workflows AS w WHERE w.id = ANY($1) ORDER BY w.seq");

// What a row lock had to wait for, it returns as it is then: this read is behind the lock.
pub(crate) const LOCK_WORKFLOWS: &str =
    concat!("SELECT ", workflow_lock_columns!(), " FROM workflows AS w WHERE w.seq = ANY($1) ORDER BY w.seq FOR NO KEY UPDATE");
pub(crate) const LOCK_FREE_WORKFLOWS: &str =
    concat!("SELECT ", workflow_lock_columns!(), " FROM workflows AS w WHERE w.seq = ANY($1) ORDER BY w.seq FOR NO KEY UPDATE SKIP LOCKED");

const RESERVE_OPS: &str = "SELECT nextval('ops_seq') AS seq FROM generate_series(1, $1)";

pub(crate) const OPS: &str = concat!("SELECT ", op_columns!(), " FROM ops AS o WHERE o.seq = ANY($1) ORDER BY o.seq");

pub(crate) const OPS_BY_ID: &str = concat!(
    "SELECT ",
    op_columns!(),
    " FROM (SELECT DISTINCT workflow, id FROM unnest($1, $2) AS k (workflow, id)) AS k
      JOIN ops AS o ON o.workflow = k.workflow AND o.id = k.id ORDER BY o.seq"
);

pub(crate) const OPS_BY_DEDUP_KEY: &str = concat!(
    "SELECT ",
    op_columns!(),
    " FROM (SELECT DISTINCT workflow, key FROM unnest($1, $2) AS k (workflow, key)) AS k
      JOIN ops AS o ON o.workflow = k.workflow AND o.dedup_key = k.key ORDER BY o.seq"
);

pub(crate) const OPS_WITH_STATUS: &str =
    concat!("SELECT ", op_columns!(), " FROM ops AS o WHERE o.workflow = $1 AND o.status = ANY($2) ORDER BY o.seq");

/// The edges out of the ops `r.op`, with children that are pending or blocked. OFFSET 0 keeps each sub-select as it
/// stands, one look into an index a row: the planner cannot know how many ops a walk reaches, and would rather read the
/// whole table than guess low.
macro_rules! edges_out {
    () => {
        " CROSS JOIN LATERAL (
              SELECT e.parent, e.child, e.required FROM op_dependencies AS e WHERE e.parent = r.op OFFSET 0) AS d
          CROSS JOIN LATERAL (
              SELECT c.* FROM ops AS c WHERE c.seq = d.child AND c.status IN ('pending', 'blocked') OFFSET 0) AS o"
    };
}

pub(crate) const DOWNSTREAM_CHILDREN: &str = concat!(
    "SELECT d.parent AS edge_parent, d.required AS edge_required, ",
    op_columns!(),
    " FROM (SELECT DISTINCT op FROM unnest($1) AS f (op)) AS r",
    edges_out!()
);

// UNION, not UNION ALL: each op is expanded once, however many paths lead to it.
pub(crate) const DOWNSTREAM: &str = concat!(
    "WITH RECURSIVE reached AS (
         SELECT f.op FROM unnest($1) AS f (op)
         UNION
         SELECT o.seq FROM reached AS r",
    edges_out!(),
    " WHERE d.required = 1)
     SELECT d.parent AS edge_parent, d.required AS edge_required, ",
    op_columns!(),
    " FROM reached AS r",
    edges_out!()
);

pub(crate) const UPSTREAM: &str = "
    SELECT d.child, d.required, d.parent, p.id AS parent_id, p.status AS parent_status
      FROM op_dependencies AS d
      JOIN ops AS p ON p.seq = d.parent
     WHERE d.child = ANY($1)
     ORDER BY d.child, d.parent";

pub(crate) const UNQUEUE_DELAYED: &str = "
    WITH held AS MATERIALIZED (SELECT op FROM delayed WHERE op = ANY($1) ORDER BY op FOR UPDATE)
    DELETE FROM delayed WHERE op = ANY(ARRAY(SELECT op FROM held))";
pub(crate) const UNQUEUE_READY: &str = "
    WITH held AS MATERIALIZED (SELECT op FROM ready WHERE op = ANY($1) ORDER BY op FOR UPDATE)
    DELETE FROM ready WHERE op = ANY(ARRAY(SELECT op FROM held))";

const ACT: &str = "SELECT request, question, answer, actor, at_us FROM acts WHERE request = $1";

const SET_POLICIES: &str = "
    INSERT INTO policies (queue, site, max_in_flight, rate_per_second, rate_burst)
    SELECT queue, site, max_in_flight, rate_per_second, rate_burst
      FROM unnest($1, $2, $3, $4, $5) AS p (queue, site, max_in_flight, rate_per_second, rate_burst)
     ORDER BY queue COLLATE \"C\", site COLLATE \"C\"
    ON CONFLICT (queue, site) DO UPDATE
       SET max_in_flight = excluded.max_in_flight,
           rate_per_second = excluded.rate_per_second,
           rate_burst = excluded.rate_burst";

/// The keys of ops, as a parameter.
pub(crate) fn ops(ops: &[OpSeq]) -> Vec<i64> {
    ops.iter().map(|op| op.0).collect()
}

/// The keys of workflows, as a parameter.
pub(crate) fn workflows(workflows: &[WorkflowSeq]) -> Vec<i64> {
    workflows.iter().map(|workflow| workflow.0).collect()
}

impl GraphTx for PgTx<'_> {
    fn insert_workflows(&mut self, workflows: &[NewWorkflow]) -> StoreResult<Vec<(WorkflowId, WorkflowSeq)>> {
        let mut in_order: Vec<&NewWorkflow> = workflows.iter().collect();
        in_order.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        let mut inserted = Vec::new();
        for part in parts(&in_order, |new| new.input.as_str().len() + new.metadata.as_str().len()) {
            let column = |value: fn(&NewWorkflow) -> &str| part.iter().map(|new| value(new)).collect::<Vec<_>>();
            let query = statement(INSERT_WORKFLOWS)
                .bind::<Array<Text>, _>(column(|new| new.id.as_str()))
                .bind::<Array<Text>, _>(part.iter().map(|new| new.request.to_string()).collect::<Vec<_>>())
                .bind::<Array<Text>, _>(column(|new| new.name.as_str()))
                .bind::<Array<Nullable<Text>>, _>(part.iter().map(|new| new.digest.as_ref().map(Digest::to_string)).collect::<Vec<_>>())
                .bind::<Array<Text>, _>(column(|new| new.input.as_str()))
                .bind::<Array<Text>, _>(column(|new| new.metadata.as_str()))
                .bind::<Array<Text>, _>(column(|new| new.site.as_str()))
                .bind::<Array<Nullable<Text>>, _>(part.iter().map(|new| new.subject.as_ref().map(SubjectId::as_str)).collect::<Vec<_>>())
                .bind::<Array<BigInt>, _>(part.iter().map(|new| new.created_at.as_micros()).collect::<Vec<_>>());
            inserted.extend(self.load::<rows::WorkflowKey, _>(query)?);
        }
        self.workflows.extend(inserted.iter().map(|(_, seq)| seq.0));
        Ok(inserted)
    }

    fn workflows(&mut self, ids: &[WorkflowId]) -> StoreResult<Vec<WorkflowRow>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<&str> = ids.iter().map(WorkflowId::as_str).collect();
        self.load::<rows::Workflow, _>(statement(WORKFLOWS).bind::<Array<Text>, _>(ids))
    }

    fn lock_workflows(&mut self, seqs: &[WorkflowSeq], wait: Wait) -> StoreResult<Vec<LockedWorkflow>> {
        if seqs.is_empty() {
            return Ok(Vec::new());
        }
        let sql = match wait {
            Wait::Block => LOCK_WORKFLOWS,
            Wait::Briefly => {
                self.wait_briefly()?;
                LOCK_WORKFLOWS
            }
            Wait::Skip => LOCK_FREE_WORKFLOWS,
        };
        let locked = self.load::<rows::WorkflowLock, _>(statement(self.sql(sql)).bind::<Array<BigInt>, _>(workflows(seqs)))?;
        self.workflows.extend(locked.iter().map(|workflow| workflow.seq.0));
        Ok(locked)
    }

    fn reserve_ops(&mut self, count: usize) -> StoreResult<Vec<OpSeq>> {
        let Some(count) = i64::try_from(count).ok().filter(|count| *count > 0) else {
            return Ok(Vec::new());
        };
        let mut keys = self.load::<rows::Seq, _>(statement(RESERVE_OPS).bind::<BigInt, _>(count))?;
        keys.sort_unstable();
        Ok(keys)
    }

    fn ops(&mut self, seqs: &[OpSeq]) -> StoreResult<Vec<OpState>> {
        if seqs.is_empty() {
            return Ok(Vec::new());
        }
        self.load::<rows::Op, _>(statement(OPS).bind::<Array<BigInt>, _>(ops(seqs)))
    }

    fn ops_by_id(&mut self, ids: &[(WorkflowSeq, OpId)]) -> StoreResult<Vec<OpState>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let query = statement(OPS_BY_ID)
            .bind::<Array<BigInt>, _>(ids.iter().map(|(workflow, _)| workflow.0).collect::<Vec<_>>())
            .bind::<Array<Text>, _>(ids.iter().map(|(_, id)| id.as_str()).collect::<Vec<_>>());
        self.load::<rows::Op, _>(query)
    }

    fn ops_by_dedup_key(&mut self, keys: &[(WorkflowSeq, DedupKey)]) -> StoreResult<Vec<OpState>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let query = statement(OPS_BY_DEDUP_KEY)
            .bind::<Array<BigInt>, _>(keys.iter().map(|(workflow, _)| workflow.0).collect::<Vec<_>>())
            .bind::<Array<Text>, _>(keys.iter().map(|(_, key)| key.as_str()).collect::<Vec<_>>());
        self.load::<rows::Op, _>(query)
    }

    fn ops_with_status(&mut self, workflow: WorkflowSeq, statuses: &[StoredStatus]) -> StoreResult<Vec<OpState>> {
        if statuses.is_empty() {
            return Ok(Vec::new());
        }
        let query = statement(OPS_WITH_STATUS)
            .bind::<BigInt, _>(workflow.0)
            .bind::<Array<Text>, _>(statuses.iter().map(|status| status.as_str()).collect::<Vec<_>>());
        self.load::<rows::Op, _>(query)
    }

    fn downstream(&mut self, from: &[OpSeq], reach: Reach) -> StoreResult<Vec<DownstreamEdge>> {
        if from.is_empty() {
            return Ok(Vec::new());
        }
        let sql = match reach {
            Reach::Children => DOWNSTREAM_CHILDREN,
            Reach::Descendants => DOWNSTREAM,
        };
        self.load::<rows::Downstream, _>(statement(self.sql(sql)).bind::<Array<BigInt>, _>(ops(from)))
    }

    fn upstream(&mut self, children: &[OpSeq]) -> StoreResult<Vec<UpstreamEdge>> {
        if children.is_empty() {
            return Ok(Vec::new());
        }
        self.load::<rows::Upstream, _>(statement(UPSTREAM).bind::<Array<BigInt>, _>(ops(children)))
    }

    fn write(&mut self, set: &WriteSet) -> StoreResult<Vec<OpSeq>> {
        self.write_set(set)
    }

    fn unqueue(&mut self, seqs: &[OpSeq]) -> StoreResult<()> {
        if seqs.is_empty() {
            return Ok(());
        }
        for sql in [UNQUEUE_DELAYED, UNQUEUE_READY] {
            self.execute(statement(sql).bind::<Array<BigInt>, _>(ops(seqs)))?;
        }
        Ok(())
    }

    fn act(&mut self, request: RequestId) -> StoreResult<Option<Act>> {
        self.load::<rows::Act, _>(statement(ACT).bind::<Text, _>(request.to_string())).map(|mut acts| acts.pop())
    }

    fn set_policies(&mut self, policies: &[QueuePolicy]) -> StoreResult<()> {
        if policies.is_empty() {
            return Ok(());
        }
        let query = statement(SET_POLICIES)
            .bind::<Array<Text>, _>(policies.iter().map(|policy| policy.queue.as_str()).collect::<Vec<_>>())
            .bind::<Array<Text>, _>(policies.iter().map(|policy| policy.site.as_ref().map_or("", SiteName::as_str)).collect::<Vec<_>>())
            .bind::<Array<Nullable<BigInt>>, _>(policies.iter().map(|policy| policy.max_in_flight.map(i64::from)).collect::<Vec<_>>())
            .bind::<Array<Nullable<Double>>, _>(policies.iter().map(|policy| policy.rate.map(|rate| rate.per_second)).collect::<Vec<_>>())
            .bind::<Array<Nullable<BigInt>>, _>(
                policies.iter().map(|policy| policy.rate.map(|rate| i64::from(rate.burst))).collect::<Vec<_>>(),
            );
        self.execute(query).map(drop)
    }
}
