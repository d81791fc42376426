//! Everything that is stored and could be computed, computed again.

use super::{Findings, Op, Queued, Tables, Wait};
use std::collections::HashMap;

const STATUSES: [&str; 7] = ["pending", "blocked", "open", "waiting", "succeeded", "failed", "canceled"];

pub(super) fn judge(tables: &Tables, findings: &mut Findings) {
    judge_ops(tables, findings);
    judge_places(tables, findings);
    judge_waits(tables, findings);
    judge_workflows(tables, findings);
}

/// What the parents of an op say.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Parents {
    /// Those it waits for.
    unmet: i64,
    /// Required ones that are failed, blocked or canceled.
    broken: i64,
    /// Required ones that have not succeeded.
    missing: i64,
}

fn judge_ops(tables: &Tables, findings: &mut Findings) {
    let mut parents: HashMap<i64, Parents> = HashMap::new();
    for edge in &tables.edges {
        let status = tables.ops.get(&edge.parent).map_or("gone", |op| op.status.as_str());
        let stopped = ["failed", "blocked", "canceled"].contains(&status);
        let (succeeded, required) = (status == "succeeded", edge.required == 1);
        let sum = parents.entry(edge.child).or_default();
        sum.unmet += i64::from(if required { !succeeded } else { !succeeded && !stopped });
        sum.broken += i64::from(required && stopped);
        sum.missing += i64::from(required && !succeeded);
        let workflow = |op: &i64| tables.ops.get(op).map(|op| op.workflow);
        if workflow(&edge.child) != workflow(&edge.parent) {
            findings.add(format!("{} depends on {} of another workflow", tables.name(edge.child), tables.name(edge.parent)));
        }
    }
    for (seq, op) in &tables.ops {
        let parents = parents.get(seq).copied().unwrap_or_default();
        for finding in check_op(op, parents) {
            findings.add(format!("{}: {finding}", tables.name(*seq)));
        }
    }
}

fn check_op(op: &Op, parents: Parents) -> Vec<String> {
    let mut wrong = Vec::new();
    match op.status.as_str() {
        "pending" | "blocked" => {
            if (op.unmet, op.broken) != (parents.unmet, parents.broken) {
                wrong.push(format!("counts (unmet, broken) = {:?}, its parents say {parents:?}", (op.unmet, op.broken)));
            }
            let due = match (parents.broken > 0, parents.unmet > 0) {
                (true, _) => "blocked",
                (false, true) => "pending",
                (false, false) => "ready: it was never woken",
            };
            if op.status != due {
                wrong.push(format!("is {}, its parents make it {due}", op.status));
            }
        }
        "open" | "waiting" | "succeeded" | "failed" if parents.missing > 0 => {
            wrong.push(format!("is {} although {} of its required parents have not succeeded", op.status, parents.missing));
        }
        "open" | "waiting" | "succeeded" | "failed" | "canceled" => {}
        other => wrong.push(format!("has the unknown status {other}")),
    }
    let ended = ["succeeded", "failed", "canceled"].contains(&op.status.as_str());
    if ended != op.finished_at_us.is_some() {
        wrong.push(format!("is {} and finished at {:?}", op.status, op.finished_at_us));
    }
    wrong
}

/// An open op is in exactly one of `ready`, `delayed` and `leases`; any other is in none.
fn judge_places(tables: &Tables, findings: &mut Findings) {
    let mut places: HashMap<i64, Vec<&str>> = HashMap::new();
    for (place, rows) in [("ready", &tables.ready), ("delayed", &tables.delayed)] {
        for row in rows {
            places.entry(row.op).or_default().push(place);
            check_queued(tables, place, row, findings);
        }
    }
    for lease in &tables.leases {
        places.entry(lease.op).or_default().push("leases");
        let op = tables.ops.get(&lease.op);
        let fits = op.is_some_and(|op| op.fence + 1 == lease.fence && op.workflow == lease.workflow);
        if !fits || lease.expires_at_us <= lease.acquired_at_us {
            findings.add(format!("{} has a lease that does not fit it: {lease:?}", tables.name(lease.op)));
        }
    }
    for (seq, op) in &tables.ops {
        let places = places.remove(seq).unwrap_or_default();
        if places.len() != usize::from(op.status == "open") {
            findings.add(format!("{} is {} and in {places:?}", tables.name(*seq), op.status));
        }
    }
    for (op, places) in places {
        findings.add(format!("{} is in {places:?}", tables.name(op)));
    }
}

/// An op has a wait, begun by its last attempt, exactly while it is waiting.
fn judge_waits(tables: &Tables, findings: &mut Findings) {
    let waits: HashMap<i64, &Wait> = tables.waits.iter().map(|wait| (wait.op, wait)).collect();
    for (seq, op) in &tables.ops {
        if waits.contains_key(seq) != (op.status == "waiting") {
            findings.add(format!("{} is {} and its wait is {:?}", tables.name(*seq), op.status, waits.get(seq)));
        }
    }
    for wait in &tables.waits {
        if tables.ops.get(&wait.op).is_none_or(|op| (op.fence, op.workflow) != (wait.fence, wait.workflow)) {
            findings.add(format!("{} has a wait that does not fit it: {wait:?}", tables.name(wait.op)));
        }
    }
}

fn check_queued(tables: &Tables, place: &str, row: &Queued, findings: &mut Findings) {
    // An op that was lost with two workers waits in the lane beside its own.
    let lane = |op: &Op| op.lane + i64::from(op.losses >= 2);
    let fits = |op: &Op| (lane(op), op.fence, op.failures) == (row.lane, row.fence, row.failures);
    if let Some(op) = tables.ops.get(&row.op).filter(|op| !fits(op)) {
        findings.add(format!("{} is in {place} with {row:?}, its own row says {op:?}", tables.name(row.op)));
    }
}

fn judge_workflows(tables: &Tables, findings: &mut Findings) {
    let mut counts: HashMap<i64, [i64; STATUSES.len()]> = HashMap::new();
    for op in tables.ops.values() {
        let counts = counts.entry(op.workflow).or_default();
        for (count, status) in counts.iter_mut().zip(STATUSES) {
            *count += i64::from(op.status == status);
        }
    }
    for (seq, workflow) in &tables.workflows {
        let id = &workflow.id;
        let counts @ [pending, blocked, open, waiting, _, failed, canceled] = counts.get(seq).copied().unwrap_or_default();
        let stored =
            [workflow.pending, workflow.blocked, workflow.open, workflow.waiting, workflow.succeeded, workflow.failed, workflow.canceled];
        if counts != stored {
            findings.add(format!("workflow {id} counts {stored:?} of {STATUSES:?}, its ops are {counts:?}"));
        }
        let derived = match () {
            () if workflow.cancel_requested == 1 => "canceled",
            () if pending + open + waiting > 0 => "running",
            () if failed + blocked > 0 => "failed",
            () if canceled > 0 => "canceled",
            () => "succeeded",
        };
        if workflow.status != derived {
            findings.add(format!("workflow {id} is {}, its ops make it {derived}", workflow.status));
        }
        if workflow.cancel_requested == 1 && pending + blocked + open + waiting > 0 {
            findings.add(format!("workflow {id} is canceled and ops of it survived: {counts:?} of {STATUSES:?}"));
        }
        if workflow.finished_at_us.is_some() != (derived != "running") {
            findings.add(format!("workflow {id} is {derived} and finished at {:?}", workflow.finished_at_us));
        }
        if counts.iter().sum::<i64>() == 0 {
            findings.add(format!("workflow {id} has no ops"));
        }
        if workflow.updated_at_us < workflow.created_at_us {
            findings.add(format!("workflow {id} was updated before it was created"));
        }
    }
    for op in tables.ops.values().filter(|op| !tables.workflows.contains_key(&op.workflow)) {
        findings.add(format!("op {} is of workflow {}, which has no row", op.id, op.workflow));
    }
}
