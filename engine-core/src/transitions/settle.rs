//! Settles ops of which nobody knows what their last attempt did (L9, S11).

use super::act::{Actor, act, replay};
use super::add::lock_by_id;
use super::ending::{Ending, Verdict};
use super::retry::reopen;
use super::{Notice, TransitionError};
use crate::model::{Digest, Fence, GateKey, Json, LeaseToken, OpError, OpId, RequestId, WorkerName, WorkflowId};
use crate::state::{Event, OpStatus};
use crate::store::rows::{AttemptOutcome, Lease, LeaseKey, LockedWorkflow, OpState, OpWait, TakeWait, WaitReason};
use crate::store::{StoreError, Tx};
use std::collections::BTreeMap;

/// A call to settle an op.
#[derive(Debug, Clone)]
pub struct SettleOp {
    /// The call.
    pub request: RequestId,
    /// Who, and why.
    pub actor: Actor,
    /// The workflow.
    pub workflow: WorkflowId,
    /// The op, which must wait for a verdict.
    pub op: OpId,
    /// The attempt that is judged: a page that is out of date judges another one and is refused.
    pub attempt: Fence,
    /// What became of it.
    pub verdict: OpVerdict,
}

/// What is known now of an attempt that gave no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpVerdict {
    /// It had no effect, or one that may be repeated: the op is ready, with a new budget.
    Retry,
    /// It took effect: the op has succeeded.
    Succeed {
        /// With this result.
        result: Json,
    },
    /// It had no effect, and shall have none: the op has failed.
    Fail {
        /// Why, for a person.
        message: String,
    },
}

/// What became of it.
#[derive(Debug)]
pub struct Settled {
    /// Where the op stands now: ready, succeeded or failed.
    pub status: OpStatus,
    /// What observers hear.
    pub notices: Vec<Notice>,
}

impl SettleOp {
    /// What is asked, short also when it brings a large result.
    fn question(&self) -> String {
        let verdict = match &self.verdict {
            OpVerdict::Retry => "retry".to_owned(),
            OpVerdict::Succeed { result } => format!("succeed {}", Digest::of_bytes(result.as_str().as_bytes())),
            OpVerdict::Fail { message } => format!("fail {}", Digest::of_bytes(message.as_bytes())),
        };
        format!("settle {:?} {:?} attempt {}: {verdict}", self.workflow, self.op, self.attempt.0)
    }
}

/// Ends the wait of an op for a verdict on its last attempt. A result or a failure is a line of the ledger of its own,
/// numbered like an attempt, because the line of the attempt itself says that its outcome is unknown.
///
/// # Locks
/// The workflow.
///
/// # Errors
/// [`TransitionError::OpStatus`] when it waits for no verdict, [`TransitionError::OtherAttempt`] when it waits for one on
/// another attempt; nothing was written.
pub fn settle(tx: &mut dyn Tx, call: &SettleOp) -> Result<Settled, TransitionError> {
    let workflow = lock_by_id(tx, &call.workflow)?;
    let question = call.question();
    if let Some(status) = replay(tx, call.request, &question)? {
        return Ok(Settled { status, notices: Vec::new() });
    }
    let missing = || TransitionError::NoOp { workflow: call.workflow.clone(), op: call.op.clone() };
    let state = tx.ops_by_id(&[(workflow.seq, call.op.clone())])?.pop().ok_or_else(missing)?;
    let wait = wanted(tx, call, &state)?;
    let (verdict, status) = match &call.verdict {
        OpVerdict::Retry => {
            let status = OpStatus::Ready;
            let notices = reopen(tx, &workflow, &[state], &call.actor, |now| act(call.request, question, &call.actor, &status, now))?;
            return Ok(Settled { status, notices });
        }
        OpVerdict::Succeed { result } => ((AttemptOutcome::Succeeded, Event::Settled, Some(result.clone()), None), OpStatus::Succeeded),
        OpVerdict::Fail { message } => {
            let error = OpError::new(OpError::VERDICT, message).storable(usize::MAX);
            ((AttemptOutcome::Failed, Event::GaveUp, None, Some(error)), OpStatus::Failed)
        }
    };
    let taken = tx.take_waits(&[wait.key], TakeWait::There)?;
    if taken.waits.is_empty() {
        return Err(StoreError::Rejected(format!("the wait of op {:?} is gone under its workflow's lock", call.op).into()).into());
    }
    let (outcome, event, result, error) = verdict;
    let now = taken.now;
    let mut ending = Ending::new(now);
    let verdict =
        Verdict { from: OpStatus::Waiting, result, error, reason: call.actor.reason.clone(), ..Verdict::new(outcome, event, now) };
    // Nobody ran anything: the line begins and ends now, and the call is its own proof.
    let line = Lease {
        key: LeaseKey { op: state.seq, token: LeaseToken::from(call.request), fence: state.fence.next() },
        workflow: workflow.seq,
        gate: GateKey(0),
        worker: WorkerName::new(call.actor.name.clone()).unwrap_or_else(|_| operator()),
        acquired_at: now,
        expires_at: now,
        dispatched_at: None,
    };
    ending.end(&line, (&state.id, &workflow.id), Some(&state), verdict);
    ending.set.act = Some(act(call.request, question, &call.actor, &status, now)?);
    let workflows: BTreeMap<_, LockedWorkflow> = BTreeMap::from([(workflow.seq, workflow)]);
    ending.spread(tx, &workflows)?;
    ending.write(tx, &workflows)?;
    Ok(Settled { status, notices: ending.journal.notices })
}

/// The wait that the call is about.
fn wanted(tx: &mut dyn Tx, call: &SettleOp, state: &OpState) -> Result<OpWait, TransitionError> {
    match tx.waits_of(&[state.seq])?.pop() {
        Some(wait) if wait.reason == WaitReason::Verdict && wait.key.fence == call.attempt => Ok(wait),
        Some(wait) if wait.reason == WaitReason::Verdict => Err(TransitionError::OtherAttempt {
            workflow: call.workflow.clone(),
            op: call.op.clone(),
            given: call.attempt,
            wanted: wait.key.fence,
        }),
        _ => {
            let leased = !tx.leases_of(&[state.seq])?.is_empty();
            let (status, advice) = (state.status.status(leased), "it waits for no verdict");
            Err(TransitionError::OpStatus { workflow: call.workflow.clone(), op: call.op.clone(), status, advice })
        }
    }
}

/// Whoever has a name that no label can hold.
fn operator() -> WorkerName {
    match WorkerName::new("operator") {
        Ok(name) => name,
        Err(_) => unreachable!("it is a name"),
    }
}
