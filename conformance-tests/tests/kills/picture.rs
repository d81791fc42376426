//! All that a store holds, as lines that two stores of the same past share: without keys, whose numbers a rolled back
//! transaction may have used up.

use leasehold_core::model::{CollectionName, Fence};
use leasehold_core::store::rows::{LaneScan, OpPage, WorkflowPage};
use leasehold_core::store::{BoxError, Store, StoreError, StoreExt, TxKind};
use std::collections::BTreeMap;

/// More than any of these stores holds.
const ALL: u32 = 1_000;

pub(crate) fn of(store: &dyn Store) -> Result<Vec<String>, BoxError> {
    let lines = store.with(TxKind::Read, |tx| {
        let mut lines = Vec::new();
        let mut workflows = tx.list_workflows(&WorkflowPage { limit: ALL, ..WorkflowPage::default() })?;
        workflows.sort_by(|a, b| a.id.cmp(&b.id));
        for workflow in workflows {
            lines.push(format!(
                "workflow {} {:?} cancel {} {:?} created {} updated {} finished {:?}",
                workflow.id,
                workflow.status,
                workflow.cancel_requested,
                workflow.counters,
                workflow.created_at,
                workflow.updated_at,
                workflow.finished_at
            ));
            let ops = tx.list_ops(workflow.seq, &OpPage { status: None, after: None, limit: ALL })?;
            let ids: BTreeMap<_, _> = ops.iter().map(|view| (view.state.seq, view.state.id.clone())).collect();
            for view in ops {
                let state = &view.state;
                let lease = view.lease.as_ref().map(|lease| (lease.key.token, lease.key.fence, &lease.worker, lease.acquired_at, lease.expires_at, lease.dispatched_at));
                lines.push(format!(
                    "op {} {:?} unmet {} broken {} fence {} failures {} losses {} parent {:?} due {:?} finished {:?} result {:?} error {:?} lease {lease:?}",
                    state.id,
                    view.status,
                    state.unmet,
                    state.broken,
                    state.fence.0,
                    state.failures,
                    state.losses,
                    state.parent.and_then(|parent| ids.get(&parent)),
                    view.due_at,
                    view.finished_at,
                    view.result,
                    view.error
                ));
                let wait = view.wait.as_ref().map(|wait| (wait.key.fence, wait.reason, wait.since, wait.due_at));
                let woken = tx.wakes_of(&[state.seq])?.pop().map(|wake| (wake.wait.key.fence, wake.wait.due_at, wake.woken_at));
                lines.push(format!("op {} wait {wait:?} woken {woken:?}", state.id));
                for attempt in tx.attempts(state.seq, Fence::NONE, ALL)? {
                    lines.push(format!(
                        "attempt of {} {} {} {:?} {} to {} {:?} {:?}",
                        state.id, attempt.key.fence.0, attempt.key.token, attempt.outcome, attempt.acquired_at, attempt.ended_at, attempt.result, attempt.error
                    ));
                }
            }
            for artifact in tx.artifacts(workflow.seq, None, None, ALL)? {
                lines.push(format!("artifact {} {} {} {}", artifact.op_id, artifact.name, artifact.sha256, artifact.fence.0));
            }
            let collection = CollectionName::new("c").map_err(|error| StoreError::Rejected(error.into()))?;
            for record in tx.records(workflow.seq, &collection, None, ALL)? {
                lines.push(format!("record {} {:?}", record.record.key, record.record.value));
            }
        }
        for row in tx.events_since(None, None, ALL)? {
            let event = row.event;
            lines.push(format!("event {:?} {:?} {:?} {:?} {:?} {:?} at {}", event.kind, row.workflow_id, row.op_id, event.fence, event.actor, event.detail, event.at));
        }
        lines.push(format!("queues {:?}", tx.queue_statuses()?));
        // A promoted op is told from one that is only due by its lane.
        let lanes = tx.open_lanes(&LaneScan { after: None, kinds: None, agents: Vec::new(), limit: ALL })?.lanes;
        lines.push(format!("lanes with work {:?}", lanes.iter().map(|open| open.lane.key).collect::<Vec<_>>()));
        Ok::<_, StoreError>(lines)
    })?;
    Ok(lines)
}
