//! Leading the store's maintenance, and standing for it (L10).

use super::session::Settings;
use crate::model::{Epoch, LeaseToken, Micros, WorkerName};
use crate::store::{Candidate, Leadership, StoreError, StoreExt, TxKind};
use crate::transitions;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One engine as a candidate and as the leader. Nothing depends on what is remembered here: each pass of maintenance
/// checks the epoch in its own transaction.
#[derive(Debug)]
pub(super) struct Office {
    candidate: Candidate,
    term: Mutex<Term>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Term {
    /// The epoch under which this engine leads.
    epoch: Option<Epoch>,
    /// When to ask the store again: to renew the term, or to see whether the leader's has ended.
    ask_at: Option<Instant>,
}

impl Office {
    pub(super) fn new(name: WorkerName, term: Micros) -> Self {
        Self { candidate: Candidate { token: LeaseToken::random(), name, term }, term: Mutex::default() }
    }

    fn term(&self) -> MutexGuard<'_, Term> {
        self.term.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The epoch under which this engine leads, if it does. Asks the store when it is time to.
    pub(super) fn epoch(&self, settings: &Settings) -> Result<Option<Epoch>, StoreError> {
        let known = *self.term();
        if known.ask_at.is_some_and(|ask_at| Instant::now() < ask_at) {
            return Ok(known.epoch);
        }
        let leadership = self.stand(settings)?;
        Ok(leadership.mine.then_some(leadership.epoch))
    }

    /// Stands for the lead, or renews the term; who leads then.
    pub(super) fn stand(&self, settings: &Settings) -> Result<Leadership, StoreError> {
        let began = Instant::now();
        let leadership = settings.store.with(TxKind::Maintenance, |tx| transitions::elect(tx, &self.candidate))?;
        let epoch = leadership.mine.then_some(leadership.epoch);
        let third = self.candidate.term.as_duration() / 3;
        let wait = if leadership.mine { third } else { third.min(leadership.ends_at.since(leadership.now)) };
        let before = std::mem::replace(&mut *self.term(), Term { epoch, ask_at: Some(began + wait) });
        if before.epoch != epoch {
            match epoch {
                Some(Epoch(epoch)) => tracing::info!(epoch, "this process keeps the store up from now on"),
                None if before.epoch.is_some() => {
                    tracing::warn!(
                        leader = leadership.leader.as_str(),
                        "another process keeps the store up: this one was away for too long"
                    );
                }
                None => {}
            }
        }
        Ok(leadership)
    }

    /// Notes that a pass was refused: another leads by now.
    pub(super) fn lost(&self) {
        *self.term() = Term::default();
    }

    /// Gives the lead up, if this engine has it.
    pub(super) fn resign(&self, settings: &Settings) -> Result<(), StoreError> {
        let Some(epoch) = std::mem::take(&mut *self.term()).epoch else { return Ok(()) };
        settings.store.with(TxKind::Maintenance, |tx| transitions::resign(tx, self.candidate.token, epoch))
    }

    /// How long a term is.
    pub(super) const fn length(&self) -> Duration {
        self.candidate.term.as_duration()
    }
}
