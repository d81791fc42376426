//! Stops a workflow for ever (S6).

use super::act::{Actor, act, replay};
use super::add::{changed, lock_by_id, write_guarded};
use super::ending::may_have_taken_effect;
use super::journal::{About, Journal};
use super::ripple::Tally;
use super::{Notice, TransitionError};
use crate::model::{OpSeq, RequestId, WorkflowId};
use crate::state::{Event, StoredStatus, WorkflowStatus, next};
use crate::store::Tx;
use crate::store::rows::{Attempt, AttemptOutcome, EventKind, Lease, OpChange, TakeWait, WaitKey, WriteSet};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};

/// A call to cancel.
#[derive(Debug, Clone)]
pub struct CancelWorkflow {
    /// The call.
    pub request: RequestId,
    /// Who, and why.
    pub actor: Actor,
    /// The workflow.
    pub workflow: WorkflowId,
}

/// What became of it.
#[derive(Debug)]
pub struct Canceled {
    /// How many ops were stopped.
    pub ops: u64,
    /// How many of them were running: their workers are told on their next heartbeat.
    pub running: u64,
    /// What observers hear.
    pub notices: Vec<Notice>,
}

#[derive(Serialize, Deserialize)]
struct Answer {
    ops: u64,
    running: u64,
}

/// Cancels a workflow and every op of it that has not ended. Leases are revoked: whatever runs can commit nothing more.
/// Canceling a canceled workflow changes nothing. An attempt that was dispatched, and whose effect must not be repeated, is
/// abandoned in the ledger: what it did before is unknown.
///
/// # Locks
/// The workflow → `delayed` → `ready` → `leases`, a statement each: a claim in between is seen by the next one. Then
/// waits, which the workflow's lock protects.
///
/// # Errors
/// [`TransitionError::WorkflowStatus`] when it has succeeded; nothing was written.
pub fn cancel_workflow(tx: &mut dyn Tx, call: &CancelWorkflow) -> Result<Canceled, TransitionError> {
    let mut workflow = lock_by_id(tx, &call.workflow)?;
    let question = format!("cancel {:?}", call.workflow);
    if let Some(Answer { ops, running }) = replay(tx, call.request, &question)? {
        return Ok(Canceled { ops, running, notices: Vec::new() });
    }
    if workflow.status == WorkflowStatus::Succeeded {
        let advice = "what has succeeded cannot be canceled";
        return Err(TransitionError::WorkflowStatus { id: workflow.id, status: workflow.status, advice });
    }
    let leases: HashMap<OpSeq, Lease> = tx.clear_hot(&[workflow.seq])?.into_iter().map(|lease| (lease.key.op, lease)).collect();
    let now = tx.now()?;
    let moving: Vec<StoredStatus> = [StoredStatus::Pending, StoredStatus::Blocked, StoredStatus::Open, StoredStatus::Waiting].to_vec();
    let states = tx.ops_with_status(workflow.seq, &moving)?;
    let waiting = states.iter().filter(|state| state.status == StoredStatus::Waiting);
    let waits: Vec<WaitKey> = waiting.map(|state| WaitKey { op: state.seq, fence: state.fence }).collect();
    if !waits.is_empty() {
        tx.take_waits(&waits, TakeWait::There)?;
    }

    let (mut set, mut tally) = (WriteSet::default(), Tally::default());
    let mut journal = Journal::new(now, Some(call.actor.name.clone()));
    for state in &states {
        let lease = leases.get(&state.seq);
        let Some(to) = next(state.status.status(lease.is_some()), Event::Canceled) else {
            unreachable!("{:?} can be canceled", state.status);
        };
        set.changes.push(OpChange {
            op: state.seq,
            from: state.status,
            to: to.stored(),
            unmet: state.unmet,
            broken: state.broken,
            fence: lease.map(|lease| lease.key.fence),
            failures: None,
            losses: None,
            finished_at: Some(now),
        });
        tally.moves(workflow.seq, state.status, to.stored());
        let about =
            About { workflow: (workflow.seq, &workflow.id), op: Some((state.seq, &state.id)), fence: lease.map(|lease| lease.key.fence) };
        journal.tell(EventKind::OpCanceled, about, call.actor.reason.clone());
    }
    let unknown: HashSet<OpSeq> = states
        .iter()
        .filter(|state| leases.get(&state.seq).is_some_and(|lease| may_have_taken_effect(lease, state)))
        .map(|state| state.seq)
        .collect();
    set.attempts.extend(leases.values().map(|lease| Attempt {
        key: lease.key,
        workflow: lease.workflow,
        worker: lease.worker.clone(),
        acquired_at: lease.acquired_at,
        ended_at: now,
        outcome: if unknown.contains(&lease.key.op) { AttemptOutcome::Abandoned } else { AttemptOutcome::Canceled },
        result: None,
        error: None,
    }));
    let already = std::mem::replace(&mut workflow.cancel_requested, true);
    if !already {
        let about = About { workflow: (workflow.seq, &workflow.id), op: None, fence: None };
        journal.tell(EventKind::WorkflowUpdated, about, Some(WorkflowStatus::Canceled.to_string()));
        set.workflows.push(changed(&workflow, &tally, now));
    }
    let answer = Answer { ops: states.len() as u64, running: leases.len() as u64 };
    set.act = Some(act(call.request, question, &call.actor, &answer, now)?);
    write_guarded(tx, set, &mut journal)?;
    Ok(Canceled { ops: answer.ops, running: answer.running, notices: journal.notices })
}
