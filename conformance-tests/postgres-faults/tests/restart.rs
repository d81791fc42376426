//! Postgres goes away under load, at once and without a word, and comes back (B4, L12, L15).

mod common;

use common::{Load, audit_all, template};
use leasehold_test_faults::database::{SCHEMA, connect};
use leasehold_test_faults::url::ServerUrl;
use leasehold_test_faults::{long, seed};
use leasehold_test_postgres::Cluster;
use std::time::Duration;

#[test]
fn work_resumes_by_itself_after_every_restart_and_nothing_is_lost_or_doubled() {
    let seed = seed();
    let restarts = if long() { 5 } else { 2 };
    let cluster = Cluster::start().unwrap();
    let url = ServerUrl::parse(cluster.url()).unwrap();
    let store_url = url.clone().with("schema", SCHEMA).to_string();
    let mut load = Load::start(&store_url, template(&store_url, "restart"), 4, seed);
    let expected = load.run(Duration::from_secs(3 * (restarts + 1)), Duration::from_mins(1), |_, round| {
        // Every three seconds, but not at the end.
        if round % 30 == 29 && round / 30 < usize::try_from(restarts).unwrap() {
            cluster.crash_and_restart().unwrap();
        }
    });
    let reports = load.stop();
    let summary = audit_all(&mut connect(&url).unwrap(), &expected, &reports);
    eprintln!("{} workflows asked for; {restarts} restarts; {summary:?}", expected.len());
    assert!(expected.len() > 20, "there was load");
}
