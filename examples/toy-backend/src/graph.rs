//! Steps on workflows and their graphs.

use crate::store::ToyTx;
use crate::tables::{Op, Tables, insert_new, rejected};
use leasehold_core::model::{DedupKey, EventSeq, OpId, OpSeq, QueuePolicy, RequestId, Timestamp, WorkflowId, WorkflowSeq};
use leasehold_core::state::{Counters, StoredStatus, WorkflowStatus};
use leasehold_core::store::rows::{
    Act, DownstreamEdge, LockedWorkflow, NewOp, NewWorkflow, OpChange, OpState, Reach, UpstreamEdge, WorkflowRow, WriteSet,
};
use leasehold_core::store::{GraphTx, StoreResult, Wait};
use std::collections::BTreeSet;

impl GraphTx for ToyTx {
    fn insert_workflows(&mut self, workflows: &[NewWorkflow]) -> StoreResult<Vec<(WorkflowId, WorkflowSeq)>> {
        self.change(|tables, _| {
            let taken: BTreeSet<WorkflowId> = tables.workflows.values().map(|row| row.id.clone()).collect();
            let mut free: Vec<&NewWorkflow> = workflows.iter().filter(|new| !taken.contains(&new.id)).collect();
            free.sort_by(|a, b| a.id.cmp(&b.id));
            let mut inserted = Vec::new();
            for new in free {
                tables.last.workflow += 1;
                let seq = WorkflowSeq(tables.last.workflow);
                tables.workflows.insert(seq, workflow_row(seq, new));
                inserted.push((new.id.clone(), seq));
            }
            Ok(inserted)
        })
    }

    fn workflows(&mut self, ids: &[WorkflowId]) -> StoreResult<Vec<WorkflowRow>> {
        let ids: BTreeSet<&WorkflowId> = ids.iter().collect();
        self.read(|tables, _| Ok(tables.workflows.values().filter(|row| ids.contains(&row.id)).cloned().collect()))
    }

    fn lock_workflows(&mut self, seqs: &[WorkflowSeq], _wait: Wait) -> StoreResult<Vec<LockedWorkflow>> {
        // This transaction is the only one: it holds every row from its begin.
        let seqs: BTreeSet<&WorkflowSeq> = seqs.iter().collect();
        self.read(|tables, _| Ok(seqs.into_iter().filter_map(|seq| tables.workflows.get(seq)).map(locked).collect()))
    }

    fn reserve_ops(&mut self, count: usize) -> StoreResult<Vec<OpSeq>> {
        self.change(|tables, _| {
            let mut next = || {
                tables.last.op += 1;
                OpSeq(tables.last.op)
            };
            Ok((0..count).map(|_| next()).collect())
        })
    }

    fn ops(&mut self, seqs: &[OpSeq]) -> StoreResult<Vec<OpState>> {
        let seqs: BTreeSet<&OpSeq> = seqs.iter().collect();
        self.read(|tables, _| Ok(seqs.into_iter().filter_map(|seq| tables.ops.get(seq)).map(Op::state).collect()))
    }

    fn ops_by_id(&mut self, ids: &[(WorkflowSeq, OpId)]) -> StoreResult<Vec<OpState>> {
        let ids: BTreeSet<(WorkflowSeq, &OpId)> = ids.iter().map(|(workflow, id)| (*workflow, id)).collect();
        self.read(|tables, _| Ok(states(tables, |row| ids.contains(&(row.workflow, &row.id)))))
    }

    fn ops_by_dedup_key(&mut self, keys: &[(WorkflowSeq, DedupKey)]) -> StoreResult<Vec<OpState>> {
        let keys: BTreeSet<(WorkflowSeq, &DedupKey)> = keys.iter().map(|(workflow, key)| (*workflow, key)).collect();
        let carries = |row: &NewOp| row.dedup_key.as_ref().is_some_and(|key| keys.contains(&(row.workflow, key)));
        self.read(|tables, _| Ok(states(tables, carries)))
    }

    fn ops_with_status(&mut self, workflow: WorkflowSeq, statuses: &[StoredStatus]) -> StoreResult<Vec<OpState>> {
        self.read(|tables, _| Ok(states(tables, |row| row.workflow == workflow && statuses.contains(&row.status))))
    }

    fn downstream(&mut self, from: &[OpSeq], reach: Reach) -> StoreResult<Vec<DownstreamEdge>> {
        self.read(|tables, _| {
            let mut found = Vec::new();
            let mut reached: BTreeSet<OpSeq> = from.iter().copied().collect();
            let mut todo: Vec<OpSeq> = reached.iter().copied().collect();
            while let Some(parent) = todo.pop() {
                let children = tables.edges.range((parent, OpSeq(i64::MIN))..=(parent, OpSeq(i64::MAX)));
                for edge in children.map(|(_, edge)| edge) {
                    let child = tables.op(edge.child)?;
                    if !matches!(child.row.status, StoredStatus::Pending | StoredStatus::Blocked) {
                        continue;
                    }
                    found.push(DownstreamEdge { parent, required: edge.required, child: child.state() });
                    if reach == Reach::Descendants && edge.required && reached.insert(edge.child) {
                        todo.push(edge.child);
                    }
                }
            }
            Ok(found)
        })
    }

    fn upstream(&mut self, children: &[OpSeq]) -> StoreResult<Vec<UpstreamEdge>> {
        let children: BTreeSet<OpSeq> = children.iter().copied().collect();
        self.read(|tables, _| {
            let edges = tables.edges.values().filter(|edge| children.contains(&edge.child));
            let with_parents = edges.filter_map(|edge| {
                let parent = &tables.ops.get(&edge.parent)?.row;
                Some(UpstreamEdge {
                    child: edge.child,
                    required: edge.required,
                    parent: edge.parent,
                    parent_id: parent.id.clone(),
                    parent_status: parent.status,
                })
            });
            Ok(with_parents.collect())
        })
    }

    fn write(&mut self, set: &WriteSet) -> StoreResult<Vec<OpSeq>> {
        let updates: Vec<Timestamp> = set.workflows.iter().map(|change| self.updated_at(change.at)).collect::<StoreResult<_>>()?;
        self.change(|tables, _| {
            insert_ops(tables, &set.ops)?;
            insert_rows(tables, set)?;
            replace_rows(tables, set);
            for (change, updated_at) in set.workflows.iter().zip(updates) {
                let row = tables.workflows.get_mut(&change.seq).ok_or_else(|| rejected("a changed workflow is not there"))?;
                row.status = change.status;
                row.cancel_requested = change.cancel_requested;
                row.counters = change.counters;
                row.finished_at = change.finished_at;
                row.updated_at = updated_at;
            }
            Ok(set.changes.iter().filter(|change| apply(tables, change)).map(|change| change.op).collect())
        })
    }

    fn unqueue(&mut self, ops: &[OpSeq]) -> StoreResult<()> {
        self.change(|tables, _| {
            for op in ops {
                tables.delayed.remove(op);
                tables.ready.remove(op);
            }
            Ok(())
        })
    }

    fn act(&mut self, request: RequestId) -> StoreResult<Option<Act>> {
        self.read(|tables, _| Ok(tables.acts.iter().find(|act| act.request == request).cloned()))
    }

    fn set_policies(&mut self, policies: &[QueuePolicy]) -> StoreResult<()> {
        self.change(|tables, _| {
            for policy in policies {
                tables.policies.insert((policy.queue.clone(), policy.site.clone()), policy.clone());
            }
            Ok(())
        })
    }
}

fn workflow_row(seq: WorkflowSeq, new: &NewWorkflow) -> WorkflowRow {
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

fn locked(row: &WorkflowRow) -> LockedWorkflow {
    LockedWorkflow {
        seq: row.seq,
        id: row.id.clone(),
        site: row.site.clone(),
        status: row.status,
        cancel_requested: row.cancel_requested,
        counters: row.counters,
    }
}

/// The ops that `wanted` says, in key order.
fn states(tables: &Tables, wanted: impl Fn(&NewOp) -> bool) -> Vec<OpState> {
    tables.ops.values().filter(|op| wanted(&op.row)).map(Op::state).collect()
}

/// An op is unique three times: by its key, by its id in its workflow, and by its dedup key there.
fn insert_ops(tables: &mut Tables, ops: &[NewOp]) -> StoreResult<()> {
    let workflows: BTreeSet<WorkflowSeq> = ops.iter().map(|new| new.workflow).collect();
    let there = tables.ops.values().map(|op| &op.row).filter(|row| workflows.contains(&row.workflow));
    let (mut ids, mut dedup_keys) = (BTreeSet::new(), BTreeSet::new());
    for row in there.chain(ops) {
        let id_is_new = ids.insert((row.workflow, &row.id));
        let key_is_new = row.dedup_key.as_ref().is_none_or(|key| dedup_keys.insert((row.workflow, key)));
        if !id_is_new || !key_is_new {
            return Err(rejected(format!("op {:?} is there already, by its id or its dedup key", row.id)));
        }
    }
    ops.iter().try_for_each(|new| insert_new(&mut tables.ops, new.seq, Op::new(new.clone()), "an op"))
}

/// What may be there only once.
fn insert_rows(tables: &mut Tables, set: &WriteSet) -> StoreResult<()> {
    for edge in &set.edges {
        insert_new(&mut tables.edges, (edge.parent, edge.child), *edge, "an edge")?;
    }
    for queued in &set.ready {
        insert_new(&mut tables.ready, queued.op, *queued, "a ready op")?;
    }
    for queued in &set.delayed {
        insert_new(&mut tables.delayed, queued.op, *queued, "a delayed op")?;
    }
    for wait in &set.waits {
        insert_new(&mut tables.waits, wait.key.op, wait.clone(), "a wait")?;
    }
    for attempt in &set.attempts {
        insert_new(&mut tables.attempts, (attempt.key.op, attempt.key.fence), attempt.clone(), "an ended attempt")?;
    }
    for event in &set.events {
        let last = tables.events.last_key_value().map_or(0, |(seq, _)| seq.0);
        tables.events.insert(EventSeq(last + 1), event.clone());
    }
    if let Some(act) = &set.act {
        if tables.acts.iter().any(|there| there.request == act.request) {
            return Err(rejected("the request was answered already"));
        }
        tables.acts.push(act.clone());
    }
    Ok(())
}

/// What stays, or takes the place of what is there.
fn replace_rows(tables: &mut Tables, set: &WriteSet) {
    for lane in &set.lanes {
        tables.lanes.entry(lane.key).or_insert_with(|| lane.clone());
    }
    for wake in &set.wakes {
        tables.wakes.insert(wake.wait.key.op, wake.clone());
    }
    for new in &set.artifacts {
        tables.artifacts.insert((new.op, new.artifact.name.clone()), new.clone());
    }
    for new in &set.records {
        let key = (new.workflow, new.record.collection.clone(), new.record.key.clone());
        tables.records.insert(key, new.clone());
    }
}

/// Makes a guarded change; says whether its guard held.
fn apply(tables: &mut Tables, change: &OpChange) -> bool {
    let Some(op) = tables.ops.get_mut(&change.op).filter(|op| op.row.status == change.from) else { return false };
    op.row.status = change.to;
    op.row.unmet = change.unmet;
    op.row.broken = change.broken;
    op.fence = change.fence.unwrap_or(op.fence);
    op.failures = change.failures.unwrap_or(op.failures);
    op.losses = change.losses.unwrap_or(op.losses);
    op.finished_at = change.finished_at;
    true
}
