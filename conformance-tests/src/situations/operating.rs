//! Operating the system.

use super::Situation;

pub(super) const SITUATIONS: &[Situation] = &[
    Situation {
        id: "S52",
        title: "Paused queue starts again after a restart",
        source: "cloudamqp/lavinmq issue #446; OptimalBits/bull issue #247",
        cases: &[],
        tests: &[],
        note: Some("Holds are not there yet."),
    },
    Situation {
        id: "S53",
        title: "Backup of the live database cannot be restored",
        source: "markmhendrickson/neotoma issue #2075; senigami/audiobook-studio issue #246; gem/oq-engine PR #11752",
        cases: &[],
        tests: &[],
        note: Some("Backup is not there yet."),
    },
    Situation {
        id: "S54",
        title: "Wrong diagnosis: locked is shown as corrupt, or 'all fine'",
        source: "itlackey/akm issue #924; open-gsd/gsd-pi issue #1826",
        cases: &["why_tells_what_a_ready_op_waits_for"],
        tests: &[
            ("cli/src/exit.rs", "a_store_that_cannot_be_used_is_told_apart_by_its_cause"),
            ("cli/tests/program/run.rs", "a_store_that_cannot_be_used_is_told_with_its_own_code"),
            ("cli/tests/program/doctor.rs", "doctor_tells_a_corrupt_store_from_a_missing_and_from_an_older_one"),
            ("backend-sqlite/src/error/tests.rs", "a_file_that_another_process_keeps_locked_is_busy_without_naming_a_lock_error"),
            ("backend-sqlite/src/error/tests.rs", "a_full_disk_is_full_at_the_start_and_later"),
            ("backend-postgres/tests/postgres/errors.rs", "a_broken_page_is_told_apart"),
            ("backend-postgres/tests/postgres/errors.rs", "a_full_disk_is_told_apart"),
        ],
        note: None,
    },
    Situation {
        id: "S55",
        title: "Shutdown for a deploy costs an hour or an attempt",
        source: "riverqueue/river PR #1290, issue #682; OpenFn/kit issue #934",
        cases: &[],
        tests: &[
            ("engine-core/tests/engine/shutdown.rs", "handlers_that_end_within_the_grace_are_waited_for"),
            ("engine-core/tests/engine/shutdown.rs", "what_still_runs_after_the_grace_is_given_back_at_once_and_costs_no_attempt"),
            ("cli/tests/program/run.rs", "after_the_grace_running_ops_are_stopped_and_given_back_at_no_cost"),
            ("cli/tests/program/run.rs", "the_second_signal_stops_at_once_and_leaves_no_process"),
        ],
        note: None,
    },
    Situation {
        id: "S56",
        title: "Retention deletes what a waiting operation still needs",
        source: "oban-bg/oban issue #722; rq/rq issue #675",
        cases: &[],
        tests: &[],
        note: Some("Retention is not there yet."),
    },
];
