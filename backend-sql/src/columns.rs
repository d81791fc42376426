//! Columns that several statements read, for `concat!`. Each list has the names of one struct of [`crate::rows`].

/// [`crate::rows::Workflow`], of `workflows AS w`.
#[macro_export]
macro_rules! workflow_columns {
    () => {
        "w.seq, w.id, w.request, w.name, w.digest, w.input, w.metadata, w.site, w.subject, w.status, w.cancel_requested, \
         w.pending, w.blocked, w.open, w.waiting, w.succeeded, w.failed, w.canceled, \
         w.created_at_us, w.updated_at_us, w.finished_at_us"
    };
}

/// [`crate::rows::WorkflowLock`], of `workflows AS w`.
#[macro_export]
macro_rules! workflow_lock_columns {
    () => {
        "w.seq, w.id, w.site, w.status, w.cancel_requested, \
         w.pending, w.blocked, w.open, w.waiting, w.succeeded, w.failed, w.canceled"
    };
}

/// [`crate::rows::Op`], of `ops AS o`.
#[macro_export]
macro_rules! op_columns {
    () => {
        "o.seq, o.workflow, o.id, o.status, o.unmet, o.broken, o.fence, o.failures, o.losses, o.lane, o.priority, \
         o.retry, o.parent, o.dedup_key, o.spec"
    };
}

/// [`crate::rows::OpView`] without what follows from other tables, of `ops AS o`, `lanes AS l`, `leases AS le` and
/// `waits AS wa`.
#[macro_export]
macro_rules! op_view_columns {
    () => {
        concat!(
            $crate::op_columns!(),
            ", l.kind, l.queue, l.site, l.agent, o.input, o.metadata, o.time_limit_us, o.created_at_us, o.finished_at_us, \
             le.gate AS lease_gate, le.token AS lease_token, le.fence AS lease_fence, le.worker AS lease_worker, \
             le.acquired_at_us AS lease_acquired_at_us, le.expires_at_us AS lease_expires_at_us, \
             le.dispatched_at_us AS lease_dispatched_at_us, \
             wa.fence AS wait_fence, wa.reason AS wait_reason, wa.since_us AS wait_since_us, wa.due_at_us AS wait_due_at_us"
        )
    };
}

/// [`crate::rows::Lease`], of `leases` or of what deletes from it.
#[macro_export]
macro_rules! lease_columns {
    () => {
        "op, workflow, gate, token, fence, worker, acquired_at_us, expires_at_us, dispatched_at_us"
    };
}

/// [`crate::rows::Wait`], of `waits`, of what deletes from it, or of `wakes`.
#[macro_export]
macro_rules! wait_columns {
    () => {
        "op, workflow, fence, reason, since_us, due_at_us"
    };
}

/// [`crate::rows::Attempt`], of `attempts AS a`.
#[macro_export]
macro_rules! attempt_columns {
    () => {
        "a.op, a.fence, a.workflow, a.token, a.worker, a.acquired_at_us, a.ended_at_us, a.outcome, \
         a.result, a.error_code, a.error_message, a.error_details"
    };
}

/// [`crate::rows::OuterPolicy`], of `policies AS p`, often outer joined.
#[macro_export]
macro_rules! policy_columns {
    () => {
        "p.queue AS policy_queue, p.site AS policy_site, p.max_in_flight, p.rate_per_second, p.rate_burst"
    };
}

/// [`crate::rows::OpCounts`] without its workflow, of a group of `ops AS o`.
#[macro_export]
macro_rules! op_counts {
    () => {
        "count(*) FILTER (WHERE o.status = 'pending') AS pending, count(*) FILTER (WHERE o.status = 'blocked') AS blocked, \
         count(*) FILTER (WHERE o.status = 'open') AS open, count(*) FILTER (WHERE o.status = 'waiting') AS waiting, \
         count(*) FILTER (WHERE o.status = 'succeeded') AS succeeded, count(*) FILTER (WHERE o.status = 'failed') AS failed, \
         count(*) FILTER (WHERE o.status = 'canceled') AS canceled"
    };
}
