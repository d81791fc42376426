//! Dependencies, in time.

use super::{Findings, Tables};
use std::collections::HashMap;

pub(super) fn judge(tables: &Tables, findings: &mut Findings) {
    let began = first_leased(tables);
    let succeeded: HashMap<i64, i64> =
        tables.attempts.iter().filter(|attempt| attempt.outcome == "succeeded").map(|attempt| (attempt.op, attempt.ended_at_us)).collect();
    let settled = first_settled(tables);
    for edge in &tables.edges {
        for op in [edge.child, edge.parent] {
            if !tables.ops.contains_key(&op) {
                findings.add(format!("the edge from {} to {} hangs in the air", edge.parent, edge.child));
            }
        }
        let Some(began) = began.get(&edge.child) else { continue };
        let (done, what) =
            if edge.required == 1 { (succeeded.get(&edge.parent), "succeeded") } else { (settled.get(&edge.parent), "settled") };
        if done.is_none_or(|done| done > began) {
            let (child, parent) = (tables.name(edge.child), tables.name(edge.parent));
            findings.add(format!("{child} was leased at {began}, before {parent}, on which it depends, was {what} ({done:?})"));
        }
    }
}

/// When each op was leased for the first time.
fn first_leased(tables: &Tables) -> HashMap<i64, i64> {
    let attempts = tables.attempts.iter().map(|attempt| (attempt.op, attempt.acquired_at_us));
    let leases = tables.leases.iter().map(|lease| (lease.op, lease.acquired_at_us));
    earliest(attempts.chain(leases))
}

/// When each op could first let those go on that only wait for it to be settled.
fn first_settled(tables: &Tables) -> HashMap<i64, i64> {
    let kinds = ["op_succeeded", "op_failed", "op_blocked", "op_canceled"];
    let settling = tables.events.iter().filter(|event| kinds.contains(&event.kind.as_str()));
    earliest(settling.filter_map(|event| Some((event.op?, event.at_us))))
}

fn earliest(instants: impl Iterator<Item = (i64, i64)>) -> HashMap<i64, i64> {
    let mut earliest: HashMap<i64, i64> = HashMap::new();
    for (op, at) in instants {
        earliest.entry(op).and_modify(|first| *first = at.min(*first)).or_insert(at);
    }
    earliest
}
