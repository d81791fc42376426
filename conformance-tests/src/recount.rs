//! Recomputes every derived fact from the graph and compares it with what is stored.

use crate::World;
use leasehold_core::model::{Fence, OpSeq};
use leasehold_core::state::{Counters, Share, StoredStatus, WorkflowStatus, share};
use leasehold_core::store::BoxError;
use leasehold_core::store::rows::{AttemptOutcome, OpView, WaitReason, WorkflowPage, WorkflowRow};
use std::collections::{BTreeMap, HashMap};

/// Ops of a workflow up to which every op's ledger is read; of a larger one each hundredth op's.
const LEDGERS_MAX: usize = 1_000;
/// Ops asked about in one read.
const CHUNK: usize = 5_000;

/// Checks unmet and broken counts, statuses, counters, queues, leases and the ledger of every workflow in the store.
///
/// # Errors
/// All that does not follow from the graph, or the store's error.
pub fn recount(world: &World) -> Result<(), BoxError> {
    let mut wrong = Vec::new();
    let mut whole = Whole::default();
    let mut before = None;
    loop {
        let page = WorkflowPage { before, limit: 500, ..WorkflowPage::default() };
        let workflows = world.read(|tx| tx.list_workflows(&page))?;
        let Some(last) = workflows.last() else { break };
        before = Some(last.seq);
        for workflow in &workflows {
            recount_workflow(world, workflow, &mut whole, &mut wrong)?;
        }
    }
    whole.compare(world, &mut wrong)?;
    if wrong.is_empty() { Ok(()) } else { Err(format!("derived facts do not follow from the graph: {}", wrong.join("; ")).into()) }
}

/// What all workflows add up to.
#[derive(Default)]
struct Whole {
    workflows: BTreeMap<WorkflowStatus, i64>,
    ops: Counters,
    leased: i64,
    queued: i64,
}

impl Whole {
    fn compare(&self, world: &World, wrong: &mut Vec<String>) -> Result<(), BoxError> {
        let (totals, queues) = world.read(|tx| Ok((tx.totals()?, tx.queue_statuses()?)))?;
        let workflows: BTreeMap<WorkflowStatus, i64> = totals.workflows.iter().copied().filter(|(_, count)| *count > 0).collect();
        if workflows != self.workflows {
            wrong.push(format!("totals count workflows {workflows:?}, there are {:?}", self.workflows));
        }
        if totals.ops != self.ops {
            wrong.push(format!("totals count ops {:?}, there are {:?}", totals.ops, self.ops));
        }
        if totals.leases_live + totals.leases_expired != self.leased {
            wrong.push(format!("totals count {} + {} leases, ops have {}", totals.leases_live, totals.leases_expired, self.leased));
        }
        let queued: i64 = queues.iter().map(|queue| queue.ready + queue.delayed).sum();
        let in_flight: i64 = queues.iter().map(|queue| queue.in_flight).sum();
        if (queued, in_flight) != (self.queued, self.leased) {
            let seen = (self.queued, self.leased);
            wrong.push(format!("queues hold (queued, in flight) = {:?}, ops say {seen:?}", (queued, in_flight)));
        }
        Ok(())
    }
}

fn recount_workflow(world: &World, workflow: &WorkflowRow, whole: &mut Whole, wrong: &mut Vec<String>) -> Result<(), BoxError> {
    let ops = world.all_ops(workflow.seq)?;
    let at = |op: &OpView| format!("{}/{}", workflow.id, op.state.id);
    let mut counters = Counters::default();
    let mut leased = 0;
    let shares = shares(world, &ops)?;
    for op in &ops {
        counters.add(op.state.status, 1);
        leased += i64::from(op.lease.is_some());
        whole.queued += i64::from(op.due_at.is_some());
        let derived = shares.get(&op.state.seq).copied().unwrap_or(Share { unmet: 0, broken: 0 });
        wrong.extend(check_op(op, derived).into_iter().map(|what| format!("op {}: {what}", at(op))));
        if op.state.workflow != workflow.seq {
            wrong.push(format!("op {} is listed under another workflow", at(op)));
        }
    }
    let step = if ops.len() > LEDGERS_MAX { 100 } else { 1 };
    for op in ops.iter().step_by(step) {
        wrong.extend(check_ledger(world, op)?.into_iter().map(|what| format!("op {}: {what}", at(op))));
    }
    if counters != workflow.counters {
        wrong.push(format!("workflow {} counts {:?}, it has {counters:?}", workflow.id, workflow.counters));
    }
    let status = if workflow.cancel_requested { WorkflowStatus::Canceled } else { counters.derived() };
    if status != workflow.status {
        wrong.push(format!("workflow {} is {}, its ops make it {status}", workflow.id, workflow.status));
    }
    if workflow.finished_at.is_some() != status.is_ended() {
        wrong.push(format!("workflow {} is {status} and finished at {:?}", workflow.id, workflow.finished_at));
    }
    if workflow.cancel_requested && counters.pending + counters.blocked + counters.open + counters.waiting > 0 {
        wrong.push(format!("workflow {} is canceled and something survived: {counters:?}", workflow.id));
    }
    let running = world.read(|tx| tx.running_counts(&[workflow.seq]))?.first().map_or(0, |(_, count)| *count);
    if running != leased {
        wrong.push(format!("workflow {} counts {running} running ops, {leased} have a lease", workflow.id));
    }
    *whole.workflows.entry(workflow.status).or_default() += 1;
    whole.leased += leased;
    for (status, count) in [
        (StoredStatus::Pending, counters.pending),
        (StoredStatus::Blocked, counters.blocked),
        (StoredStatus::Open, counters.open),
        (StoredStatus::Waiting, counters.waiting),
        (StoredStatus::Succeeded, counters.succeeded),
        (StoredStatus::Failed, counters.failed),
        (StoredStatus::Canceled, counters.canceled),
    ] {
        whole.ops.add(status, count);
    }
    Ok(())
}

/// What each op's edges add up to.
fn shares(world: &World, ops: &[OpView]) -> Result<HashMap<OpSeq, Share>, BoxError> {
    let mut shares: HashMap<OpSeq, Share> = HashMap::new();
    let seqs: Vec<OpSeq> = ops.iter().map(|op| op.state.seq).collect();
    for chunk in seqs.chunks(CHUNK) {
        for edge in world.read(|tx| tx.upstream(chunk))? {
            // A ready and a running parent hold a child back alike.
            let share = share(edge.required, edge.parent_status.status(false));
            let sum = shares.entry(edge.child).or_insert(Share { unmet: 0, broken: 0 });
            *sum = Share { unmet: sum.unmet + share.unmet, broken: sum.broken + share.broken };
        }
    }
    Ok(shares)
}

fn check_op(op: &OpView, derived: Share) -> Vec<String> {
    let mut wrong = Vec::new();
    let state = &op.state;
    let status = match state.status {
        StoredStatus::Pending | StoredStatus::Blocked => {
            if (state.unmet, state.broken) != (derived.unmet, derived.broken) {
                wrong.push(format!("unmet, broken are {:?}, its edges say {derived:?}", (state.unmet, state.broken)));
            }
            match (derived.broken > 0, derived.unmet > 0) {
                (true, _) => StoredStatus::Blocked,
                (false, true) => StoredStatus::Pending,
                (false, false) => StoredStatus::Open,
            }
        }
        // A required parent cannot leave "succeeded" while the op is open; a soft one may have reopened since.
        StoredStatus::Open if derived.broken > 0 => StoredStatus::Blocked,
        StoredStatus::Open | StoredStatus::Waiting | StoredStatus::Succeeded | StoredStatus::Failed | StoredStatus::Canceled => {
            state.status
        }
    };
    if status != state.status {
        wrong.push(format!("is {:?}, its edges make it {status:?}", state.status));
    }
    if op.status != state.status.status(op.lease.is_some()) {
        wrong.push(format!("shows {} for {:?}", op.status, state.status));
    }
    let places = usize::from(op.lease.is_some()) + usize::from(op.due_at.is_some());
    if places != usize::from(state.status == StoredStatus::Open) {
        wrong.push(format!("is {:?} with lease {:?} and due {:?}", state.status, op.lease, op.due_at));
    }
    match &op.wait {
        Some(wait) if state.status == StoredStatus::Waiting => {
            if (wait.key.op, wait.key.fence, wait.workflow) != (state.seq, state.fence, state.workflow) {
                wrong.push(format!("has the wait of another attempt: {wait:?}"));
            }
            if wait.reason == WaitReason::Timer && wait.due_at.is_none() {
                wrong.push(format!("waits for an instant that never comes: {wait:?}"));
            }
        }
        wait if wait.is_some() != (state.status == StoredStatus::Waiting) => {
            wrong.push(format!("is {:?} with the wait {wait:?}", state.status));
        }
        _ => {}
    }
    if let Some(lease) = &op.lease {
        if lease.key.op != state.seq || lease.workflow != state.workflow {
            wrong.push(format!("has the lease of another op: {lease:?}"));
        }
        if lease.key.fence <= state.fence {
            wrong.push(format!("has a lease with fence {:?}, its last attempt had {:?}", lease.key.fence, state.fence));
        }
        if lease.acquired_at >= lease.expires_at {
            wrong.push(format!("has a lease that never held: {lease:?}"));
        }
    }
    let ended = matches!(state.status, StoredStatus::Succeeded | StoredStatus::Failed | StoredStatus::Canceled);
    if op.finished_at.is_some() != ended {
        wrong.push(format!("is {:?} and finished at {:?}", state.status, op.finished_at));
    }
    wrong
}

/// Attempts are numbered without a gap, the last number is the op's fence, and a success is there exactly once.
fn check_ledger(world: &World, op: &OpView) -> Result<Vec<String>, BoxError> {
    let mut wrong = Vec::new();
    let attempts = world.read(|tx| tx.attempts(op.state.seq, Fence::NONE, 10_000))?;
    let numbers: Vec<i64> = attempts.iter().map(|attempt| attempt.key.fence.0).collect();
    let expected: Vec<i64> = (1..=op.state.fence.0).collect();
    if numbers != expected {
        wrong.push(format!("has attempts {numbers:?}, its fence is {}", op.state.fence.0));
    }
    let successes = attempts.iter().filter(|attempt| attempt.outcome == AttemptOutcome::Succeeded).count();
    if successes != usize::from(op.state.status == StoredStatus::Succeeded) {
        wrong.push(format!("is {:?} with {successes} succeeded attempts", op.state.status));
    }
    if op.result.is_some() != (op.state.status == StoredStatus::Succeeded) {
        wrong.push(format!("is {:?} and shows the result {:?}", op.state.status, op.result));
    }
    for attempt in &attempts {
        if attempt.key.op != op.state.seq || attempt.workflow != op.state.workflow {
            wrong.push(format!("has the attempt of another op: {attempt:?}"));
        }
    }
    Ok(wrong)
}
