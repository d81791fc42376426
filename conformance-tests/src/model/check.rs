//! What must hold in every state, and between two of them.

use super::picture::{OpPicture, Picture};
use super::state::State;
use leasehold_core::doctor;
use leasehold_core::state::{OpStatus, StoredStatus, WorkflowStatus};
use leasehold_core::store::BoxError;
use leasehold_core::store::rows::AttemptOutcome;
use std::time::Duration;

/// In what way something was not allowed to happen.
pub(super) type Denied = BoxError;

/// Says `what` where it holds.
pub(super) fn denied(holds: bool, what: &str) -> Result<(), Denied> {
    if holds { Err(what.into()) } else { Ok(()) }
}

/// Holds a state against the invariants.
pub(super) fn state_holds(state: &State, picture: &Picture) -> Result<(), Denied> {
    let diagnosis = doctor::examine(state.sound().store().as_ref(), Duration::from_secs(1))?;
    denied(!diagnosis.is_sound(), &format!("derived facts drifted: {:?}", diagnosis.findings))?;
    let owners = |op: &OpPicture| {
        let held = state.workers.iter().flatten().map(|held| held.claimed.lease.key).filter(|key| key.op == op.seq());
        held.filter(|key| picture.holds(*key, state.now)).count()
    };
    let mut successes = 0;
    for op in &picture.ops {
        let id = &op.view.state.id;
        denied(owners(op) > 1, &format!("{id} has two owners"))?;
        let succeeded = op.count(&[AttemptOutcome::Succeeded]);
        successes += succeeded;
        denied(succeeded != usize::from(op.is(OpStatus::Succeeded)), &format!("{id} is {} with {succeeded} successes", op.view.status))?;
        if op.is(OpStatus::Running) || op.is(OpStatus::Succeeded) {
            let early = op.parents.iter().any(|edge| edge.required && edge.parent_status != StoredStatus::Succeeded);
            denied(early, &format!("{id} is {} before what it requires", op.view.status))?;
        }
        if state.used.retries == 0 {
            // A retry gives a new budget, so that from then on the ledger tells more than counts.
            let lost = op.count(&[AttemptOutcome::Abandoned]);
            denied(op.view.state.losses as usize != lost, &format!("{id} counts {} losses of {lost}", op.view.state.losses))?;
            let failed = op.count(&[AttemptOutcome::Retried, AttemptOutcome::Failed]);
            let given_up = usize::from(
                op.is(OpStatus::Failed) && op.attempts.last().is_some_and(|last| last.outcome == AttemptOutcome::Failed && lost > 0),
            );
            let counted = op.view.state.failures as usize;
            denied(counted + given_up < failed.saturating_sub(lost), &format!("{id} counts {counted} failures of {failed}"))?;
        }
        let fences: Vec<i64> = op.attempts.iter().map(|attempt| attempt.key.fence.0).collect();
        denied(fences.windows(2).any(|pair| pair.first() >= pair.last()), &format!("fences of {id} do not grow: {fences:?}"))?;
    }
    denied(
        successes != picture.successes_told,
        &format!("the history tells of {} successes, there are {successes}", picture.successes_told),
    )?;
    if picture.canceled {
        denied(picture.workflow != WorkflowStatus::Canceled, "a canceled workflow is something else")?;
    }
    Ok(())
}

/// Holds what came against what was.
pub(super) fn step_holds(before: &Picture, after: &Picture) -> Result<(), Denied> {
    denied(before.canceled && !after.canceled, "a canceled workflow came back")?;
    for was in &before.ops {
        let id = &was.view.state.id;
        let Some(is) = after.op(was.seq()) else { return Err(format!("{id} is gone").into()) };
        for end in [OpStatus::Canceled, OpStatus::Succeeded] {
            denied(was.is(end) && !is.is(end), &format!("{id} was {end} and is {}", is.view.status))?;
        }
        denied(is.attempts.get(..was.attempts.len()) != Some(was.attempts.as_slice()), &format!("the ledger of {id} was rewritten"))?;
        denied(was.is(OpStatus::Succeeded) && was.view.result != is.view.result, &format!("the result of {id} changed"))?;
    }
    Ok(())
}
