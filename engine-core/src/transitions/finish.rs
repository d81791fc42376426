//! Ends attempts under proof of ownership: complete, fail, suspend, release (L1, L2, L8, L12, Q8, W1).

use super::add::{Additions, Emitter};
use super::ending::{Ending, Verdict};
use super::heartbeat::behind_clock;
use super::{GraphError, Notice, Plan};
use crate::model::{Artifact, Digest, ErrorClass, Json, Micros, OpError, OpId, OpSeq, Record, SiteName, TimeError, Timestamp, WorkflowSeq};
use crate::state::Event;
use crate::store::rows::{Attempt, AttemptOutcome, Lease, LeaseKey, LockedWorkflow, NewArtifact, NewRecord, OpState, Take};
use crate::store::{StoreError, Tx, Wait};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// One attempt to end.
#[derive(Debug, Clone)]
pub struct Finish {
    /// The lease that proves it.
    pub lease: LeaseKey,
    /// The op's workflow.
    pub workflow: WorkflowSeq,
    /// The op's public id.
    pub op_id: OpId,
    /// The op's site, which ops that it emits inherit.
    pub site: SiteName,
    /// How it ends.
    pub end: End,
}

/// How an attempt ends.
#[derive(Debug, Clone)]
pub enum End {
    /// With a result and what the handler left besides.
    Complete {
        /// The result.
        result: Json,
        /// Artifacts, at most one of a name.
        artifacts: Vec<Artifact>,
        /// Records; of one key the last wins.
        records: Vec<Record>,
        /// Ops to add, checked.
        emitted: Option<Plan>,
    },
    /// With an error.
    Fail {
        /// The error.
        error: OpError,
        /// Whether another attempt may help.
        class: ErrorClass,
        /// A delay of the handler's own, in place of the policy's.
        delay: Option<Micros>,
    },
    /// Unfinished: the op waits, and counts neither a failure nor a loss.
    Suspend {
        /// Until when.
        until: Until,
    },
    /// Unfinished: the op goes back, at once and without counting as a failure. One that was dispatched, and whose effect
    /// must not be repeated, ends as by [`End::Abandon`].
    Release,
    /// Without an answer of its handler, which panicked, ran out of time or was stopped: an op whose effect must not be
    /// repeated waits for a verdict if it was dispatched. Any other goes back.
    Abandon {
        /// What happened to the handler.
        error: OpError,
    },
}

/// Until when an op waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// So long, from the transition's own time.
    For(Micros),
    /// This instant; one that has passed is due at once.
    At(Timestamp),
}

impl Until {
    /// The instant, of a wait that begins at `now`.
    fn instant(self, now: Timestamp) -> Result<Timestamp, TimeError> {
        match self {
            Self::For(duration) => now.after(duration),
            Self::At(instant) => Ok(instant),
        }
    }
}

/// What became of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The op succeeded.
    Succeeded,
    /// The attempt failed, and another may start at this instant.
    Retried {
        /// When it may start.
        due_at: Timestamp,
    },
    /// The op failed for good, with this error: the handler's own, or why what it emitted was refused.
    Failed {
        /// The error.
        error: OpError,
    },
    /// The op waits, and is woken at this instant.
    Suspended {
        /// When it is woken.
        due_at: Timestamp,
    },
    /// The op is ready again.
    Released,
    /// Nobody knows what the attempt did, and the op waits for a verdict.
    Abandoned,
    /// The lease does not hold and did not end so before: nothing was written.
    LeaseLost,
    /// The clock is behind the lease's beginning: nothing was written; try again.
    ClockBehind,
    /// Another transaction holds the workflow, and the call was not to wait: nothing was written; try again.
    Busy,
}

/// What became of a batch.
#[derive(Debug, Default)]
pub struct FinishReport {
    /// For each attempt in turn.
    pub outcomes: Vec<Ended>,
    /// What observers hear.
    pub notices: Vec<Notice>,
}

/// Ends each attempt of `batch` with a result. See [`finish`].
///
/// # Errors
/// As [`finish`].
pub fn complete(tx: &mut dyn Tx, batch: &[Finish], wait: Wait) -> Result<FinishReport, StoreError> {
    debug_assert!(batch.iter().all(|item| matches!(item.end, End::Complete { .. })), "complete takes results only");
    finish(tx, batch, wait)
}

/// Ends each attempt of `batch` with an error. See [`finish`].
///
/// # Errors
/// As [`finish`].
pub fn fail(tx: &mut dyn Tx, batch: &[Finish], wait: Wait) -> Result<FinishReport, StoreError> {
    debug_assert!(batch.iter().all(|item| matches!(item.end, End::Fail { .. })), "fail takes errors only");
    finish(tx, batch, wait)
}

/// Lets each op of `batch` wait. See [`finish`].
///
/// # Errors
/// As [`finish`].
pub fn suspend(tx: &mut dyn Tx, batch: &[Finish], wait: Wait) -> Result<FinishReport, StoreError> {
    debug_assert!(batch.iter().all(|item| matches!(item.end, End::Suspend { .. })), "suspend takes waits only");
    finish(tx, batch, wait)
}

/// Gives each op of `batch` back. See [`finish`].
///
/// # Errors
/// As [`finish`].
pub fn release(tx: &mut dyn Tx, batch: &[Finish], wait: Wait) -> Result<FinishReport, StoreError> {
    debug_assert!(batch.iter().all(|item| matches!(item.end, End::Release)), "release takes unfinished attempts only");
    finish(tx, batch, wait)
}

/// Ends each attempt of `batch`, each judged on its own, in a bounded number of statements.
///
/// An attempt ends only if its exact lease holds at the transition's own time, read behind the locks. Otherwise
/// nothing is written for it: the answer is the first answer if the ledger shows that this very lease ended so before,
/// else [`Ended::LeaseLost`].
///
/// # Locks
/// The workflows in key order, waiting or skipping as `wait` says; then the leases in op order.
///
/// # Errors
/// [`StoreError`]; nothing was written, unless it is [`StoreError::Unavailable`]: then repeat the same batch.
pub fn finish(tx: &mut dyn Tx, batch: &[Finish], wait: Wait) -> Result<FinishReport, StoreError> {
    let mut seqs: Vec<WorkflowSeq> = batch.iter().map(|item| item.workflow).collect();
    seqs.sort_unstable();
    seqs.dedup();
    let workflows: BTreeMap<WorkflowSeq, LockedWorkflow> =
        tx.lock_workflows(&seqs, wait)?.into_iter().map(|workflow| (workflow.seq, workflow)).collect();
    let keys = distinct(batch.iter().filter(|item| workflows.contains_key(&item.workflow)).map(|item| item.lease));
    let taken = tx.take_leases(&keys, Take::Live)?;
    let mut leases: HashMap<LeaseKey, Lease> = taken.leases.into_iter().map(|lease| (lease.key, lease)).collect();

    let mut ending = Ending::new(taken.now);
    let mut items: Vec<(&Finish, Lease)> = Vec::with_capacity(leases.len());
    let mut outcomes: Vec<Option<Ended>> = Vec::with_capacity(batch.len());
    let mut refused: Vec<(usize, &Finish)> = Vec::new();
    let mut places: HashMap<LeaseKey, usize> = HashMap::new();
    for (at, item) in batch.iter().enumerate() {
        let busy = wait == Wait::Skip && !workflows.contains_key(&item.workflow);
        outcomes.push(busy.then_some(Ended::Busy));
        match leases.remove(&item.lease) {
            Some(lease) => {
                places.insert(item.lease, at);
                items.push((item, lease));
            }
            None if !busy => refused.push((at, item)),
            None => {}
        }
    }
    let ended = ending.run(tx, &workflows, &items)?;
    for ((item, _), outcome) in items.iter().zip(ended) {
        if let Some(slot) = places.get(&item.lease).and_then(|at| outcomes.get_mut(*at)) {
            *slot = Some(outcome);
        }
    }
    let answers = first_answers(tx, &refused)?;
    for ((at, item), answer) in refused.iter().zip(answers) {
        // The same lease twice in one batch: the second gets what the first got.
        let first = places.get(&item.lease).and_then(|place| outcomes.get(*place)).cloned().flatten();
        let outcome = first.filter(|first| answers_to(&item.end, first)).unwrap_or(answer);
        if let Some(slot) = outcomes.get_mut(*at) {
            *slot = Some(outcome);
        }
    }
    let outcomes = outcomes.into_iter().map(|outcome| outcome.unwrap_or(Ended::LeaseLost)).collect();
    Ok(FinishReport { outcomes, notices: ending.journal.notices })
}

/// What to answer for leases that do not hold: the first answer, if the ledger shows that this lease made this very
/// transition.
fn first_answers(tx: &mut dyn Tx, refused: &[(usize, &Finish)]) -> Result<Vec<Ended>, StoreError> {
    if refused.is_empty() {
        return Ok(Vec::new());
    }
    let keys = distinct(refused.iter().map(|(_, item)| item.lease));
    let ledger: HashMap<LeaseKey, Attempt> = tx.attempts_by_lease(&keys)?.into_iter().map(|attempt| (attempt.key, attempt)).collect();
    let unknown: Vec<LeaseKey> = keys.iter().filter(|key| !ledger.contains_key(key)).copied().collect();
    let early = behind_clock(tx, &unknown)?;
    let retried = distinct(ledger.values().filter(|attempt| attempt.outcome == AttemptOutcome::Retried).map(|attempt| attempt.key.op));
    let states: HashMap<OpSeq, OpState> = tx.ops(&retried)?.into_iter().map(|state| (state.seq, state)).collect();
    let answer = |item: &Finish| {
        let Some(attempt) = ledger.get(&item.lease) else {
            return if early.contains(&item.lease) { Ended::ClockBehind } else { Ended::LeaseLost };
        };
        let error = || attempt.error.clone().unwrap_or_else(|| OpError::new(OpError::GENERIC, ""));
        let ended = match attempt.outcome {
            AttemptOutcome::Succeeded => Ended::Succeeded,
            AttemptOutcome::Failed => Ended::Failed { error: error() },
            AttemptOutcome::Retried => Ended::Retried { due_at: due_again(item, attempt, states.get(&item.lease.op)) },
            AttemptOutcome::Released if attempt.error.is_none() => Ended::Released,
            AttemptOutcome::Suspended => suspended_until(&item.end, attempt.ended_at),
            // Ended by its worker, an abandoned one says what happened to the handler, and a released one nothing.
            AttemptOutcome::Abandoned if attempt.error.as_ref().is_some_and(|error| error.code != OpError::WORKER_LOST) => Ended::Abandoned,
            AttemptOutcome::Released | AttemptOutcome::Canceled | AttemptOutcome::Abandoned => Ended::LeaseLost,
        };
        if answers_to(&item.end, &ended) { ended } else { Ended::LeaseLost }
    };
    Ok(refused.iter().map(|(_, item)| answer(item)).collect())
}

/// The items in order, each once: a step's set names each thing once, and a batch may not.
fn distinct<T: Ord>(items: impl Iterator<Item = T>) -> Vec<T> {
    items.collect::<BTreeSet<T>>().into_iter().collect()
}

/// Whether `ended` is what an attempt that ends so can have been answered.
fn answers_to(end: &End, ended: &Ended) -> bool {
    match end {
        End::Complete { .. } => match ended {
            Ended::Failed { error } => error.code == OpError::BAD_EMISSION,
            other => *other == Ended::Succeeded,
        },
        // A handler that ended its attempt in a transaction of the application's: the question is whether that committed.
        End::Fail { error, .. } if error.code == OpError::NOT_COMMITTED && *ended == Ended::Succeeded => true,
        End::Fail { .. } => matches!(ended, Ended::Retried { .. } | Ended::Failed { .. }),
        End::Suspend { .. } => match ended {
            Ended::Failed { error } => error.code == OpError::BAD_WAIT,
            other => matches!(other, Ended::Suspended { .. }),
        },
        End::Release | End::Abandon { .. } => matches!(ended, Ended::Released | Ended::Abandoned),
    }
}

/// Until when an attempt that was suspended at `ended_at` was told that its op waits.
fn suspended_until(end: &End, ended_at: Timestamp) -> Ended {
    let End::Suspend { until } = end else { return Ended::LeaseLost };
    until.instant(ended_at).map_or(Ended::LeaseLost, |due_at| Ended::Suspended { due_at })
}

/// When the attempt after a failed one may start, as it was told the first time. Once a further attempt has ended the
/// instant has long passed, and is not worked out again.
fn due_again(item: &Finish, attempt: &Attempt, state: Option<&OpState>) -> Timestamp {
    let End::Fail { delay, .. } = &item.end else { return attempt.ended_at };
    let current = state.filter(|state| state.fence == attempt.key.fence);
    let delay = delay.or_else(|| current.map(|state| state.retry.delay(state.failures, state.seq, state.fence)));
    delay.and_then(|delay| attempt.ended_at.after(delay).ok()).unwrap_or(attempt.ended_at)
}

impl Ending {
    fn run(
        &mut self,
        tx: &mut dyn Tx,
        workflows: &BTreeMap<WorkflowSeq, LockedWorkflow>,
        items: &[(&Finish, Lease)],
    ) -> Result<Vec<Ended>, StoreError> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let (emissions, refusals) = self.emit(tx, workflows, items)?;
        let back: Vec<OpSeq> = items
            .iter()
            .filter(|(item, _)| !matches!(item.end, End::Complete { .. }) || refusals.contains_key(&item.lease.op))
            .map(|(item, _)| item.lease.op)
            .collect();
        let states: HashMap<OpSeq, OpState> = tx.ops(&back)?.into_iter().map(|state| (state.seq, state)).collect();
        let mut outcomes = Vec::with_capacity(items.len());
        for (item, lease) in items {
            let verdict = self.judge(item, lease, states.get(&item.lease.op), refusals.get(&item.lease.op))?;
            outcomes.push(match (verdict.outcome, &verdict.error) {
                (AttemptOutcome::Succeeded, _) => Ended::Succeeded,
                (AttemptOutcome::Retried, _) => Ended::Retried { due_at: verdict.due_at },
                (AttemptOutcome::Suspended, _) => Ended::Suspended { due_at: verdict.due_at },
                (AttemptOutcome::Failed, Some(error)) => Ended::Failed { error: error.clone() },
                (AttemptOutcome::Abandoned, _) => Ended::Abandoned,
                _ => Ended::Released,
            });
            if let Some(workflow) = workflows.get(&item.workflow) {
                self.end(lease, (&item.op_id, &workflow.id), states.get(&item.lease.op), verdict);
            }
            if outcomes.last() == Some(&Ended::Succeeded) {
                self.keep(item);
            }
        }
        self.spread(tx, workflows)?;
        if let Some(emissions) = emissions {
            emissions.write(&self.ripple, &mut self.tally, &mut self.set, Vec::new());
        }
        self.write(tx, workflows)?;
        Ok(outcomes)
    }

    /// Takes in what completions emit; an emission that is refused fails its attempt for good.
    fn emit(
        &mut self,
        tx: &mut dyn Tx,
        workflows: &BTreeMap<WorkflowSeq, LockedWorkflow>,
        items: &[(&Finish, Lease)],
    ) -> Result<(Option<Additions>, HashMap<OpSeq, GraphError>), StoreError> {
        let mut emitting: Vec<(&Finish, &Plan)> = Vec::new();
        for (item, _) in items {
            if let End::Complete { emitted: Some(plan), .. } = &item.end {
                emitting.push((item, plan));
            }
        }
        let mut refusals = HashMap::new();
        if emitting.is_empty() {
            return Ok((None, refusals));
        }
        let plans: Vec<(WorkflowSeq, &Plan)> = emitting.iter().map(|(item, plan)| (item.workflow, *plan)).collect();
        let mut additions = Additions::prepare(tx, &plans, self.now)?;
        for (item, plan) in emitting {
            let Some(workflow) = workflows.get(&item.workflow) else { continue };
            let emitter = Emitter { op: item.lease.op, id: &item.op_id, site: &item.site };
            if let Err(refused) = additions.admit(workflow, Some(emitter), plan, &mut self.ripple)? {
                refusals.insert(item.lease.op, refused);
            }
        }
        additions.learn_broken(tx, &mut self.ripple)?;
        Ok((Some(additions), refusals))
    }

    fn judge(&self, item: &Finish, lease: &Lease, state: Option<&OpState>, refused: Option<&GraphError>) -> Result<Verdict, StoreError> {
        let verdict = |outcome, event| Verdict::new(outcome, event, self.now);
        let no_row = || StoreError::Rejected(format!("op {:?} has a lease but no row", item.lease.op).into());
        let (error, class, delay) = match (&item.end, refused) {
            (End::Complete { .. }, Some(refused)) => {
                (OpError::new(OpError::BAD_EMISSION, refused.to_string()), ErrorClass::Permanent, None)
            }
            (End::Complete { result, .. }, None) => {
                return Ok(Verdict { result: Some(result.clone()), ..verdict(AttemptOutcome::Succeeded, Event::Completed) });
            }
            (End::Suspend { until }, _) => match until.instant(self.now) {
                Ok(due_at) => return Ok(Verdict { due_at, ..verdict(AttemptOutcome::Suspended, Event::Suspended) }),
                Err(error) => (OpError::new(OpError::BAD_WAIT, format!("the wait: {error}")), ErrorClass::Permanent, None),
            },
            (End::Release, _) => {
                let error = OpError::new(OpError::OUTCOME_UNKNOWN, "its worker gave it back after its handler may have begun");
                return Ok(Verdict::unanswered(lease, state.ok_or_else(no_row)?, error, self.now));
            }
            (End::Abandon { error }, _) => {
                return Ok(Verdict::unanswered(lease, state.ok_or_else(no_row)?, error.storable(usize::MAX), self.now));
            }
            // Recording a failure cannot fail. Its length is limited by whoever reports it.
            (End::Fail { error, class, delay }, _) => (error.storable(usize::MAX), *class, *delay),
        };
        let state = state.ok_or_else(no_row)?;
        let failures = state.failures.saturating_add(1);
        let counted = |verdict| Verdict { failures: Some(failures), error: Some(error.clone()), ..verdict };
        let delay = delay.unwrap_or_else(|| state.retry.delay(failures, state.seq, lease.key.fence));
        // A deadline past year 9999 is one that never comes: the op fails now instead of waiting for it.
        let due_at = self.now.after(delay).ok().filter(|_| class == ErrorClass::Retryable && failures < state.retry.max_attempts);
        Ok(match due_at {
            Some(due_at) => Verdict { due_at, ..counted(verdict(AttemptOutcome::Retried, Event::AttemptFailed)) },
            None => counted(verdict(AttemptOutcome::Failed, Event::GaveUp)),
        })
    }

    /// What a success leaves besides its result.
    fn keep(&mut self, item: &Finish) {
        let End::Complete { artifacts, records, .. } = &item.end else { return };
        let (op, workflow, fence) = (item.lease.op, item.workflow, item.lease.fence);
        let mut by_name = BTreeMap::new();
        for artifact in artifacts {
            by_name.insert(&artifact.name, artifact);
        }
        self.set.artifacts.extend(by_name.into_values().map(|artifact| NewArtifact {
            op,
            workflow,
            fence,
            sha256: Digest::of_bytes(&artifact.content),
            artifact: artifact.clone(),
            at: self.now,
        }));
        self.set.records.extend(records.iter().map(|record| NewRecord { workflow, op, record: record.clone(), at: self.now }));
    }
}
