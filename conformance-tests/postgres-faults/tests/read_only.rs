//! The primary turns read-only under load, as one that another has taken over from (25006; B4): workers wait and go on by
//! themselves, nothing is lost or doubled.

mod common;

use common::{Load, audit_all, template};
use diesel::connection::SimpleConnection;
use leasehold_test_faults::database::{SCHEMA, connect};
use leasehold_test_faults::url::ServerUrl;
use leasehold_test_faults::{long, seed};
use leasehold_test_postgres::Cluster;
use std::time::Duration;

/// One and three seconds in turn: shorter than a lease, and longer.
const SPANS: [usize; 2] = [10, 30];

/// Tenths of a second in between.
const PAUSE: usize = 20;

#[test]
fn workers_wait_for_a_primary_that_takes_no_writes_and_go_on() {
    let seed = seed();
    let times: usize = if long() { 12 } else { 2 };
    let cluster = Cluster::start().unwrap();
    let url = ServerUrl::parse(cluster.url()).unwrap();
    // What the session itself asks for comes before the server's setting: clients and this test can always write.
    let exempt = url.clone().with("options", "-c default_transaction_read_only=off");
    let mut admin = connect(&exempt).unwrap();
    let mut turn = |read_only: bool| {
        let setting = if read_only { "on" } else { "off" };
        admin.batch_execute(&format!("ALTER SYSTEM SET default_transaction_read_only = {setting}")).unwrap();
        admin.batch_execute("SELECT pg_reload_conf()").unwrap();
    };
    let store_url = exempt.clone().with("schema", SCHEMA).to_string();
    let workers = template(&url.with("schema", SCHEMA).to_string(), "read-only");
    let mut load = Load::start(&store_url, workers, 4, seed);
    // When to turn, and to what.
    let mut turns = Vec::new();
    let mut at = PAUSE;
    for span in SPANS.iter().cycle().take(times) {
        turns.extend([(at, true), (at + span, false)]);
        at += span + PAUSE;
    }
    let time = Duration::from_millis(100) * u32::try_from(at).unwrap();
    let expected = load.run(time, Duration::from_mins(3), |_, round| {
        for (_, read_only) in turns.iter().filter(|(at, _)| *at == round) {
            turn(*read_only);
        }
    });
    let reports = load.stop();
    let summary = audit_all(&mut connect(&exempt).unwrap(), &expected, &reports);
    eprintln!("{} workflows asked for; {times} times read-only; {summary:?}", expected.len());
    assert!(expected.len() > 20, "there was load");
    assert!(summary.abandoned > 0, "leases ran out while nothing could be written");
}
