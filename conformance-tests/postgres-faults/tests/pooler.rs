//! A pooler in transaction mode stands between (B4): nothing of the store is session state.

mod common;

use common::{Load, audit_all, template};
use leasehold_test_faults::database::{SCHEMA, TestDatabase, end_sessions};
use leasehold_test_faults::pgbouncer::PgBouncer;
use leasehold_test_faults::url::ServerUrl;
use leasehold_test_faults::{Result, long, seed};
use std::time::Duration;

/// Fewer connections than one worker holds, so that every transaction gets another one.
const CONNECTIONS: u32 = 3;

/// The URL of a store behind `pooler`.
fn behind(pooler: &PgBouncer) -> Result<String> {
    Ok(ServerUrl::parse(pooler.url())?.with("schema", SCHEMA).with("prepared_statements", "off").to_string())
}

#[test]
fn workflows_run_to_their_end_through_a_pooler_in_transaction_mode() {
    let database = TestDatabase::new().unwrap();
    let pooler = PgBouncer::start(&database.url().to_string(), CONNECTIONS).unwrap();
    let url = behind(&pooler).unwrap();
    // Migrations, clients and workers all go through it.
    let mut load = Load::start(&url, template(&url, "pooled"), 3, seed());
    let time = Duration::from_secs(if long() { 60 } else { 5 });
    let expected = load.run(time, Duration::from_mins(3), |_, _| {});
    let reports = load.stop();
    let summary = audit_all(&mut database.connect().unwrap(), &expected, &reports);
    eprintln!("{} workflows asked for; {summary:?}", expected.len());
    assert!(expected.len() > 10);
    assert_eq!(summary.abandoned, 0, "no worker was lost");
}

#[test]
fn sessions_that_end_behind_a_pooler_and_a_pooler_that_crashes_cost_nothing() {
    let database = TestDatabase::new().unwrap();
    let mut pooler = PgBouncer::start(&database.url().to_string(), CONNECTIONS).unwrap();
    let url = behind(&pooler).unwrap();
    let mut load = Load::start(&url, template(&url, "cut"), 3, seed());
    let mut conn = database.connect().unwrap();
    let (mut ended, mut crashed) = (0, 0);
    let time = Duration::from_secs(if long() { 60 } else { 8 });
    let expected = load.run(time, Duration::from_mins(3), |_, round| {
        // Every fifth of a second, and every three seconds the pooler as well.
        if round % 2 == 1 {
            ended += end_sessions(&mut conn).unwrap();
        }
        if round % 30 == 29 {
            pooler.crash_and_restart().unwrap();
            crashed += 1;
        }
    });
    let reports = load.stop();
    let summary = audit_all(&mut conn, &expected, &reports);
    eprintln!("{} workflows asked for; {ended} sessions ended, {crashed} crashes of the pooler; {summary:?}", expected.len());
    assert!(ended > 20 && crashed > 1 && expected.len() > 10);
}
