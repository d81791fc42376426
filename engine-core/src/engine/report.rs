//! What a session did (Q3).

use crate::model::{Fence, OpId, WorkflowId};
use crate::store::ClockBehind;
use crate::store::rows::ClaimedOp;
use crate::transitions::{Ended, RecoveredOp, WokenOp};

/// What a run did, from its start to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RunReport {
    /// Attempts that ended here, with their end recorded.
    pub processed: u64,
    /// Ops that succeeded.
    pub succeeded: u64,
    /// Attempts that failed and will be tried again.
    pub retried: u64,
    /// Ops that failed for good.
    pub failed: u64,
    /// Ops that were left to wait.
    pub suspended: u64,
    /// Ops given back unfinished.
    pub released: u64,
    /// Attempts of which nobody knows what they did: their ops wait for a verdict.
    pub abandoned: u64,
    /// Attempts whose lease was lost: nothing of them was recorded.
    pub lost: u64,
    /// Attempts whose end could not be saved in time: their leases run out, and their ops run again.
    pub unsaved: u64,
    /// Expired leases, of whomever, that were taken back.
    pub recovered: u64,
    /// Ops, of whomever, that were woken.
    pub woken: u64,
}

/// What one cycle did, with the ops it touched.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CycleReport {
    /// Attempts that ended, with their end recorded.
    pub processed: u64,
    /// Ops that succeeded.
    pub succeeded: u64,
    /// Attempts that failed and will be tried again.
    pub retried: u64,
    /// Ops that failed for good.
    pub failed: u64,
    /// Ops that were left to wait.
    pub suspended: u64,
    /// Ops given back unfinished.
    pub released: u64,
    /// Attempts of which nobody knows what they did: their ops wait for a verdict.
    pub abandoned: u64,
    /// Attempts whose lease was lost: nothing of them was recorded.
    pub lost: u64,
    /// Expired leases, of whomever, that were taken back.
    pub recovered: u64,
    /// Ops, of whomever, that were woken.
    pub woken: u64,
    /// Every attempt that ended here, in the order in which they were settled.
    pub attempts: Vec<CycleAttempt>,
    /// Every op whose lease was taken back.
    pub recovered_ops: Vec<RecoveredOp>,
    /// Every op that was woken.
    pub woken_ops: Vec<WokenOp>,
    /// The store's clock could not be relied on, so there may be more to do.
    pub held: Option<ClockBehind>,
}

/// One attempt of a cycle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CycleAttempt {
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// The op.
    pub op_id: OpId,
    /// The attempt's number.
    pub attempt: Fence,
    /// How it ended.
    pub ended: Ended,
}

/// What a session counts.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) counts: RunReport,
    /// Kept only where somebody asked which ops were touched: a long run would grow without bound.
    named: Option<Named>,
}

#[derive(Debug, Default)]
struct Named {
    attempts: Vec<CycleAttempt>,
    recovered: Vec<RecoveredOp>,
    woken: Vec<WokenOp>,
    held: Option<ClockBehind>,
}

impl Tally {
    pub(super) fn new(named: bool) -> Self {
        Self { counts: RunReport::default(), named: named.then(Named::default) }
    }

    /// Counts what became of an attempt; `false` when it is not settled yet.
    pub(super) fn settle(&mut self, op: &ClaimedOp, ended: &Ended) -> bool {
        let counts = &mut self.counts;
        match ended {
            Ended::Succeeded => counts.succeeded += 1,
            Ended::Retried { .. } => counts.retried += 1,
            Ended::Failed { .. } => counts.failed += 1,
            Ended::Suspended { .. } => counts.suspended += 1,
            Ended::Released => counts.released += 1,
            Ended::Abandoned => counts.abandoned += 1,
            Ended::LeaseLost => {
                self.lost(op);
                return true;
            }
            Ended::ClockBehind | Ended::Busy => return false,
        }
        counts.processed += 1;
        self.name(op, ended);
        true
    }

    pub(super) fn lost(&mut self, op: &ClaimedOp) {
        self.counts.lost += 1;
        self.name(op, &Ended::LeaseLost);
    }

    fn name(&mut self, op: &ClaimedOp, ended: &Ended) {
        if let Some(named) = &mut self.named {
            named.attempts.push(CycleAttempt {
                workflow_id: op.workflow_id.clone(),
                op_id: op.op_id.clone(),
                attempt: op.lease.key.fence,
                ended: ended.clone(),
            });
        }
    }

    pub(super) fn recovered(&mut self, ops: Vec<RecoveredOp>) {
        self.counts.recovered += ops.len() as u64;
        if let Some(named) = &mut self.named {
            named.recovered.extend(ops);
        }
    }

    pub(super) fn woken(&mut self, ops: Vec<WokenOp>) {
        self.counts.woken += ops.len() as u64;
        if let Some(named) = &mut self.named {
            named.woken.extend(ops);
        }
    }

    pub(super) fn held(&mut self, behind: ClockBehind) {
        if let Some(named) = &mut self.named {
            named.held = Some(behind);
        }
    }

    pub(super) fn cycle(&mut self) -> CycleReport {
        let RunReport { processed, succeeded, retried, failed, suspended, released, abandoned, lost, unsaved: _, recovered, woken } =
            self.counts;
        let Named { attempts, recovered: recovered_ops, woken: woken_ops, held } = self.named.take().unwrap_or_default();
        CycleReport {
            processed,
            succeeded,
            retried,
            failed,
            suspended,
            released,
            abandoned,
            lost,
            recovered,
            woken,
            attempts,
            recovered_ops,
            woken_ops,
            held,
        }
    }
}
