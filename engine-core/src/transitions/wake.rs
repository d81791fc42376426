//! Wakes ops whose instant has come, in bounded batches (W2).

use super::ending::Ending;
use super::{BatchLimit, Notice};
use crate::model::{OpId, OpSeq, WorkflowId, WorkflowSeq};
use crate::store::rows::{LockedWorkflow, OpState, OpWait, TakeWait, WaitKey};
use crate::store::{StoreError, Tx, Wait};
use std::collections::{BTreeMap, HashMap};

/// One op that was woken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WokenOp {
    /// Its workflow.
    pub workflow: WorkflowId,
    /// The op.
    pub op: OpId,
    /// The wait that ended.
    pub wait: WaitKey,
}

/// What a pass did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Woken {
    /// The ops, in no order.
    pub ops: Vec<WokenOp>,
    /// What observers hear.
    pub notices: Vec<Notice>,
}

/// Wakes up to `limit` ops whose waits are due: each is ready, and its wait is over, or neither. What another transaction
/// holds is left for the next pass.
///
/// # Locks
/// Candidates are read without locks; then their workflows, skipping those that others hold; then the waits.
///
/// # Errors
/// [`StoreError`]; nothing was written. After [`StoreError::Rejected`] use [`wake_waits`] on parts of the list, so that
/// one bad row stops nobody.
pub fn wake(tx: &mut dyn Tx, limit: BatchLimit) -> Result<Woken, StoreError> {
    let due = tx.due_waits(limit.get())?;
    wake_waits(tx, &due)
}

/// Wakes the ops of those of `listed` that are still there, exactly so and still due under their workflows' locks.
///
/// # Errors
/// As [`wake`].
pub fn wake_waits(tx: &mut dyn Tx, listed: &[OpWait]) -> Result<Woken, StoreError> {
    if listed.is_empty() {
        return Ok(Woken::default());
    }
    let mut seqs: Vec<WorkflowSeq> = listed.iter().map(|wait| wait.workflow).collect();
    seqs.sort_unstable();
    seqs.dedup();
    let workflows: BTreeMap<WorkflowSeq, LockedWorkflow> =
        tx.lock_workflows(&seqs, Wait::Skip)?.into_iter().map(|workflow| (workflow.seq, workflow)).collect();
    let keys: Vec<WaitKey> = listed.iter().filter(|wait| workflows.contains_key(&wait.workflow)).map(|wait| wait.key).collect();
    if keys.is_empty() {
        return Ok(Woken::default());
    }
    let taken = tx.take_waits(&keys, TakeWait::Due)?;
    let ops: Vec<OpSeq> = taken.waits.iter().map(|wait| wait.key.op).collect();
    let states: HashMap<OpSeq, OpState> = tx.ops(&ops)?.into_iter().map(|state| (state.seq, state)).collect();
    let mut ending = Ending::new(taken.now);
    let mut woken = Vec::with_capacity(ops.len());
    for wait in taken.waits {
        let key = wait.key;
        let (Some(state), Some(workflow)) = (states.get(&key.op), workflows.get(&wait.workflow)) else {
            return Err(StoreError::Rejected(format!("op {:?} has a wait but no row", key.op).into()));
        };
        woken.push(WokenOp { workflow: workflow.id.clone(), op: state.id.clone(), wait: key });
        ending.wake(wait, state, &workflow.id);
    }
    ending.write(tx, &workflows)?;
    Ok(Woken { ops: woken, notices: ending.journal.notices })
}
