//! Each promise, broken: the audit must say so.

use super::tables::{Attempt, Edge, Event, Lease, Op, Queued, Tables, Wait, Workflow};
use super::{judge, limits};

fn workflow(status: &str, counts: [i64; 7]) -> Workflow {
    let [pending, blocked, open, waiting, succeeded, failed, canceled] = counts;
    Workflow {
        seq: 1,
        id: "w".to_owned(),
        status: status.to_owned(),
        cancel_requested: 0,
        pending,
        blocked,
        open,
        waiting,
        succeeded,
        failed,
        canceled,
        created_at_us: 0,
        updated_at_us: 100,
        finished_at_us: (status != "running").then_some(100),
    }
}

fn op(seq: i64, status: &str, fence: i64) -> Op {
    Op {
        seq,
        workflow: 1,
        id: format!("o{seq}"),
        lane: 6,
        site: "s".to_owned(),
        queue: "q".to_owned(),
        status: status.to_owned(),
        unmet: i64::from(status == "pending"),
        broken: 0,
        fence,
        failures: 0,
        losses: 0,
        finished_at_us: ["succeeded", "failed", "canceled"].contains(&status).then_some(9),
    }
}

fn attempt(op: i64, fence: i64, (acquired_at_us, ended_at_us): (i64, i64), outcome: &str) -> Attempt {
    Attempt {
        op,
        fence,
        workflow: 1,
        token: format!("t{op}-{fence}"),
        worker: "w1".to_owned(),
        acquired_at_us,
        ended_at_us,
        outcome: outcome.to_owned(),
        has_result: i64::from(outcome == "succeeded"),
    }
}

fn event(op: i64, fence: i64, at_us: i64, kind: &str) -> Event {
    Event { at_us, kind: kind.to_owned(), workflow: 1, op: Some(op), fence: Some(fence) }
}

fn edge(child: i64, parent: i64, required: bool) -> Edge {
    Edge { child, parent, required: i64::from(required) }
}

/// 1 was tried twice and succeeded; 2, which depends on it, runs; 3 waits for 2.
fn sound() -> Tables {
    Tables {
        workflows: [(1, workflow("running", [1, 0, 1, 0, 1, 0, 0]))].into(),
        ops: [(1, op(1, "succeeded", 2)), (2, op(2, "open", 0)), (3, op(3, "pending", 0))].into(),
        edges: vec![edge(2, 1, true), edge(3, 2, true)],
        ready: Vec::new(),
        delayed: Vec::new(),
        leases: vec![Lease { op: 2, workflow: 1, fence: 1, acquired_at_us: 40, expires_at_us: 90 }],
        waits: Vec::new(),
        attempts: vec![attempt(1, 1, (10, 20), "retried"), attempt(1, 2, (20, 30), "succeeded")],
        events: vec![event(1, 1, 20, "op_retried"), event(1, 2, 30, "op_succeeded")],
    }
}

/// What the audit says about sound tables once `spoil` has been at them.
#[track_caller]
fn finds(wanted: &str, spoil: impl FnOnce(&mut Tables)) {
    let mut tables = sound();
    spoil(&mut tables);
    let findings = judge(&tables, &[("q", 1)]);
    assert!(findings.iter().any(|finding| finding.contains(wanted)), "{wanted:?} is not among what was found: {findings}");
}

#[test]
fn sound_tables_pass() {
    let findings = judge(&sound(), &[("q", 1)]);
    assert!(findings.is_empty(), "{findings}");
}

#[test]
fn a_wait_that_was_left_behind_and_a_missing_one_are_found() {
    finds("is pending and its wait is Some", |t| t.waits = vec![Wait { op: 3, workflow: 1, fence: 0 }]);
    finds("has a wait that does not fit it", |t| t.waits = vec![Wait { op: 3, workflow: 1, fence: 5 }]);
    finds("is waiting and its wait is None", |t| t.ops.get_mut(&2).unwrap().status = "waiting".to_owned());
}

#[test]
fn a_second_success_and_a_lost_one_are_found() {
    finds("2 successes", |t| t.attempts[0] = attempt(1, 1, (10, 20), "succeeded"));
    finds("with 0 successes", |t| t.attempts[1].outcome = "released".to_owned());
    finds("has_result", |t| t.attempts[1].has_result = 0);
}

#[test]
fn owners_that_overlap_are_found() {
    finds("owner 2 began at 19", |t| t.attempts[1].acquired_at_us = 19);
    finds("owner 1 ended", |t| {
        t.attempts.push(attempt(2, 1, (31, 41), "retried"));
        t.leases[0].fence = 2;
    });
    finds("ended before it began", |t| t.attempts[0].acquired_at_us = 21);
}

#[test]
fn fences_that_repeat_or_leave_a_gap_are_found() {
    finds("fence 3 follows 1", |t| t.attempts[1].fence = 3);
    finds("first owner has fence 2", |t| drop(t.attempts.remove(0)));
    finds("does not fit it", |t| t.leases[0].fence = 2);
    finds("the ledger says 2", |t| t.ops.get_mut(&1).unwrap().fence = 1);
}

#[test]
fn a_token_that_two_workers_share_is_found() {
    finds("share the token", |t| {
        t.attempts[1].token = t.attempts[0].token.clone();
        t.attempts[1].worker = "w2".to_owned();
    });
}

#[test]
fn a_history_that_tells_too_much_or_too_little_is_found() {
    finds("the history tells []", |t| drop(t.events.pop()));
    finds("op_succeeded\", \"op_succeeded", |t| t.events.push(event(1, 2, 31, "op_succeeded")));
    finds("the ledger does not know it", |t| t.events.push(event(2, 1, 31, "op_failed")));
}

#[test]
fn an_op_that_began_too_early_is_found() {
    finds("was succeeded (Some(30))", |t| t.leases[0].acquired_at_us = 29);
    finds("was settled (None)", |t| t.edges.push(edge(2, 3, false)));
    let mut tables = sound();
    tables.edges.push(edge(2, 1, false));
    assert!(judge(&tables, &[]).is_empty(), "a settled parent holds nobody back");
}

#[test]
fn more_leases_than_the_limit_at_any_instant_are_found() {
    finds("has a limit of 1 and had 2 leases at 19", |t| t.attempts[1].acquired_at_us = 19);
    let mut tables = sound();
    tables.attempts[1].acquired_at_us = 19;
    let most = limits::most_at_once(&tables)[&("s", "q")];
    assert_eq!(most.count, 2, "19 to 20");
    tables.attempts[1].acquired_at_us = 20;
    assert_eq!(limits::most_at_once(&tables)[&("s", "q")].count, 1, "an end and a beginning at one instant do not add up");
}

#[test]
fn a_lost_wake_up_and_wrong_counts_are_found() {
    finds("its parents make it ready", |t| {
        t.edges.pop();
    });
    finds("counts (unmet, broken) = (2, 0)", |t| t.ops.get_mut(&3).unwrap().unmet = 2);
    finds("is pending, its parents make it blocked", |t| t.ops.get_mut(&2).unwrap().status = "failed".to_owned());
    finds("required parents have not succeeded", |t| t.edges.push(edge(1, 3, true)));
}

#[test]
fn an_op_in_two_places_or_none_is_found() {
    finds("is open and in []", |t| t.leases.clear());
    finds("[\"ready\", \"leases\"]", |t| t.ready.push(Queued { op: 2, lane: 6, fence: 0, failures: 0 }));
    finds("is succeeded and in [\"delayed\"]", |t| t.delayed.push(Queued { op: 1, lane: 6, fence: 2, failures: 0 }));
    finds("its own row says", |t| t.ready.push(Queued { op: 2, lane: 6, fence: 1, failures: 0 }));
    finds("its own row says", |t| t.ready.push(Queued { op: 2, lane: 7, fence: 0, failures: 0 }));
    finds("op 9, which has no row is in", |t| t.ready.push(Queued { op: 9, lane: 6, fence: 1, failures: 0 }));
}

#[test]
fn counters_and_statuses_that_do_not_follow_are_found() {
    finds("its ops are [1, 0, 1, 0, 1, 0, 0]", |t| t.workflows.get_mut(&1).unwrap().open = 2);
    finds("its ops make it running", |t| t.workflows.get_mut(&1).unwrap().status = "failed".to_owned());
    finds("ops of it survived", |t| t.workflows.get_mut(&1).unwrap().cancel_requested = 1);
    finds("running and finished", |t| t.workflows.get_mut(&1).unwrap().finished_at_us = Some(1));
    finds("succeeded and finished at None", |t| t.ops.get_mut(&1).unwrap().finished_at_us = None);
}
