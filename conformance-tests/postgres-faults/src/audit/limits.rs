//! How many ops of a queue were leased at once, at every instant of the store's life.

use super::{Findings, Tables};
use std::collections::BTreeMap;

pub(super) fn judge(tables: &Tables, limits: &[(&str, usize)], findings: &mut Findings) {
    for (gate, most) in most_at_once(tables) {
        let limit = limits.iter().find(|(queue, _)| *queue == gate.1).map(|(_, limit)| *limit);
        if let Some(limit) = limit.filter(|limit| most.count > *limit) {
            let (site, queue) = gate;
            findings.add(format!("queue {queue} at site {site} has a limit of {limit} and had {} leases at {}", most.count, most.at_us));
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Most {
    pub(super) count: usize,
    at_us: i64,
}

/// A lease counts from its beginning up to, without, its end.
pub(super) fn most_at_once(tables: &Tables) -> BTreeMap<(&str, &str), Most> {
    let ended = tables.attempts.iter().map(|attempt| (attempt.op, attempt.acquired_at_us, Some(attempt.ended_at_us)));
    let open = tables.leases.iter().map(|lease| (lease.op, lease.acquired_at_us, None));
    let mut steps: BTreeMap<(&str, &str), Vec<(i64, bool)>> = BTreeMap::new();
    for (op, from, to) in ended.chain(open) {
        let Some(row) = tables.ops.get(&op) else { continue };
        let steps = steps.entry((&row.site, &row.queue)).or_default();
        steps.push((from, true));
        steps.extend(to.map(|to| (to, false)));
    }
    let mut found = BTreeMap::new();
    for (gate, mut steps) in steps {
        // At one instant ends come first: false sorts before true.
        steps.sort_unstable();
        let (mut now, mut most) = (0_usize, Most::default());
        for (at_us, begins) in steps {
            now = if begins { now + 1 } else { now.saturating_sub(1) };
            if now > most.count {
                most = Most { count: now, at_us };
            }
        }
        found.insert(gate, most);
    }
    found
}
