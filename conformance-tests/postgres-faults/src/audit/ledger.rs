//! Who owned an op, and what was recorded: once, one after the other.

use super::{Findings, Tables};
use std::collections::HashMap;

pub(super) fn judge(tables: &Tables, findings: &mut Findings) {
    let ledgers = tables.ledgers();
    let leases: HashMap<i64, (i64, i64)> = tables.leases.iter().map(|lease| (lease.op, (lease.fence, lease.acquired_at_us))).collect();
    for (seq, op) in &tables.ops {
        let attempts = ledgers.get(seq).map(Vec::as_slice).unwrap_or_default();
        let name = tables.name(*seq);
        let successes = attempts.iter().filter(|attempt| attempt.outcome == "succeeded").count();
        if successes != usize::from(op.status == "succeeded") {
            findings.add(format!("{name} is {} with {successes} successes in its ledger", op.status));
        }
        for attempt in attempts {
            if (attempt.outcome == "succeeded") != (attempt.has_result == 1) {
                findings.add(format!("{name}: attempt {} {} and has_result is {}", attempt.fence, attempt.outcome, attempt.has_result));
            }
            if attempt.ended_at_us < attempt.acquired_at_us {
                findings.add(format!("{name}: attempt {} ended before it began", attempt.fence));
            }
            if attempt.workflow != op.workflow {
                findings.add(format!("{name}: attempt {} is under another workflow", attempt.fence));
            }
        }
        // Fences are given in order, each one more than the last; nobody owns the op before the owner before is done.
        let mut owners: Vec<(i64, i64, Option<i64>)> =
            attempts.iter().map(|attempt| (attempt.fence, attempt.acquired_at_us, Some(attempt.ended_at_us))).collect();
        owners.extend(leases.get(seq).map(|(fence, acquired)| (*fence, *acquired, None)));
        if let Some((first, ..)) = owners.first().filter(|(fence, ..)| *fence != 1) {
            findings.add(format!("{name}: its first owner has fence {first}"));
        }
        for pair in owners.windows(2) {
            let [(before, _, ended), (after, acquired, _)] = pair else { continue };
            if *after != before + 1 {
                findings.add(format!("{name}: fence {after} follows {before}"));
            }
            if ended.is_none_or(|ended| *acquired < ended) {
                findings.add(format!("{name}: owner {after} began at {acquired}, owner {before} ended at {ended:?}"));
            }
        }
        let last = attempts.last().map_or(0, |attempt| attempt.fence);
        if op.fence != last {
            findings.add(format!("{name} says its last attempt is {}, the ledger says {last}", op.fence));
        }
        let ending = attempts.last().map_or("none", |attempt| attempt.outcome.as_str());
        if op.status == "failed" && !["failed", "abandoned"].contains(&ending) {
            findings.add(format!("{name} is failed and its last attempt {ending}"));
        }
    }
    for attempt in tables.attempts.iter().filter(|attempt| !tables.ops.contains_key(&attempt.op)) {
        findings.add(format!("the ledger holds attempt {} of {}", attempt.fence, tables.name(attempt.op)));
    }
    judge_tokens(tables, findings);
    judge_history(tables, findings);
}

/// A claim's token is one worker's.
fn judge_tokens(tables: &Tables, findings: &mut Findings) {
    let mut workers: HashMap<&str, &str> = HashMap::new();
    for attempt in &tables.attempts {
        let worker = workers.entry(&attempt.token).or_insert(&attempt.worker);
        if *worker != attempt.worker {
            findings.add(format!("workers {worker} and {} share the token of {}", attempt.worker, tables.name(attempt.op)));
        }
    }
}

/// The history tells each attempt's end once, and no other.
fn judge_history(tables: &Tables, findings: &mut Findings) {
    let mut told: HashMap<(i64, i64), Vec<&str>> = HashMap::new();
    for event in &tables.events {
        if let (Some(op), Some(fence)) = (event.op, event.fence) {
            told.entry((op, fence)).or_default().push(&event.kind);
        }
    }
    for attempt in &tables.attempts {
        let told = told.remove(&(attempt.op, attempt.fence)).unwrap_or_default();
        let fits = matches!(
            (attempt.outcome.as_str(), told.as_slice()),
            ("succeeded", ["op_succeeded"])
                | ("failed" | "abandoned", ["op_failed"])
                | ("retried", ["op_retried"])
                | ("released", ["op_released"])
                | ("abandoned", ["op_abandoned"])
                | ("canceled", ["op_canceled"])
        );
        if !fits {
            findings.add(format!("{}: attempt {} {}, the history tells {told:?}", tables.name(attempt.op), attempt.fence, attempt.outcome));
        }
    }
    for ((op, fence), kinds) in told {
        findings.add(format!("the history tells {kinds:?} of attempt {fence} of {}, the ledger does not know it", tables.name(op)));
    }
    for event in tables.events.iter().filter(|event| !tables.workflows.contains_key(&event.workflow)) {
        findings.add(format!("the history tells {} of workflow {}, which has no row", event.kind, event.workflow));
    }
}
