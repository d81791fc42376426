//! The baton: the write connection with its open transaction, and what its holder does with it.

use super::{Run, Writer, lock};
use crate::connection::{Statements, until};
use crate::error::{again, is_busy};
use crate::store::Location;
use diesel::result::QueryResult;
use diesel::sqlite::SqliteConnection;
use leasehold_core::store::{StoreError, StoreResult};
use leasehold_sql::rejected;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long after each group a process leaves the file alone while others want it: long enough for a waiter that polls
/// every few milliseconds, short enough not to be felt.
const GAP: Duration = Duration::from_millis(2);
/// How long a process that noticed another believes that it is not alone.
const COMPANY: Duration = Duration::from_secs(1);
/// Between two tries to begin, besides what SQLite itself waits.
const BUSY_PAUSE: Duration = Duration::from_micros(500);

/// The right to write.
pub(super) struct Baton {
    /// Closed after an error that left its state unknown; the next holder opens it again.
    conn: Option<SqliteConnection>,
    /// The open transaction.
    group: Option<Group>,
    last_commit: Option<Instant>,
    /// When another process was last noticed, by the lock it held or by what it committed.
    last_company: Option<Instant>,
    data_version: Option<i64>,
}

/// The members of the open transaction.
struct Group {
    fate: Arc<Fate>,
    begun: Instant,
    members: usize,
    rows: usize,
}

/// How a group ended, for its members.
#[derive(Default)]
pub(super) struct Fate {
    ended: Mutex<Option<Ended>>,
    known: Condvar,
}

enum Ended {
    Committed,
    /// An error of one member ended the transaction of all: nothing was written.
    Lost,
    CommitFailed(StoreError),
}

impl Fate {
    fn settle(&self, ended: Ended) {
        *lock(&self.ended) = Some(ended);
        self.known.notify_all();
    }

    /// Waits until the group has ended, then tells a member what that makes of its own outcome.
    pub(super) fn answer(&self, outcome: StoreResult<()>) -> StoreResult<()> {
        let mut ended = lock(&self.ended);
        loop {
            match (&*ended, &outcome) {
                (None, _) => {}
                (Some(Ended::Committed), _) => return outcome,
                (Some(Ended::CommitFailed(error)), Ok(())) => return Err(again(error)),
                // What it failed on may have been a row that is not there any more: it has to look again.
                (Some(Ended::CommitFailed(_)), Err(_)) | (Some(Ended::Lost), _) => return Err(lost()),
            }
            ended = self.known.wait(ended).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn lost() -> StoreError {
    StoreError::Conflict("the commit group was rolled back because of another member".into())
}

impl Baton {
    pub(super) fn new(conn: SqliteConnection) -> Self {
        Self { conn: Some(conn), group: None, last_commit: None, last_company: None, data_version: None }
    }
}

/// A holder of the baton. However its turn ends, the baton goes to the next.
pub(super) struct Turn<'w> {
    writer: &'w Writer,
    baton: Option<Box<Baton>>,
}

impl<'w> Turn<'w> {
    pub(super) fn new(writer: &'w Writer, baton: Box<Baton>) -> Self {
        Self { writer, baton: Some(baton) }
    }

    fn baton(&mut self) -> &mut Baton {
        match &mut self.baton {
            Some(baton) => baton,
            None => unreachable!("a turn uses its baton only until it has passed it on"),
        }
    }

    /// Joins the open group behind a savepoint, or begins one.
    ///
    /// The first member needs no savepoint: to undo it is to roll the transaction back.
    pub(super) fn join(&mut self, deadline: Instant) -> StoreResult<&mut SqliteConnection> {
        let behind_others = self.baton().group.is_some();
        if behind_others {
            if let Err(error) = self.control("SAVEPOINT member") {
                self.lose();
                return Err(error);
            }
        } else {
            self.begin(deadline)?;
        }
        match &mut self.baton().conn {
            Some(conn) => Ok(conn),
            None => unreachable!("a group is open only on an open connection"),
        }
    }

    fn begin(&mut self, deadline: Instant) -> StoreResult<()> {
        let connector = &self.writer.connector;
        let Some(baton) = &mut self.baton else { return Err(rejected("the baton is gone")) };
        baton.leave_a_gap();
        let conn = match baton.conn.take() {
            Some(conn) => baton.conn.insert(conn),
            None => baton.conn.insert(connector.writer()?),
        };
        loop {
            match connector.statements.control(conn, "BEGIN IMMEDIATE") {
                Ok(()) => break,
                Err(error) if is_busy(&error) => {
                    baton.last_company = Some(Instant::now());
                    if Instant::now() >= deadline {
                        return Err(connector.sort(error));
                    }
                    std::thread::sleep(BUSY_PAUSE);
                }
                Err(error) => {
                    let error = connector.sort(error);
                    self.close();
                    return Err(error);
                }
            }
        }
        let noticed = baton.notice_commits_of_others(&connector.statements).map_err(|error| connector.sort(error));
        if noticed.is_err() {
            self.close();
            return noticed;
        }
        self.baton().group = Some(Group { fate: Arc::default(), begun: Instant::now(), members: 0, rows: 0 });
        Ok(())
    }

    /// Keeps a run in the group, or undoes it. Returns its outcome, and the fate it shares when it has to wait for one.
    pub(super) fn settle(&mut self, run: Run) -> (StoreResult<()>, Option<Arc<Fate>>) {
        let behind_others = self.members() > 0;
        let (rows, step_failed) = (run.rows, run.step_failed);
        let kept = run.verdict().and_then(|()| if behind_others { self.control("RELEASE member") } else { Ok(()) });
        let error = match kept {
            Ok(()) => return (Ok(()), self.keep(rows)),
            Err(error) => error,
        };
        let group_goes_on = self.undo();
        match (behind_others, group_goes_on) {
            // It read nothing but what was committed.
            (false, _) => (Err(error), None),
            (true, Some(fate)) => (Err(error), Some(fate)),
            // Its own error took the group down, and no other member's data explains that one.
            (true, None) if step_failed && !matches!(error, StoreError::Rejected(_)) => (Err(error), None),
            (true, None) => (Err(lost()), None),
        }
    }

    fn keep(&mut self, rows: usize) -> Option<Arc<Fate>> {
        let group = self.baton().group.as_mut()?;
        group.members += 1;
        group.rows += rows;
        Some(Arc::clone(&group.fate))
    }

    fn members(&mut self) -> usize {
        self.baton().group.as_ref().map_or(0, |group| group.members)
    }

    /// Takes back what this member did. Returns the fate of the group if it still stands: an error may have ended the
    /// transaction of all, and going back to the savepoint is the probe.
    pub(super) fn undo(&mut self) -> Option<Arc<Fate>> {
        if self.members() == 0 {
            if self.control("ROLLBACK").is_err() {
                self.close();
            }
            self.baton().group = None;
            return None;
        }
        if self.control("ROLLBACK TO member").and_then(|()| self.control("RELEASE member")).is_err() {
            self.lose();
        }
        self.baton().group.as_ref().map(|group| Arc::clone(&group.fate))
    }

    /// The transaction is gone: tells the members, and closes the connection.
    fn lose(&mut self) {
        self.close();
        if let Some(group) = self.baton().group.take() {
            group.fate.settle(Ended::Lost);
        }
    }

    /// Closes the connection, and with it whatever transaction is open. Memory lives in its connection and stays.
    fn close(&mut self) {
        // Without a transaction this fails, which is as good.
        let _ = self.control("ROLLBACK");
        if matches!(self.writer.connector.options.location, Location::File(_)) {
            self.baton().conn = None;
            // The number means something on its own connection only.
            self.baton().data_version = None;
        }
    }

    fn control(&mut self, sql: &str) -> StoreResult<()> {
        let connector = &self.writer.connector;
        match self.baton.as_mut().and_then(|baton| baton.conn.as_mut()) {
            Some(conn) => connector.statements.control(conn, sql).map_err(|error| connector.sort(error)),
            None => Err(StoreError::Unavailable("the connection is closed".into())),
        }
    }

    /// Ends the turn: the group goes on with the next in line, or is committed now.
    pub(super) fn pass_on(mut self) {
        let Some(mut baton) = self.baton.take() else { return };
        if baton.group.as_ref().is_some_and(|group| !self.is_over(group)) {
            match self.writer.give(baton) {
                Ok(()) => return,
                Err(kept) => baton = kept,
            }
        }
        self.baton = Some(baton);
        self.commit();
        // The drop lays the baton down.
    }

    fn is_over(&self, group: &Group) -> bool {
        let limits = &self.writer.connector.options.group;
        group.members >= limits.members || group.rows >= limits.rows || group.begun.elapsed() >= limits.time
    }

    fn commit(&mut self) {
        let Some(group) = self.baton().group.take() else { return };
        let connector = &self.writer.connector;
        let deadline = Instant::now() + connector.options.call_deadline;
        let committed = match &mut self.baton().conn {
            Some(conn) => until(deadline, || connector.statements.control(conn, "COMMIT")).map_err(|error| connector.sort(error)),
            None => Err(lost()),
        };
        match committed {
            Ok(()) => {
                self.baton().last_commit = Some(Instant::now());
                group.fate.settle(Ended::Committed);
            }
            Err(error) => {
                self.close();
                group.fate.settle(Ended::CommitFailed(error));
            }
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.baton.as_ref().is_some_and(|baton| baton.group.is_some()) {
            // Only a defect here leaves a group open; its members must not wait for ever.
            self.lose();
        }
        if let Some(baton) = self.baton.take() {
            self.writer.lay_down(baton);
        }
    }
}

impl Baton {
    /// Waiting for a lock is not fair in SQLite: whoever writes again at once starves the others. So a process that is
    /// not alone leaves a gap between its groups.
    fn leave_a_gap(&self) {
        let (Some(commit), Some(company)) = (self.last_commit, self.last_company) else { return };
        if company.elapsed() < COMPANY {
            std::thread::sleep(GAP.saturating_sub(commit.elapsed()));
        }
    }

    /// Whoever never loses a race for the lock learns of others only from their commits.
    fn notice_commits_of_others(&mut self, statements: &Statements) -> QueryResult<()> {
        let Some(conn) = &mut self.conn else { return Ok(()) };
        let found = statements.data_version(conn)?;
        if self.data_version.replace(found).is_some_and(|known| known != found) {
            self.last_company = Some(Instant::now());
        }
        Ok(())
    }
}
