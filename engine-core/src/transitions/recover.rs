//! Takes expired leases back, in bounded batches (L7, L8).

use super::Notice;
use super::ending::{Ending, Verdict, may_have_taken_effect};
use crate::model::{Effect, OpError, OpId, OpSeq, Timestamp, WorkflowId, WorkflowSeq};
use crate::state::{Event, OpStatus, next};
use crate::store::rows::{AttemptOutcome, Lease, LeaseKey, LockedWorkflow, OpState, Take};
use crate::store::{StoreError, Tx, Wait};
use std::collections::{BTreeMap, HashMap};

/// How many rows one pass may touch: at least one, and never clamped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimit(u32);

/// A batch of nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a batch of {0} does nothing: give at least 1 and at most {max}", max = u32::MAX)]
pub struct BatchLimitError(i64);

impl BatchLimit {
    /// A hundred: a pass that holds its locks for some milliseconds.
    pub const DEFAULT: Self = Self(100);

    /// Checks `limit`.
    ///
    /// # Errors
    /// [`BatchLimitError`] for zero, negative numbers and those past 32 bits.
    pub fn new(limit: i64) -> Result<Self, BatchLimitError> {
        u32::try_from(limit).ok().filter(|limit| *limit > 0).map(Self).ok_or(BatchLimitError(limit))
    }
    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// One op whose lease was taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveredOp {
    /// Its workflow.
    pub workflow: WorkflowId,
    /// The op.
    pub op: OpId,
    /// The lease it had.
    pub lease: LeaseKey,
    /// Where it stands now: ready; failed, if that was one lost worker too many; or waiting for a verdict.
    pub status: OpStatus,
}

/// What a pass did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The ops, in no order.
    pub ops: Vec<RecoveredOp>,
    /// What observers hear.
    pub notices: Vec<Notice>,
}

/// Takes back up to `limit` leases that are expired; their ops are ready again at once, or failed when too many workers
/// were lost with them. One that was dispatched, and whose effect must not be repeated, waits for a verdict. What another
/// transaction holds is left for the next pass.
///
/// # Locks
/// Candidates are read without locks; then their workflows, skipping those that others hold; then the leases.
///
/// # Errors
/// [`StoreError`]; nothing was written. After [`StoreError::Rejected`] use [`recover_leases`] on parts of the list, so
/// that one bad row stops nobody.
pub fn recover(tx: &mut dyn Tx, limit: BatchLimit) -> Result<Recovered, StoreError> {
    let expired = tx.expired_leases(limit.get())?;
    recover_leases(tx, &expired)
}

/// Takes back those of `listed` that are still there, exactly so and still expired under their locks.
///
/// # Errors
/// As [`recover`].
pub fn recover_leases(tx: &mut dyn Tx, listed: &[Lease]) -> Result<Recovered, StoreError> {
    if listed.is_empty() {
        return Ok(Recovered::default());
    }
    let mut seqs: Vec<WorkflowSeq> = listed.iter().map(|lease| lease.workflow).collect();
    seqs.sort_unstable();
    seqs.dedup();
    let workflows: BTreeMap<WorkflowSeq, LockedWorkflow> =
        tx.lock_workflows(&seqs, Wait::Skip)?.into_iter().map(|workflow| (workflow.seq, workflow)).collect();
    let keys: Vec<LeaseKey> = listed.iter().filter(|lease| workflows.contains_key(&lease.workflow)).map(|lease| lease.key).collect();
    if keys.is_empty() {
        return Ok(Recovered::default());
    }
    let taken = tx.take_leases(&keys, Take::Expired)?;
    let ops: Vec<OpSeq> = taken.leases.iter().map(|lease| lease.key.op).collect();
    let states: HashMap<OpSeq, OpState> = tx.ops(&ops)?.into_iter().map(|state| (state.seq, state)).collect();
    let mut ending = Ending::new(taken.now);
    let mut recovered = Vec::with_capacity(ops.len());
    for lease in &taken.leases {
        let (Some(state), Some(workflow)) = (states.get(&lease.key.op), workflows.get(&lease.workflow)) else {
            return Err(StoreError::Rejected(format!("op {:?} has a lease but no row", lease.key.op).into()));
        };
        let verdict = judge(lease, state, taken.now);
        let Some(status) = next(OpStatus::Running, verdict.event) else { unreachable!("{:?} does not end an attempt", verdict.event) };
        ending.end(lease, (&state.id, &workflow.id), Some(state), verdict);
        recovered.push(RecoveredOp { workflow: workflow.id.clone(), op: state.id.clone(), lease: lease.key, status });
    }
    ending.spread(tx, &workflows)?;
    ending.write(tx, &workflows)?;
    Ok(Recovered { ops: recovered, notices: ending.journal.notices })
}

/// How an attempt ends whose worker was lost.
fn judge(lease: &Lease, state: &OpState, now: Timestamp) -> Verdict {
    if state.retry.effect == Effect::Once && lease.dispatched_at.is_none() {
        // Its handler never began, so there is no loss to count either.
        let error = Some(OpError::new(OpError::WORKER_LOST, "worker lost before the handler began"));
        return Verdict { error, ..Verdict::new(AttemptOutcome::Released, Event::LeaseExpired, now) };
    }
    let losses = state.losses.saturating_add(1);
    let lost = |message: String| Some(OpError::new(OpError::WORKER_LOST, message));
    let (event, error) = if may_have_taken_effect(lease, state) {
        (
            Event::OutcomeUnknown,
            lost("worker lost: whether the attempt took effect is unknown, and it must not be repeated blindly".to_owned()),
        )
    } else if losses >= state.retry.max_lost {
        let allowed = state.retry.max_lost;
        let message = format!("worker lost: {losses} workers were lost while they ran this op; its policy allows fewer than {allowed}");
        (Event::GaveUp, lost(message))
    } else {
        (Event::LeaseExpired, None)
    };
    Verdict { losses: Some(losses), error, ..Verdict::new(AttemptOutcome::Abandoned, event, now) }
}
