//! The plans of the hot statements at 200,000 waiting and running ops: each must find its rows by an index, also when the
//! server plans it once for all parameters. A prepared statement gets such a plan from its sixth run on.

use crate::{claim, finality, graph, inspect, lease, read, time, wait, write};
use diesel::RunQueryDsl;
use diesel::connection::SimpleConnection;
use diesel::pg::PgConnection;
use diesel::sql_types::Text;
use leasehold_test_postgres::TestSchema;
use std::fmt::Write;

const SEED: &str = "
    ALTER TABLE ops DROP CONSTRAINT ops_workflow_fkey;
    INSERT INTO workflows (seq, id, request, name, input, metadata, site, status, created_at_us, updated_at_us)
    SELECT n, 'w' || n, n, 'flow', 'null', 'null', 'default', 'running', n, n FROM generate_series(1, 20000) AS n;
    INSERT INTO gates (key, site, queue) SELECT n, 'default', 'q' || n FROM generate_series(1, 200) AS n;
    INSERT INTO policies (queue, site, max_in_flight) SELECT 'q' || n, '', 100 FROM generate_series(1, 200) AS n;
    INSERT INTO lanes (key, gate, site, queue, kind) SELECT n, n, 'default', 'q' || n, 'k' FROM generate_series(1, 200) AS n;
    INSERT INTO ops (seq, workflow, id, lane, priority, input, metadata, retry, spec, status, unmet, broken, created_at_us, dedup_key)
    SELECT n, 1 + n % 20000, 'op' || n, 1 + n % 200, 0, 'null', 'null', '{}', 's', CASE WHEN n % 4 = 0 THEN 'pending' ELSE 'open' END,
           0, 0, n, 'd' || n
      FROM generate_series(1, 200000) AS n;
    INSERT INTO op_dependencies (child, parent, required) SELECT n, n - 1, 1 FROM generate_series(2, 50000) AS n;
    INSERT INTO ready (op, lane, priority, due_at_us, fence, failures)
    SELECT n, 1 + n % 200, 0, n, 0, 0 FROM generate_series(1, 200000) AS n;
    INSERT INTO delayed (op, lane, priority, due_at_us, fence, failures)
    SELECT n, 1 + n % 200, 0, n, 0, 0 FROM generate_series(1, 200000) AS n;
    INSERT INTO leases (op, workflow, gate, token, fence, worker, acquired_at_us, expires_at_us)
    SELECT n, 1 + n % 20000, 1 + n % 200, 't' || n, 1, 'w', n, n FROM generate_series(1, 200000) AS n;
    INSERT INTO attempts (op, fence, workflow, token, worker, acquired_at_us, ended_at_us, outcome)
    SELECT n, 1, 1 + n % 20000, 't' || n, 'w', n, n, 'succeeded' FROM generate_series(1, 50000) AS n;
    INSERT INTO events (at_us, kind, workflow) SELECT n, 'workflow_updated', 1 + n % 20000 FROM generate_series(1, 50000) AS n;
    INSERT INTO waits (op, workflow, fence, reason, since_us, due_at_us)
    SELECT n, 1 + n % 20000, 1, 'timer', n, n FROM generate_series(1, 200000) AS n;
    INSERT INTO wakes (op, workflow, fence, reason, since_us, due_at_us, woken_at_us)
    SELECT n, 1 + n % 20000, 1, 'timer', n, n, n FROM generate_series(1, 200000) AS n;
    ANALYZE workflows, gates, policies, lanes, ops, op_dependencies, ready, delayed, leases, waits, wakes, attempts, events";

const ARRAY: &str = "'{17,4711,99999}'";
const TEXTS: &str = "'{a,b,c}'";

/// A statement, the types of its parameters, and values for them.
fn hot_statements() -> Vec<(&'static str, &'static str, &'static str, Vec<&'static str>)> {
    let ids = "bigint[]";
    let keys = "bigint[],text[],bigint[]";
    let key_values = || vec![ARRAY, TEXTS, ARRAY];
    let with = |mut values: Vec<&'static str>, more: &[&'static str]| {
        values.extend(more);
        values
    };
    vec![
        ("promote", claim::PROMOTE, "bigint", vec!["100"]),
        ("claim_ready", claim::CLAIM, "bigint[],bigint[],text,text,bigint", vec!["'{1,2,3}'", "'{5,5,5}'", "'t'", "'w'", "1"]),
        ("claim_ready, shares", claim::SHARE_GATES, "bigint[],bigint[],bigint[]", vec!["'{1,2,3}'", "'{1,1,1}'", "'{5,5,5}'"]),
        ("open_lanes", claim::OPEN_LANES, "bigint,text[],text[],bigint", vec!["0", "NULL", "'{}'", "64"]),
        ("lock_gates", claim::COUNT_GATES, ids, vec!["'{1,2,3}'"]),
        ("extend_leases", lease::EXTEND_LEASES, "bigint[],text[],bigint[],bigint", with(key_values(), &["1"])),
        ("dispatch_leases", lease::DISPATCH_LEASES, keys, key_values()),
        ("take_leases, live", lease::TAKE_LIVE_LEASES, keys, key_values()),
        ("take_leases, expired", lease::TAKE_EXPIRED_LEASES, keys, key_values()),
        ("expired_leases", lease::EXPIRED_LEASES, "bigint", vec!["100"]),
        ("leases_of", lease::LEASES_OF, ids, vec![ARRAY]),
        ("attempts_by_lease", lease::ATTEMPTS_BY_LEASE, keys, key_values()),
        ("due_waits", wait::DUE_WAITS, "bigint", vec!["100"]),
        ("waits_for", wait::WAITS_FOR, "text,bigint,bigint", vec!["'verdict'", "0", "100"]),
        ("take_waits, due", wait::TAKE_DUE_WAITS, "bigint[],bigint[]", vec![ARRAY, ARRAY]),
        ("take_waits, there", wait::TAKE_WAITS, "bigint[],bigint[]", vec![ARRAY, ARRAY]),
        ("waits_of", wait::WAITS_OF, ids, vec![ARRAY]),
        ("wakes_of", wait::WAKES_OF, ids, vec![ARRAY]),
        ("clear_hot, delayed", lease::CLEAR_DELAYED, ids, vec!["'{7}'"]),
        ("clear_hot, ready", lease::CLEAR_READY, ids, vec!["'{7}'"]),
        ("workflows", graph::WORKFLOWS, "text[]", vec!["'{w1,w2}'"]),
        ("lock_workflows", graph::LOCK_WORKFLOWS, ids, vec!["'{1,2}'"]),
        ("ops", graph::OPS, ids, vec![ARRAY]),
        ("ops_by_id", graph::OPS_BY_ID, "bigint[],text[]", vec![ARRAY, TEXTS]),
        ("ops_by_dedup_key", graph::OPS_BY_DEDUP_KEY, "bigint[],text[]", vec![ARRAY, TEXTS]),
        ("ops_with_status", graph::OPS_WITH_STATUS, "bigint,text[]", vec!["7", "'{open}'"]),
        ("downstream, children", graph::DOWNSTREAM_CHILDREN, ids, vec![ARRAY]),
        ("downstream", graph::DOWNSTREAM, ids, vec![ARRAY]),
        ("upstream", graph::UPSTREAM, ids, vec![ARRAY]),
        ("op_facts, workflow", inspect::FACTS_OF_WORKFLOW, "bigint,bigint,bigint", vec!["7", "0", "100"]),
        ("op_facts, ops", inspect::FACTS_OF_OPS, ids, vec![ARRAY]),
        ("hot_keys", inspect::HOT_KEYS, "bigint,bigint", vec!["1000", "100"]),
        ("places", inspect::PLACES, ids, vec![ARRAY]),
        ("loose_edges", inspect::LOOSE_EDGES, ids, vec![ARRAY]),
        ("count_ops", inspect::COUNT_OPS, ids, vec!["'{7}'"]),
        ("upstream_through", inspect::UPSTREAM_THROUGH, "bigint[],text[]", vec![ARRAY, "'{pending}'"]),
        ("unqueue, delayed", graph::UNQUEUE_DELAYED, ids, vec![ARRAY]),
        ("unqueue, ready", graph::UNQUEUE_READY, ids, vec![ARRAY]),
        (
            "write, changes",
            write::UPDATE_OPS,
            "bigint[],text[],text[],bigint[],bigint[],bigint[],bigint[],bigint[],bigint[]",
            vec![ARRAY, TEXTS, TEXTS, ARRAY, ARRAY, ARRAY, ARRAY, ARRAY, ARRAY],
        ),
        (
            "write, workflows",
            write::UPDATE_WORKFLOWS,
            "bigint[],text[],bigint[],bigint[],bigint[],bigint[],bigint[],bigint[],bigint[],bigint[],bigint[],bigint[]",
            vec![ARRAY, TEXTS, ARRAY, ARRAY, ARRAY, ARRAY, ARRAY, ARRAY, ARRAY, ARRAY, ARRAY, ARRAY],
        ),
        ("list_ops", read::LIST_OPS, "bigint,bigint,text,bigint", vec!["7", "0", "NULL", "100"]),
        ("op_views", read::OP_VIEWS, ids, vec![ARRAY]),
        ("results", read::RESULTS, ids, vec![ARRAY]),
        ("events_since", read::EVENTS_SINCE, "bigint,bigint,bigint", vec!["49000", "50000", "100"]),
        ("events_since, of a workflow", read::EVENTS_OF_WORKFLOW_SINCE, "bigint,bigint,bigint,bigint", vec!["0", "50000", "7", "100"]),
        ("workflows_since", read::WORKFLOWS_SINCE, "bigint,bigint,bigint,bigint", vec!["19000", "0", "20000", "100"]),
        ("the mark", finality::CANDIDATE, "", vec![]),
        ("spare_leases", time::SPARE_LEASES, "bigint,bigint,bigint", vec!["100", "300", "50"]),
        ("raise_mark", time::RAISE_MARK, "bigint", vec!["1"]),
    ]
}

/// What begins docs/PLANS-postgres.md, which `LEASEHOLD_UPDATE_PLANS=1` makes anew.
const PAGE: &str = "# How Postgres runs the hot statements

What `EXPLAIN` says of each at 200,000 ready, delayed and leased ops, planned once for all parameters. Written by the test
`every_hot_statement_finds_its_rows_by_an_index` of backend-postgres when `LEASEHOLD_UPDATE_PLANS` is set; the test itself sees on
every run that no large table is read whole and that no set is compared each with each.
";

/// Tables that no hot statement may read whole.
const LARGE: [&str; 10] = ["ready", "delayed", "leases", "waits", "wakes", "ops", "op_dependencies", "attempts", "events", "workflows"];

/// What takes and gives leases a thousand at a time, and must not compare each with each.
const LINEAR: [&str; 5] = ["claim_ready", "extend_leases", "dispatch_leases", "take_leases, live", "take_leases, expired"];

#[derive(diesel::QueryableByName)]
struct Line {
    #[diesel(sql_type = Text, column_name = "QUERY PLAN")]
    line: String,
}

fn plan(conn: &mut PgConnection, sql: &str, types: &str, values: &[&str]) -> Vec<String> {
    let typed = if types.is_empty() { String::new() } else { format!("({types})") };
    let given = if values.is_empty() { String::new() } else { format!("({})", values.join(",")) };
    conn.batch_execute(&format!("PREPARE hot {typed} AS {sql}")).unwrap();
    let lines: Vec<Line> = diesel::sql_query(format!("EXPLAIN (COSTS OFF) EXECUTE hot {given}")).load(conn).unwrap();
    conn.batch_execute("DEALLOCATE hot").unwrap();
    lines.into_iter().map(|line| line.line).collect()
}

#[test]
fn every_hot_statement_finds_its_rows_by_an_index() {
    let schema = TestSchema::new().unwrap();
    crate::PostgresStore::connect(&schema.url()).unwrap();
    let mut conn = schema.connect().unwrap();
    conn.batch_execute(SEED).unwrap();
    let (mut whole, mut quadratic) = (Vec::new(), Vec::new());
    let mut page = String::from(PAGE);
    for mode in ["force_generic_plan", "force_custom_plan"] {
        conn.batch_execute(&format!("SET jit TO off; SET plan_cache_mode TO {mode}")).unwrap();
        for (name, sql, types, values) in hot_statements() {
            let lines = plan(&mut conn, sql, types, &values);
            if mode == "force_generic_plan" {
                write!(page, "\n## {name}\n\n```text\n{}\n```\n", lines.join("\n")).unwrap();
            }
            let whole_table = |line: &String| {
                let table = line.split_once("Seq Scan on ").and_then(|(_, table)| table.split_whitespace().next());
                table.is_some_and(|table| LARGE.contains(&table))
            };
            if lines.iter().any(whole_table) {
                whole.push(format!("{name} ({mode}):\n{}", lines.join("\n")));
            }
            // A CTE has no index: joined inside a loop, it is read once a row.
            if LINEAR.contains(&name) && lines.iter().any(|line| line.contains("Join Filter") && line.contains(" = ")) {
                quadratic.push(format!("{name} ({mode}):\n{}", lines.join("\n")));
            }
        }
    }
    if std::env::var_os("LEASEHOLD_UPDATE_PLANS").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/PLANS-postgres.md"), page).unwrap();
    }
    assert!(whole.is_empty(), "{}", whole.join("\n\n"));
    assert!(quadratic.is_empty(), "{}", quadratic.join("\n\n"));
}

/// How many rows the recursion of the walk made, by the server's own count.
fn lanes_probed(plan: &[String]) -> u64 {
    let line = plan.iter().find(|line| line.contains("Recursive Union")).unwrap();
    let (_, counted) = line.split_once("rows=").unwrap();
    counted.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

#[test]
fn a_walk_over_lanes_probes_no_more_than_it_returns() {
    let schema = TestSchema::new().unwrap();
    crate::PostgresStore::connect(&schema.url()).unwrap();
    let mut conn = schema.connect().unwrap();
    conn.batch_execute(
        "INSERT INTO lanes (key, gate, site, queue, kind) SELECT n, n, 'default', 'q' || n, 'k' FROM generate_series(1, 20000) AS n;
         INSERT INTO ready (op, lane, priority, due_at_us, fence, failures) SELECT n, n, 0, n, 0, 0 FROM generate_series(1, 20000) AS n;
         ANALYZE lanes, ready",
    )
    .unwrap();
    for mode in ["force_generic_plan", "force_custom_plan"] {
        conn.batch_execute(&format!("SET plan_cache_mode TO {mode}; PREPARE walk (bigint,text[],text[],bigint) AS {}", claim::OPEN_LANES))
            .unwrap();
        let explain = "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) EXECUTE walk (7000, '{k}', '{}', 64)";
        let lines: Vec<Line> = diesel::sql_query(explain).load(&mut conn).unwrap();
        let lines: Vec<String> = lines.into_iter().map(|line| line.line).collect();
        assert!(lanes_probed(&lines) <= 65, "{mode}: {}", lines.join("\n"));
        conn.batch_execute("DEALLOCATE walk").unwrap();
    }
}
