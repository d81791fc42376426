//! Recurring schedules.

use super::Situation;

pub(super) const SITUATIONS: &[Situation] = &[
    Situation {
        id: "S37",
        title: "Return from downtime starts hundreds of missed runs",
        source: "FoundatioFx/Foundatio issue #317",
        cases: &[],
        tests: &[],
        note: Some("Schedules are not there yet."),
    },
    Situation {
        id: "S38",
        title: "Occurrence lost between advancing the schedule and creating its run",
        source: "NousResearch/hermes-agent PR #108945",
        cases: &[],
        tests: &[],
        note: Some("Schedules are not there yet."),
    },
    Situation {
        id: "S39",
        title: "Two leaders, every occurrence doubled for weeks",
        source: "oban-bg/oban issue #1488; oban-bg/oban-py issue #32",
        cases: &[],
        tests: &[],
        note: Some("Schedules are not there yet."),
    },
    Situation {
        id: "S40",
        title: "Editing a schedule fires at once or keeps the old time",
        source: "HangfireIO/Hangfire issue #366; transferwise/tw-tasks-executor issue #162",
        cases: &[],
        tests: &[],
        note: Some("Schedules are not there yet."),
    },
    Situation {
        id: "S41",
        title: "Rule that can never match hangs the scheduler",
        source: "jaclarke/cronosjs issue #37; jmrozanec/cron-utils issue #310",
        cases: &[],
        tests: &[],
        note: Some("Schedules are not there yet."),
    },
    Situation {
        id: "S42",
        title: "Daylight-saving change on the host skips or doubles a UTC schedule",
        source: "kelektiv/node-cron issue #563; temporalio/temporal issue #8205",
        cases: &[],
        tests: &[],
        note: Some("Schedules are not there yet."),
    },
    Situation {
        id: "S43",
        title: "Trigger stuck half-way after a database error",
        source: "quartz-scheduler/quartz issues #145, #1516",
        cases: &[],
        tests: &[],
        note: Some("Schedules are not there yet."),
    },
    Situation {
        id: "S44",
        title: "Missed occurrences vanish without a record",
        source: "librefang/librefang issue #3828",
        cases: &[],
        tests: &[],
        note: Some("Schedules are not there yet."),
    },
];
