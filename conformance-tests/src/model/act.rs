//! What can happen in a state, and what comes of it.

use super::check::{Denied, denied};
use super::picture::Picture;
use super::state::{Bounds, Held, State};
use crate::faulty::{Fault, FaultyStore};
use crate::scenario::{LEASE, name};
use crate::verbs::{IN_THE_WAY, claim_request, completion, failure, giving_back, permanent_failure, suspension};
use crate::{Scenario, World};
use leasehold_core::model::OpSeq;
use leasehold_core::state::{OpStatus, WorkflowStatus};
use leasehold_core::store::BoxError;
use leasehold_core::store::rows::{AttemptOutcome, ClaimedOp};
use leasehold_core::transitions::{ClaimRequest, Ended, Finish, HeartbeatOutcome, Pass, RetryTarget, Until};
use std::fmt;
use std::sync::Arc;

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// A worker claims an op.
    Claim(usize, OpSeq),
    /// A worker claims an op and dies with the answer.
    ClaimAndDie(OpSeq),
    /// A worker claims an op, hears nothing, and repeats its claim.
    ClaimUnheard(usize, OpSeq),
    /// A worker extends its lease.
    Heartbeat(usize),
    /// A worker completes its op.
    Complete(usize),
    /// A worker completes its op and hears nothing of it.
    CompleteUnheard(usize),
    /// A worker's completion dies before its commit.
    CompleteCutOff(usize),
    /// A worker's attempt fails.
    Fail(usize),
    /// A worker's attempt fails for good.
    FailForGood(usize),
    /// A worker gives its op back.
    Release(usize),
    /// A worker's handler asks to wait.
    Suspend(usize),
    /// A worker dies.
    Die(usize),
    /// Expired leases are taken back, one at most.
    Recover,
    /// An op whose instant has come is woken, one at most.
    Wake,
    /// An operator retries what failed.
    Retry,
    /// An operator cancels the workflow.
    Cancel,
    /// An op is added behind another.
    Add(OpSeq),
    /// The clock steps on to where leases given now expire.
    Forward,
    /// The clock steps back.
    Back,
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Act {
    /// All that can happen in `state`.
    pub(super) fn possible(state: &State, picture: &Picture, bounds: &Bounds) -> Vec<Self> {
        let mut acts = Vec::new();
        if let Some(worker) = state.idle() {
            let claimable = |op: &&super::picture::OpPicture| {
                let due = op.view.due_at.is_some_and(|due| due <= state.now);
                op.is(OpStatus::Ready) && due && op.view.state.fence.0 < bounds.attempts
            };
            for op in picture.ops.iter().filter(claimable) {
                acts.extend([Self::Claim(worker, op.seq()), Self::ClaimAndDie(op.seq()), Self::ClaimUnheard(worker, op.seq())]);
            }
        }
        for (worker, held) in state.workers.iter().enumerate() {
            let Some(held) = held else { continue };
            acts.push(Self::Complete(worker));
            if !held.sent {
                acts.extend([Self::CompleteUnheard(worker), Self::CompleteCutOff(worker), Self::Heartbeat(worker)]);
                acts.extend([Self::Fail(worker), Self::FailForGood(worker), Self::Release(worker), Self::Suspend(worker)]);
            }
            acts.push(Self::Die(worker));
        }
        let leased = |op: &super::picture::OpPicture| op.view.lease.is_some();
        if picture.ops.iter().any(leased) {
            acts.push(Self::Recover);
        }
        if picture.ops.iter().any(|op| op.is(OpStatus::Waiting)) {
            acts.push(Self::Wake);
        }
        let used = &state.used;
        if used.retries < bounds.retries && !picture.canceled && picture.ops.iter().any(|op| op.is(OpStatus::Failed)) {
            acts.push(Self::Retry);
        }
        if used.cancels < bounds.cancels && picture.workflow != WorkflowStatus::Succeeded {
            acts.push(Self::Cancel);
        }
        if used.additions < bounds.additions {
            acts.extend(picture.ops.iter().map(|op| Self::Add(op.seq())));
        }
        if used.forward < bounds.steps_forward {
            acts.push(Self::Forward);
        }
        if used.back < bounds.steps_back {
            acts.push(Self::Back);
        }
        acts
    }

    /// What comes of it, or in what way it was not allowed to happen so.
    pub(super) fn apply(self, before: &State, picture: &Picture) -> Result<State, Denied> {
        let now = match self {
            Self::Forward => before.later(),
            Self::Back => before.earlier(),
            _ => before.now,
        };
        let (mut state, world) = before.fork(now);
        self.run(&mut state, &world, picture)?;
        Ok(state)
    }

    fn run(self, state: &mut State, world: &World, before: &Picture) -> Result<(), Denied> {
        match self {
            Self::Claim(worker, op) => {
                let claimed = claim(world, worker, op, before)?;
                state.set(worker, claimed.map(|claimed| Held { claimed, sent: false }));
            }
            Self::ClaimAndDie(op) => drop(claim(world, 0, op, before)?),
            Self::ClaimUnheard(worker, op) => {
                let request = request(worker, op, before)?;
                let first = world.claim_with(&request)?.ops;
                let again = world.claim_with(&ClaimRequest { repeated: true, ..request })?.ops;
                let keys = |ops: &[ClaimedOp]| ops.iter().map(|op| op.lease.key).collect::<Vec<_>>();
                denied(keys(&first) != keys(&again), "a claim that is repeated gets other leases")?;
                let claimed = got(again, before)?;
                state.set(worker, claimed.map(|claimed| Held { claimed, sent: false }));
            }
            Self::Heartbeat(worker) => heartbeat(state, world, worker, before)?,
            Self::Complete(worker) => finish(state, world, worker, before, |op| completion(op, "1"))?,
            Self::Fail(worker) => finish(state, world, worker, before, failure)?,
            Self::FailForGood(worker) => finish(state, world, worker, before, permanent_failure)?,
            Self::Release(worker) => finish(state, world, worker, before, giving_back)?,
            Self::Suspend(worker) => finish(state, world, worker, before, |op| suspension(op, Until::For(LEASE)))?,
            Self::CompleteUnheard(worker) => {
                let held = state.held(worker).cloned().ok_or("the worker holds an op")?;
                finish(state, world, worker, before, |op| completion(op, "1"))?;
                state.set(worker, Some(Held { sent: true, ..held }));
            }
            Self::CompleteCutOff(worker) => {
                let held = state.held(worker).ok_or("the worker holds an op")?;
                let faulty = Arc::new(FaultyStore::new(Arc::clone(world.store())));
                faulty.plan(Fault::AfterStep(2));
                let ended = world.through(Arc::clone(&faulty) as _).finish(&[completion(&held.claimed, "1")]);
                denied(ended.is_ok(), "a completion whose transaction was cut off says that it was done")?;
            }
            Self::Die(worker) => state.set(worker, None),
            Self::Recover => recover(state, world, before)?,
            Self::Wake => wake(state, world, before)?,
            Self::Retry => {
                state.used.retries += 1;
                world.retry(&state.planted, RetryTarget::AllFailed)?;
            }
            Self::Cancel => {
                state.used.cancels += 1;
                world.cancel(&state.planted)?;
            }
            Self::Add(parent) => add(state, world, before, parent)?,
            Self::Forward => state.used.forward += 1,
            Self::Back => state.used.back += 1,
        }
        Ok(())
    }
}

fn request(worker: usize, op: OpSeq, before: &Picture) -> Result<ClaimRequest, BoxError> {
    let kind = before.op(op).ok_or("the op is there")?.view.kind.clone();
    Ok(ClaimRequest { kinds: Some(vec![kind]), ..claim_request(&format!("w{worker}"), 1) })
}

/// What a claim got: one op, or nothing exactly when the clock cannot be relied on.
fn got(ops: Vec<ClaimedOp>, before: &Picture) -> Result<Option<ClaimedOp>, Denied> {
    denied(before.distrusted && !ops.is_empty(), "a claim went by a clock that cannot be relied on")?;
    denied(!before.distrusted && ops.is_empty(), "a claim got nothing of what was due")?;
    Ok(ops.into_iter().next())
}

fn claim(world: &World, worker: usize, op: OpSeq, before: &Picture) -> Result<Option<ClaimedOp>, Denied> {
    let ops = world.claim_with(&request(worker, op, before)?)?.ops;
    denied(ops.len() > 1, "a claim got more than it asked for")?;
    let Some(claimed) = got(ops, before)? else { return Ok(None) };
    let stood = before.op(claimed.lease.key.op).ok_or("a claim got an op that is not there")?;
    denied(!stood.is(OpStatus::Ready), "a claim got an op that was not ready")?;
    let highest = stood.attempts.iter().map(|attempt| attempt.key.fence).max();
    denied(highest.is_some_and(|highest| claimed.lease.key.fence <= highest), "a fence was given out twice")?;
    Ok(Some(claimed))
}

fn heartbeat(state: &mut State, world: &World, worker: usize, before: &Picture) -> Result<(), Denied> {
    let mut held = state.held(worker).cloned().ok_or("the worker holds an op")?;
    let key = held.claimed.lease.key;
    let outcome = world.heartbeat_by(&[key], LEASE)?.pop().ok_or("a heartbeat answers")?;
    match outcome {
        HeartbeatOutcome::Held(lease) => {
            denied(!before.holds(key, state.now), "a heartbeat extended a lease that did not hold")?;
            denied(lease.expires_at < held.claimed.lease.expires_at, "a heartbeat shortened a lease")?;
            held.claimed.lease = lease;
            state.set(worker, Some(held));
        }
        HeartbeatOutcome::Lost => {
            denied(before.holds(key, state.now), "a heartbeat lost a lease that held")?;
            state.set(worker, None);
        }
        HeartbeatOutcome::ClockBehind => {
            denied(before.holds(key, state.now), "a heartbeat found the clock behind a lease that held")?;
        }
    }
    Ok(())
}

/// Ends a worker's attempt and holds the answer against what stood before.
fn finish(state: &mut State, world: &World, worker: usize, before: &Picture, end: fn(&ClaimedOp) -> Finish) -> Result<(), Denied> {
    let held = state.held(worker).cloned().ok_or("the worker holds an op")?;
    let key = held.claimed.lease.key;
    let owned = before.holds(key, state.now);
    let ended = world.finish_one(end(&held.claimed))?;
    match &ended {
        Ended::Abandoned => denied(true, "an attempt whose effect may be repeated waits for a verdict")?,
        Ended::Succeeded | Ended::Retried { .. } | Ended::Failed { .. } | Ended::Suspended { .. } | Ended::Released => {
            // Without a lease that holds, the only good answer is the first one.
            let first = before.ended(key);
            let fits = match &ended {
                Ended::Succeeded => first == Some(AttemptOutcome::Succeeded),
                Ended::Retried { .. } => first == Some(AttemptOutcome::Retried),
                Ended::Failed { .. } => first == Some(AttemptOutcome::Failed),
                Ended::Suspended { .. } => first == Some(AttemptOutcome::Suspended),
                _ => first == Some(AttemptOutcome::Released),
            };
            denied(!owned && !fits, "an attempt was ended without a lease that held")?;
            if let (true, Ended::Retried { due_at }) = (owned, &ended) {
                denied(world.view(key.op)?.due_at != Some(*due_at), "an attempt may start at another instant than was told")?;
            }
            state.set(worker, None);
        }
        Ended::LeaseLost => {
            denied(owned, "a lease that held was called lost")?;
            denied(
                before.ended(key) == Some(AttemptOutcome::Succeeded) && held.sent,
                "a completion that is repeated is not known any more",
            )?;
            state.set(worker, None);
        }
        Ended::ClockBehind => denied(owned, "the clock is said to be behind a lease that held")?,
        Ended::Busy => denied(true, "a workflow that nobody holds was called busy")?,
    }
    Ok(())
}

fn recover(state: &State, world: &World, before: &Picture) -> Result<(), Denied> {
    let Pass::Done(recovered) = world.recover_by(IN_THE_WAY, 1)? else {
        return denied(!before.distrusted, "a recovery held although the clock can be relied on");
    };
    denied(before.distrusted, "a recovery went by a clock that cannot be relied on")?;
    let recovered = recovered.ops;
    denied(recovered.len() > 1, "a recovery took more than its limit")?;
    let expired = |op: &&super::picture::OpPicture| op.view.lease.as_ref().is_some_and(|lease| lease.expires_at <= state.now);
    denied(recovered.is_empty() && before.ops.iter().any(|op| expired(&op)), "a recovery left everything that was expired")?;
    for op in recovered {
        let lease = before.op(op.lease.op).filter(expired).and_then(|op| op.view.lease.as_ref());
        denied(lease.is_none_or(|lease| lease.key != op.lease), "a recovery took a lease that was not expired")?;
    }
    Ok(())
}

fn wake(state: &State, world: &World, before: &Picture) -> Result<(), Denied> {
    let Pass::Done(woken) = world.wake_by(IN_THE_WAY, 1)? else {
        return denied(!before.distrusted, "a pass held although the clock can be relied on");
    };
    denied(before.distrusted, "a pass went by a clock that cannot be relied on")?;
    let woken = woken.ops;
    denied(woken.len() > 1, "a pass woke more than its limit")?;
    let due = |op: &&super::picture::OpPicture| op.view.wait.as_ref().and_then(|wait| wait.due_at).is_some_and(|due| due <= state.now);
    denied(woken.is_empty() && before.ops.iter().any(|op| due(&op)), "a pass left everything that was due")?;
    for op in woken {
        let wait = before.op(op.wait.op).filter(due).and_then(|op| op.view.wait.as_ref());
        denied(wait.is_none_or(|wait| wait.key != op.wait), "a pass woke an op that was not due")?;
    }
    Ok(())
}

fn add(state: &mut State, world: &World, before: &Picture, parent: OpSeq) -> Result<(), Denied> {
    state.used.additions += 1;
    let parent = before.op(parent).ok_or("the op is there")?.view.state.id.as_str().to_owned();
    let id = format!("added{}", state.used.additions);
    let added = world.add(&state.planted, &Scenario::new().op(&id).after(&[&parent]).retry(super::explore::RETRY));
    let may = matches!(before.workflow, WorkflowStatus::Running | WorkflowStatus::Failed);
    match added {
        Ok(ops) => {
            denied(!may, "an op was added to a workflow that had ended")?;
            denied(ops.len() != 1 || ops.iter().any(|op| op.id != name(id.as_str())), "another op was added")?;
        }
        Err(error) if may => return Err(error.into()),
        Err(_) => {}
    }
    Ok(())
}
