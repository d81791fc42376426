//! How a change of one op spreads to those that wait for it: the fixed point, found in memory (S2 to S4).
//!
//! Readiness is arithmetic: an edge adds a [share](crate::state::share) to its child's counts, a parent's move adds the
//! difference of shares, and a child whose counts say so moves itself. Only pending and blocked children change.

use super::journal::{About, Journal};
use crate::model::{OpSeq, Timestamp, WorkflowId, WorkflowSeq};
use crate::state::{Counters, Event, OpStatus, Share, StoredStatus, next, share};
use crate::store::rows::{DownstreamEdge, EventKind, OpChange, OpState, QueuedOp, WriteSet};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// The part of a graph that a transaction moves.
#[derive(Debug, Default)]
pub(super) struct Ripple {
    nodes: BTreeMap<OpSeq, Node>,
    edges: HashMap<OpSeq, Vec<(OpSeq, bool)>>,
    moves: VecDeque<(OpSeq, OpStatus, OpStatus)>,
    /// Children whose counts changed and who have not been looked at since.
    stirred: BTreeSet<OpSeq>,
}

/// A pending or blocked op, or a new one.
#[derive(Debug)]
struct Node {
    state: OpState,
    now: OpStatus,
    /// What its row says, or `None` while it has no row.
    stored: Option<StoredStatus>,
    touched: bool,
}

impl Ripple {
    /// Learns edges that a store told, with their children.
    pub(super) fn learn(&mut self, edges: Vec<DownstreamEdge>) {
        for edge in edges {
            self.edges.entry(edge.parent).or_default().push((edge.child.seq, edge.required));
            self.know(edge.child);
        }
    }

    /// Learns an op that the store told; what is known of it already is newer.
    pub(super) fn know(&mut self, state: OpState) {
        let (now, stored) = (state.status.status(false), Some(state.status));
        self.nodes.entry(state.seq).or_insert(Node { state, now, stored, touched: false });
    }

    /// Learns an op that has no row yet.
    pub(super) fn know_new(&mut self, state: OpState) {
        let now = state.status.status(false);
        self.nodes.insert(state.seq, Node { state, now, stored: None, touched: false });
    }

    /// An op as it stands in this transaction, if it is one of those that may move.
    pub(super) fn state(&self, op: OpSeq) -> Option<&OpState> {
        self.nodes.get(&op).map(|node| &node.state)
    }

    /// Adds an edge that has no row yet, to a child whose counts include it already.
    pub(super) fn connect(&mut self, parent: OpSeq, child: OpSeq, required: bool) {
        self.edges.entry(parent).or_default().push((child, required));
    }

    /// Adds the share of a new edge to a known child's counts.
    pub(super) fn burden(&mut self, child: OpSeq, by: Share) {
        self.shift(child, by);
    }

    /// An op moves for a reason outside the graph.
    pub(super) fn moved(&mut self, op: OpSeq, from: OpStatus, to: OpStatus) {
        self.moves.push_back((op, from, to));
    }

    /// Spreads all moves to the fixed point. Every move in hand is counted before any child is looked at, so that a
    /// child which one move frees and another holds does not flicker.
    pub(super) fn settle(&mut self) {
        loop {
            while let Some((parent, from, to)) = self.moves.pop_front() {
                for (child, required) in self.edges.get(&parent).cloned().unwrap_or_default() {
                    let (old, new) = (share(required, from), share(required, to));
                    self.shift(child, Share { unmet: new.unmet - old.unmet, broken: new.broken - old.broken });
                }
            }
            let Some(op) = self.stirred.pop_first() else { return };
            self.look_at(op);
        }
    }

    fn shift(&mut self, child: OpSeq, by: Share) {
        if by == (Share { unmet: 0, broken: 0 }) {
            return;
        }
        if let Some(node) = self.nodes.get_mut(&child).filter(|node| matches!(node.now, OpStatus::Pending | OpStatus::Blocked)) {
            node.state.unmet += by.unmet;
            node.state.broken += by.broken;
            node.touched = true;
            debug_assert!(node.state.broken >= 0 && node.state.unmet >= node.state.broken, "counts drifted: {:?}", node.state);
            self.stirred.insert(child);
        }
    }

    fn look_at(&mut self, op: OpSeq) {
        let Some(node) = self.nodes.get_mut(&op) else { return };
        let from = node.now;
        let mut to = from;
        if node.state.broken > 0 {
            to = next(to, Event::Broken).unwrap_or(to);
        } else {
            to = next(to, Event::Reopened).unwrap_or(to);
            if node.state.unmet == 0 {
                to = next(to, Event::Satisfied).unwrap_or(to);
            }
        }
        if to != from {
            node.now = to;
            node.state.status = to.stored();
            self.moves.push_back((op, from, to));
        }
    }

    /// Where a new op stands now, with its counts.
    pub(super) fn outcome(&self, op: OpSeq) -> Option<&OpState> {
        self.state(op)
    }

    /// Writes what moved into `set`, counts it, and tells of it.
    pub(super) fn write(
        self,
        now: Timestamp,
        ids: &HashMap<WorkflowSeq, WorkflowId>,
        tally: &mut Tally,
        set: &mut WriteSet,
        journal: &mut Journal,
    ) {
        for (op, node) in self.nodes {
            let state = node.state;
            if node.now == OpStatus::Ready {
                set.ready.push(queued(&state, now));
            }
            let Some(from) = node.stored.filter(|_| node.touched) else { continue };
            set.changes.push(OpChange {
                op,
                from,
                to: state.status,
                unmet: state.unmet,
                broken: state.broken,
                fence: None,
                failures: None,
                losses: None,
                finished_at: None,
            });
            tally.moves(state.workflow, from, state.status);
            let kind = match (from, node.now) {
                (StoredStatus::Pending, OpStatus::Blocked) => EventKind::OpBlocked,
                (StoredStatus::Blocked, OpStatus::Pending | OpStatus::Ready) => EventKind::OpUnblocked,
                _ => continue,
            };
            if let Some(id) = ids.get(&state.workflow) {
                journal.tell(kind, About { workflow: (state.workflow, id), op: Some((op, &state.id)), fence: None }, None);
            }
        }
    }
}

/// The place in `ready` of an op that may be claimed from `due_at` on.
pub(crate) fn queued(state: &OpState, due_at: Timestamp) -> QueuedOp {
    let lane = if is_suspect(state.losses) { state.lane.apart() } else { state.lane };
    QueuedOp { op: state.seq, lane, priority: state.priority, due_at, fence: state.fence, failures: state.failures }
}

/// An op that was lost with this many workers may be what killed them: from then on no worker runs two such ops at a time,
/// so that none is lost again with the one that is to blame. Once is too little to suspect it: a host that goes away takes
/// a thousand innocent ops along, and they are to run again side by side.
const SUSPECT_LOSSES: u32 = 2;

/// Whether an op that was lost with so many workers is to run apart.
pub(super) const fn is_suspect(losses: u32) -> bool {
    losses >= SUSPECT_LOSSES
}

/// How the counters of the workflows in a transaction change.
#[derive(Debug, Default)]
pub(super) struct Tally(BTreeMap<WorkflowSeq, Counters>);

impl Tally {
    pub(super) fn moves(&mut self, workflow: WorkflowSeq, from: StoredStatus, to: StoredStatus) {
        let counters = self.0.entry(workflow).or_default();
        counters.add(from, -1);
        counters.add(to, 1);
    }

    pub(super) fn appears(&mut self, workflow: WorkflowSeq, at: StoredStatus) {
        self.0.entry(workflow).or_default().add(at, 1);
    }

    /// The workflows that change.
    pub(super) fn workflows(&self) -> impl Iterator<Item = WorkflowSeq> {
        self.0.keys().copied()
    }

    /// `before`, with what has changed.
    pub(super) fn applied(&self, workflow: WorkflowSeq, before: &Counters) -> Counters {
        let mut after = *before;
        if let Some(change) = self.0.get(&workflow) {
            for (status, by) in [
                (StoredStatus::Pending, change.pending),
                (StoredStatus::Blocked, change.blocked),
                (StoredStatus::Open, change.open),
                (StoredStatus::Waiting, change.waiting),
                (StoredStatus::Succeeded, change.succeeded),
                (StoredStatus::Failed, change.failed),
                (StoredStatus::Canceled, change.canceled),
            ] {
                after.add(status, by);
            }
        }
        after
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Digest, Fence, LaneKey, OpId, RetryPolicy};

    fn state(seq: i64, unmet: i32, broken: i32) -> OpState {
        OpState {
            seq: OpSeq(seq),
            workflow: WorkflowSeq(1),
            id: OpId::new(seq.to_string()).unwrap(),
            status: if broken > 0 { StoredStatus::Blocked } else { StoredStatus::Pending },
            unmet,
            broken,
            fence: Fence::NONE,
            failures: 0,
            losses: 0,
            lane: LaneKey(1),
            priority: 0,
            retry: RetryPolicy::default(),
            parent: None,
            dedup_key: None,
            spec: Digest::of_bytes(b""),
        }
    }

    fn edge(parent: i64, child: OpState, required: bool) -> DownstreamEdge {
        DownstreamEdge { parent: OpSeq(parent), required, child }
    }

    fn now(ripple: &Ripple, op: i64) -> OpStatus {
        ripple.nodes.get(&OpSeq(op)).unwrap().now
    }

    #[test]
    fn a_failure_blocks_what_requires_it_and_frees_what_does_not() {
        let mut ripple = Ripple::default();
        ripple.learn(vec![
            edge(1, state(2, 1, 0), true),
            edge(1, state(3, 1, 0), false),
            edge(2, state(4, 1, 0), true),
            edge(4, state(5, 1, 0), false),
        ]);
        ripple.moved(OpSeq(1), OpStatus::Running, OpStatus::Failed);
        ripple.settle();
        assert_eq!([2, 3, 4, 5].map(|op| now(&ripple, op)), [OpStatus::Blocked, OpStatus::Ready, OpStatus::Blocked, OpStatus::Ready]);
    }

    #[test]
    fn a_repair_reopens_to_the_fixed_point_unless_another_failure_holds() {
        let mut ripple = Ripple::default();
        ripple.learn(vec![edge(1, state(3, 2, 1), true), edge(1, state(4, 2, 2), true), edge(3, state(5, 1, 1), true)]);
        ripple.moved(OpSeq(1), OpStatus::Failed, OpStatus::Ready);
        ripple.settle();
        assert_eq!([3, 4, 5].map(|op| now(&ripple, op)), [OpStatus::Pending, OpStatus::Blocked, OpStatus::Pending]);
    }

    #[test]
    fn a_new_burden_is_counted_before_the_child_is_freed() {
        let mut ripple = Ripple::default();
        ripple.know_new(state(9, 0, 0));
        ripple.learn(vec![edge(1, state(2, 1, 0), true)]);
        ripple.connect(OpSeq(9), OpSeq(2), true);
        ripple.burden(OpSeq(2), share(true, OpStatus::Ready));
        ripple.moved(OpSeq(1), OpStatus::Running, OpStatus::Succeeded);
        ripple.settle();
        assert_eq!(now(&ripple, 2), OpStatus::Pending);
    }
}
