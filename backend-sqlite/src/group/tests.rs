//! What members of a group are told, and what becomes durable.

use super::{Run, Writer, lock};
use crate::connection::{Connector, Statements};
use crate::store::{GroupLimits, Location, SqliteOptions};
use diesel::connection::SimpleConnection;
use diesel::result::QueryResult;
use diesel::sql_types::BigInt;
use diesel::sqlite::SqliteConnection;
use diesel::{Connection, QueryableByName, RunQueryDsl};
use leasehold_core::store::{StoreError, StoreResult};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// A writer on a file with one table, and a second connection that sees only what is committed.
struct Bench {
    writer: Writer,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Bench {
    /// Groups end by their members alone, so that a test decides when.
    fn new() -> Self {
        Self::with(|options| options.group = GroupLimits { members: 64, rows: usize::MAX, time: Duration::from_hours(1) })
    }

    fn with(change: impl Fn(&mut SqliteOptions)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let mut options = SqliteOptions::from(path.as_path());
        options.call_deadline = Duration::from_secs(20);
        change(&mut options);
        let connector = Connector { options, statements: Statements::default() };
        let mut conn = connector.connect_or_make().unwrap();
        connector.set_up_writer(&mut conn).unwrap();
        conn.batch_execute("CREATE TABLE t (n INTEGER PRIMARY KEY, payload BLOB)").unwrap();
        Self { writer: Writer::new(connector, conn), path, _folder: folder }
    }

    fn committed(&self) -> Vec<i64> {
        let mut conn = SqliteConnection::establish(self.path.to_str().unwrap()).unwrap();
        numbers(&mut conn).unwrap()
    }

    /// Waits until `waiting` calls stand in line.
    fn until_waiting(&self, waiting: usize) {
        let patience = Instant::now() + Duration::from_secs(20);
        loop {
            let line = lock(&self.writer.line);
            if line.urgent.len() + line.others.len() == waiting {
                return;
            }
            drop(line);
            assert!(Instant::now() < patience, "the calls did not get in line");
            thread::yield_now();
        }
    }
}

#[derive(QueryableByName)]
struct Number {
    #[diesel(sql_type = BigInt)]
    n: i64,
}

fn numbers(conn: &mut SqliteConnection) -> QueryResult<Vec<i64>> {
    Ok(diesel::sql_query("SELECT n FROM t ORDER BY n").load::<Number>(conn)?.into_iter().map(|row| row.n).collect())
}

fn ran(result: QueryResult<()>) -> Run {
    Run { step_failed: result.is_err(), outcome: result.map_err(crate::error::store_error), rows: 1 }
}

fn insert(n: i64) -> impl FnMut(&mut SqliteConnection) -> Run {
    move |conn| ran(conn.batch_execute(&format!("INSERT INTO t (n) VALUES ({n})")))
}

/// Holds the baton until it is released: others get in line behind it, and so into its group.
struct Holder<'s> {
    release: Sender<()>,
    ended: ScopedJoinHandle<'s, StoreResult<()>>,
}

impl<'s> Holder<'s> {
    fn start(scope: &'s Scope<'s, '_>, bench: &'s Bench, mut body: impl FnMut(&mut SqliteConnection) -> Run + Send + 's) -> Self {
        let (release, released): (Sender<()>, Receiver<()>) = mpsc::channel();
        let (begun, holds) = mpsc::channel();
        let ended = scope.spawn(move || {
            bench.writer.run(false, &mut |conn| {
                let run = body(conn);
                begun.send(()).unwrap();
                released.recv().unwrap();
                run
            })
        });
        holds.recv().unwrap();
        Self { release, ended }
    }
    fn release(self) -> StoreResult<()> {
        self.release.send(()).unwrap();
        self.ended.join().unwrap()
    }
}

type SendBody = Box<dyn FnMut(&mut SqliteConnection) -> Run + Send>;

/// The calls, one behind the other in one group; what each was told.
fn in_one_group(bench: &Bench, mut bodies: Vec<SendBody>) -> Vec<StoreResult<()>> {
    thread::scope(|scope| {
        let first = Holder::start(scope, bench, bodies.remove(0));
        let mut others = Vec::new();
        for (n, mut body) in bodies.into_iter().enumerate() {
            others.push(scope.spawn(move || bench.writer.run(false, &mut body)));
            bench.until_waiting(n + 1);
        }
        let mut told = vec![first.release()];
        told.extend(others.into_iter().map(|call| call.join().unwrap()));
        told
    })
}

#[test]
fn calls_that_wait_together_are_committed_together() {
    let bench = Bench::new();
    thread::scope(|scope| {
        let first = Holder::start(scope, &bench, insert(1));
        let (seen, sees) = mpsc::channel();
        let watching = &bench;
        let others: Vec<_> = (2..=9)
            .map(|n| {
                let seen = seen.clone();
                scope.spawn(move || {
                    watching.writer.run(false, &mut |conn| {
                        seen.send((numbers(conn).unwrap().len(), watching.committed().len())).unwrap();
                        insert(n)(conn)
                    })
                })
            })
            .collect();
        bench.until_waiting(8);
        first.release().unwrap();
        for call in others {
            call.join().unwrap().unwrap();
        }
        drop(seen);
        let seen: Vec<(usize, usize)> = sees.iter().collect();
        assert_eq!(seen, (1..=8).map(|behind| (behind, 0)).collect::<Vec<_>>(), "each saw the earlier, and nothing was committed yet");
    });
    assert_eq!(bench.committed().len(), 9);
}

#[test]
fn a_call_alone_is_committed_at_once() {
    let bench = Bench::new();
    bench.writer.run(false, &mut insert(1)).unwrap();
    assert_eq!(bench.committed(), [1]);
}

#[test]
fn a_group_ends_at_its_limits() {
    for (members, rows) in [(2, usize::MAX), (64, 2)] {
        let bench = Bench::with(|options| options.group = GroupLimits { members, rows, time: Duration::from_hours(1) });
        let path = bench.path.clone();
        let watch = move |conn: &mut SqliteConnection| {
            let mut other = SqliteConnection::establish(path.to_str().unwrap()).unwrap();
            assert_eq!(numbers(&mut other).unwrap(), [1, 2], "the third found the first two committed");
            insert(3)(conn)
        };
        let told = in_one_group(&bench, vec![Box::new(insert(1)), Box::new(insert(2)), Box::new(watch)]);
        assert!(told.iter().all(Result::is_ok));
    }
}

#[test]
fn heartbeats_go_before_everything_else() {
    let bench = Bench::new();
    let order = thread::scope(|scope| {
        let first = Holder::start(scope, &bench, insert(1));
        let (seen, sees) = mpsc::channel();
        let writer = &bench.writer;
        for (n, urgent) in [false, false, true, true].into_iter().enumerate() {
            let seen = seen.clone();
            scope.spawn(move || {
                writer.run(urgent, &mut |conn| {
                    seen.send(n).unwrap();
                    insert(10 + i64::try_from(n).unwrap())(conn)
                })
            });
            bench.until_waiting(n + 1);
        }
        first.release().unwrap();
        drop(seen);
        sees.iter().collect::<Vec<_>>()
    });
    assert_eq!(order, [2, 3, 0, 1]);
}

#[test]
fn a_member_that_fails_is_undone_alone() {
    let bench = Bench::new();
    let fail = |conn: &mut SqliteConnection| {
        insert(2)(conn);
        Run { outcome: Err(StoreError::RolledBack), step_failed: false, rows: 1 }
    };
    let taken = |conn: &mut SqliteConnection| {
        insert(3)(conn);
        insert(1)(conn)
    };
    let told = in_one_group(&bench, vec![Box::new(insert(1)), Box::new(fail), Box::new(taken), Box::new(insert(4))]);
    assert!(matches!(told[..], [Ok(()), Err(StoreError::RolledBack), Err(StoreError::Rejected(_)), Ok(())]), "{told:?}");
    assert_eq!(bench.committed(), [1, 4]);
}

#[test]
fn a_first_member_that_fails_leaves_the_line_a_new_group() {
    let bench = Bench::new();
    let told = in_one_group(
        &bench,
        vec![
            Box::new(|conn| {
                insert(1)(conn);
                Run { outcome: Err(StoreError::RolledBack), step_failed: false, rows: 1 }
            }),
            Box::new(insert(1)),
        ],
    );
    assert!(matches!(told[..], [Err(StoreError::RolledBack), Ok(())]), "{told:?}");
    assert_eq!(bench.committed(), [1]);
}

#[test]
fn a_swallowed_error_of_a_step_commits_nothing() {
    let bench = Bench::new();
    let told = bench.writer.run(false, &mut |conn| {
        insert(1)(conn);
        Run { outcome: Ok(()), step_failed: true, rows: 1 }
    });
    assert!(matches!(told, Err(StoreError::Rejected(_))));
    assert_eq!(bench.committed(), [] as [i64; 0]);
}

#[test]
fn a_panic_is_its_callers_alone() {
    let bench = Bench::new();
    let told = thread::scope(|scope| {
        let first = Holder::start(scope, &bench, insert(1));
        let writer = &bench.writer;
        let panics = scope.spawn(move || {
            catch_unwind(AssertUnwindSafe(|| {
                writer.run(false, &mut |conn| {
                    insert(2)(conn);
                    panic!("on purpose");
                })
            }))
        });
        bench.until_waiting(1);
        let last = scope.spawn(|| writer.run(false, &mut insert(3)));
        bench.until_waiting(2);
        let told = [first.release(), last.join().unwrap()];
        assert!(panics.join().unwrap().is_err());
        told
    });
    assert!(told.iter().all(Result::is_ok), "{told:?}");
    assert_eq!(bench.committed(), [1, 3]);
    let alone = catch_unwind(AssertUnwindSafe(|| {
        bench.writer.run(false, &mut |conn| {
            insert(4)(conn);
            panic!("on purpose");
        })
    }));
    assert!(alone.is_err());
    bench.writer.run(false, &mut insert(5)).unwrap();
    assert_eq!(bench.committed(), [1, 3, 5]);
}

/// A file of at most this many pages takes the table and little more.
const FEW_PAGES: u32 = 40;

fn fill(conn: &mut SqliteConnection) -> Run {
    ran(conn.batch_execute("INSERT INTO t (n, payload) VALUES (100, zeroblob(1000000))"))
}

#[test]
fn a_disk_that_fills_in_the_second_member_leaves_nothing_half_done() {
    let bench = Bench::with(|options| {
        options.max_pages = Some(FEW_PAGES);
        options.group = GroupLimits { members: 64, rows: usize::MAX, time: Duration::from_hours(1) };
    });
    let told = in_one_group(&bench, vec![Box::new(insert(1)), Box::new(fill), Box::new(insert(3))]);
    assert!(matches!(told[1], Err(StoreError::Full(_))), "{told:?}");
    // SQLite either undid the one statement, and the others are committed, or rolled back everything: then the first
    // member is told to run again, and the third ran in a new group.
    assert!(told[2].is_ok(), "{told:?}");
    match &told[0] {
        Ok(()) => assert_eq!(bench.committed(), [1, 3]),
        Err(StoreError::Conflict(_)) => assert_eq!(bench.committed(), [3]),
        other => panic!("{other:?}"),
    }
    bench.writer.run(false, &mut insert(9)).unwrap();
    assert!(bench.committed().contains(&9));
}

#[test]
fn an_error_that_ends_the_transaction_loses_the_group_and_everyone_learns_it() {
    let bench = Bench::new();
    // ROLLBACK in a body is what SQLite does by itself after some errors.
    let ends_all = |conn: &mut SqliteConnection| {
        conn.batch_execute("ROLLBACK").unwrap();
        Run { outcome: Err(StoreError::Full("no space".into())), step_failed: true, rows: 0 }
    };
    let told = in_one_group(&bench, vec![Box::new(insert(1)), Box::new(insert(2)), Box::new(ends_all), Box::new(insert(4))]);
    assert!(matches!(told[..], [Err(StoreError::Conflict(_)), Err(StoreError::Conflict(_)), Err(StoreError::Full(_)), Ok(())]), "{told:?}");
    assert_eq!(bench.committed(), [4]);
}

#[test]
fn a_verdict_that_rests_on_a_lost_group_is_not_given() {
    let bench = Bench::new();
    // The second sees the first's row and refuses because of it; then the third takes the group down.
    let refuse = |conn: &mut SqliteConnection| insert(1)(conn);
    let ends_all = |conn: &mut SqliteConnection| {
        conn.batch_execute("ROLLBACK").unwrap();
        Run { outcome: Err(StoreError::Full("no space".into())), step_failed: true, rows: 0 }
    };
    let told = in_one_group(&bench, vec![Box::new(insert(1)), Box::new(refuse), Box::new(ends_all)]);
    assert!(
        matches!(told[..], [Err(StoreError::Conflict(_)), Err(StoreError::Conflict(_)), Err(StoreError::Full(_))]),
        "the row that it refused for was never there: {told:?}"
    );
    assert_eq!(bench.committed(), [] as [i64; 0]);
}

#[test]
fn nobody_is_told_ok_when_the_commit_fails() {
    let bench = Bench::new();
    {
        let mut line = lock(&bench.writer.line);
        let mut conn = SqliteConnection::establish(bench.path.to_str().unwrap()).unwrap();
        conn.batch_execute("PRAGMA foreign_keys = ON; CREATE TABLE child (n INTEGER REFERENCES t (n) DEFERRABLE INITIALLY DEFERRED)")
            .unwrap();
        line.baton = Some(Box::new(super::Baton::new(conn)));
    }
    // A deferred constraint is judged by COMMIT itself.
    let orphan = |conn: &mut SqliteConnection| ran(conn.batch_execute("INSERT INTO child (n) VALUES (77)"));
    let told = in_one_group(&bench, vec![Box::new(insert(1)), Box::new(insert(1)), Box::new(orphan)]);
    assert!(matches!(told[..], [Err(StoreError::Rejected(_)), Err(StoreError::Conflict(_)), Err(StoreError::Rejected(_))]), "{told:?}");
    assert_eq!(bench.committed(), [] as [i64; 0]);
    bench.writer.run(false, &mut insert(5)).unwrap();
    assert_eq!(bench.committed(), [5]);
}

#[test]
fn a_call_that_does_not_get_its_turn_in_time_is_told_busy_and_nothing_else_changes() {
    let bench = Bench::with(|options| options.call_deadline = Duration::from_millis(20));
    thread::scope(|scope| {
        let first = Holder::start(scope, &bench, insert(1));
        let late = bench.writer.run(false, &mut insert(2));
        assert!(matches!(late, Err(StoreError::Busy(_))), "{late:?}");
        first.release().unwrap();
    });
    bench.writer.run(false, &mut insert(3)).unwrap();
    assert_eq!(bench.committed(), [1, 3]);
}

#[test]
fn a_file_that_something_else_keeps_locked_is_busy_at_the_deadline_and_works_afterwards() {
    let bench = Bench::with(|options| options.call_deadline = Duration::from_millis(50));
    let mut other = SqliteConnection::establish(bench.path.to_str().unwrap()).unwrap();
    other.batch_execute("BEGIN IMMEDIATE").unwrap();
    let late = bench.writer.run(false, &mut insert(1));
    let Err(StoreError::Busy(reason)) = late else { panic!("{late:?}") };
    assert!(!reason.to_string().contains("database is locked"), "{reason}");
    other.batch_execute("COMMIT").unwrap();
    bench.writer.run(false, &mut insert(2)).unwrap();
    assert_eq!(bench.committed(), [2]);
}

#[test]
fn two_stores_on_one_file_both_get_on() {
    const EACH: i64 = 100;
    let bench = Bench::with(|options| options.synchronous = crate::store::Synchronous::Normal);
    let Location::File(path) = bench.writer.connector.options.location.clone() else { panic!("a file") };
    let connector = Connector { options: path.as_path().into(), statements: Statements::default() };
    let other = Writer::new(connector.clone(), connector.writer().unwrap());
    thread::scope(|scope| {
        for (writer, from) in [(&bench.writer, 0), (&other, 1_000)] {
            for caller in 0..2 {
                scope.spawn(move || {
                    for n in 0..EACH {
                        writer.run(false, &mut insert(from + caller * EACH + n)).unwrap();
                    }
                });
            }
        }
    });
    assert_eq!(bench.committed().len(), 400);
}
