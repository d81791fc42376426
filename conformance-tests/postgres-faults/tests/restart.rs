//! Postgres goes away under load, at once and without a word, and comes back (B4, L12, L15).

mod common;

use common::{Load, audit_all, template};
use diesel::pg::PgConnection;
use leasehold_test_faults::database::{SCHEMA, connect, count};
use leasehold_test_faults::url::ServerUrl;
use leasehold_test_faults::{Result, long, seed};
use leasehold_test_postgres::Cluster;
use std::time::Duration;

#[test]
fn work_resumes_by_itself_after_every_restart_and_nothing_is_lost_or_doubled() {
    let seed = seed();
    let restarts: usize = if long() { 5 } else { 2 };
    let cluster = Cluster::start().unwrap();
    let url = ServerUrl::parse(cluster.url()).unwrap();
    let store_url = url.clone().with("schema", SCHEMA).to_string();
    let mut load = Load::start(&store_url, template(&store_url, "restart"), 4, seed);
    let mut instants = Vec::new();
    let expected = load.run(Duration::from_secs(3) * u32::try_from(restarts + 1).unwrap(), Duration::from_mins(3), |_, round| {
        // Every three seconds, but not at the end.
        if round % 30 == 29 && round / 30 < restarts {
            cluster.crash_and_restart().unwrap();
            instants.push(count(&mut connect(&url).unwrap(), "SELECT now_us() AS count").unwrap());
        }
    });
    let reports = load.stop();
    let mut conn = connect(&url).unwrap();
    let summary = audit_all(&mut conn, &expected, &reports);
    // Between each restart and the next, and behind the last.
    instants.push(i64::MAX);
    let ended: Vec<i64> = instants.windows(2).map(|pair| ended_between(&mut conn, pair).unwrap()).collect();
    eprintln!("{} workflows asked for; {restarts} restarts, with {ended:?} attempts behind each; {summary:?}", expected.len());
    assert!(ended.len() == restarts && ended.iter().all(|count| *count > 0), "work resumed each time");
    assert!(expected.len() > 20, "there was load");
}

fn ended_between(conn: &mut PgConnection, pair: &[i64]) -> Result<i64> {
    let [from, to] = pair else { unreachable!("windows of two") };
    let within = format!("acquired_at_us > {from} AND ended_at_us < {to}");
    count(conn, &format!("SELECT count(*) AS count FROM attempts WHERE outcome = 'succeeded' AND {within}"))
}
