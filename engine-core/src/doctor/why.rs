//! Why an op does not go on: the root causes, through any depth (S10).

use crate::model::{AgentName, KindName, MICRO_TOKENS, OpError, OpId, OpSeq, QueueName, SiteName, Timestamp, WorkerName, WorkflowId};
use crate::state::{OpStatus, StoredStatus, share};
use crate::store::rows::{OpPage, OpView, QueueStatus, UpstreamEdge, WorkflowRow};
use crate::store::{StoreResult, Tx};
use crate::transitions::TransitionError;
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};

/// Root causes that are told; more are counted.
const ROOTS_MAX: usize = 100;

/// Why an op, or a whole workflow, does not go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Why {
    /// The workflow.
    pub workflow: WorkflowId,
    /// The op asked about; none when the whole workflow was.
    pub op: Option<OpId>,
    /// Where that op stands.
    pub status: Option<OpStatus>,
    /// What it comes down to: ops that are not held up by others themselves.
    pub roots: Vec<Root>,
    /// Root causes beyond those told.
    pub unlisted: u64,
}

/// An op at which something waits, or has ended, on its own account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Root {
    /// The op.
    pub op: OpId,
    /// Where it stands.
    pub status: OpStatus,
    /// Since when.
    pub since: Option<Timestamp>,
    /// With which error its last attempt ended.
    pub error: Option<OpError>,
    /// What it waits for, while it is ready, running or waiting.
    pub waits_for: Option<WaitsFor>,
}

/// What a ready, running or waiting op waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "waits_for", rename_all = "snake_case")]
pub enum WaitsFor {
    /// Its instant: that of its next attempt, or that until which its handler asked to wait.
    Instant {
        /// When.
        at: Timestamp,
    },
    /// Its queue runs as many ops as it may.
    QueueFull {
        /// The site.
        site: SiteName,
        /// The queue.
        queue: QueueName,
        /// As many as that.
        limit: u32,
    },
    /// Its queue may not start another yet.
    QueueRate {
        /// The site.
        site: SiteName,
        /// The queue.
        queue: QueueName,
    },
    /// A worker that runs its kind and has a slot.
    Worker {
        /// The kind.
        kind: KindName,
        /// The agent it names.
        agent: Option<AgentName>,
    },
    /// The worker that runs it.
    ItsWorker {
        /// Who.
        worker: WorkerName,
        /// Until when its lease holds.
        lease_expires_at: Timestamp,
    },
}

/// Why `op` does not go on: which ops it comes down to, each with its error and since when.
///
/// # Errors
/// [`TransitionError::NoWorkflow`], [`TransitionError::NoOp`], or the store's.
pub fn why(tx: &mut dyn Tx, id: &WorkflowId, op: &OpId) -> Result<Why, TransitionError> {
    let row = workflow(tx, id)?;
    let missing = || TransitionError::NoOp { workflow: id.clone(), op: op.clone() };
    let state = tx.ops_by_id(&[(row.seq, op.clone())])?.pop().ok_or_else(missing)?;
    let roots = roots(tx, state.seq, state.status)?;
    let (roots, unlisted) = told(tx, &roots)?;
    let status = state.status.status(!tx.leases_of(&[state.seq])?.is_empty());
    Ok(Why { workflow: id.clone(), op: Some(op.clone()), status: Some(status), roots, unlisted })
}

/// Why the workflow `id` stands where it does: its failed ops, and those that still have to go on by themselves.
///
/// # Errors
/// [`TransitionError::NoWorkflow`], or the store's.
pub fn why_workflow(tx: &mut dyn Tx, id: &WorkflowId) -> Result<Why, TransitionError> {
    let row = workflow(tx, id)?;
    let counters = row.counters;
    let by_status = [
        (StoredStatus::Failed, counters.failed),
        (StoredStatus::Waiting, counters.waiting),
        (StoredStatus::Open, counters.open),
        // In a workflow that was canceled as a whole, that is the cause and not its ops.
        (StoredStatus::Canceled, if row.cancel_requested { 0 } else { counters.canceled }),
    ];
    let mut ops = Vec::new();
    for (status, _) in by_status.iter().filter(|(_, count)| *count > 0) {
        let limit = u32::try_from(ROOTS_MAX - ops.len()).unwrap_or_default();
        if limit > 0 {
            let page = OpPage { status: Some(*status), after: None, limit };
            ops.extend(tx.list_ops(row.seq, &page)?.into_iter().map(|view| view.state.seq));
        }
    }
    let all: i64 = by_status.iter().map(|(_, count)| count).sum();
    let (roots, _) = told(tx, &ops)?;
    let unlisted = u64::try_from(all).unwrap_or_default().saturating_sub(roots.len() as u64);
    Ok(Why { workflow: id.clone(), op: None, status: None, roots, unlisted })
}

fn workflow(tx: &mut dyn Tx, id: &WorkflowId) -> Result<WorkflowRow, TransitionError> {
    tx.workflows(std::slice::from_ref(id))?.pop().ok_or_else(|| TransitionError::NoWorkflow(id.clone()))
}

/// The ops that `op` comes down to: itself, unless others hold it.
fn roots(tx: &mut dyn Tx, op: OpSeq, status: StoredStatus) -> StoreResult<Vec<OpSeq>> {
    // What blocks an op is broken; that other parents have not come yet does not matter before they are mended.
    let (through, broken): (&[StoredStatus], bool) = match status {
        StoredStatus::Blocked => (&[StoredStatus::Blocked], true),
        StoredStatus::Pending => (&[StoredStatus::Pending, StoredStatus::Blocked], false),
        StoredStatus::Open | StoredStatus::Waiting | StoredStatus::Succeeded | StoredStatus::Failed | StoredStatus::Canceled => {
            return Ok(vec![op]);
        }
    };
    let mut into: HashMap<OpSeq, Vec<UpstreamEdge>> = HashMap::new();
    for edge in tx.upstream_through(&[op], through)? {
        into.entry(edge.child).or_default().push(edge);
    }
    let (mut seen, mut next) = (BTreeSet::from([op]), vec![op]);
    let mut roots = BTreeSet::new();
    while let Some(child) = next.pop() {
        for edge in into.remove(&child).unwrap_or_default() {
            let share = share(edge.required, edge.parent_status.status(false));
            let holds = if broken { share.broken > 0 } else { share.unmet > 0 };
            if !holds {
                continue;
            }
            match edge.parent_status {
                StoredStatus::Pending | StoredStatus::Blocked => {
                    if seen.insert(edge.parent) {
                        next.push(edge.parent);
                    }
                }
                StoredStatus::Open | StoredStatus::Waiting | StoredStatus::Succeeded | StoredStatus::Failed | StoredStatus::Canceled => {
                    roots.insert(edge.parent);
                }
            }
        }
    }
    Ok(roots.into_iter().collect())
}

/// The first of these ops as they stand, and how many more there are.
fn told(tx: &mut dyn Tx, ops: &[OpSeq]) -> StoreResult<(Vec<Root>, u64)> {
    let unlisted = ops.len().saturating_sub(ROOTS_MAX) as u64;
    let ops = ops.get(..ROOTS_MAX).unwrap_or(ops);
    let views = tx.op_views(ops)?;
    let queues = if views.iter().any(|view| view.status == OpStatus::Ready) { tx.queue_statuses()? } else { Vec::new() };
    let now = tx.now()?;
    let mut views: HashMap<OpSeq, OpView> = views.into_iter().map(|view| (view.state.seq, view)).collect();
    Ok((ops.iter().filter_map(|op| views.remove(op)).map(|view| root(view, &queues, now)).collect(), unlisted))
}

fn root(view: OpView, queues: &[QueueStatus], now: Timestamp) -> Root {
    let waits_for = match view.status {
        OpStatus::Ready => Some(ready_for(&view, queues, now)),
        OpStatus::Waiting => view.wait.as_ref().and_then(|wait| wait.due_at).map(|at| WaitsFor::Instant { at }),
        OpStatus::Running => {
            view.lease.as_ref().map(|lease| WaitsFor::ItsWorker { worker: lease.worker.clone(), lease_expires_at: lease.expires_at })
        }
        OpStatus::Pending | OpStatus::Blocked | OpStatus::Succeeded | OpStatus::Failed | OpStatus::Canceled => None,
    };
    let since = match view.status {
        OpStatus::Ready => view.due_at.filter(|due| *due <= now),
        OpStatus::Waiting => view.wait.as_ref().map(|wait| wait.since),
        OpStatus::Running => view.lease.as_ref().map(|lease| lease.acquired_at),
        OpStatus::Pending | OpStatus::Blocked | OpStatus::Succeeded | OpStatus::Failed | OpStatus::Canceled => view.finished_at,
    };
    Root { op: view.state.id, status: view.status, since, error: view.error, waits_for }
}

fn ready_for(view: &OpView, queues: &[QueueStatus], now: Timestamp) -> WaitsFor {
    if let Some(at) = view.due_at.filter(|due| *due > now) {
        return WaitsFor::Instant { at };
    }
    let queue = queues.iter().find(|status| status.site == view.site && status.queue == view.queue);
    let policy = queue.and_then(|queue| queue.policy.as_ref());
    let (site, name) = (view.site.clone(), view.queue.clone());
    if let (Some(queue), Some(limit)) = (queue, policy.and_then(|policy| policy.max_in_flight))
        && queue.in_flight >= i64::from(limit)
    {
        return WaitsFor::QueueFull { site, queue: name, limit };
    }
    let bucket = queue.and_then(|queue| policy.and_then(|policy| policy.rate).map(|rate| rate.refilled(queue.bucket, now)));
    if bucket.is_some_and(|bucket| bucket.micro_tokens < MICRO_TOKENS) {
        return WaitsFor::QueueRate { site, queue: name };
    }
    WaitsFor::Worker { kind: view.kind.clone(), agent: view.agent.clone() }
}
