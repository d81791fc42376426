//! Leases, heartbeats and recovery.

use super::Situation;

pub(super) const SITUATIONS: &[Situation] = &[
    Situation {
        id: "S15",
        title: "Dead worker's registry row is removed, so its operations are never found",
        source: "procrastinate-org/procrastinate issue #1518 (scenario 1)",
        cases: &["a_lease_is_recovered_at_its_expiry_and_not_before", "what_expired_before_a_restart_is_recovered_after_it"],
        tests: &[],
        note: Some("There is no row of a worker that recovery could depend on."),
    },
    Situation {
        id: "S16",
        title: "Restarted worker with the same name keeps a dead lease alive",
        source: "oban-bg/oban issue #862; procrastinate-org/procrastinate issue #1518 (scenario 2); oban-bg/oban-py issue #32",
        cases: &["a_worker_of_the_same_name_proves_nothing", "a_take_needs_the_exact_op_token_and_fence"],
        tests: &[],
        note: None,
    },
    Situation {
        id: "S17",
        title: "Long but healthy operation is 'rescued' by age",
        source: "hexpm/hexpm PR #1825; riverqueue/river issue #682",
        cases: &["heartbeats_keep_a_lease_alive_for_ever"],
        tests: &[(
            "engine-core/tests/engine/failures.rs",
            "a_handler_that_never_returns_is_stopped_at_its_time_limit_also_one_that_blocks",
        )],
        note: None,
    },
    Situation {
        id: "S18",
        title: "Poison operation kills its worker for ever",
        source: "vectorize-io/hindsight issue #2675; sidekiq/sidekiq issue #4069; contribsys/faktory issue #99",
        cases: &[
            "the_last_loss_fails_the_op_with_worker_lost",
            "an_op_that_kills_its_workers_takes_no_other_with_it",
            "a_recovery_counts_a_loss_and_no_failure",
            "a_restart_never_costs_a_one_attempt_op",
        ],
        tests: &[("engine-core/tests/engine/cycle.rs", "a_worker_lost_too_often_fails_its_op")],
        note: None,
    },
    Situation {
        id: "S19",
        title: "Heartbeat starved by the pool or by busy handlers",
        source: "stablemates/workhorse PR #121, PR #135; apache/airflow issue #18011",
        cases: &[],
        tests: &[
            ("engine-core/tests/engine/leases.rs", "a_handler_that_blocks_the_runtime_does_not_stop_the_heartbeat"),
            ("backend-sqlite/src/group/tests.rs", "heartbeats_go_before_everything_else"),
            ("engine-core/tests/threads.rs", "a_thousand_waiting_handlers_cost_no_thread_each"),
        ],
        note: None,
    },
    Situation {
        id: "S20",
        title: "Worker that lost its lease keeps going and reports late",
        source: "stablemates/workhorse PR #135; rails/solid_queue PR #761; riverqueue/river PR #1373",
        cases: &[
            "a_heartbeat_that_was_lost_brings_nothing_back",
            "a_completion_after_another_end_of_the_same_lease_is_lost",
            "a_late_end_frees_no_slot_a_second_time",
        ],
        tests: &[
            ("engine-core/tests/engine/leases.rs", "a_handler_that_lost_its_lease_is_stopped_and_writes_nothing"),
            (
                "engine-core/tests/engine/leases.rs",
                "a_worker_that_cannot_reach_its_store_stops_its_handlers_before_their_leases_can_have_ended",
            ),
            (
                "conformance-tests/postgres-faults/tests/lost_reply.rs",
                "a_worker_that_hears_nothing_stops_by_its_own_clock_and_its_late_result_is_refused",
            ),
        ],
        note: None,
    },
    Situation {
        id: "S21",
        title: "Ownership kept in database session locks",
        source: "bensheldon/good_job issues #90 (comment), #52, #1599",
        cases: &[],
        tests: &[
            ("conformance-tests/postgres-faults/tests/pooler.rs", "workflows_run_to_their_end_through_a_pooler_in_transaction_mode"),
            (
                "conformance-tests/postgres-faults/tests/restart.rs",
                "work_resumes_by_itself_after_every_restart_and_nothing_is_lost_or_doubled",
            ),
        ],
        note: None,
    },
    Situation {
        id: "S22",
        title: "The recovery task is itself an operation and gets stuck",
        source: "procrastinate-org/procrastinate issue #1408",
        cases: &[
            "a_recovery_is_bounded_and_the_rest_stays_for_the_next",
            "recovering_twice_changes_nothing_more",
            "a_recovery_that_fails_at_any_step_leaves_nothing_and_can_be_repeated",
        ],
        tests: &[("engine-core/tests/engine/cycle.rs", "reconciling_takes_back_what_expired_and_moves_what_is_due_and_runs_nothing")],
        note: None,
    },
];
