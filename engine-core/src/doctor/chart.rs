//! What is stored about some ops, and what of it does not follow from the rest.

use super::Drift;
use crate::model::OpSeq;
use crate::state::{Share, StoredStatus, share};
use crate::store::rows::{Lease, OpState, OpWait, QueuedOp, UpstreamEdge};
use crate::store::{FactsOf, OpFacts, Place, StoreResult, Tx};
use crate::transitions::queued;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Some ops with their edges, places and leases, read in one transaction.
#[derive(Debug)]
pub(crate) struct Chart {
    pub(crate) facts: BTreeMap<OpSeq, OpFacts>,
    pub(crate) edges: HashMap<OpSeq, Vec<UpstreamEdge>>,
    pub(crate) loose: HashSet<OpSeq>,
    pub(crate) places: HashMap<OpSeq, Vec<Place>>,
    pub(crate) leases: HashMap<OpSeq, Lease>,
    pub(crate) waits: HashMap<OpSeq, OpWait>,
}

impl Chart {
    /// Reads it, in a bounded number of statements.
    pub(crate) fn read(tx: &mut dyn Tx, of: &FactsOf<'_>) -> StoreResult<Self> {
        let facts: BTreeMap<OpSeq, OpFacts> = tx.op_facts(of)?.into_iter().map(|facts| (facts.state.seq, facts)).collect();
        let ops: Vec<OpSeq> = facts.keys().copied().collect();
        let mut edges: HashMap<OpSeq, Vec<UpstreamEdge>> = HashMap::new();
        for edge in tx.upstream(&ops)? {
            edges.entry(edge.child).or_default().push(edge);
        }
        let loose = tx.loose_edges(&ops)?.into_iter().map(|edge| edge.child).collect();
        let mut places: HashMap<OpSeq, Vec<Place>> = HashMap::new();
        for place in tx.places(&ops)? {
            places.entry(place.queued.op).or_default().push(place);
        }
        let leases = tx.leases_of(&ops)?.into_iter().map(|lease| (lease.key.op, lease)).collect();
        let waits = tx.waits_of(&ops)?.into_iter().map(|wait| (wait.key.op, wait)).collect();
        Ok(Self { facts, edges, loose, places, leases, waits })
    }

    /// What the edges of `op` add up to, where parents stand as `standing` says, else as their rows do.
    pub(crate) fn derived(&self, op: OpSeq, standing: &HashMap<OpSeq, StoredStatus>) -> Share {
        let edges = self.edges.get(&op).map(Vec::as_slice).unwrap_or_default();
        edges.iter().fold(Share { unmet: 0, broken: 0 }, |sum, edge| {
            let parent = standing.get(&edge.parent).copied().unwrap_or(edge.parent_status);
            // A ready and a running parent hold a child back alike.
            let share = share(edge.required, parent.status(false));
            Share { unmet: sum.unmet + share.unmet, broken: sum.broken + share.broken }
        })
    }

    /// Everything about one op that does not follow from the rest; `canceled` says whether its workflow was canceled.
    pub(crate) fn differences(&self, facts: &OpFacts, canceled: bool) -> Vec<(Drift, String)> {
        let mut found = Vec::new();
        let state = &facts.state;
        self.graph_differences(facts, canceled, &mut found);
        self.hot_differences(state, &mut found);
        match (state.status == StoredStatus::Waiting, self.waits.contains_key(&state.seq)) {
            (true, false) => found.push((Drift::WaitGone, "it is waiting, and nothing says for what".to_owned())),
            (false, true) => found.push((Drift::WaitsNotWaiting, format!("it is {} and said to wait", state.status.as_str()))),
            (true, true) | (false, false) => {}
        }
        if facts.finished_at.is_some() != is_ended(state.status) {
            found.push((Drift::FinishedAt, format!("it is {} and finished at {:?}", state.status.as_str(), facts.finished_at)));
        }
        if !facts.lane_known {
            found.push((Drift::LaneGone, format!("lane {} or its gate is not there", state.lane.0)));
        }
        found
    }

    fn graph_differences(&self, facts: &OpFacts, canceled: bool, found: &mut Vec<(Drift, String)>) {
        let state = &facts.state;
        if self.loose.contains(&state.seq) {
            found.push((Drift::ParentGone, "an op that it waits for is not there".to_owned()));
            return;
        }
        if canceled && !is_ended(state.status) {
            found.push((Drift::SurvivedCancel, format!("its workflow is canceled and it is {}", state.status.as_str())));
            return;
        }
        match state.status {
            StoredStatus::Pending | StoredStatus::Blocked => {
                let derived = self.derived(state.seq, &HashMap::new());
                if (state.unmet, state.broken) != (derived.unmet, derived.broken) {
                    let stored = (state.unmet, state.broken);
                    let what = format!("(unmet, broken) is {stored:?}, its edges make it {:?}", (derived.unmet, derived.broken));
                    found.push((Drift::Counts, what));
                }
                let status = standing(derived);
                if status != state.status {
                    found.push((Drift::Status, format!("it is {}, its edges make it {}", state.status.as_str(), status.as_str())));
                }
            }
            // A required parent never leaves "succeeded" while the op is open; a soft one may have reopened since.
            StoredStatus::Open => {
                let edges = self.edges.get(&state.seq).map(Vec::as_slice).unwrap_or_default();
                let unmet = |edge: &&UpstreamEdge| edge.required && edge.parent_status != StoredStatus::Succeeded;
                if let Some(edge) = edges.iter().find(unmet) {
                    let parent = (&edge.parent_id, edge.parent_status.as_str());
                    found.push((Drift::Ahead, format!("it is open, and {:?}, which it requires, is {}", parent.0, parent.1)));
                }
            }
            StoredStatus::Waiting | StoredStatus::Succeeded | StoredStatus::Failed | StoredStatus::Canceled => {}
        }
    }

    fn hot_differences(&self, state: &OpState, found: &mut Vec<(Drift, String)>) {
        let places = self.places.get(&state.seq).map(Vec::as_slice).unwrap_or_default();
        let lease = self.leases.get(&state.seq);
        if state.status != StoredStatus::Open {
            if !places.is_empty() {
                found.push((Drift::QueuedNotOpen, format!("it is {} and queued", state.status.as_str())));
            }
            if let Some(lease) = lease {
                found.push((Drift::LeasedNotOpen, format!("it is {} and leased to {:?}", state.status.as_str(), lease.worker)));
            }
            return;
        }
        match (places, lease) {
            ([], None) => found.push((Drift::Nowhere, "it is open, and neither queued nor leased".to_owned())),
            ([_, ..], Some(_)) => found.push((Drift::InTwoPlaces, "it is leased and queued".to_owned())),
            ([_, _, ..], None) => found.push((Drift::InTwoPlaces, "it is queued twice".to_owned())),
            ([place], None) if !fits(state, &place.queued) => {
                found.push((Drift::PlaceWrong, format!("it is queued as {:?}, its row makes it {:?}", place.queued, due(state, place))));
            }
            _ => {}
        }
        if let Some(lease) = lease.filter(|lease| !is_sound(state, lease)) {
            let what =
                format!("its lease has fence {} of workflow {}; its last was {}", lease.key.fence.0, lease.workflow.0, state.fence.0);
            found.push((Drift::LeaseWrong, what));
        }
    }
}

/// The place that a row makes for its op, due when `place` is.
fn due(state: &OpState, place: &Place) -> QueuedOp {
    queued(state, place.queued.due_at)
}

/// Whether a place says what the op's row does.
pub(crate) fn fits(state: &OpState, place: &QueuedOp) -> bool {
    queued(state, place.due_at) == *place
}

/// Whether a lease can be of this op's next attempt.
pub(crate) fn is_sound(state: &OpState, lease: &Lease) -> bool {
    lease.key.fence > state.fence && lease.workflow == state.workflow
}

/// Where counts put an op that waits for others.
pub(crate) fn standing(derived: Share) -> StoredStatus {
    match (derived.broken > 0, derived.unmet > 0) {
        (true, _) => StoredStatus::Blocked,
        (false, true) => StoredStatus::Pending,
        (false, false) => StoredStatus::Open,
    }
}

/// Whether an op that stands so has an instant of its end.
pub(crate) const fn is_ended(status: StoredStatus) -> bool {
    matches!(status, StoredStatus::Succeeded | StoredStatus::Failed | StoredStatus::Canceled)
}
