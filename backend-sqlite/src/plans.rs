//! The plans of all statements: each finds its rows by an index, whatever the tables hold.

use crate::{SqliteOptions, connection::Connector, connection::Statements, migrate};
use crate::{claim, graph, inspect, lease, read, time, tx, wait, write};
use diesel::sql_types::Text;
use diesel::sqlite::SqliteConnection;
use diesel::{QueryableByName, RunQueryDsl};
use std::fmt::Write;

macro_rules! statements {
    ($($module:ident::{$($name:ident),* $(,)?},)*) => {
        [$($((stringify!($name), $module::$name)),*),*]
    };
}

/// Statements whose work follows from the set they are given or from a limit.
const BOUNDED: &[(&str, &str)] = &statements![
    graph::{INSERT_WORKFLOWS, WORKFLOWS, LOCK_WORKFLOWS, OPS, OPS_BY_ID, OPS_BY_DEDUP_KEY, OPS_WITH_STATUS, CHILDREN, DESCENDANTS,
        UPSTREAM, UNDELAY, UNREADY, ACT, SET_POLICIES},
    write::{INSERT_LANES, INSERT_GATES, INSERT_OPS, INSERT_EDGES, CHANGE_OPS, INSERT_READY, INSERT_DELAYED, INSERT_ATTEMPTS,
        PUT_ARTIFACTS, PUT_RECORDS, INSERT_EVENTS, CHANGE_WORKFLOWS, INSERT_ACT},
    lease::{EXTEND_LEASES, DISPATCH_LEASES, TAKE_LIVE, TAKE_EXPIRED, CLEAR_DELAYED, CLEAR_READY, CLEAR_LEASES, EXPIRED_LEASES, LEASES_OF,
        ATTEMPTS_BY_LEASE},
    claim::{PROMOTE, FORGET_PROMOTED, OPEN_LANES, LOCK_GATES, SET_BUCKETS, TAKE_READY, INSERT_LEASES, CLAIMED},
    read::{LIST_WORKFLOWS, LIST_WORKFLOWS_BY_NAME, LIST_WORKFLOWS_BY_SUBJECT, WORKFLOWS_SINCE, LIST_OPS, OP_VIEWS, RESULTS, ATTEMPTS,
        ARTIFACTS, ARTIFACTS_OF_OP, ARTIFACT_CONTENT, RECORDS, EVENTS_SINCE, EVENTS_OF_WORKFLOW},
    time::{CLOCK, RAISE_MARK, SET_CLOCK, END_TERM, SPARE_LEASES, ELECT, LEADER, RESIGN, HOLD_EPOCH},
    wait::{DUE_WAITS, WAITS_FOR, TAKE_DUE_WAITS, TAKE_WAITS, WAITS_OF, WAKES_OF, INSERT_WAITS, PUT_WAKES},
    inspect::{FACTS_OF_WORKFLOW, FACTS_OF_OPS, HOT_KEYS, PLACES, LOOSE_EDGES, COUNT_OPS, UPSTREAM_THROUGH},
    tx::{LAST_UPDATE},
];

/// Statements of operators that read whole tables, and two that read all leases, which are as many as workers hold.
const COUNTING: &[(&str, &str)] = &statements![
    read::{RUNNING_COUNTS, POLICIES, QUEUE_STATUSES, WORKFLOW_TOTALS, LEASE_TOTALS},
    claim::{CLAIMED_BY},
    graph::{RESERVE_OPS},
    time::{PULL_BACK_READY, PULL_BACK_LEASES},
];

/// What a plan may scan: the set itself, and what the statement has made of it.
const SETS: &[&str] = &["j", "k", "c", "t", "b", "json_each", "jsonb_each", "node", "open", "CONSTANT"];

/// What begins docs/PLANS-sqlite.md, which `LEASEHOLD_UPDATE_PLANS=1` makes anew.
const PAGE: &str = "# How SQLite runs the statements

What `EXPLAIN QUERY PLAN` says of each whose work follows from its set or its limit. Written by the test
`every_bounded_statement_finds_its_rows_by_an_index` of backend-sqlite when `LEASEHOLD_UPDATE_PLANS` is set; the test itself sees on
every run that nothing but the set itself is scanned.
";

#[derive(QueryableByName)]
struct Step {
    #[diesel(sql_type = Text)]
    detail: String,
}

fn plan(conn: &mut SqliteConnection, sql: &str) -> Vec<String> {
    let steps = diesel::sql_query(format!("EXPLAIN QUERY PLAN {sql}")).load::<Step>(conn).unwrap();
    steps.into_iter().map(|step| step.detail).collect()
}

fn store() -> SqliteConnection {
    let connector = Connector { options: SqliteOptions::from(":memory:"), statements: Statements::default() };
    let mut conn = connector.writer().unwrap();
    migrate::migrate(&connector, &mut conn).unwrap();
    conn
}

#[test]
fn every_bounded_statement_finds_its_rows_by_an_index() {
    let mut conn = store();
    let mut page = String::from(PAGE);
    for (name, sql) in BOUNDED {
        let steps = plan(&mut conn, sql);
        write!(page, "\n## {name}\n\n```text\n{}\n```\n", steps.join("\n")).unwrap();
        for step in steps {
            let scanned = step.strip_prefix("SCAN ").and_then(|rest| rest.split(' ').next());
            assert!(
                scanned.is_none_or(|scanned| SETS.contains(&scanned) || scanned.starts_with("(subquery-")),
                "{name}: {step}\n{:#?}",
                plan(&mut conn, sql)
            );
            assert!(!step.contains("AUTOMATIC"), "{name} builds an index each time: {step}");
        }
    }
    if std::env::var_os("LEASEHOLD_UPDATE_PLANS").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/PLANS-sqlite.md"), page).unwrap();
    }
}

#[test]
fn every_statement_is_accounted_for() {
    let mut conn = store();
    for (name, sql) in COUNTING {
        assert!(!plan(&mut conn, sql).is_empty(), "{name}");
    }
    let here = [
        include_str!("graph.rs"),
        include_str!("write.rs"),
        include_str!("lease.rs"),
        include_str!("claim.rs"),
        include_str!("read.rs"),
        include_str!("time.rs"),
        include_str!("wait.rs"),
        include_str!("inspect.rs"),
    ];
    let defined: usize = here.iter().map(|file| file.matches(": &str =").count()).sum();
    // The one of `tx` besides.
    assert_eq!(BOUNDED.len() + COUNTING.len(), defined + 1, "a statement is in no list");
}

#[test]
fn a_claim_seeks_its_lanes_and_reads_no_more_than_its_limit() {
    let mut conn = store();
    let take = plan(&mut conn, claim::TAKE_READY).join("\n");
    assert!(take.contains("SEARCH ready USING COVERING INDEX ready_by_lane (lane=?)"), "{take}");
    let lanes = plan(&mut conn, claim::OPEN_LANES).join("\n");
    assert!(lanes.contains("SEARCH ready USING COVERING INDEX ready_by_lane (lane>?)"), "{lanes}");
    assert!(!lanes.contains("TEMP B-TREE"), "the walk stops at its limit: {lanes}");
}
