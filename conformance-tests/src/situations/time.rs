//! Time.

use super::Situation;

pub(super) const SITUATIONS: &[Situation] = &[
    Situation {
        id: "S23",
        title: "Hosts with different clocks judge each other's leases",
        source: "Krzysztof318/MailFathom issue #1989; johanhaleby/occurrent issue #662; mlflow/mlflow PR #25199 (review)",
        cases: &[],
        tests: &[
            ("backend-postgres/tests/postgres/time.rs", "the_real_clock_is_the_databases_in_microseconds"),
            ("backend-postgres/tests/postgres/time.rs", "a_completion_that_waited_past_the_expiry_takes_nothing"),
            ("backend-postgres/tests/postgres/time.rs", "a_recovery_judges_by_the_time_after_its_wait"),
        ],
        note: Some("On SQLite the host's clock decides: all its processes are on one host."),
    },
    Situation {
        id: "S24",
        title: "Trigger never fires because of sub-millisecond digits",
        source: "paperclipai/paperclip issue #7787",
        cases: &[
            "instants_are_kept_to_the_microsecond_from_year_1_to_9999",
            "what_is_due_at_this_very_instant_is_promoted",
            "an_op_is_woken_at_its_instant_and_not_before",
        ],
        tests: &[],
        note: Some("No guard compares a time for equality."),
    },
    Situation {
        id: "S25",
        title: "Session or host time zone shifts due times",
        source: "janbjorge/pgqueuer issue #807; bowbahdoe/caveman issue #37",
        cases: &["instants_are_kept_to_the_microsecond_from_year_1_to_9999"],
        tests: &[("engine-core/src/model/time.rs", "only_rfc_3339_with_an_offset_is_an_instant")],
        note: Some("Instants are numbers in the database, so no zone can move them; a run under another zone is not a test of its own."),
    },
    Situation {
        id: "S26",
        title: "Backoff overflows and becomes a hot loop",
        source: "beam-cloud/beta9 PR #1677; yigit/android-priority-jobqueue issue #419; kubernetes/kubernetes issue #105094",
        cases: &["a_delay_never_passes_its_cap", "a_retry_that_would_come_after_year_9999_fails_the_op"],
        tests: &[("engine-core/src/model/retry.rs", "a_delay_never_overflows_and_never_passes_its_cap")],
        note: None,
    },
    Situation {
        id: "S27",
        title: "Timer longer than the lease is delivered many times",
        source: "celery/celery issues #2599, #2481, #4766",
        cases: &[
            "what_waits_for_the_future_is_promoted_when_it_is_due",
            "an_op_is_woken_at_its_instant_and_not_before",
            "a_waiting_op_holds_no_slot_of_its_queue",
        ],
        tests: &[],
        note: None,
    },
    Situation {
        id: "S28",
        title: "A crash resets the wait",
        source: "dbos-inc/dbos-transact-ts issue #451, PR #552",
        cases: &["a_wait_and_what_was_woken_survive_a_restart", "a_woken_op_knows_what_it_waited_for_in_all_later_attempts"],
        tests: &[],
        note: Some("Of the four kinds only waiting for an instant is there yet."),
    },
];
