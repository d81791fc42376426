//! Eight workers, each a process, under everything at once: limits of 1, 4 and none, retries, cancels, repairs, added ops,
//! heartbeats, workers that are killed or stand still, and their recovery (B3, Q1, L1, S12).

mod common;

use common::{Load, audit_all, template};
use diesel::connection::SimpleConnection;
use leasehold_test_faults::database::{TestDatabase, count};
use leasehold_test_faults::load::{LIMITS, Sampler};
use leasehold_test_faults::{long, seed};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

/// What the load must have done, or it has tested less than it says.
const DEEDS: [(&str, &str); 7] = [
    ("attempts to be tried again", "SELECT count(*) AS count FROM attempts WHERE outcome = 'retried'"),
    ("attempts lost with their workers and recovered", "SELECT count(*) AS count FROM attempts WHERE outcome = 'abandoned'"),
    (
        "attempts that heartbeats kept alive",
        "SELECT count(*) AS count FROM attempts WHERE outcome = 'succeeded' AND ended_at_us - acquired_at_us > 2000000",
    ),
    ("ops that a cancel ended", "SELECT count(*) AS count FROM ops WHERE status = 'canceled'"),
    (
        "failures that were repaired",
        "SELECT count(*) AS count FROM attempts AS a JOIN ops AS o ON o.seq = a.op WHERE a.outcome = 'failed' AND o.status = 'succeeded'",
    ),
    ("ops added while their workflow ran", "SELECT count(*) AS count FROM ops WHERE id LIKE 'added-%'"),
    ("ops that handlers emitted", "SELECT count(*) AS count FROM ops WHERE parent IS NOT NULL"),
];

#[test]
fn eight_processes_keep_every_promise() {
    let seed = seed();
    let time = Duration::from_secs(if long() { 120 } else { 12 });
    let database = TestDatabase::new().unwrap();
    let mut load = Load::start(&database.store_url(), template(&database.store_url(), "stress"), 8, seed);
    let sampler = Sampler::start(database.url()).unwrap();
    let expected = load.run(time, Duration::from_mins(3), |fleet, round| {
        // Every two seconds one worker crashes. In between another stands still for longer than a lease, and comes back
        // with results in hand.
        let still = round / 40 * 2 + 4;
        match round % 40 {
            5 => fleet.halt(still).unwrap(),
            35 => fleet.go_on(still).unwrap(),
            19 | 39 => fleet.replace(round / 20).unwrap(),
            _ => {}
        }
    });
    let reports = load.stop();
    let samples = sampler.stop().unwrap();
    let mut conn = database.connect().unwrap();
    let summary = audit_all(&mut conn, &expected, &reports);
    for (what, sql) in DEEDS {
        let count = count(&mut conn, sql).unwrap();
        eprintln!("{what}: {count}");
        assert!(count > 0, "the load holds no {what}");
    }
    drop(conn);
    eprintln!("{} workflows asked for; {summary:?}; {} samples, most {:?}", expected.len(), samples.taken, samples.most);
    assert!(samples.failed == 0 && samples.taken > 100, "{samples:?}");
    for (queue, limit) in LIMITS {
        let most = samples.most.iter().filter(|((_, at), _)| at == queue).map(|(_, most)| *most).max();
        assert_eq!(most.and_then(|most| usize::try_from(most).ok()), Some(limit), "the limit of {queue} was reached, so it was tested");
    }
    assert_eq!(database.deadlocks().unwrap(), 0, "deadlocks");
}

#[test]
fn a_deadlock_would_be_counted() {
    let database = TestDatabase::new().unwrap();
    let gate = Barrier::new(2);
    let lock = |first: i64, second: i64| {
        let mut conn = database.connect().unwrap();
        conn.batch_execute(&format!("SET deadlock_timeout TO '50ms'; BEGIN; SELECT pg_advisory_xact_lock({first})")).unwrap();
        gate.wait();
        // One of the two is told to give way.
        conn.batch_execute(&format!("SELECT pg_advisory_xact_lock({second})")).is_err()
    };
    let broken = thread::scope(|scope| [scope.spawn(|| lock(1, 2)), scope.spawn(|| lock(2, 1))].map(|side| side.join().unwrap()));
    assert_eq!(broken.iter().filter(|broken| **broken).count(), 1);
    assert_eq!(database.deadlocks().unwrap(), 1);
}
