//! The server ends sessions at random, and replies to COMMIT are lost, under load (B4, L12).

mod common;

use common::{Load, audit_all, template};
use leasehold_test_faults::database::{SCHEMA, TestDatabase, end_sessions};
use leasehold_test_faults::proxy::Proxy;
use leasehold_test_faults::{Dice, long, seed};
use std::time::Duration;

#[test]
fn sessions_that_the_server_ends_cost_nothing() {
    let seed = seed();
    let database = TestDatabase::new().unwrap();
    let mut load = Load::start(&database.store_url(), template(&database.store_url(), "cut"), 4, seed);
    let mut conn = database.connect().unwrap();
    let mut ended = 0_i64;
    let time = Duration::from_secs(if long() { 60 } else { 6 });
    let expected = load.run(time, Duration::from_mins(3), |_, _| {
        ended += end_sessions(&mut conn).unwrap();
    });
    let reports = load.stop();
    let summary = audit_all(&mut conn, &expected, &reports);
    eprintln!("{} workflows asked for; {ended} sessions ended; {summary:?}", expected.len());
    assert!(ended > 30 && expected.len() > 20);
}

#[test]
fn replies_to_commit_that_are_lost_under_load_cost_nothing() {
    let mut dice = Dice::new(seed());
    let database = TestDatabase::new().unwrap();
    let proxy = Proxy::start(&database.url().clone().with("schema", SCHEMA).to_string()).unwrap();
    let mut load = Load::start(&database.store_url(), template(proxy.url(), "lost"), 3, dice.next());
    let time = Duration::from_secs(if long() { 60 } else { 5 });
    let expected = load.run(time, Duration::from_mins(3), |_, _| {
        let verbs = ["INSERT INTO leases", "DELETE FROM leases", "UPDATE leases", ""];
        proxy.cut_next_commit(verbs[usize::try_from(dice.roll(4)).unwrap()]);
    });
    let reports = load.stop();
    let summary = audit_all(&mut database.connect().unwrap(), &expected, &reports);
    eprintln!("{} workflows asked for; {} replies lost; {summary:?}", expected.len(), proxy.cuts());
    assert!(proxy.cuts() > 10 && expected.len() > 20);
}
