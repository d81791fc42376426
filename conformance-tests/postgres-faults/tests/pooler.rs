//! A pooler in transaction mode stands between (B4): nothing of the store is session state.

mod common;

use common::{Load, audit_all, template};
use leasehold_test_faults::database::{SCHEMA, TestDatabase};
use leasehold_test_faults::pgbouncer::PgBouncer;
use leasehold_test_faults::url::ServerUrl;
use leasehold_test_faults::{long, seed};
use std::time::Duration;

/// Fewer connections than one worker holds, so that every transaction gets another one.
const CONNECTIONS: u32 = 3;

#[test]
fn workflows_run_to_their_end_through_a_pooler_in_transaction_mode() {
    let database = TestDatabase::new().unwrap();
    let pooler = PgBouncer::start(&database.url().to_string(), CONNECTIONS).unwrap();
    let url = ServerUrl::parse(pooler.url()).unwrap().with("schema", SCHEMA).with("prepared_statements", "off").to_string();
    // Migrations, clients and workers all go through it.
    let mut load = Load::start(&url, template(&url, "pooled"), 3, seed());
    let time = Duration::from_secs(if long() { 60 } else { 5 });
    let expected = load.run(time, Duration::from_mins(1), |_, _| {});
    let reports = load.stop();
    let summary = audit_all(&mut database.connect().unwrap(), &expected, &reports);
    eprintln!("{} workflows asked for; {summary:?}", expected.len());
    assert!(expected.len() > 10);
    assert_eq!(summary.abandoned, 0, "no worker was lost");
}
