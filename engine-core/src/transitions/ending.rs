//! What one transaction writes about attempts that end, whoever ends them.

use super::add::{changed, write_guarded};
use super::journal::{About, Journal};
use super::ripple::{Ripple, Tally, queued};
use crate::model::{Effect, Json, OpError, OpId, OpSeq, Timestamp, WorkflowId, WorkflowSeq};
use crate::state::{Event, OpStatus, StoredStatus, next};
use crate::store::rows::{
    Attempt, AttemptOutcome, EventKind, Lease, LockedWorkflow, OpChange, OpState, OpWait, OpWake, Reach, WaitKey, WaitReason, WriteSet,
};
use crate::store::{StoreError, Tx};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// What one transaction writes about ended attempts: those that a worker ends, and those that recovery does.
pub(super) struct Ending {
    pub(super) now: Timestamp,
    pub(super) set: WriteSet,
    pub(super) journal: Journal,
    pub(super) tally: Tally,
    pub(super) ripple: Ripple,
}

/// How the op goes on after its attempt.
pub(super) struct Verdict {
    /// Where it stands: running, or waiting for whoever settles it.
    pub(super) from: OpStatus,
    pub(super) outcome: AttemptOutcome,
    pub(super) event: Event,
    pub(super) failures: Option<u32>,
    pub(super) losses: Option<u32>,
    pub(super) result: Option<Json>,
    pub(super) error: Option<OpError>,
    /// What the history says of it besides; the error's code if nothing is said.
    pub(super) reason: Option<String>,
    /// When it may be claimed again, or is to be woken; for an event that leads to ready or waiting.
    pub(super) due_at: Timestamp,
}

impl Verdict {
    /// An attempt that ends so, with nothing else to say.
    pub(super) fn new(outcome: AttemptOutcome, event: Event, now: Timestamp) -> Self {
        Self { from: OpStatus::Running, outcome, event, failures: None, losses: None, result: None, error: None, reason: None, due_at: now }
    }

    /// How an attempt ends that gave no answer: as one that never began, unless its op was dispatched, whose effect must
    /// not be repeated. Then nobody knows what it did.
    pub(super) fn unanswered(lease: &Lease, state: &OpState, error: OpError, now: Timestamp) -> Self {
        if may_have_taken_effect(lease, state) {
            Self { error: Some(error), ..Self::new(AttemptOutcome::Abandoned, Event::OutcomeUnknown, now) }
        } else {
            Self::new(AttemptOutcome::Released, Event::Released, now)
        }
    }
}

/// Whether an attempt that gave no answer may have had the effect that must not be repeated.
pub(super) fn may_have_taken_effect(lease: &Lease, state: &OpState) -> bool {
    state.retry.effect == Effect::Once && lease.dispatched_at.is_some()
}

impl Ending {
    pub(super) fn new(now: Timestamp) -> Self {
        Self { now, set: WriteSet::default(), journal: Journal::new(now, None), tally: Tally::default(), ripple: Ripple::default() }
    }

    /// Ends one attempt: its line in the ledger, its op's new status, its place in a queue, its event.
    pub(super) fn end(&mut self, lease: &Lease, (op_id, workflow_id): (&OpId, &WorkflowId), state: Option<&OpState>, verdict: Verdict) {
        let op = lease.key.op;
        let from = verdict.from;
        let Some(to) = next(from, verdict.event) else {
            unreachable!("{:?} does not end an attempt", verdict.event);
        };
        self.journal.set_actor(Some(lease.worker.to_string()));
        let about = About { workflow: (lease.workflow, workflow_id), op: Some((op, op_id)), fence: Some(lease.key.fence) };
        let detail = verdict.reason.or_else(|| verdict.error.as_ref().map(|error| error.code.clone()));
        let kind = match verdict.outcome {
            AttemptOutcome::Succeeded => EventKind::OpSucceeded,
            AttemptOutcome::Failed => EventKind::OpFailed,
            AttemptOutcome::Retried => EventKind::OpRetried,
            AttemptOutcome::Canceled => EventKind::OpCanceled,
            AttemptOutcome::Abandoned if to == OpStatus::Failed => EventKind::OpFailed,
            AttemptOutcome::Abandoned => EventKind::OpAbandoned,
            AttemptOutcome::Suspended => EventKind::OpWaiting,
            AttemptOutcome::Released => EventKind::OpReleased,
        };
        self.journal.tell(kind, about, detail);
        if verdict.outcome == AttemptOutcome::Abandoned && to == OpStatus::Waiting {
            self.journal.tell(EventKind::OpWaiting, about, Some(WaitReason::Verdict.as_str().to_owned()));
        }
        self.set.changes.push(OpChange {
            op,
            from: from.stored(),
            to: to.stored(),
            // A running op had every dependency met; a soft one that reopened since does not call it back.
            unmet: 0,
            broken: 0,
            fence: Some(lease.key.fence),
            failures: verdict.failures,
            losses: verdict.losses,
            finished_at: to.is_settled().then_some(self.now),
        });
        if to == OpStatus::Ready
            && let Some(state) = state
        {
            let after = OpState {
                fence: lease.key.fence,
                failures: verdict.failures.unwrap_or(state.failures),
                losses: verdict.losses.unwrap_or(state.losses),
                ..state.clone()
            };
            let place = queued(&after, verdict.due_at);
            if verdict.due_at > self.now { &mut self.set.delayed } else { &mut self.set.ready }.push(place);
        }
        if to == OpStatus::Waiting {
            self.tally.moves(lease.workflow, from.stored(), to.stored());
            let (reason, due_at) = match verdict.outcome {
                AttemptOutcome::Abandoned => (WaitReason::Verdict, None),
                _ => (WaitReason::Timer, Some(verdict.due_at)),
            };
            self.set.waits.push(OpWait {
                key: WaitKey { op, fence: lease.key.fence },
                workflow: lease.workflow,
                reason,
                since: self.now,
                due_at,
            });
        }
        if to.is_settled() {
            self.tally.moves(lease.workflow, from.stored(), to.stored());
            self.ripple.moved(op, from, to);
        }
        self.set.attempts.push(Attempt {
            key: lease.key,
            workflow: lease.workflow,
            worker: lease.worker.clone(),
            acquired_at: lease.acquired_at,
            ended_at: self.now,
            outcome: verdict.outcome,
            result: verdict.result,
            error: verdict.error,
        });
    }

    /// Ends one wait: its op is ready since the wait was due, and knows what it waited for.
    pub(super) fn wake(&mut self, wait: OpWait, state: &OpState, workflow_id: &WorkflowId) {
        let Some(to) = next(OpStatus::Waiting, Event::Woken) else { unreachable!("a waiting op can be woken") };
        let about = About { workflow: (wait.workflow, workflow_id), op: Some((state.seq, &state.id)), fence: Some(wait.key.fence) };
        self.journal.tell(EventKind::OpWoken, about, Some(wait.reason.as_str().to_owned()));
        self.set.changes.push(OpChange {
            op: state.seq,
            from: StoredStatus::Waiting,
            to: to.stored(),
            unmet: 0,
            broken: 0,
            fence: None,
            failures: None,
            losses: None,
            finished_at: None,
        });
        self.tally.moves(wait.workflow, StoredStatus::Waiting, to.stored());
        self.set.ready.push(queued(state, wait.due_at.unwrap_or(self.now)));
        self.set.wakes.push(OpWake { wait, woken_at: self.now });
    }

    /// Reads what lies below the ops that moved, and finds the fixed point. Where nothing is pending or blocked, nothing
    /// below can move, and is not read: the counters under the workflow's lock say so.
    pub(super) fn spread(&mut self, tx: &mut dyn Tx, workflows: &BTreeMap<WorkflowSeq, LockedWorkflow>) -> Result<(), StoreError> {
        let is_quiet = |workflow: &WorkflowSeq| {
            workflows.get(workflow).is_some_and(|known| known.counters.pending == 0 && known.counters.blocked == 0)
        };
        let quiet: HashSet<OpSeq> = self.set.attempts.iter().filter(|line| is_quiet(&line.workflow)).map(|line| line.key.op).collect();
        let with = |status: StoredStatus| -> Vec<OpSeq> {
            let moved = self.set.changes.iter().filter(|change| change.to == status && !quiet.contains(&change.op));
            moved.map(|change| change.op).collect()
        };
        // A success moves children only; a failure spreads.
        let (succeeded, failed) = (with(StoredStatus::Succeeded), with(StoredStatus::Failed));
        if !succeeded.is_empty() {
            let edges = tx.downstream(&succeeded, Reach::Children)?;
            self.ripple.learn(edges);
        }
        if !failed.is_empty() {
            let edges = tx.downstream(&failed, Reach::Descendants)?;
            self.ripple.learn(edges);
        }
        self.ripple.settle();
        Ok(())
    }

    /// Writes everything, with the workflows' new counters and statuses.
    pub(super) fn write(&mut self, tx: &mut dyn Tx, workflows: &BTreeMap<WorkflowSeq, LockedWorkflow>) -> Result<(), StoreError> {
        let mut set = std::mem::take(&mut self.set);
        self.journal.set_actor(None);
        let ids = workflows.values().map(|workflow| (workflow.seq, workflow.id.clone())).collect();
        std::mem::take(&mut self.ripple).write(self.now, &ids, &mut self.tally, &mut set, &mut self.journal);
        let mut last_wins = BTreeMap::new();
        for record in std::mem::take(&mut set.records) {
            last_wins.insert((record.workflow, record.record.collection.clone(), record.record.key.clone()), record);
        }
        set.records = last_wins.into_values().collect();
        let ended = set.attempts.iter().map(|attempt| attempt.workflow);
        let touched: BTreeSet<WorkflowSeq> = ended.chain(self.tally.workflows()).collect();
        for workflow in touched.iter().filter_map(|seq| workflows.get(seq)) {
            let change = changed(workflow, &self.tally, self.now);
            if change.status != workflow.status {
                let about = About { workflow: (workflow.seq, &workflow.id), op: None, fence: None };
                self.journal.tell(EventKind::WorkflowUpdated, about, Some(change.status.to_string()));
            }
            set.workflows.push(change);
        }
        write_guarded(tx, set, &mut self.journal)
    }
}
