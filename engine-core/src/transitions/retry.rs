//! Tries failed ops again, and reopens what they blocked (S5).

use super::act::{Actor, act, replay};
use super::add::{changed, lock_by_id, write_guarded};
use super::journal::{About, Journal};
use super::ripple::{Ripple, Tally, queued};
use super::{Notice, TransitionError};
use crate::model::{OpId, OpSeq, RequestId, Timestamp, WorkflowId};
use crate::state::{Event, OpStatus, StoredStatus, WorkflowStatus, next};
use crate::store::rows::{Act, EventKind, LockedWorkflow, OpChange, OpState, Reach, TakeWait, WaitKey, WaitReason, WriteSet};
use crate::store::{Tx, Wait};
use std::collections::HashMap;

/// A call to retry.
#[derive(Debug, Clone)]
pub struct RetryOps {
    /// The call.
    pub request: RequestId,
    /// Who, and why.
    pub actor: Actor,
    /// The workflow.
    pub workflow: WorkflowId,
    /// Which of its ops.
    pub target: RetryTarget,
}

/// Which ops of a workflow to retry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RetryTarget {
    /// One op, which must be failed or wait for a verdict.
    Op(OpId),
    /// Every op that is failed; none is an error.
    AllFailed,
}

/// What became of it.
#[derive(Debug)]
pub struct Retried {
    /// The ops that are ready again.
    pub ops: Vec<OpId>,
    /// What observers hear.
    pub notices: Vec<Notice>,
}

/// Makes failed ops ready at once with a new budget, and reopens what they blocked, to the fixed point. Succeeded ops
/// are not touched, canceled ones never reset, and the numbering of attempts goes on.
///
/// # Locks
/// The workflow.
///
/// # Errors
/// [`TransitionError`]; nothing was written.
pub fn retry(tx: &mut dyn Tx, call: &RetryOps) -> Result<Retried, TransitionError> {
    let workflow = lock_by_id(tx, &call.workflow)?;
    let question = format!("retry {:?}: {:?}", call.workflow, call.target);
    if let Some(ops) = replay(tx, call.request, &question)? {
        return Ok(Retried { ops, notices: Vec::new() });
    }
    if workflow.cancel_requested {
        let advice = "a canceled workflow stays canceled: start a new one";
        return Err(TransitionError::WorkflowStatus { id: workflow.id, status: WorkflowStatus::Canceled, advice });
    }
    let targets = targets(tx, call, workflow.seq)?;
    let ops: Vec<OpId> = targets.iter().map(|state| state.id.clone()).collect();
    let notices = reopen(tx, &workflow, &targets, &call.actor, |now| act(call.request, question, &call.actor, &ops, now))?;
    Ok(Retried { ops, notices })
}

/// Makes `targets`, which are failed or wait for a verdict, ready with a new budget, and reopens what they blocked.
pub(super) fn reopen(
    tx: &mut dyn Tx,
    workflow: &LockedWorkflow,
    targets: &[OpState],
    actor: &Actor,
    act: impl FnOnce(Timestamp) -> Result<Act, TransitionError>,
) -> Result<Vec<Notice>, TransitionError> {
    let waiting = targets.iter().filter(|state| state.status == StoredStatus::Waiting);
    let waits: Vec<WaitKey> = waiting.map(|state| WaitKey { op: state.seq, fence: state.fence }).collect();
    if !waits.is_empty() {
        tx.take_waits(&waits, TakeWait::There)?;
    }
    let now = tx.now()?;
    let seqs: Vec<OpSeq> = targets.iter().map(|state| state.seq).collect();
    let mut ripple = Ripple::default();
    let edges = tx.downstream(&seqs, Reach::Descendants)?;
    ripple.learn(edges);

    let (mut set, mut tally) = (WriteSet::default(), Tally::default());
    let mut journal = Journal::new(now, Some(actor.name.clone()));
    for state in targets {
        let Some(to) = next(state.status.status(false), Event::Retried) else {
            unreachable!("a target is failed or waits");
        };
        ripple.moved(state.seq, state.status.status(false), to);
        tally.moves(workflow.seq, state.status, to.stored());
        set.ready.push(queued(&OpState { failures: 0, losses: 0, ..state.clone() }, now));
        set.changes.push(OpChange {
            op: state.seq,
            from: state.status,
            to: to.stored(),
            unmet: 0,
            broken: 0,
            fence: None,
            failures: Some(0),
            losses: Some(0),
            finished_at: None,
        });
        let about = About { workflow: (workflow.seq, &workflow.id), op: Some((state.seq, &state.id)), fence: None };
        journal.tell(EventKind::OpReopened, about, actor.reason.clone());
    }
    ripple.settle();
    ripple.write(now, &HashMap::from([(workflow.seq, workflow.id.clone())]), &mut tally, &mut set, &mut journal);
    let change = changed(workflow, &tally, now);
    if change.status != workflow.status {
        let about = About { workflow: (workflow.seq, &workflow.id), op: None, fence: None };
        journal.tell(EventKind::WorkflowUpdated, about, Some(change.status.to_string()));
    }
    set.workflows.push(change);
    set.act = Some(act(now)?);
    write_guarded(tx, set, &mut journal)?;
    Ok(journal.notices)
}

fn targets(tx: &mut dyn Tx, call: &RetryOps, workflow: crate::model::WorkflowSeq) -> Result<Vec<OpState>, TransitionError> {
    match &call.target {
        RetryTarget::AllFailed => {
            let failed = tx.ops_with_status(workflow, &[StoredStatus::Failed])?;
            if failed.is_empty() {
                // Told by the workflow's status, which names what it is instead.
                let status = tx.lock_workflows(&[workflow], Wait::Block)?.pop().map_or(WorkflowStatus::Running, |row| row.status);
                let advice = "none of its ops is failed, so there is nothing to retry";
                return Err(TransitionError::WorkflowStatus { id: call.workflow.clone(), status, advice });
            }
            Ok(failed)
        }
        RetryTarget::Op(id) => {
            let missing = || TransitionError::NoOp { workflow: call.workflow.clone(), op: id.clone() };
            let state = tx.ops_by_id(&[(workflow, id.clone())])?.pop().ok_or_else(missing)?;
            let leased = !tx.leases_of(&[state.seq])?.is_empty();
            let status = state.status.status(leased);
            // An op that waits for anything but a verdict goes on by itself.
            let wants_verdict =
                status == OpStatus::Waiting && tx.waits_of(&[state.seq])?.iter().any(|wait| wait.reason == WaitReason::Verdict);
            if status != OpStatus::Failed && !wants_verdict {
                let advice = match status {
                    OpStatus::Blocked => "retry the failed op that blocks it",
                    OpStatus::Canceled => "a canceled op stays canceled",
                    OpStatus::Succeeded => "it has succeeded already",
                    OpStatus::Waiting => "it goes on by itself when what it waits for comes",
                    OpStatus::Pending | OpStatus::Ready | OpStatus::Running | OpStatus::Failed => "only a failed op can be retried",
                };
                return Err(TransitionError::OpStatus { workflow: call.workflow.clone(), op: id.clone(), status, advice });
            }
            Ok(vec![state])
        }
    }
}
