//! Group commit: one write connection, handed from caller to caller.
//!
//! The right to use the connection is a *baton*. Its holder runs its body on its own thread, inside a savepoint of the
//! open transaction, and passes the baton on. A holder that finds nobody waiting, or the group large or old enough,
//! commits for the whole group. Members wait for that commit before they answer, whatever their own body said: a body
//! that ran behind others may have read what they had not committed yet.

mod baton;
#[cfg(test)]
mod tests;

use crate::connection::Connector;
use crate::error::WaitError;
use baton::{Baton, Turn};
use diesel::sqlite::SqliteConnection;
use leasehold_core::store::{StoreError, StoreResult};
use leasehold_sql::rejected;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// What a body did.
pub(crate) struct Run {
    /// What it returned.
    pub(crate) outcome: StoreResult<()>,
    /// Whether one of its statements failed. Such a run is never committed, and SQLite may have ended the transaction.
    pub(crate) step_failed: bool,
    /// About how many rows it wrote.
    pub(crate) rows: usize,
}

impl Run {
    /// A run with a failed step fails, whatever its body made of it.
    pub(crate) fn verdict(self) -> StoreResult<()> {
        match self.outcome {
            Ok(()) if self.step_failed => Err(rejected("a step failed and the body went on as if it had not")),
            outcome => outcome,
        }
    }
}

/// A body on the group's connection.
pub(crate) type Body<'b> = &'b mut dyn FnMut(&mut SqliteConnection) -> Run;

/// The write connection and the line before it.
pub(crate) struct Writer {
    connector: Connector,
    line: Mutex<Line>,
}

struct Line {
    /// The baton while nobody holds it.
    baton: Option<Box<Baton>>,
    /// Heartbeats: they go before everything else.
    urgent: VecDeque<Arc<Ticket>>,
    others: VecDeque<Arc<Ticket>>,
}

impl Line {
    fn give(&mut self, baton: Box<Baton>) -> Result<(), Box<Baton>> {
        match self.urgent.pop_front().or_else(|| self.others.pop_front()) {
            Some(ticket) => {
                *lock(&ticket.baton) = Some(baton);
                ticket.turn.notify_one();
                Ok(())
            }
            None => Err(baton),
        }
    }
}

/// A place in the line.
#[derive(Default)]
struct Ticket {
    baton: Mutex<Option<Box<Baton>>>,
    turn: Condvar,
}

/// A poisoned mutex is no reason to stop: what it guards changes in single assignments.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Writer {
    pub(crate) fn new(connector: Connector, conn: SqliteConnection) -> Self {
        let line = Line { baton: Some(Box::new(Baton::new(conn))), urgent: VecDeque::new(), others: VecDeque::new() };
        Self { connector, line: Mutex::new(line) }
    }

    /// Runs `body` in the open group, or in a new one; returns when it is known what became of it.
    pub(crate) fn run(&self, urgent: bool, body: Body<'_>) -> StoreResult<()> {
        let deadline = Instant::now() + self.connector.options.call_deadline;
        let mut turn = Turn::new(self, self.wait(urgent, deadline)?);
        let conn = turn.join(deadline)?;
        match catch_unwind(AssertUnwindSafe(|| body(conn))) {
            Ok(run) => {
                let (outcome, fate) = turn.settle(run);
                turn.pass_on();
                match fate {
                    Some(fate) => fate.answer(outcome),
                    None => outcome,
                }
            }
            Err(panic) => {
                turn.undo();
                turn.pass_on();
                resume_unwind(panic)
            }
        }
    }

    /// Waits for the baton.
    fn wait(&self, urgent: bool, deadline: Instant) -> StoreResult<Box<Baton>> {
        let ticket = Arc::new(Ticket::default());
        {
            let mut line = lock(&self.line);
            if let Some(baton) = line.baton.take() {
                return Ok(baton);
            }
            if urgent { &mut line.urgent } else { &mut line.others }.push_back(Arc::clone(&ticket));
        }
        let mut given = lock(&ticket.baton);
        loop {
            if let Some(baton) = given.take() {
                return Ok(baton);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            given = ticket.turn.wait_timeout(given, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(given);
        let mut line = lock(&self.line);
        line.urgent.retain(|other| !Arc::ptr_eq(other, &ticket));
        line.others.retain(|other| !Arc::ptr_eq(other, &ticket));
        // The baton may have come just before the ticket left the line.
        let late = lock(&ticket.baton).take();
        late.ok_or_else(|| StoreError::Busy(Box::new(WaitError::Turn { waited: self.connector.options.call_deadline })))
    }

    /// Gives the baton to the first in line, if there is one.
    fn give(&self, baton: Box<Baton>) -> Result<(), Box<Baton>> {
        lock(&self.line).give(baton)
    }

    /// Gives the baton to the first in line, or leaves it for whoever comes.
    fn lay_down(&self, baton: Box<Baton>) {
        let mut line = lock(&self.line);
        if let Err(baton) = line.give(baton) {
            line.baton = Some(baton);
        }
    }
}
