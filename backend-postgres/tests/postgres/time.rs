//! Time is read behind the locks that a decision rests on (T6).

use crate::common::{SECOND, START, World, at};
use diesel::RunQueryDsl;
use diesel::connection::SimpleConnection;
use leasehold_core::model::Micros;
use leasehold_core::store::rows::{LeaseKey, Take};
use leasehold_core::store::{StoreError, StoreExt, StoreResult, Tx, TxKind, Wait};
use std::thread;

/// Runs `step` while another session holds the lease's row; the lease runs out during the wait.
fn with_a_wait<T: Send>(step: impl Fn(&mut dyn Tx, &[LeaseKey]) -> StoreResult<T> + Sync) -> T {
    let world = World::new();
    let workflow = world.workflow("w");
    world.ready(workflow, "q", 1);
    let keys: Vec<LeaseKey> = world.lease("q", 1).iter().map(|op| op.lease.key).collect();
    let mut holder = world.schema.connect().unwrap();
    holder.batch_execute("BEGIN; SELECT op FROM leases FOR UPDATE").unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| world.store.with(TxKind::Commit, |tx| step(tx, &keys)).unwrap());
        world.until_waiting(1);
        world.clock.advance_us(10 * SECOND).unwrap();
        holder.batch_execute("COMMIT").unwrap();
        waiting.join().unwrap()
    })
}

#[test]
fn a_heartbeat_that_waited_past_the_expiry_extends_nothing() {
    assert_eq!(with_a_wait(|tx, keys| tx.extend_leases(keys, Micros::from_secs(10))), []);
}

#[test]
fn a_completion_that_waited_past_the_expiry_takes_nothing() {
    let taken = with_a_wait(|tx, keys| tx.take_leases(keys, Take::Live));
    assert_eq!((taken.leases.len(), taken.now), (0, at(START + 10 * SECOND)));
}

#[test]
fn a_recovery_judges_by_the_time_after_its_wait() {
    let taken = with_a_wait(|tx, keys| tx.take_leases(keys, Take::Expired));
    assert_eq!((taken.leases.len(), taken.now), (1, at(START + 10 * SECOND)));
}

#[test]
fn the_time_behind_a_workflow_lock_is_that_after_the_wait() {
    let world = World::new();
    let workflow = world.workflow("w");
    let mut holder = world.schema.connect().unwrap();
    holder.batch_execute("BEGIN; SELECT seq FROM workflows FOR UPDATE").unwrap();
    let now = thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            world.store.with(TxKind::Client, |tx| {
                tx.lock_workflows(&[workflow], Wait::Block)?;
                tx.now()
            })
        });
        world.until_waiting(1);
        world.clock.advance_us(7 * SECOND).unwrap();
        holder.batch_execute("COMMIT").unwrap();
        waiting.join().unwrap().unwrap()
    });
    assert_eq!(now, at(START + 7 * SECOND));
}

#[test]
fn a_heartbeat_between_listing_and_recovery_wins() {
    let world = World::new();
    let workflow = world.workflow("w");
    world.ready(workflow, "q", 1);
    let keys: Vec<LeaseKey> = world.lease("q", 1).iter().map(|op| op.lease.key).collect();
    world.clock.advance_us(9 * SECOND).unwrap();
    // The heartbeat has written and not committed; the recovery waits for it, and then sees what it wrote.
    let mut heartbeat = world.schema.connect().unwrap();
    heartbeat.batch_execute("BEGIN; UPDATE leases SET expires_at_us = expires_at_us + 9000000").unwrap();
    let taken = thread::scope(|scope| {
        let recovery = scope.spawn(|| world.store.with(TxKind::Maintenance, |tx| tx.take_leases(&keys, Take::Expired)).unwrap());
        world.until_waiting(1);
        world.clock.advance_us(2 * SECOND).unwrap();
        heartbeat.batch_execute("COMMIT").unwrap();
        recovery.join().unwrap()
    });
    assert_eq!((taken.leases.len(), taken.now), (0, at(START + 11 * SECOND)));
}

#[test]
fn the_real_clock_is_the_databases_in_microseconds() {
    let schema = leasehold_test_postgres::TestSchema::new().unwrap();
    let store = leasehold_postgres::PostgresStore::connect(&schema.url()).unwrap();
    let mut conn = schema.connect().unwrap();
    let mut database = || {
        let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS number";
        diesel::sql_query(sql).get_result::<leasehold_sql::rows::Number>(&mut conn).unwrap().number.unwrap()
    };
    let before = database();
    let (first, second) = store.with(TxKind::Client, |tx| Ok::<_, StoreError>((tx.now()?, tx.now()?))).unwrap();
    assert!(before < first.as_micros() && first < second && second.as_micros() < database(), "now is the call's, not the transaction's");
}
