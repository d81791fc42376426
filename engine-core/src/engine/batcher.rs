//! Commits ended attempts (L1, L2, L11, L13): while one commit is in flight the next batch gathers, so that an idle
//! engine commits at once and a busy one in large batches, without a timer.
//!
//! There are two committers. The first never waits for a workflow that another transaction holds: such ends go apart, to
//! the second, which waits for one workflow at a time and never for long. So a slow holder stops its own workflow only,
//! whose leases are renewed meanwhile.

use super::notice::{Notice, NoticeKind};
use super::outbox::{Batch, Line};
use super::recovery;
use super::retrying::Pauses;
use super::session::{About, Broken, EndedAttempt, Session};
use crate::client::with_causes;
use crate::model::{ErrorClass, OpError, OpId, WorkflowId, storable_text};
use crate::store::rows::{EventKind, LeaseKey};
use crate::store::{StoreError, TxKind, Wait};
use crate::transitions::{self, End, Ended, Finish, FinishReport};
use std::collections::HashMap;
use std::time::Duration;

/// Runs until the outbox is closed and this line of it empty, or its time is over.
pub(super) fn commit_loop(session: &Session, line: Line) {
    let mut pauses = Pauses::new();
    loop {
        let batch = match session.outbox.next(line) {
            Batch::Commit(batch) => batch,
            Batch::Over(unsaved) => {
                give_up(session, &unsaved);
                break;
            }
        };
        let committed = match line {
            Line::Fresh => Commit { session, line, wait: Wait::Skip, looks: true }.run(batch),
            Line::Apart => commit_apart(session, batch),
        };
        match committed {
            Ok(()) => {
                session.outbox.works(line);
                pauses = Pauses::new();
            }
            Err(Delayed { unsaved, error }) => {
                session.outbox.put_back(line, unsaved);
                // Waiting for a lock was pause enough.
                let pause = if is_held(line, &error) { Pauses::new().next() } else { pauses.next() };
                if !session.outbox.fails(line, pause) {
                    session.break_down(Broken::Store(error));
                    session.outbox.close(Duration::ZERO);
                }
            }
        }
    }
    // What the other committer waits with is still to be renewed.
    if session.outbox.ended(line) {
        session.held.close();
    }
}

/// Waits for the workflow of the first end, and takes what has become free of the others along: a second lock that is
/// waited for would hold the first meanwhile.
fn commit_apart(session: &Session, batch: Vec<EndedAttempt>) -> Result<(), Delayed> {
    let Some(awaited) = batch.first().map(|ended| ended.finish.workflow) else { return Ok(()) };
    let (first, others): (Vec<_>, Vec<_>) = batch.into_iter().partition(|ended| ended.finish.workflow == awaited);
    let line = Line::Apart;
    let free = if others.is_empty() { Ok(()) } else { Commit { session, line, wait: Wait::Skip, looks: true }.run(others) };
    let waited = Commit { session, line, wait: Wait::Briefly, looks: true }.run(first);
    both(free, waited)
}

/// Whether only another transaction was in the way.
const fn is_held(line: Line, error: &StoreError) -> bool {
    matches!((line, error), (Line::Apart, StoreError::Conflict(_) | StoreError::Busy(_)))
}

/// Attempts whose end could not be saved for the moment; the same leases are tried again.
struct Delayed {
    unsaved: Vec<EndedAttempt>,
    error: StoreError,
}

/// Two commits as one.
fn both(first: Result<(), Delayed>, second: Result<(), Delayed>) -> Result<(), Delayed> {
    match (first, second) {
        (Ok(()), done) | (done, Ok(())) => done,
        (Err(mut first), Err(second)) => {
            first.unsaved.extend(second.unsaved);
            Err(first)
        }
    }
}

struct Commit<'s> {
    session: &'s Session,
    line: Line,
    wait: Wait,
    /// Whether it looks for a jump of time where leases are lost.
    looks: bool,
}

impl Commit<'_> {
    /// Commits `batch`, each attempt judged on its own.
    fn run(&self, batch: Vec<EndedAttempt>) -> Result<(), Delayed> {
        let Session { settings, held, .. } = self.session;
        if self.line == Line::Fresh {
            held.committing(keys(&batch));
        }
        // Apart, so that results need not be copied into the call.
        let (finishes, about): (Vec<Finish>, Vec<About>) = batch.into_iter().map(|ended| (ended.finish, ended.about)).unzip();
        let known = Known::of(&about, settings.hub.notices().heard());
        let _span = tracing::debug_span!(
            "commit",
            messaging.system = "leasehold",
            messaging.operation.name = "settle",
            messaging.batch.message_count = finishes.len()
        )
        .entered();
        let committed = settings.hub.transact(
            settings.store.as_ref(),
            match self.line {
                Line::Fresh => TxKind::Commit,
                // Not the first committer's connection.
                Line::Apart => TxKind::Maintenance,
            },
            |tx| transitions::finish(tx, &finishes, self.wait),
            |report| {
                self.hint_due(report);
                std::mem::take(&mut report.notices)
            },
            |_, notice| known.enrich(&about, notice),
        );
        let batch: Vec<EndedAttempt> = finishes.into_iter().zip(about).map(|(finish, about)| EndedAttempt { about, finish }).collect();
        match committed {
            Ok(report) if self.may_be_spared(&report) => self.look_and_try_again(batch, report),
            Ok(report) => self.settle(batch, &report),
            Err(error) => {
                held.not_committed(keys(&batch));
                self.go_on(batch, error)
            }
        }
    }

    /// Whether a jump of time can be why leases are lost: those that held before it are spared once somebody has looked.
    fn may_be_spared(&self, report: &FinishReport) -> bool {
        let looks = self.looks && !self.session.settings.clock.grace.is_zero();
        looks && report.outcomes.contains(&Ended::LeaseLost)
    }

    /// Looks whether time has jumped, and tries the ends whose leases were lost once more.
    fn look_and_try_again(&self, batch: Vec<EndedAttempt>, mut report: FinishReport) -> Result<(), Delayed> {
        let lost = |ended: &Ended| *ended == Ended::LeaseLost;
        let (refused, settled): (Vec<_>, Vec<_>) = batch.into_iter().zip(&report.outcomes).partition(|(_, ended)| lost(ended));
        let refused: Vec<EndedAttempt> = refused.into_iter().map(|(attempt, _)| attempt).collect();
        let settled: Vec<EndedAttempt> = settled.into_iter().map(|(attempt, _)| attempt).collect();
        report.outcomes.retain(|ended| !lost(ended));
        let again = match recovery::look(&self.session.settings) {
            Ok(()) => Self { looks: false, ..*self }.run(refused),
            Err(error) => {
                self.session.held.not_committed(keys(&refused));
                Err(Delayed { unsaved: refused, error })
            }
        };
        both(self.settle(settled, &report), again)
    }

    /// Does what can be done about a commit that failed.
    fn go_on(&self, mut batch: Vec<EndedAttempt>, error: StoreError) -> Result<(), Delayed> {
        if !matches!(error, StoreError::Rejected(_)) {
            let cause = with_causes(&error);
            if is_held(self.line, &error) {
                tracing::debug!(error = cause, ends = batch.len(), "another transaction still holds the workflow");
            } else if error.is_transient() {
                tracing::warn!(error = cause, ends = batch.len(), "results are not saved yet; trying again");
            } else {
                // Somebody has to do something: free space, say, or make the file writable.
                tracing::error!(error = cause, ends = batch.len(), "results cannot be saved until this is mended; trying again");
            }
            return Err(Delayed { unsaved: batch, error });
        }
        // One bad row stops nobody: the batch is halved until that row is alone.
        let second = batch.split_off(batch.len() / 2);
        if batch.is_empty() {
            return second.into_iter().try_for_each(|attempt| self.record_refusal(attempt, &error));
        }
        both(self.run(batch), self.run(second))
    }

    /// Counts every answer; what is to be tried again goes back.
    fn settle(&self, batch: Vec<EndedAttempt>, report: &FinishReport) -> Result<(), Delayed> {
        let session = self.session;
        let (mut settled, mut lost) = (Vec::with_capacity(batch.len()), Vec::new());
        let (mut held_by_others, mut too_early) = (Vec::new(), Vec::new());
        {
            let mut tally = session.tally();
            for (attempt, ended) in batch.into_iter().zip(&report.outcomes) {
                let waits = !tally.settle(&attempt.about.op, ended);
                match ended {
                    Ended::Busy => held_by_others.push(attempt),
                    _ if waits => too_early.push(attempt),
                    _ => {
                        settled.push(attempt.finish.lease);
                        lost.extend((*ended == Ended::LeaseLost).then_some(attempt.about));
                    }
                }
            }
        }
        for About { op, run_time } in lost {
            tracing::warn!(workflow = op.workflow_id.as_str(), op = op.op_id.as_str(), "end refused: the lease was lost");
            session.settings.hub.notices().tell(|| Notice { run_time, ..Notice::of_claimed(NoticeKind::OpLeaseLost, &op) });
        }
        session.held.not_committed(keys(&held_by_others).chain(keys(&too_early)));
        if !held_by_others.is_empty() {
            session.outbox.put_apart(held_by_others);
        }
        let count = settled.len();
        session.held.let_go(settled.into_iter());
        session.slots.settled(count);
        if too_early.is_empty() {
            return Ok(());
        }
        tracing::warn!(ends = too_early.len(), "the store's clock is behind leases that it gave; results wait for it");
        Err(Delayed { unsaved: too_early, error: StoreError::Busy("the clock is behind the lease".into()) })
    }

    /// Records that one end cannot be stored, as a failure of its attempt; when even that is refused, its lease runs out.
    fn record_refusal(&self, mut attempt: EndedAttempt, error: &StoreError) -> Result<(), Delayed> {
        let (op, message) = (&attempt.about.op, with_causes(error));
        tracing::error!(workflow = op.workflow_id.as_str(), op = op.op_id.as_str(), error = message, "the store refused an attempt's end");
        if matches!(&attempt.finish.end, End::Fail { error, .. } if error.code == REFUSED) {
            give_up(self.session, &[attempt]);
            return Ok(());
        }
        let message = storable_text(&message, self.session.settings.limits.error_bytes);
        attempt.finish.end = End::Fail { error: OpError::new(REFUSED, message), class: ErrorClass::Permanent, delay: None };
        self.run(vec![attempt])
    }

    /// An op that may be tried again or is to be woken soon is claimed then, not at the next poll.
    fn hint_due(&self, report: &FinishReport) {
        let Some(now) = report.notices.first().map(|notice| notice.at) else {
            return;
        };
        for ended in &report.outcomes {
            if let Ended::Retried { due_at } | Ended::Suspended { due_at } = ended {
                self.session.slots.hint_after(due_at.since(now));
            }
        }
    }
}

/// The code of an attempt whose end the store refused.
const REFUSED: &str = "not_storable";

fn keys(batch: &[EndedAttempt]) -> impl Iterator<Item = LeaseKey> {
    batch.iter().map(|ended| ended.finish.lease)
}

/// Lets go of attempts whose end cannot be saved: their leases run out.
fn give_up(session: &Session, unsaved: &[EndedAttempt]) {
    if unsaved.is_empty() {
        return;
    }
    tracing::error!(ends = unsaved.len(), "results were not saved in time; their leases run out and their ops run again");
    session.tally().counts.unsaved += unsaved.len() as u64;
    session.held.let_go(keys(unsaved));
    session.slots.settled(unsaved.len());
}

/// Finds what this process knows of the op that a notice is about.
struct Known(HashMap<(WorkflowId, OpId), usize>);

impl Known {
    fn of(about: &[About], heard: bool) -> Self {
        let known = about.iter().enumerate().filter(|_| heard);
        Self(known.map(|(at, about)| ((about.op.workflow_id.clone(), about.op.op_id.clone()), at)).collect())
    }

    fn enrich(&self, about: &[About], notice: Notice) -> Notice {
        let known = match (&notice.workflow_id, &notice.op_id, notice.kind) {
            (Some(workflow), Some(op), NoticeKind::Event(kind)) if ends_attempt(kind) => {
                self.0.get(&(workflow.clone(), op.clone())).and_then(|at| about.get(*at))
            }
            _ => None,
        };
        match known {
            Some(About { op, run_time }) => Notice { run_time: *run_time, ..notice.with_claimed(op) },
            None => notice,
        }
    }
}

const fn ends_attempt(kind: EventKind) -> bool {
    matches!(
        kind,
        EventKind::OpSucceeded
            | EventKind::OpRetried
            | EventKind::OpFailed
            | EventKind::OpReleased
            | EventKind::OpAbandoned
            | EventKind::OpWaiting
    )
}
