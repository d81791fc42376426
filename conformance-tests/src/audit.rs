//! A checker that reads nothing but the ledger, the events, and who depends on whom: no code of the engine judges here.

use crate::World;
use leasehold_core::model::{EventSeq, Fence, OpSeq, QueueName, Timestamp};
use leasehold_core::store::BoxError;
use leasehold_core::store::rows::{Attempt, AttemptOutcome, EventKind, EventRow, OpView, UpstreamEdge, WorkflowPage};
use std::collections::{BTreeMap, HashMap};

/// Rows in one page of its reads.
const PAGE: u32 = 1_000;

/// What an audit has looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Audited {
    /// Ops.
    pub ops: usize,
    /// Lines of the ledger.
    pub attempts: usize,
    /// Events.
    pub events: usize,
}

/// Holds what has happened in a store against what may: owners of one op one after the other, fences that grow, one success
/// for each success that is told, nothing before what it requires, and never more of a queue at once than its limit. Ops
/// of one queue at several sites are counted together. Time must not have gone back.
///
/// # Errors
/// All that was not allowed to happen, or the store's error.
pub fn audit(world: &World, limits: &[(QueueName, usize)]) -> Result<Audited, BoxError> {
    let mut record = Record::read(world)?;
    let mut wrong = Vec::new();
    for op in record.ops.values() {
        owners(op, record.attempts.get(&op.state.seq).map(Vec::as_slice).unwrap_or_default(), &mut wrong);
    }
    record.successes(&mut wrong);
    record.order(&mut wrong);
    for (queue, limit) in limits {
        record.limit(queue, *limit, &mut wrong);
    }
    record.events.clear();
    if wrong.is_empty() { Ok(record.audited) } else { Err(format!("what happened may not: {}", wrong.join("; ")).into()) }
}

/// All that was recorded.
struct Record {
    ops: BTreeMap<OpSeq, OpView>,
    edges: Vec<UpstreamEdge>,
    attempts: HashMap<OpSeq, Vec<Attempt>>,
    events: Vec<EventRow>,
    audited: Audited,
}

impl Record {
    fn read(world: &World) -> Result<Self, BoxError> {
        let mut record =
            Self { ops: BTreeMap::new(), edges: Vec::new(), attempts: HashMap::new(), events: Vec::new(), audited: Audited::default() };
        let mut before = None;
        loop {
            let page = WorkflowPage { before, limit: PAGE, ..WorkflowPage::default() };
            let rows = world.read(|tx| tx.list_workflows(&page))?;
            let Some(last) = rows.last() else { break };
            before = Some(last.seq);
            for row in &rows {
                for view in world.all_ops(row.seq)? {
                    let seq = view.state.seq;
                    let (lines, edges) = world.read(|tx| Ok((tx.attempts(seq, Fence::NONE, PAGE)?, tx.upstream(&[seq])?)))?;
                    record.audited.attempts += lines.len();
                    record.attempts.insert(seq, lines);
                    record.edges.extend(edges);
                    record.ops.insert(seq, view);
                }
            }
        }
        let mut after: Option<EventSeq> = None;
        loop {
            let rows = world.read(|tx| tx.events_since(after, None, PAGE))?;
            let Some(last) = rows.last() else { break };
            after = Some(last.seq);
            record.events.extend(rows);
        }
        (record.audited.ops, record.audited.events) = (record.ops.len(), record.events.len());
        Ok(record)
    }

    /// The number of the event that tells of an op's success.
    fn told(&self) -> HashMap<OpSeq, Vec<EventSeq>> {
        let mut told: HashMap<OpSeq, Vec<EventSeq>> = HashMap::new();
        for row in self.events.iter().filter(|row| row.event.kind == EventKind::OpSucceeded) {
            if let Some(op) = row.event.op {
                told.entry(op).or_default().push(row.seq);
            }
        }
        told
    }

    fn successes(&self, wrong: &mut Vec<String>) {
        let told = self.told();
        for (seq, op) in &self.ops {
            let lines = self.attempts.get(seq).map(Vec::as_slice).unwrap_or_default();
            let written = lines.iter().filter(|line| line.outcome == AttemptOutcome::Succeeded).count();
            let told = told.get(seq).map_or(0, Vec::len);
            let stands = usize::from(op.result.is_some());
            if (written, told) != (stands, stands) {
                wrong.push(format!("{} has {stands} results, {written} successes in the ledger and {told} in the history", op.state.id));
            }
        }
    }

    /// What is required succeeded before: by the clock of the ledger, and in the order of the history.
    fn order(&self, wrong: &mut Vec<String>) {
        let told = self.told();
        let first = |op: OpSeq| told.get(&op).and_then(|seqs| seqs.first().copied());
        let succeeded_at = |op: OpSeq| {
            let lines = self.attempts.get(&op).map(Vec::as_slice).unwrap_or_default();
            lines.iter().find(|line| line.outcome == AttemptOutcome::Succeeded).map(|line| line.ended_at)
        };
        for edge in self.edges.iter().filter(|edge| edge.required) {
            let lines = self.attempts.get(&edge.child).map(Vec::as_slice).unwrap_or_default();
            let began = lines.iter().map(|line| line.acquired_at).min();
            let Some(began) = began else { continue };
            if succeeded_at(edge.parent).is_none_or(|parent| parent > began) {
                wrong.push(format!("op {} began before {:?}, which it requires, had succeeded", edge.child.0, edge.parent_id));
            }
            if let (Some(child), Some(parent)) = (first(edge.child), first(edge.parent))
                && child < parent
            {
                wrong.push(format!("op {} is told of before {:?}, which it requires", edge.child.0, edge.parent_id));
            }
        }
    }

    /// Never more at once than the limit. At one instant ends come before beginnings: a slot is given back with its lease.
    fn limit(&self, queue: &QueueName, limit: usize, wrong: &mut Vec<String>) {
        let of_queue = self.ops.values().filter(|op| op.queue == *queue);
        let lines = of_queue.flat_map(|op| self.attempts.get(&op.state.seq).map(Vec::as_slice).unwrap_or_default());
        let mut turns: Vec<(Timestamp, bool)> = lines.flat_map(|line| [(line.acquired_at, true), (line.ended_at, false)]).collect();
        turns.sort_unstable();
        let (mut running, mut most) = (0_usize, 0);
        for (_, begins) in turns {
            running = if begins { running + 1 } else { running.saturating_sub(1) };
            most = most.max(running);
        }
        if most > limit {
            wrong.push(format!("queue {queue} ran {most} at once, its limit is {limit}"));
        }
    }
}

/// One owner after the other, under numbers that grow.
fn owners(op: &OpView, lines: &[Attempt], wrong: &mut Vec<String>) {
    for (earlier, later) in lines.iter().zip(lines.iter().skip(1)) {
        if earlier.key.fence >= later.key.fence {
            wrong.push(format!("{} has fence {} behind {}", op.state.id, later.key.fence.0, earlier.key.fence.0));
        }
        if earlier.ended_at > later.acquired_at {
            wrong.push(format!("{} had two owners: {} and {}", op.state.id, earlier.worker, later.worker));
        }
        if earlier.key.token == later.key.token {
            wrong.push(format!("{} was owned twice under one token", op.state.id));
        }
    }
    let ended = |line: &&Attempt| matches!(line.outcome, AttemptOutcome::Succeeded);
    if lines.iter().filter(ended).count() > 1 {
        wrong.push(format!("{} succeeded twice", op.state.id));
    }
}
