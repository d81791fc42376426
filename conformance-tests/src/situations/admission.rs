//! Admission: limits, rates, priority, uniqueness.

use super::Situation;

pub(super) const SITUATIONS: &[Situation] = &[
    Situation {
        id: "S29",
        title: "Max in flight exceeded because counting and claiming are two steps",
        source: "janbjorge/pgqueuer issue #761; windmill-labs/windmill issue #2216",
        cases: &[
            "a_limit_is_not_exceeded_at_any_instant",
            "a_queue_never_runs_more_than_its_limit",
            "a_policy_changed_while_work_runs_holds_from_the_next_claim",
        ],
        tests: &[("conformance-tests/postgres-faults/tests/stress.rs", "eight_processes_keep_every_promise")],
        note: None,
    },
    Situation {
        id: "S30",
        title: "Slot leaks when a claim is dropped half-way",
        source: "hatchet-dev/hatchet issue #4494",
        cases: &[
            "a_claim_that_fails_at_any_step_leaves_nothing_and_can_be_repeated",
            "a_recovery_gives_the_slot_of_its_queue_back",
            "every_drift_of_an_op_is_found_and_repaired",
        ],
        tests: &[],
        note: Some("Slots are not counted anywhere: they are the leases."),
    },
    Situation {
        id: "S31",
        title: "Slot kept during the retry pause",
        source: "argoproj/argo-workflows issue #9875",
        cases: &["a_retried_op_holds_no_slot_while_it_waits", "a_waiting_op_holds_no_slot_of_its_queue"],
        tests: &[],
        note: None,
    },
    Situation {
        id: "S32",
        title: "Slot given back twice lets ever more work in",
        source: "rails/solid_queue PR #761",
        cases: &["a_late_end_frees_no_slot_a_second_time", "an_end_of_any_kind_frees_its_slot"],
        tests: &[],
        note: None,
    },
    Situation {
        id: "S33",
        title: "Token bucket breaks when the clock steps back",
        source: "SandeepVashishtha/Eventra issue #6488; rust-lang/rust issue #86470 (time going backwards panics)",
        cases: &[
            "a_clock_that_goes_back_gives_no_token_and_takes_none",
            "tokens_flow_again_after_the_clock_went_back",
            "tokens_never_pile_up_above_the_burst",
        ],
        tests: &[],
        note: None,
    },
    Situation {
        id: "S34",
        title: "Low priority never runs",
        source: "sapcc/networking-nsx-t PR #144; volcano-sh/volcano issue #748",
        cases: &[
            "inside_a_queue_the_highest_priority_goes_first",
            "the_highest_priority_goes_first_then_the_oldest_then_the_lowest_key",
            "queues_are_counted_by_site_and_queue",
        ],
        tests: &[],
        note: Some("Priority is strict, and said to be; the age of the oldest is shown for a queue, not yet for each priority."),
    },
    Situation {
        id: "S35",
        title: "Unique key: the winner rolls back and nobody's work is stored",
        source: "oban-bg/oban issues #1087, #1093",
        cases: &[
            "a_creator_that_rolls_back_hides_nobodys_workflow",
            "of_many_creators_one_creates_and_the_others_attach",
            "an_id_that_was_rolled_back_is_free",
        ],
        tests: &[],
        note: None,
    },
    Situation {
        id: "S36",
        title: "Unique key outlives the operation that held it",
        source: "zoolutions/sidekiq-unique-jobs issues #379, #861",
        cases: &[
            "an_added_op_with_a_dedup_key_attaches_in_any_status",
            "a_dedup_key_is_unique_in_its_workflow",
            "what_depends_on_an_attached_op_waits_for_its_holder",
        ],
        tests: &[],
        note: Some(
            "Our answer differs: a key is held for the life of its workflow, in any status, and the answer names the holder and where it stands; there is nothing to release.",
        ),
    },
];
