//! How far events and updates are final (O3, O4).
//!
//! An event's number and a workflow's `updated_at` are taken before their transaction commits, so "greater than the
//! last seen" would lose what commits late. A reader therefore goes no further than a *mark* that is final:
//!
//! 1. Read the last number given out, and the latest committed `updated_at`.
//! 2. In a later statement, list the transactions that may write events or workflows: whoever does holds a lock on the
//!    table, taken before it takes a number or computes an `updated_at`, and kept until its commit is visible.
//! 3. Once each of these has ended, every event up to that number is committed or will never exist; and whoever
//!    computes an `updated_at` from then on computes a later one, whatever any clock says.
//!
//! This asks about writers of this very store only: a long transaction elsewhere on the server delays nobody, and a
//! reader needs no transaction id of its own. A snapshot's `xmax` would not do for step 2: it is one past the last
//! transaction that *ended*, and open ones may lie beyond it.

use crate::connection::lock;
use diesel::pg::PgConnection;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use leasehold_sql::statement;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

/// How often a reader looks again for writers to end before it is content with an older mark, and how long it waits
/// before the first look; each wait is twice the last. Together about 60 ms: longer than an ordinary commit takes.
const LOOKS: u32 = 6;
const FIRST_WAIT: Duration = Duration::from_millis(1);

/// Events numbered up to `event` and workflows updated up to `updated_at_us` are final, all others may not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) event: i64,
    pub(crate) updated_at_us: i64,
}

/// What one store's readers know.
#[derive(Debug)]
pub(crate) struct Finality(Mutex<State>);

#[derive(Debug)]
struct State {
    last_final: Mark,
    /// A mark that is final once these transactions have ended.
    pending: Option<(Mark, Writers)>,
}

/// Open transactions, by the server's names for them.
type Writers = BTreeSet<String>;

impl Default for Finality {
    fn default() -> Self {
        Self(Mutex::new(State { last_final: Mark { event: 0, updated_at_us: i64::MIN }, pending: None }))
    }
}

pub(crate) const CANDIDATE: &str = "
    SELECT (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM events_seq) AS event,
           coalesce((SELECT updated_at_us FROM workflows ORDER BY updated_at_us DESC, seq DESC LIMIT 1),
                    -9223372036854775808) AS updated_at_us";

#[derive(QueryableByName)]
struct Candidate {
    #[diesel(sql_type = BigInt)]
    event: i64,
    #[diesel(sql_type = BigInt)]
    updated_at_us: i64,
}

#[derive(QueryableByName)]
struct Writer {
    #[diesel(sql_type = Text)]
    writer: String,
}

impl Finality {
    /// The furthest final mark. `conn` is in a transaction that reads the present at every statement.
    pub(crate) fn advance(&self, conn: &mut PgConnection) -> QueryResult<Mark> {
        let Candidate { event, updated_at_us } = statement(CANDIDATE).get_result(conn)?;
        let candidate = Mark { event, updated_at_us };
        let mut awaited = writers(conn)?;
        let mut wait = FIRST_WAIT;
        for _ in 0..LOOKS {
            if awaited.is_empty() {
                break;
            }
            std::thread::sleep(wait);
            wait *= 2;
            let still_open = writers(conn)?;
            awaited.retain(|writer| still_open.contains(writer));
            lock(&self.0).note(&still_open);
        }
        let mut state = lock(&self.0);
        state.settle(candidate, awaited);
        Ok(state.last_final)
    }
}

impl State {
    /// Notes who is still open.
    fn note(&mut self, open: &Writers) {
        let Some((mark, mut awaited)) = self.pending.take() else { return };
        awaited.retain(|writer| open.contains(writer));
        if awaited.is_empty() {
            self.finish(mark);
        } else {
            self.pending = Some((mark, awaited));
        }
    }

    fn settle(&mut self, candidate: Mark, awaited: Writers) {
        if awaited.is_empty() {
            self.finish(candidate);
            // What was pending is older, so it is final too, or will be judged by a later candidate.
            self.pending = None;
        } else if self.pending.is_none() {
            self.pending = Some((candidate, awaited));
        }
    }

    fn finish(&mut self, mark: Mark) {
        self.last_final.event = self.last_final.event.max(mark.event);
        self.last_final.updated_at_us = self.last_final.updated_at_us.max(mark.updated_at_us);
    }
}

/// The open transactions, other than this one, that may write events or workflows of this store. A lock on a table is
/// released after the commit is visible, so who is not listed any more can be seen.
fn writers(conn: &mut PgConnection) -> QueryResult<Writers> {
    const WRITERS: &str = "
        SELECT DISTINCT virtualtransaction AS writer
          FROM pg_locks
         WHERE locktype = 'relation'
           AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
           AND relation IN ('events'::regclass, 'workflows'::regclass)
           AND mode IN ('RowShareLock', 'RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
           AND granted
           AND pid IS DISTINCT FROM pg_backend_pid()";
    let rows: Vec<Writer> = statement(WRITERS).load(conn)?;
    Ok(rows.into_iter().map(|row| row.writer).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(event: i64) -> Mark {
        Mark { event, updated_at_us: event }
    }
    fn open(names: &[&str]) -> Writers {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_mark_is_final_when_each_writer_of_its_time_has_ended_whoever_came_later() {
        let finality = Finality::default();
        let mut state = lock(&finality.0);
        state.settle(mark(5), open(&["1/7", "2/3"]));
        state.note(&open(&["1/7", "4/9"]));
        state.settle(mark(8), open(&["1/7", "4/9"]));
        assert_eq!(state.last_final.event, 0, "1/7 may still commit event 5 or an earlier one");
        state.note(&open(&["4/9"]));
        assert_eq!(state.last_final, mark(5), "4/9 came after event 5 was numbered");
        state.settle(mark(9), open(&[]));
        assert_eq!(state.last_final, mark(9));
        state.settle(mark(8), open(&[]));
        assert_eq!(state.last_final, mark(9), "what is final stays final");
    }
}
