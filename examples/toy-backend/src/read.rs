//! Reads for clients and operators.

use crate::store::ToyTx;
use crate::tables::{Op, Tables};
use leasehold_core::model::{
    ArtifactName, CollectionName, EventSeq, Fence, Json, Lane, OpSeq, QueuePolicy, RecordKey, Timestamp, WorkflowSeq,
};
use leasehold_core::state::{Counters, WorkflowStatus};
use leasehold_core::store::rows::{
    ArtifactRow, Attempt, EventRow, NewArtifact, NewRecord, OpPage, OpView, QueueStatus, QueuedOp, Totals, UpdateCursor, WorkflowPage,
    WorkflowRow,
};
use leasehold_core::store::{ReadTx, StoreResult};
use std::collections::{BTreeMap, BTreeSet};

impl ReadTx for ToyTx {
    fn list_workflows(&mut self, page: &WorkflowPage) -> StoreResult<Vec<WorkflowRow>> {
        let wanted = |row: &&WorkflowRow| {
            page.before.is_none_or(|before| row.seq < before)
                && page.name.as_ref().is_none_or(|name| row.name == *name)
                && page.site.as_ref().is_none_or(|site| row.site == *site)
                && page.status.is_none_or(|status| row.status == status)
                && (page.subject.is_none() || row.subject == page.subject)
                && page.created_from.is_none_or(|from| row.created_at >= from)
                && page.created_before.is_none_or(|before| row.created_at < before)
        };
        self.read(|tables, _| Ok(tables.workflows.values().rev().filter(wanted).take(size(page.limit)).cloned().collect()))
    }

    fn workflows_since(&mut self, after: Option<UpdateCursor>, limit: u32) -> StoreResult<Vec<WorkflowRow>> {
        self.read(|tables, _| {
            // An open transaction cannot precede these: its updates will be later than every committed one.
            let place = |row: &WorkflowRow| UpdateCursor { updated_at: row.updated_at, seq: row.seq };
            let mut rows: Vec<&WorkflowRow> =
                tables.workflows.values().filter(|row| after.is_none_or(|after| place(row) > after)).collect();
            rows.sort_by_key(|row| place(row));
            Ok(rows.into_iter().take(size(limit)).cloned().collect())
        })
    }

    fn running_counts(&mut self, workflows: &[WorkflowSeq]) -> StoreResult<Vec<(WorkflowSeq, i64)>> {
        self.read(|tables, _| {
            let mut counts: BTreeMap<WorkflowSeq, i64> = workflows.iter().map(|workflow| (*workflow, 0)).collect();
            for lease in tables.leases.values() {
                if let Some(count) = counts.get_mut(&lease.workflow) {
                    *count += 1;
                }
            }
            Ok(counts.into_iter().collect())
        })
    }

    fn list_ops(&mut self, workflow: WorkflowSeq, page: &OpPage) -> StoreResult<Vec<OpView>> {
        let wanted = |op: &&Op| {
            op.row.workflow == workflow
                && page.after.is_none_or(|after| op.row.seq > after)
                && page.status.is_none_or(|status| op.row.status == status)
        };
        self.read(|tables, _| Ok(tables.ops.values().filter(wanted).take(size(page.limit)).map(|op| view(tables, op)).collect()))
    }

    fn op_views(&mut self, ops: &[OpSeq]) -> StoreResult<Vec<OpView>> {
        let ops: BTreeSet<&OpSeq> = ops.iter().collect();
        self.read(|tables, _| Ok(ops.into_iter().filter_map(|op| tables.ops.get(op)).map(|op| view(tables, op)).collect()))
    }

    fn results(&mut self, ops: &[OpSeq]) -> StoreResult<Vec<(OpSeq, Json)>> {
        let ops: BTreeSet<&OpSeq> = ops.iter().collect();
        self.read(|tables, _| {
            let successes = ops.into_iter().filter_map(|op| tables.ops.get(op)).filter_map(|op| tables.success_of(op));
            Ok(successes.filter_map(|line| Some((line.key.op, line.result.clone()?))).collect())
        })
    }

    fn attempts(&mut self, op: OpSeq, after: Fence, limit: u32) -> StoreResult<Vec<Attempt>> {
        self.read(|tables, _| Ok(tables.attempts_of(op).filter(|line| line.key.fence > after).take(size(limit)).cloned().collect()))
    }

    fn artifacts(
        &mut self,
        workflow: WorkflowSeq,
        op: Option<OpSeq>,
        after: Option<(OpSeq, ArtifactName)>,
        limit: u32,
    ) -> StoreResult<Vec<ArtifactRow>> {
        self.read(|tables, _| {
            let behind = tables.artifacts.iter().filter(|(key, _)| after.as_ref().is_none_or(|after| *key > after)).map(|(_, new)| new);
            let wanted = behind.filter(|new| new.workflow == workflow && op.is_none_or(|op| new.op == op));
            wanted.take(size(limit)).map(|new| artifact_row(tables, new)).collect()
        })
    }

    fn artifact_content(&mut self, op: OpSeq, name: &ArtifactName) -> StoreResult<Option<Vec<u8>>> {
        self.read(|tables, _| Ok(tables.artifacts.get(&(op, name.clone())).map(|new| new.artifact.content.clone())))
    }

    fn records(
        &mut self,
        workflow: WorkflowSeq,
        collection: &CollectionName,
        after: Option<&RecordKey>,
        limit: u32,
    ) -> StoreResult<Vec<NewRecord>> {
        let wanted = |new: &&NewRecord| {
            new.workflow == workflow && new.record.collection == *collection && after.is_none_or(|after| new.record.key > *after)
        };
        self.read(|tables, _| Ok(tables.records.values().filter(wanted).take(size(limit)).cloned().collect()))
    }

    fn events_since(&mut self, after: Option<EventSeq>, workflow: Option<WorkflowSeq>, limit: u32) -> StoreResult<Vec<EventRow>> {
        self.read(|tables, _| {
            // Numbers are in commit order here, because transactions come one after the other.
            let behind = tables.events.iter().filter(|(seq, _)| after.is_none_or(|after| **seq > after));
            let wanted = behind.filter(|(_, event)| workflow.is_none_or(|workflow| event.workflow == Some(workflow)));
            wanted
                .take(size(limit))
                .map(|(seq, event)| {
                    Ok(EventRow {
                        seq: *seq,
                        event: event.clone(),
                        workflow_id: event.workflow.map(|workflow| tables.workflow(workflow).map(|row| row.id.clone())).transpose()?,
                        op_id: event.op.map(|op| tables.op(op).map(|op| op.row.id.clone())).transpose()?,
                    })
                })
                .collect()
        })
    }

    fn policies(&mut self) -> StoreResult<Vec<QueuePolicy>> {
        self.read(|tables, _| Ok(tables.policies.values().cloned().collect()))
    }

    fn queue_statuses(&mut self) -> StoreResult<Vec<QueueStatus>> {
        self.read(|tables, now| {
            let gates: BTreeMap<_, _> = tables.lanes.values().map(|lane| ((&lane.site, &lane.queue), lane)).collect();
            Ok(gates.into_values().map(|lane| queue_status(tables, lane, now)).collect())
        })
    }

    fn totals(&mut self) -> StoreResult<Totals> {
        self.read(|tables, now| {
            let mut ops = Counters::default();
            tables.ops.values().for_each(|op| ops.add(op.row.status, 1));
            Ok(Totals {
                workflows: WorkflowStatus::ALL.map(|status| (status, of_status(tables, status))).to_vec(),
                ops,
                leases_live: rows(tables.leases.values().filter(|lease| lease.expires_at > now)),
                leases_expired: rows(tables.leases.values().filter(|lease| lease.expires_at <= now)),
            })
        })
    }
}

fn view(tables: &Tables, op: &Op) -> OpView {
    let row = &op.row;
    let lease = tables.leases.get(&row.seq).cloned();
    let queued = tables.ready.get(&row.seq).or_else(|| tables.delayed.get(&row.seq));
    OpView {
        state: op.state(),
        status: row.status.status(lease.is_some()),
        kind: row.lane.kind.clone(),
        queue: row.lane.queue.clone(),
        site: row.lane.site.clone(),
        agent: row.lane.agent.clone(),
        input: row.input.clone(),
        metadata: row.metadata.clone(),
        time_limit: row.time_limit,
        created_at: row.created_at,
        finished_at: op.finished_at,
        lease,
        due_at: queued.map(|queued| queued.due_at),
        wait: tables.waits.get(&row.seq).cloned(),
        result: tables.success_of(op).and_then(|line| line.result.clone()),
        error: tables.attempts_of(row.seq).next_back().and_then(|line| line.error.clone()),
    }
}

fn artifact_row(tables: &Tables, new: &NewArtifact) -> StoreResult<ArtifactRow> {
    let artifact = &new.artifact;
    Ok(ArtifactRow {
        op: new.op,
        op_id: tables.op(new.op)?.row.id.clone(),
        name: artifact.name.clone(),
        kind: artifact.kind,
        content_type: artifact.content_type.clone(),
        metadata: artifact.metadata.clone(),
        size: i64::try_from(artifact.content.len()).unwrap_or(i64::MAX),
        sha256: new.sha256,
        fence: new.fence,
        at: new.at,
    })
}

fn queue_status(tables: &Tables, lane: &Lane, now: Timestamp) -> QueueStatus {
    let in_gate = |queued: &&QueuedOp| tables.lanes.get(&queued.lane).is_some_and(|other| other.gate == lane.gate);
    let queued = tables.ready.values().chain(tables.delayed.values()).filter(in_gate);
    // Due or not decides, not the table: a row is promoted some time after it is due.
    let (ready, delayed): (Vec<&QueuedOp>, Vec<&QueuedOp>) = queued.partition(|queued| queued.due_at <= now);
    QueueStatus {
        site: lane.site.clone(),
        queue: lane.queue.clone(),
        ready: rows(ready.iter()),
        delayed: rows(delayed.iter()),
        in_flight: rows(tables.leases.values().filter(|lease| lease.gate == lane.gate)),
        oldest_due_at: ready.iter().map(|queued| queued.due_at).min(),
        policy: tables.policy(&lane.site, &lane.queue).cloned(),
        bucket: tables.buckets.get(&lane.gate).copied(),
    }
}

fn of_status(tables: &Tables, status: WorkflowStatus) -> i64 {
    rows(tables.workflows.values().filter(|row| row.status == status))
}

fn rows<T>(rows: impl Iterator<Item = T>) -> i64 {
    i64::try_from(rows.count()).unwrap_or(i64::MAX)
}

fn size(limit: u32) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}
