//! Payloads, names and artifacts.

use super::Situation;

pub(super) const SITUATIONS: &[Situation] = &[
    Situation {
        id: "S45",
        title: "NUL character in a result leaves the run 'running' for ever",
        source: "kestra-io/kestra issue #10326; osbuild/osbuild-composer PR #4779",
        cases: &["any_text_of_an_error_can_be_recorded"],
        tests: &[
            ("engine-core/tests/engine/failures.rs", "what_cannot_be_stored_is_a_clear_failure_or_made_storable"),
            ("engine-core/src/model/json.rs", "what_cannot_be_kept_exactly_is_refused"),
        ],
        note: None,
    },
    Situation {
        id: "S46",
        title: "Error text that cannot be stored takes the whole fleet down",
        source: "collectiveidea/delayed_job issue #790",
        cases: &["any_text_of_an_error_can_be_recorded"],
        tests: &[
            ("engine-core/src/engine/handler.rs", "what_is_recorded_is_storable_and_within_its_limit"),
            ("engine-core/tests/engine/faults.rs", "one_row_that_the_store_refuses_fails_alone"),
        ],
        note: None,
    },
    Situation {
        id: "S47",
        title: "Too large a result is retried without end",
        source: "pydantic/pydantic-ai PR #7157; temporalio/features issue #723",
        cases: &["an_input_at_the_limit_is_stored_and_one_byte_more_refused", "megabytes_are_stored_as_given"],
        tests: &[("engine-core/tests/engine/failures.rs", "a_result_over_its_limit_fails_for_good_and_one_at_its_limit_is_kept")],
        note: None,
    },
    Situation {
        id: "S48",
        title: "Large integers come back changed",
        source: "serde-rs/json issues #43, #1258; paritytech/substrate issue #1270",
        cases: &["integers_beyond_two_to_the_53_are_kept_exactly"],
        tests: &[
            ("engine-core/src/model/json.rs", "what_cannot_be_kept_exactly_is_refused"),
            ("engine-core/src/model/identity.rs", "a_number_that_a_double_would_round_is_refused"),
            ("cli/src/file/format.rs", "what_json_cannot_hold_is_refused_and_not_changed"),
        ],
        note: Some("The HTTP part is not there yet."),
    },
    Situation {
        id: "S49",
        title: "Ids with special characters cannot be reached",
        source: "temporalio/ui issues #392, #1084, #2129",
        cases: &["any_text_is_stored_as_given", "a_name_of_the_longest_kind_is_stored"],
        tests: &[("engine-core/src/model/ids.rs", "a_name_is_checked_where_it_enters")],
        note: Some("The HTTP part is not there yet."),
    },
    Situation {
        id: "S50",
        title: "Names and keys become part of SQL",
        source: "agenda/agenda issue #1722; pgmq/pgmq issue #295",
        cases: &["any_text_is_stored_as_given"],
        tests: &[
            ("backend-sqlite/src/set.rs", "a_row_is_json_that_gives_its_cells_back"),
            ("backend-postgres/tests/postgres/migrations.rs", "two_schemas_of_one_database_share_nothing"),
        ],
        note: None,
    },
    Situation {
        id: "S51",
        title: "Artifact name escapes its directory",
        source: "argoproj/argo-workflows issue #3016; orhun/rustypaste issue #2",
        cases: &["a_later_attempt_replaces_an_artifact_of_its_name", "a_failed_attempt_leaves_no_artifact_and_no_record"],
        tests: &[("cli/src/kinds/shell/artifacts.rs", "a_missing_a_doubled_and_a_large_file_are_refused_by_name")],
        note: Some("Content lives in the row, so a name is never a path."),
    },
];
