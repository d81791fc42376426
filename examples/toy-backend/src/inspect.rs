//! Steps that look at rows as they are.

use crate::store::ToyTx;
use crate::tables::Op;
use leasehold_core::model::{OpSeq, WorkflowSeq};
use leasehold_core::state::{Counters, StoredStatus};
use leasehold_core::store::rows::{Edge, UpstreamEdge};
use leasehold_core::store::{FactsOf, InspectTx, OpFacts, Place, StoreResult};
use std::collections::{BTreeMap, BTreeSet};

impl InspectTx for ToyTx {
    fn op_facts(&mut self, of: &FactsOf<'_>) -> StoreResult<Vec<OpFacts>> {
        self.read(|tables, _| {
            let facts = |op: &Op| {
                // A gate is made known by its lanes.
                OpFacts { state: op.state(), finished_at: op.finished_at, lane_known: tables.lanes.contains_key(&op.row.lane.key) }
            };
            Ok(match of {
                FactsOf::Workflow { workflow, after, limit } => {
                    let wanted = |op: &&Op| op.row.workflow == *workflow && after.is_none_or(|after| op.row.seq > after);
                    tables.ops.values().filter(wanted).take(*limit as usize).map(facts).collect()
                }
                FactsOf::Ops(ops) => {
                    ops.iter().collect::<BTreeSet<_>>().into_iter().filter_map(|op| tables.ops.get(op)).map(facts).collect()
                }
            })
        })
    }

    fn hot_keys(&mut self, after: Option<OpSeq>, limit: u32) -> StoreResult<Vec<OpSeq>> {
        self.read(|tables, _| {
            let hot = tables.ready.keys().chain(tables.delayed.keys()).chain(tables.leases.keys());
            let keys: BTreeSet<OpSeq> = hot.chain(tables.waits.keys()).copied().collect();
            Ok(keys.into_iter().filter(|key| after.is_none_or(|after| *key > after)).take(limit as usize).collect())
        })
    }

    fn places(&mut self, ops: &[OpSeq]) -> StoreResult<Vec<Place>> {
        self.read(|tables, _| {
            let ready = tables.ready.values().map(|queued| Place { delayed: false, queued: *queued });
            let delayed = tables.delayed.values().map(|queued| Place { delayed: true, queued: *queued });
            Ok(ready.chain(delayed).filter(|place| ops.contains(&place.queued.op)).collect())
        })
    }

    fn loose_edges(&mut self, children: &[OpSeq]) -> StoreResult<Vec<Edge>> {
        self.read(|tables, _| {
            let loose = |edge: &&Edge| children.contains(&edge.child) && !tables.ops.contains_key(&edge.parent);
            Ok(tables.edges.values().filter(loose).copied().collect())
        })
    }

    fn count_ops(&mut self, workflows: &[WorkflowSeq]) -> StoreResult<Vec<(WorkflowSeq, Counters)>> {
        self.read(|tables, _| {
            let mut counted: BTreeMap<WorkflowSeq, Counters> = BTreeMap::new();
            for op in tables.ops.values().filter(|op| workflows.contains(&op.row.workflow)) {
                counted.entry(op.row.workflow).or_default().add(op.row.status, 1);
            }
            Ok(counted.into_iter().collect())
        })
    }

    fn upstream_through(&mut self, from: &[OpSeq], through: &[StoredStatus]) -> StoreResult<Vec<UpstreamEdge>> {
        self.read(|tables, _| {
            let mut seen: BTreeSet<OpSeq> = from.iter().copied().collect();
            let mut next: Vec<OpSeq> = seen.iter().copied().collect();
            let mut edges = Vec::new();
            while let Some(child) = next.pop() {
                for edge in tables.edges.values().filter(|edge| edge.child == child) {
                    let Some(parent) = tables.ops.get(&edge.parent) else { continue };
                    let (parent_id, parent_status) = (parent.row.id.clone(), parent.row.status);
                    edges.push(UpstreamEdge { child, required: edge.required, parent: edge.parent, parent_id, parent_status });
                    if through.contains(&parent_status) && seen.insert(edge.parent) {
                        next.push(edge.parent);
                    }
                }
            }
            Ok(edges)
        })
    }
}
