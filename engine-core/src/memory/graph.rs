//! Steps on workflows and their graphs.

use super::tables::{GateRow, OpRow, Tables};
use super::{MemoryTx, reject};
use crate::model::{DedupKey, Lane, OpId, OpSeq, QueuePolicy, RequestId, WorkflowId, WorkflowSeq};
use crate::state::{Counters, StoredStatus, WorkflowStatus};
use crate::store::rows::{
    Act, DownstreamEdge, LockedWorkflow, NewOp, NewWorkflow, OpChange, OpState, Reach, UpstreamEdge, WorkflowChange, WorkflowRow, WriteSet,
};
use crate::store::{GraphTx, StoreResult, Wait};
use std::collections::BTreeSet;
use std::sync::Arc;

impl GraphTx for MemoryTx<'_> {
    fn insert_workflows(&mut self, workflows: &[NewWorkflow]) -> StoreResult<Vec<(WorkflowId, WorkflowSeq)>> {
        self.change(|tx| {
            let mut in_order: Vec<&NewWorkflow> = workflows.iter().collect();
            in_order.sort_by(|a, b| a.id.cmp(&b.id));
            let mut inserted = Vec::new();
            for new in in_order {
                if tx.tables.workflows_by_id.contains(&new.id) {
                    continue;
                }
                tx.tables.workflow_last += 1;
                let seq = WorkflowSeq(tx.tables.workflow_last);
                tx.tables.workflows_by_id.insert(new.id.clone(), seq)?;
                tx.tables.set_workflow(fresh(seq, new));
                tx.locked_workflows.insert(seq);
                inserted.push((new.id.clone(), seq));
            }
            Ok(inserted)
        })
    }

    fn workflows(&mut self, ids: &[WorkflowId]) -> StoreResult<Vec<WorkflowRow>> {
        self.read(|tables, _| {
            let found = ids.iter().filter_map(|id| tables.workflows.get(tables.workflows_by_id.get(id)?));
            Ok(found.cloned().collect())
        })
    }

    // One transaction at a time: no row is ever held by another, so there is nothing to wait for or to skip.
    fn lock_workflows(&mut self, seqs: &[WorkflowSeq], _wait: Wait) -> StoreResult<Vec<LockedWorkflow>> {
        self.change(|tx| {
            let in_order: BTreeSet<WorkflowSeq> = seqs.iter().copied().collect();
            let locked: Vec<LockedWorkflow> = in_order.iter().filter_map(|seq| tx.tables.workflows.get(seq)).map(locked_workflow).collect();
            tx.locked_workflows.extend(locked.iter().map(|workflow| workflow.seq));
            Ok(locked)
        })
    }

    fn reserve_ops(&mut self, count: usize) -> StoreResult<Vec<OpSeq>> {
        self.change(|tx| {
            let keys = (0..count).map(|_| {
                tx.tables.op_last += 1;
                OpSeq(tx.tables.op_last)
            });
            Ok(keys.collect())
        })
    }

    fn ops(&mut self, seqs: &[OpSeq]) -> StoreResult<Vec<OpState>> {
        self.read(|tables, _| Ok(states(tables, seqs)))
    }

    fn ops_by_id(&mut self, ids: &[(WorkflowSeq, OpId)]) -> StoreResult<Vec<OpState>> {
        self.read(|tables, _| Ok(states(tables, ids.iter().filter_map(|id| tables.ops_by_id.get(id)))))
    }

    fn ops_by_dedup_key(&mut self, keys: &[(WorkflowSeq, DedupKey)]) -> StoreResult<Vec<OpState>> {
        self.read(|tables, _| Ok(states(tables, keys.iter().filter_map(|key| tables.ops_by_dedup_key.get(key)))))
    }

    fn ops_with_status(&mut self, workflow: WorkflowSeq, statuses: &[StoredStatus]) -> StoreResult<Vec<OpState>> {
        self.read(|tables, _| Ok(tables.ops_of(workflow).filter(|op| statuses.contains(&op.status)).map(OpRow::state).collect()))
    }

    fn downstream(&mut self, from: &[OpSeq], reach: Reach) -> StoreResult<Vec<DownstreamEdge>> {
        self.read(|tables, _| Ok(downstream(tables, from, reach)))
    }

    fn upstream(&mut self, children: &[OpSeq]) -> StoreResult<Vec<UpstreamEdge>> {
        self.read(|tables, _| {
            let distinct: BTreeSet<OpSeq> = children.iter().copied().collect();
            let edges = distinct.into_iter().flat_map(|child| tables.edges.range((child, OpSeq(i64::MIN))..=(child, OpSeq(i64::MAX))));
            let with_parents = edges.filter_map(|((child, parent), required)| {
                let row = tables.ops.get(parent)?;
                let (parent_id, parent_status) = (row.new.id.clone(), row.status);
                Some(UpstreamEdge { child: *child, required: *required, parent: *parent, parent_id, parent_status })
            });
            Ok(with_parents.collect())
        })
    }

    fn write(&mut self, set: &WriteSet) -> StoreResult<Vec<OpSeq>> {
        self.change(|tx| tx.write_set(set))
    }

    fn unqueue(&mut self, ops: &[OpSeq]) -> StoreResult<()> {
        self.change(|tx| {
            for op in ops {
                tx.tables.remove_delayed(*op);
                tx.tables.remove_ready(*op);
            }
            Ok(())
        })
    }

    fn act(&mut self, request: RequestId) -> StoreResult<Option<Act>> {
        self.read(|tables, _| Ok(tables.acts.get(&request.to_string()).cloned()))
    }

    fn set_policies(&mut self, policies: &[QueuePolicy]) -> StoreResult<()> {
        self.change(|tx| {
            for policy in policies {
                tx.tables.policies.set((policy.queue.clone(), policy.site.clone()), policy.clone());
            }
            Ok(())
        })
    }
}

impl MemoryTx<'_> {
    fn write_set(&mut self, set: &WriteSet) -> StoreResult<Vec<OpSeq>> {
        self.require_locks(set)?;
        for lane in &set.lanes {
            make_known(&mut self.tables, lane);
        }
        for op in &set.ops {
            insert_op(&mut self.tables, op)?;
        }
        for edge in &set.edges {
            self.tables.edges.insert((edge.child, edge.parent), edge.required)?;
            self.tables.edges_by_parent.insert((edge.parent, edge.child), edge.required)?;
        }
        let applied = set.changes.iter().filter(|change| apply(&mut self.tables, change)).map(|change| change.op).collect();
        for queued in &set.ready {
            self.tables.insert_ready(*queued)?;
        }
        for queued in &set.delayed {
            self.tables.insert_delayed(*queued)?;
        }
        for wait in &set.waits {
            self.tables.insert_wait(wait.clone())?;
        }
        for wake in &set.wakes {
            self.tables.wakes.set(wake.wait.key.op, wake.clone());
        }
        for attempt in &set.attempts {
            self.tables.attempts.insert((attempt.key.op, attempt.key.fence), attempt.clone())?;
        }
        for new in &set.artifacts {
            self.tables.artifacts.set((new.workflow, new.op, new.artifact.name.clone()), Arc::new(new.clone()));
        }
        for new in &set.records {
            self.tables.records.set((new.workflow, new.record.collection.clone(), new.record.key.clone()), new.clone());
        }
        for event in &set.events {
            self.tables.append_event(event.clone())?;
        }
        for change in &set.workflows {
            update_workflow(&mut self.tables, change)?;
        }
        if let Some(act) = &set.act {
            self.tables.acts.insert(act.request.to_string(), act.clone())?;
        }
        Ok(applied)
    }

    fn require_locks(&self, set: &WriteSet) -> StoreResult<()> {
        let inserted = set.ops.iter().map(|op| op.workflow);
        let changed = set.changes.iter().filter_map(|change| Some(self.tables.ops.get(&change.op)?.new.workflow));
        let updated = set.workflows.iter().map(|change| change.seq);
        let waiting = set.waits.iter().chain(set.wakes.iter().map(|wake| &wake.wait)).map(|wait| wait.workflow);
        inserted.chain(changed).chain(updated).chain(waiting).try_for_each(|workflow| self.require_lock(workflow))
    }
}

fn fresh(seq: WorkflowSeq, new: &NewWorkflow) -> WorkflowRow {
    WorkflowRow {
        seq,
        id: new.id.clone(),
        request: new.request,
        name: new.name.clone(),
        digest: new.digest,
        input: new.input.clone(),
        metadata: new.metadata.clone(),
        site: new.site.clone(),
        subject: new.subject.clone(),
        status: WorkflowStatus::Running,
        cancel_requested: false,
        counters: Counters::default(),
        created_at: new.created_at,
        updated_at: new.created_at,
        finished_at: None,
    }
}

fn locked_workflow(row: &WorkflowRow) -> LockedWorkflow {
    LockedWorkflow {
        seq: row.seq,
        id: row.id.clone(),
        site: row.site.clone(),
        status: row.status,
        cancel_requested: row.cancel_requested,
        counters: row.counters,
    }
}

/// Edges out of `from` to children that are pending or blocked; those of `from` itself whatever its status.
fn downstream(tables: &Tables, from: &[OpSeq], reach: Reach) -> Vec<DownstreamEdge> {
    let mut seen: BTreeSet<OpSeq> = from.iter().copied().collect();
    let mut next: Vec<OpSeq> = seen.iter().copied().collect();
    let mut edges = Vec::new();
    while let Some(parent) = next.pop() {
        for ((_, child), required) in tables.edges_by_parent.range((parent, OpSeq(i64::MIN))..=(parent, OpSeq(i64::MAX))) {
            let Some(row) = tables.ops.get(child) else { continue };
            if !matches!(row.status, StoredStatus::Pending | StoredStatus::Blocked) {
                continue;
            }
            edges.push(DownstreamEdge { parent, required: *required, child: row.state() });
            if reach == Reach::Descendants && *required && seen.insert(*child) {
                next.push(*child);
            }
        }
    }
    edges
}

fn make_known(tables: &mut Tables, lane: &Lane) {
    if !tables.lanes.contains(&lane.key) {
        tables.lanes.set(lane.key, lane.clone());
    }
    if !tables.gates.contains(&lane.gate) {
        tables.gates.set(lane.gate, GateRow { site: lane.site.clone(), queue: lane.queue.clone(), bucket: None });
    }
}

fn insert_op(tables: &mut Tables, op: &NewOp) -> StoreResult<()> {
    tables.ops_by_id.insert((op.workflow, op.id.clone()), op.seq)?;
    if let Some(key) = &op.dedup_key {
        tables.ops_by_dedup_key.insert((op.workflow, key.clone()), op.seq)?;
    }
    tables.ops_by_workflow.insert((op.workflow, op.seq), ())?;
    let row = OpRow {
        new: Arc::new(op.clone()),
        status: op.status,
        unmet: op.unmet,
        broken: op.broken,
        fence: crate::model::Fence::NONE,
        failures: 0,
        losses: 0,
        finished_at: None,
    };
    tables.ops.insert(op.seq, row)
}

/// Writes the change if the op's row says what the change expects; tells whether it did.
fn apply(tables: &mut Tables, change: &OpChange) -> bool {
    let Some(row) = tables.ops.get(&change.op).filter(|row| row.status == change.from) else {
        return false;
    };
    let row = OpRow {
        new: Arc::clone(&row.new),
        status: change.to,
        unmet: change.unmet,
        broken: change.broken,
        fence: change.fence.unwrap_or(row.fence),
        failures: change.failures.unwrap_or(row.failures),
        losses: change.losses.unwrap_or(row.losses),
        finished_at: change.finished_at,
    };
    tables.ops.set(change.op, row);
    true
}

fn update_workflow(tables: &mut Tables, change: &WorkflowChange) -> StoreResult<()> {
    let past_all = tables.updated_past_all()?;
    let Some(old) = tables.workflows.get(&change.seq) else {
        return Err(reject(format!("workflow {} is not there", change.seq.0)));
    };
    let row = WorkflowRow {
        status: change.status,
        cancel_requested: change.cancel_requested,
        counters: change.counters,
        finished_at: change.finished_at,
        updated_at: past_all.map_or(change.at, |least| least.max(change.at)),
        ..old.clone()
    };
    tables.set_workflow(row);
    Ok(())
}

/// What the rows of these ops say, in key order, each once.
fn states<'a>(tables: &Tables, seqs: impl IntoIterator<Item = &'a OpSeq>) -> Vec<OpState> {
    let distinct: BTreeSet<&OpSeq> = seqs.into_iter().collect();
    distinct.into_iter().filter_map(|seq| tables.ops.get(seq)).map(OpRow::state).collect()
}
