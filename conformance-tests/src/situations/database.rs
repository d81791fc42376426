//! Database failure.

use super::Situation;

pub(super) const SITUATIONS: &[Situation] = &[
    Situation {
        id: "S57",
        title: "SQLite write fails at once inside a read-then-write transaction",
        source: "vjt/grappa-irc issue #524; GothenburgBitFactory/taskchampion PR #412; IntersectMBO/ouroboros-consensus PR #2233",
        cases: &["no_reader_sees_half_a_transaction"],
        tests: &[
            ("backend-sqlite/src/group/tests.rs", "two_stores_on_one_file_both_get_on"),
            ("backend-sqlite/tests/processes.rs", "processes_share_one_file_fairly"),
            ("backend-sqlite/src/error/tests.rs", "a_file_that_another_process_keeps_locked_is_busy_without_naming_a_lock_error"),
        ],
        note: None,
    },
    Situation {
        id: "S58",
        title: "SQLite -wal file grows without bound",
        source: "superseriousbusiness/gotosocial issue #2808; ohdearquant/khive issue #1876; benbjohnson/litestream issue #1536",
        cases: &["ops_are_listed_in_key_order_and_in_pages"],
        tests: &[("backend-sqlite/src/error/tests.rs", "readers_are_not_in_a_writers_way")],
        note: Some("That the log stays bounded, and a report of one that is blocked, are not shown yet."),
    },
    Situation {
        id: "S59",
        title: "SQLite file on a network or bridged file system",
        source: "David-Crty/databasement issue #344; Sonarr/Sonarr issue #1886",
        cases: &[],
        tests: &[],
        note: Some("A network file system is refused only where it gives no shared memory; no test mounts one."),
    },
    Situation {
        id: "S60",
        title: "After a failover the pool stays on the read-only old primary",
        source: "gpustack/gpustack issue #6105, PR #6107; goldsky-io/streamling PR #65",
        cases: &[],
        tests: &[("backend-postgres/tests/postgres/errors.rs", "a_server_that_takes_no_writes_is_read_only_and_its_connection_is_dropped")],
        note: None,
    },
    Situation {
        id: "S61",
        title: "Purge and maintenance deadlock with each other",
        source: "oban-bg/oban issue #168; rails/solid_queue issue #609",
        cases: &[],
        tests: &[
            ("backend-postgres/tests/postgres/errors.rs", "a_deadlock_is_a_conflict_for_one_and_nothing_for_the_other"),
            ("conformance-tests/postgres-faults/tests/stress.rs", "eight_processes_keep_every_promise"),
        ],
        note: Some("Purging is not there yet."),
    },
    Situation {
        id: "S62",
        title: "Success that could not be saved is lost or left 'running'",
        source: "GoPlasmatic/Orion issue #184; LabKey/platform PR #5363",
        cases: &[],
        tests: &[
            ("engine-core/tests/engine/faults.rs", "a_result_that_cannot_be_saved_is_tried_until_it_is"),
            (
                "conformance-tests/postgres-faults/tests/lost_reply.rs",
                "a_worker_that_hears_nothing_stops_by_its_own_clock_and_its_late_result_is_refused",
            ),
        ],
        note: None,
    },
    Situation {
        id: "S63",
        title: "Connection lost during COMMIT: did it happen?",
        source: "philfanzhou/StructaDoc issue #28; idempot-dev/idempot-js issue #185",
        cases: &[
            "a_repeated_create_finds_its_own_workflow",
            "a_repeated_completion_gets_its_first_answer",
            "a_repeated_failure_gets_its_first_answer",
            "a_repeated_cancel_gets_its_first_answer",
            "a_repeated_retry_gets_its_first_answer",
            "a_repeated_addition_gets_its_first_answer",
            "a_claim_that_is_repeated_gets_the_same_leases",
        ],
        tests: &[
            ("engine-core/tests/engine/faults.rs", "a_lost_answer_to_any_commit_has_no_second_effect"),
            ("conformance-tests/postgres-faults/tests/lost_reply.rs", "every_other_verb_gets_its_first_answer"),
        ],
        note: None,
    },
    Situation {
        id: "S64",
        title: "Stricter isolation set on the server",
        source: "kagkarlsson/db-scheduler issue #295; hangfire-postgres/Hangfire.PostgreSql issues #4, #73",
        cases: &[],
        tests: &[("backend-postgres/tests/postgres/errors.rs", "a_serialisation_failure_is_a_conflict")],
        note: Some(
            "Each transaction sets the level it needs as it begins; a run against servers with other defaults is not a test of its own.",
        ),
    },
    Situation {
        id: "S65",
        title: "Power cut: store empty or acknowledged work missing",
        source: "agronholm/apscheduler issue #113",
        cases: &["what_is_stored_survives_a_restart"],
        tests: &[
            ("backend-postgres/tests/postgres/reconnect.rs", "a_crash_of_the_server_loses_what_was_open_and_nothing_that_was_committed"),
            ("backend-sqlite/src/group/tests.rs", "nobody_is_told_ok_when_the_commit_fails"),
        ],
        note: Some("SQLite syncs fully at each commit; a real power cut is not tried."),
    },
    Situation {
        id: "S66",
        title: "Operation runs before, or although, its transaction",
        source: "n8n-io/n8n issue #24050; nebari-dev/nebi issue #312",
        cases: &["a_workflow_is_there_whole_or_not_at_all"],
        tests: &[],
        note: Some("The application's own transaction has tests of its own in its backends; they are not listed here yet."),
    },
];
