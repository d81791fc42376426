//! Steps on workflows and their graphs.

use crate::set::{self, cells};
use crate::tx::SqliteTx;
use crate::write;
use diesel::sql_types::{BigInt, Text};
use leasehold_core::model::{DedupKey, OpId, OpSeq, QueuePolicy, RequestId, SiteName, SubjectId, WorkflowId, WorkflowSeq};
use leasehold_core::state::StoredStatus;
use leasehold_core::store::rows::{Act, DownstreamEdge, LockedWorkflow, NewWorkflow, OpState, Reach, UpstreamEdge, WorkflowRow, WriteSet};
use leasehold_core::store::{GraphTx, StoreResult, Wait};
use leasehold_sql::{op_columns, rejected, rows, statement, workflow_columns, workflow_lock_columns};

pub(crate) const INSERT_WORKFLOWS: &str = "
    INSERT INTO workflows (id, request, name, digest, input, metadata, site, subject, status, created_at_us, updated_at_us)
    SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7, 'running',
           value ->> 8, max(value ->> 8, ?1)
      FROM jsonb_each(?2)
     WHERE true
        ON CONFLICT (id) DO NOTHING
    RETURNING id, seq";

pub(crate) const WORKFLOWS: &str =
    concat!("SELECT ", workflow_columns!(), " FROM json_each(?1) AS j CROSS JOIN workflows AS w ON w.id = j.value");

pub(crate) const LOCK_WORKFLOWS: &str =
    concat!("SELECT ", workflow_lock_columns!(), " FROM workflows AS w WHERE w.seq IN (SELECT value FROM json_each(?1)) ORDER BY w.seq");

// AUTOINCREMENT's own counter, so that what was reserved is never given out by another way.
pub(crate) const RESERVE_OPS: &str = "UPDATE sqlite_sequence SET seq = seq + ?1 WHERE name = 'ops' RETURNING seq";

pub(crate) const OPS: &str =
    concat!("SELECT ", op_columns!(), " FROM ops AS o WHERE o.seq IN (SELECT value FROM json_each(?1)) ORDER BY o.seq");

pub(crate) const OPS_BY_ID: &str = concat!(
    "SELECT ",
    op_columns!(),
    " FROM jsonb_each(?1) AS j CROSS JOIN ops AS o ON o.workflow = j.value ->> 0 AND o.id = j.value ->> 1"
);

pub(crate) const OPS_BY_DEDUP_KEY: &str = concat!(
    "SELECT ",
    op_columns!(),
    " FROM jsonb_each(?1) AS j CROSS JOIN ops AS o ON o.workflow = j.value ->> 0 AND o.dedup_key = j.value ->> 1"
);

pub(crate) const OPS_WITH_STATUS: &str = concat!(
    "SELECT ",
    op_columns!(),
    " FROM ops AS o WHERE o.workflow = ?1 AND o.status IN (SELECT value FROM json_each(?2)) ORDER BY o.seq"
);

pub(crate) const CHILDREN: &str = concat!(
    "SELECT d.parent AS edge_parent, d.required AS edge_required, ",
    op_columns!(),
    " FROM (SELECT DISTINCT value AS op FROM json_each(?1)) AS node
     CROSS JOIN op_dependencies AS d ON d.parent = node.op
     CROSS JOIN ops AS o ON o.seq = d.child
     WHERE o.status IN ('pending', 'blocked')"
);

// UNION keeps each node once, so a graph with many ways to a node is still walked in the number of its edges. CROSS
// JOIN fixes the order: from a node to its edges to their children.
pub(crate) const DESCENDANTS: &str = concat!(
    "WITH RECURSIVE node (op) AS (
         SELECT value FROM json_each(?1)
         UNION
         SELECT d.child
           FROM node
          CROSS JOIN op_dependencies AS d ON d.parent = node.op
          CROSS JOIN ops AS c ON c.seq = d.child
          WHERE d.required = 1 AND c.status IN ('pending', 'blocked'))
     SELECT d.parent AS edge_parent, d.required AS edge_required, ",
    op_columns!(),
    " FROM node
     CROSS JOIN op_dependencies AS d ON d.parent = node.op
     CROSS JOIN ops AS o ON o.seq = d.child
     WHERE o.status IN ('pending', 'blocked')"
);

pub(crate) const UPSTREAM: &str = "
    SELECT d.child, d.required, d.parent, p.id AS parent_id, p.status AS parent_status
      FROM op_dependencies AS d
     CROSS JOIN ops AS p ON p.seq = d.parent
     WHERE d.child IN (SELECT value FROM json_each(?1))
     ORDER BY d.child, d.parent";

pub(crate) const UNDELAY: &str = "DELETE FROM delayed WHERE op IN (SELECT value FROM json_each(?1))";
pub(crate) const UNREADY: &str = "DELETE FROM ready WHERE op IN (SELECT value FROM json_each(?1))";

pub(crate) const ACT: &str = "SELECT request, question, answer, actor, at_us FROM acts WHERE request = ?1";

pub(crate) const SET_POLICIES: &str = "
    INSERT INTO policies (queue, site, max_in_flight, rate_per_second, rate_burst)
    SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4
      FROM jsonb_each(?1)
     WHERE true
        ON CONFLICT (queue, site) DO UPDATE
       SET max_in_flight = excluded.max_in_flight, rate_per_second = excluded.rate_per_second, rate_burst = excluded.rate_burst";

impl GraphTx for SqliteTx<'_> {
    fn insert_workflows(&mut self, workflows: &[NewWorkflow]) -> StoreResult<Vec<(WorkflowId, WorkflowSeq)>> {
        self.change(|tx| {
            let mut in_order: Vec<&NewWorkflow> = workflows.iter().collect();
            in_order.sort_by(|a, b| a.id.cmp(&b.id));
            let mut inserted = Vec::new();
            for part in set::rows(in_order, |new| {
                cells![
                    new.id.as_str(),
                    new.request.to_string(),
                    new.name.as_str(),
                    new.digest.map(|digest| digest.to_string()),
                    new.input.as_str(),
                    new.metadata.as_str(),
                    new.site.as_str(),
                    new.subject.as_ref().map(SubjectId::as_str),
                    new.created_at.as_micros(),
                ]
            }) {
                let past = tx.updated_past()?;
                let query = statement(INSERT_WORKFLOWS).bind::<BigInt, _>(past).bind::<Text, _>(part);
                inserted.extend(tx.load::<rows::WorkflowKey, _>(query)?);
            }
            tx.wrote(inserted.len());
            Ok(inserted)
        })
    }

    fn workflows(&mut self, ids: &[WorkflowId]) -> StoreResult<Vec<WorkflowRow>> {
        self.read(|tx| tx.load_set::<rows::Workflow>(WORKFLOWS, set::values(ids.iter().map(WorkflowId::as_str))))
    }

    // The transaction has the file's only write lock, so every row is locked and there is nothing to wait for or to skip.
    fn lock_workflows(&mut self, seqs: &[WorkflowSeq], _wait: Wait) -> StoreResult<Vec<LockedWorkflow>> {
        self.change(|tx| tx.load_set::<rows::WorkflowLock>(LOCK_WORKFLOWS, set::values(seqs.iter().map(|seq| seq.0))))
    }

    fn reserve_ops(&mut self, count: usize) -> StoreResult<Vec<OpSeq>> {
        self.change(|tx| {
            if count == 0 {
                return Ok(Vec::new());
            }
            let count = i64::try_from(count).map_err(|_| rejected("more keys than there are"))?;
            let query = statement(RESERVE_OPS).bind::<BigInt, _>(count);
            let Some(last) = tx.load::<rows::Seq, _>(query)?.pop() else {
                return Err(rejected("the sequence of op keys is missing"));
            };
            Ok((last.0 - count + 1..=last.0).map(OpSeq).collect())
        })
    }

    fn ops(&mut self, seqs: &[OpSeq]) -> StoreResult<Vec<OpState>> {
        self.read(|tx| tx.load_set::<rows::Op>(OPS, of_ops(seqs)))
    }

    fn ops_by_id(&mut self, ids: &[(WorkflowSeq, OpId)]) -> StoreResult<Vec<OpState>> {
        let set = set::rows(ids, |(workflow, id)| cells![workflow.0, id.as_str()]);
        self.read(|tx| tx.load_set::<rows::Op>(OPS_BY_ID, set).map(each_once))
    }

    fn ops_by_dedup_key(&mut self, keys: &[(WorkflowSeq, DedupKey)]) -> StoreResult<Vec<OpState>> {
        let set = set::rows(keys, |(workflow, key)| cells![workflow.0, key.as_str()]);
        self.read(|tx| tx.load_set::<rows::Op>(OPS_BY_DEDUP_KEY, set).map(each_once))
    }

    fn ops_with_status(&mut self, workflow: WorkflowSeq, statuses: &[StoredStatus]) -> StoreResult<Vec<OpState>> {
        self.read(|tx| {
            let mut ops = Vec::new();
            for part in set::values(statuses.iter().map(|status| status.as_str())) {
                let query = statement(OPS_WITH_STATUS).bind::<BigInt, _>(workflow.0).bind::<Text, _>(part);
                ops.extend(tx.load::<rows::Op, _>(query)?);
            }
            Ok(ops)
        })
    }

    fn downstream(&mut self, from: &[OpSeq], reach: Reach) -> StoreResult<Vec<DownstreamEdge>> {
        let sql = match reach {
            Reach::Children => CHILDREN,
            Reach::Descendants => DESCENDANTS,
        };
        if from.is_empty() {
            return self.read(|_| Ok(Vec::new()));
        }
        // One parameter whatever its size: two walks would return the edges they share twice.
        self.read(|tx| tx.load_set::<rows::Downstream>(sql, vec![set::whole(&of_ops(from))]))
    }

    fn upstream(&mut self, children: &[OpSeq]) -> StoreResult<Vec<UpstreamEdge>> {
        self.read(|tx| tx.load_set::<rows::Upstream>(UPSTREAM, of_ops(children)))
    }

    fn write(&mut self, set: &WriteSet) -> StoreResult<Vec<OpSeq>> {
        self.change(|tx| write::write(tx, set))
    }

    fn unqueue(&mut self, ops: &[OpSeq]) -> StoreResult<()> {
        self.change(|tx| {
            tx.execute_set(UNDELAY, of_ops(ops))?;
            tx.execute_set(UNREADY, of_ops(ops))?;
            Ok(())
        })
    }

    fn act(&mut self, request: RequestId) -> StoreResult<Option<Act>> {
        let query = statement(ACT).bind::<Text, _>(request.to_string());
        self.read(|tx| Ok(tx.load::<rows::Act, _>(query)?.pop()))
    }

    fn set_policies(&mut self, policies: &[QueuePolicy]) -> StoreResult<()> {
        let set = set::rows(policies, |policy| {
            cells![
                policy.queue.as_str(),
                policy.site.as_ref().map_or("", SiteName::as_str),
                policy.max_in_flight,
                policy.rate.map(|rate| rate.per_second),
                policy.rate.map(|rate| rate.burst),
            ]
        });
        self.change(|tx| tx.execute_set(SET_POLICIES, set).map(|_| ()))
    }
}

pub(crate) fn of_ops(ops: &[OpSeq]) -> set::Set {
    set::values(ops.iter().map(|op| op.0))
}

/// In key order, for a set that named an op twice.
fn each_once(mut ops: Vec<OpState>) -> Vec<OpState> {
    ops.sort_by_key(|op| op.seq);
    ops.dedup_by_key(|op| op.seq);
    ops
}
