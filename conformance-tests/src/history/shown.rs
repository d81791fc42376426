//! What is stored, as it can be compared from store to store.

use crate::World;
use crate::scenario::name;
use leasehold_core::store::BoxError;
use leasehold_core::store::rows::{OpView, WorkflowPage};

/// All that is stored of the newest workflows, without the keys that a store gives out as it likes.
pub(super) fn shown(w: &World, newest: u32) -> Result<Vec<String>, BoxError> {
    let op = |view: &OpView| {
        let state = &view.state;
        let lease = view.lease.as_ref().map(|lease| (lease.key.fence, lease.acquired_at, lease.expires_at, lease.dispatched_at));
        let counts = (state.unmet, state.broken, state.fence, state.failures, state.losses);
        let error = view.error.as_ref().map(|error| &error.code);
        let wait = view.wait.as_ref().map(|wait| (wait.key.fence, wait.reason, wait.since, wait.due_at));
        format!(
            "{} {} {counts:?} due {:?} {lease:?} {wait:?} {:?} {error:?} {:?}",
            state.id, view.status, view.due_at, view.result, view.finished_at
        )
    };
    let page = WorkflowPage { limit: newest, ..WorkflowPage::default() };
    let mut lines = Vec::new();
    for row in w.read(|tx| tx.list_workflows(&page))? {
        lines.push(format!("{} {} {:?} {:?} {:?}", row.id, row.status, row.cancel_requested, row.counters, row.finished_at));
        let ops = w.all_ops(row.seq)?;
        lines.extend(ops.iter().map(op));
        let (events, records) =
            w.read(|tx| Ok((tx.events_since(None, Some(row.seq), 10_000)?, tx.records(row.seq, &name("c"), None, 10_000)?)))?;
        let mut told: Vec<String> =
            events.iter().map(|row| format!("{:?} {:?} {} {:?}", row.event.kind, row.op_id, row.event.at, row.event.detail)).collect();
        // A batch tells of its ops in the order in which the store named them.
        told.sort();
        lines.extend(told);
        lines.extend(records.iter().map(|row| format!("{} = {}", row.record.key, row.record.value)));
    }
    Ok(lines)
}
