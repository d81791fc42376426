//! Steps that only clients and operators need.

use super::MemoryTx;
use super::tables::{OpRow, Tables};
use crate::model::{ArtifactName, CollectionName, EventSeq, Fence, Json, OpSeq, QueuePolicy, RecordKey, Timestamp, WorkflowSeq};
use crate::state::{StoredStatus, WorkflowStatus};
use crate::store::rows::{
    ArtifactRow, Attempt, AttemptOutcome, EventRow, NewArtifact, NewRecord, OpPage, OpView, QueueStatus, Totals, UpdateCursor,
    WorkflowPage, WorkflowRow,
};
use crate::store::{ReadTx, StoreResult};
use std::ops::Bound;

impl ReadTx for MemoryTx<'_> {
    fn list_workflows(&mut self, page: &WorkflowPage) -> StoreResult<Vec<WorkflowRow>> {
        self.read(|tables, _| {
            let newest_first = tables.workflows.iter().rev().map(|(_, row)| row);
            Ok(newest_first.filter(|row| is_on(page, row)).take(page.limit as usize).cloned().collect())
        })
    }

    fn workflows_since(&mut self, after: Option<UpdateCursor>, limit: u32) -> StoreResult<Vec<WorkflowRow>> {
        self.read(|tables, _| {
            let from = after.map_or(Bound::Unbounded, |cursor| Bound::Excluded((cursor.updated_at, cursor.seq)));
            let updated = tables.workflows_by_update.range((from, Bound::Unbounded)).take(limit as usize);
            Ok(updated.filter_map(|((_, seq), ())| tables.workflows.get(seq)).cloned().collect())
        })
    }

    fn running_counts(&mut self, workflows: &[WorkflowSeq]) -> StoreResult<Vec<(WorkflowSeq, i64)>> {
        self.read(|tables, _| {
            let counts = workflows.iter().map(|workflow| (*workflow, number(leases_of(tables, *workflow))));
            Ok(counts.collect())
        })
    }

    fn list_ops(&mut self, workflow: WorkflowSeq, page: &OpPage) -> StoreResult<Vec<OpView>> {
        self.read(|tables, _| {
            let ops = tables.ops_of(workflow).filter(|op| page.after.is_none_or(|after| op.new.seq > after));
            let ops = ops.filter(|op| page.status.is_none_or(|status| op.status == status));
            Ok(ops.take(page.limit as usize).map(|op| view(tables, op)).collect())
        })
    }

    fn op_views(&mut self, ops: &[OpSeq]) -> StoreResult<Vec<OpView>> {
        self.read(|tables, _| Ok(ops.iter().filter_map(|op| tables.ops.get(op)).map(|op| view(tables, op)).collect()))
    }

    fn results(&mut self, ops: &[OpSeq]) -> StoreResult<Vec<(OpSeq, Json)>> {
        self.read(|tables, _| {
            let rows = ops.iter().filter_map(|op| tables.ops.get(op));
            Ok(rows.filter_map(|op| Some((op.new.seq, result(tables, op)?))).collect())
        })
    }

    fn attempts(&mut self, op: OpSeq, after: Fence, limit: u32) -> StoreResult<Vec<Attempt>> {
        self.read(|tables, _| {
            let behind = (Bound::Excluded((op, after)), Bound::Included((op, Fence(i64::MAX))));
            Ok(tables.attempts.range(behind).take(limit as usize).map(|(_, attempt)| attempt.clone()).collect())
        })
    }

    fn artifacts(
        &mut self,
        workflow: WorkflowSeq,
        op: Option<OpSeq>,
        after: Option<(OpSeq, ArtifactName)>,
        limit: u32,
    ) -> StoreResult<Vec<ArtifactRow>> {
        self.read(|tables, _| {
            let all = tables.artifacts.iter().map(|(_, row)| row.as_ref()).filter(|row| row.workflow == workflow);
            let mine = all.filter(|row| op.is_none_or(|op| row.op == op));
            let behind = mine.filter(|row| after.as_ref().is_none_or(|after| (row.op, &row.artifact.name) > (after.0, &after.1)));
            Ok(behind.take(limit as usize).filter_map(|row| artifact(tables, row)).collect())
        })
    }

    fn artifact_content(&mut self, op: OpSeq, name: &ArtifactName) -> StoreResult<Option<Vec<u8>>> {
        self.read(|tables, _| {
            let workflow = tables.ops.get(&op).map(|row| row.new.workflow);
            let row = workflow.and_then(|workflow| tables.artifacts.get(&(workflow, op, name.clone())));
            Ok(row.map(|row| row.artifact.content.clone()))
        })
    }

    fn records(
        &mut self,
        workflow: WorkflowSeq,
        collection: &CollectionName,
        after: Option<&RecordKey>,
        limit: u32,
    ) -> StoreResult<Vec<NewRecord>> {
        self.read(|tables, _| {
            let all = tables.records.iter().map(|(_, row)| row);
            let mine = all.filter(|row| row.workflow == workflow && row.record.collection == *collection);
            let behind = mine.filter(|row| after.is_none_or(|after| row.record.key > *after));
            Ok(behind.take(limit as usize).cloned().collect())
        })
    }

    fn events_since(&mut self, after: Option<EventSeq>, workflow: Option<WorkflowSeq>, limit: u32) -> StoreResult<Vec<EventRow>> {
        self.read(|tables, _| {
            let limit = limit as usize;
            let after = after.unwrap_or(EventSeq(i64::MIN));
            let seqs: Vec<EventSeq> = match workflow {
                None => {
                    let behind = tables.events.range((Bound::Excluded(after), Bound::Unbounded));
                    behind.take(limit).map(|(seq, _)| *seq).collect()
                }
                Some(workflow) => {
                    let behind = (Bound::Excluded((workflow, after)), Bound::Included((workflow, EventSeq(i64::MAX))));
                    tables.events_by_workflow.range(behind).take(limit).map(|((_, seq), ())| *seq).collect()
                }
            };
            Ok(seqs.into_iter().filter_map(|seq| event(tables, seq)).collect())
        })
    }

    fn policies(&mut self) -> StoreResult<Vec<QueuePolicy>> {
        self.read(|tables, _| Ok(tables.policies.iter().map(|(_, policy)| policy.clone()).collect()))
    }

    fn queue_statuses(&mut self) -> StoreResult<Vec<QueueStatus>> {
        self.read(|tables, now| {
            let mut statuses: Vec<QueueStatus> = tables
                .gates
                .iter()
                .map(|(gate, row)| {
                    let here = |lane| tables.lanes.get(lane).is_some_and(|lane| lane.gate == *gate);
                    let delayed = || tables.delayed.iter().map(|(_, queued)| queued).filter(|queued| here(&queued.lane));
                    let ready = tables.ready.iter().map(|(_, queued)| queued).filter(|queued| here(&queued.lane));
                    let due: Vec<Timestamp> =
                        ready.chain(delayed().filter(|queued| queued.due_at <= now)).map(|queued| queued.due_at).collect();
                    QueueStatus {
                        site: row.site.clone(),
                        queue: row.queue.clone(),
                        ready: number(due.len()),
                        delayed: number(delayed().filter(|queued| queued.due_at > now).count()),
                        in_flight: number(tables.in_flight(*gate)),
                        oldest_due_at: due.into_iter().min(),
                        policy: tables.policy(&row.site, &row.queue),
                        bucket: row.bucket,
                    }
                })
                .collect();
            statuses.sort_unstable_by(|a, b| (&a.site, &a.queue).cmp(&(&b.site, &b.queue)));
            Ok(statuses)
        })
    }

    fn totals(&mut self) -> StoreResult<Totals> {
        self.read(|tables, now| {
            let mut totals = Totals::default();
            for status in WorkflowStatus::ALL {
                let count = tables.workflows.iter().filter(|(_, row)| row.status == status).count();
                if count > 0 {
                    totals.workflows.push((status, number(count)));
                }
            }
            tables.ops.iter().for_each(|(_, op)| totals.ops.add(op.status, 1));
            totals.leases_expired = number(tables.leases.iter().filter(|(_, lease)| lease.expires_at <= now).count());
            totals.leases_live = number(tables.leases.iter().count()) - totals.leases_expired;
            Ok(totals)
        })
    }
}

fn is_on(page: &WorkflowPage, row: &WorkflowRow) -> bool {
    page.name.as_ref().is_none_or(|name| row.name == *name)
        && page.site.as_ref().is_none_or(|site| row.site == *site)
        && page.status.is_none_or(|status| row.status == status)
        && page.subject.as_ref().is_none_or(|subject| row.subject.as_ref() == Some(subject))
        && page.created_from.is_none_or(|from| row.created_at >= from)
        && page.created_before.is_none_or(|before| row.created_at < before)
        && page.before.is_none_or(|before| row.seq < before)
}

fn leases_of(tables: &Tables, workflow: WorkflowSeq) -> usize {
    tables.leases.iter().filter(|(_, lease)| lease.workflow == workflow).count()
}

fn view(tables: &Tables, op: &OpRow) -> OpView {
    let seq = op.new.seq;
    let lease = tables.leases.get(&seq).cloned();
    let queued = tables.ready.get(&seq).or_else(|| tables.delayed.get(&seq));
    OpView {
        state: op.state(),
        status: op.status.status(lease.is_some()),
        kind: op.new.lane.kind.clone(),
        queue: op.new.lane.queue.clone(),
        site: op.new.lane.site.clone(),
        agent: op.new.lane.agent.clone(),
        input: op.new.input.clone(),
        metadata: op.new.metadata.clone(),
        time_limit: op.new.time_limit,
        created_at: op.new.created_at,
        finished_at: op.finished_at,
        lease,
        due_at: queued.map(|queued| queued.due_at),
        wait: tables.waits.get(&seq).cloned(),
        result: result(tables, op),
        error: attempts_back(tables, seq).next().and_then(|last| last.error.clone()),
    }
}

/// The result of the last success, while the op is succeeded.
fn result(tables: &Tables, op: &OpRow) -> Option<Json> {
    if op.status != StoredStatus::Succeeded {
        return None;
    }
    attempts_back(tables, op.new.seq).find(|attempt| attempt.outcome == AttemptOutcome::Succeeded)?.result.clone()
}

fn attempts_back(tables: &Tables, op: OpSeq) -> impl Iterator<Item = &Attempt> {
    tables.attempts.range((op, Fence(i64::MIN))..=(op, Fence(i64::MAX))).rev().map(|(_, attempt)| attempt)
}

fn artifact(tables: &Tables, row: &NewArtifact) -> Option<ArtifactRow> {
    Some(ArtifactRow {
        op: row.op,
        op_id: tables.ops.get(&row.op)?.new.id.clone(),
        name: row.artifact.name.clone(),
        kind: row.artifact.kind,
        content_type: row.artifact.content_type.clone(),
        metadata: row.artifact.metadata.clone(),
        size: number(row.artifact.content.len()),
        sha256: row.sha256,
        fence: row.fence,
        at: row.at,
    })
}

fn event(tables: &Tables, seq: EventSeq) -> Option<EventRow> {
    let event = tables.events.get(&seq)?.clone();
    let workflow_id = event.workflow.and_then(|workflow| Some(tables.workflows.get(&workflow)?.id.clone()));
    let op_id = event.op.and_then(|op| Some(tables.ops.get(&op)?.new.id.clone()));
    Some(EventRow { seq, event, workflow_id, op_id })
}

fn number(rows: usize) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}
