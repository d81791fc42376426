//! Upgrades and mixed versions.

use super::Situation;

pub(super) const SITUATIONS: &[Situation] = &[
    Situation {
        id: "S73",
        title: "Old worker takes work it does not know",
        source: "formbricks/formbricks PR #9123 (review); nesquena/backburner PR #154",
        cases: &[
            "a_worker_gets_only_kinds_that_it_serves",
            "an_op_that_names_an_agent_waits_for_it",
            "why_tells_what_a_ready_op_waits_for",
        ],
        tests: &[],
        note: None,
    },
    Situation {
        id: "S74",
        title: "Maintenance run by a worker that does not know the kind discards the work",
        source: "riverqueue/river issue #1105",
        cases: &["the_policy_is_the_ops_own", "a_recovery_counts_a_loss_and_no_failure"],
        tests: &[],
        note: None,
    },
    Situation {
        id: "S75",
        title: "Schema change under running workers",
        source: "graphile/worker issue #175",
        cases: &[],
        tests: &[
            (
                "backend-postgres/tests/postgres/errors.rs",
                "a_changed_table_under_a_prepared_statement_is_a_conflict_and_the_next_try_succeeds",
            ),
            ("backend-sqlite/src/migrate/tests.rs", "a_newer_schema_that_still_takes_this_program_is_used_as_it_is"),
            ("conformance-tests/tests/upgrades.rs", "a_store_of_the_first_schema_is_migrated_and_goes_on"),
        ],
        note: None,
    },
    Situation {
        id: "S76",
        title: "Five processes migrate an empty database at once",
        source: "leo91000/graphile_worker_rs issue #465; salsita/node-pg-migrate issue #821; n8n-io/n8n PR #34685",
        cases: &["many_handles_open_one_store_at_once"],
        tests: &[
            ("backend-postgres/tests/postgres/migrations.rs", "five_that_start_at_once_migrate_once"),
            ("backend-sqlite/src/migrate/tests.rs", "five_that_start_together_on_an_empty_file_all_go_on"),
            ("backend-sqlite/src/migrate/tests.rs", "a_step_that_fails_leaves_the_file_as_it_was"),
        ],
        note: None,
    },
    Situation {
        id: "S77",
        title: "Checkpoints matched by position",
        source: "dbos-inc/dbos-transact-py issue #688; danielgerlag/workflow-core issue #107",
        cases: &[],
        tests: &[],
        note: Some("Checkpoints are not there yet."),
    },
    Situation {
        id: "S78",
        title: "Older server meets values it does not know",
        source: "zentralopensource/zentral PR #1682",
        cases: &[],
        tests: &[],
        note: Some(
            "Not kept yet: a row with a value that a program does not know is an error that names the column and the value, for the whole page.",
        ),
    },
];
