//! Scale.

use super::Situation;

pub(super) const SITUATIONS: &[Situation] = &[
    Situation {
        id: "S67",
        title: "Notifications limit or block the database",
        source: "graphile/worker issue #552; mozilla/tls-observatory issue #109; hasura/graphql-engine issue #6263",
        cases: &[],
        tests: &[("engine-core/tests/engine/cycle.rs", "a_retry_that_is_due_soon_does_not_wait_for_the_poll")],
        note: Some("Correctness rests on polling alone; notifications are not there yet."),
    },
    Situation {
        id: "S68",
        title: "An old open transaction makes claims slower and slower",
        source: "que-rb/que issue #297; NikolayS/PgQue PR #80; riverqueue/river issue #59",
        cases: &["claim_statements_do_not_grow_with_backlog_or_history", "a_claim_stays_within_its_budget_whatever_is_in_the_store"],
        tests: &[],
        note: Some("A snapshot that is held open is not a test of its own."),
    },
    Situation {
        id: "S69",
        title: "Graphs of thousands of operations",
        source: "chaps-io/gush issue #35",
        cases: &[
            "a_chain_of_10000_is_created_blocked_and_repaired",
            "a_fan_in_of_10000_is_created_and_drained",
            "waking_the_join_of_1000_parents_costs_as_many_statements_as_of_10",
        ],
        tests: &[("backend-sqlite/tests/scale.rs", "a_lattice_with_uncountable_ways_is_walked_in_the_number_of_its_edges")],
        note: None,
    },
    Situation {
        id: "S70",
        title: "32-bit counter runs out",
        source: "graphile/worker issue #619; janbjorge/pgqueuer issue #671; dagster-io/dagster issue #15472; concourse/concourse issue #6354",
        cases: &["keys_of_ops_are_never_given_out_twice"],
        tests: &[],
        note: Some("Every key and counter is 64 bits wide in tables, sequences and types; one that has run far is not a test of its own."),
    },
    Situation {
        id: "S71",
        title: "All failed work retries in the same second",
        source: "stacksjs/stacks PR #2298; payloadcms/payload PR #16579; rails/rails PR #31872",
        cases: &["full_jitter_spreads_within_the_delay"],
        tests: &[("engine-core/src/model/retry.rs", "jitter_spreads_what_failed_together")],
        note: None,
    },
    Situation {
        id: "S72",
        title: "Counts and lists over millions of rows",
        source: "mojolicious/minion issue #132; hardbyte/awa issue #38; timgit/pg-boss issue #228; Parallels/rq-dashboard issue #396",
        cases: &[
            "workflows_are_listed_newest_first_and_in_pages",
            "ops_are_listed_in_key_order_and_in_pages",
            "the_store_is_counted_as_a_whole",
        ],
        tests: &[
            ("backend-sqlite/src/plans.rs", "every_bounded_statement_finds_its_rows_by_an_index"),
            ("backend-postgres/src/plans.rs", "every_hot_statement_finds_its_rows_by_an_index"),
        ],
        note: None,
    },
];
