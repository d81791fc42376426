//! Steps that look at rows as they are.

use super::MemoryTx;
use super::tables::{OpRow, Tables};
use crate::model::{OpSeq, WorkflowSeq};
use crate::state::{Counters, StoredStatus};
use crate::store::rows::{Edge, UpstreamEdge};
use crate::store::{FactsOf, InspectTx, OpFacts, Place, StoreResult};
use std::collections::BTreeSet;

impl InspectTx for MemoryTx<'_> {
    fn op_facts(&mut self, of: &FactsOf<'_>) -> StoreResult<Vec<OpFacts>> {
        self.read(|tables, _| {
            let facts = |row: &OpRow| OpFacts {
                state: row.state(),
                finished_at: row.finished_at,
                lane_known: tables.lanes.get(&row.new.lane.key).is_some_and(|lane| tables.gates.contains(&lane.gate)),
            };
            Ok(match of {
                FactsOf::Workflow { workflow, after, limit } => {
                    let behind = tables.ops_of(*workflow).filter(|row| after.is_none_or(|after| row.new.seq > after));
                    behind.take(*limit as usize).map(facts).collect()
                }
                FactsOf::Ops(ops) => {
                    let distinct: BTreeSet<&OpSeq> = ops.iter().collect();
                    distinct.into_iter().filter_map(|op| tables.ops.get(op)).map(facts).collect()
                }
            })
        })
    }

    fn hot_keys(&mut self, after: Option<OpSeq>, limit: u32) -> StoreResult<Vec<OpSeq>> {
        self.read(|tables, _| {
            let from = after.map_or(OpSeq(i64::MIN), |after| OpSeq(after.0.saturating_add(1)));
            let limit = limit as usize;
            let mut keys: BTreeSet<OpSeq> = tables.ready.range(from..).take(limit).map(|(op, _)| *op).collect();
            keys.extend(tables.delayed.range(from..).take(limit).map(|(op, _)| *op));
            keys.extend(tables.leases.range(from..).take(limit).map(|(op, _)| *op));
            keys.extend(tables.waits.range(from..).take(limit).map(|(op, _)| *op));
            Ok(keys.into_iter().take(limit).collect())
        })
    }

    fn places(&mut self, ops: &[OpSeq]) -> StoreResult<Vec<Place>> {
        self.read(|tables, _| {
            let distinct: BTreeSet<&OpSeq> = ops.iter().collect();
            let ready = distinct.iter().filter_map(|op| tables.ready.get(op)).map(|queued| Place { delayed: false, queued: *queued });
            let delayed = distinct.iter().filter_map(|op| tables.delayed.get(op)).map(|queued| Place { delayed: true, queued: *queued });
            Ok(ready.chain(delayed).collect())
        })
    }

    fn loose_edges(&mut self, children: &[OpSeq]) -> StoreResult<Vec<Edge>> {
        self.read(|tables, _| {
            let distinct: BTreeSet<OpSeq> = children.iter().copied().collect();
            let edges = distinct.into_iter().flat_map(|child| edges_into(tables, child));
            Ok(edges.filter(|edge| !tables.ops.contains(&edge.parent)).collect())
        })
    }

    fn count_ops(&mut self, workflows: &[WorkflowSeq]) -> StoreResult<Vec<(WorkflowSeq, Counters)>> {
        self.read(|tables, _| {
            let distinct: BTreeSet<WorkflowSeq> = workflows.iter().copied().collect();
            let counted = distinct.into_iter().map(|workflow| {
                let mut counters = Counters::default();
                tables.ops_of(workflow).for_each(|row| counters.add(row.status, 1));
                (workflow, counters)
            });
            Ok(counted.collect())
        })
    }

    fn upstream_through(&mut self, from: &[OpSeq], through: &[StoredStatus]) -> StoreResult<Vec<UpstreamEdge>> {
        self.read(|tables, _| {
            let mut seen: BTreeSet<OpSeq> = from.iter().copied().collect();
            let mut next: Vec<OpSeq> = seen.iter().copied().collect();
            let mut edges = Vec::new();
            while let Some(child) = next.pop() {
                for Edge { parent, required, .. } in edges_into(tables, child) {
                    let Some(row) = tables.ops.get(&parent) else { continue };
                    edges.push(UpstreamEdge { child, required, parent, parent_id: row.new.id.clone(), parent_status: row.status });
                    if through.contains(&row.status) && seen.insert(parent) {
                        next.push(parent);
                    }
                }
            }
            Ok(edges)
        })
    }
}

fn edges_into(tables: &Tables, child: OpSeq) -> impl Iterator<Item = Edge> {
    let all = tables.edges.range((child, OpSeq(i64::MIN))..=(child, OpSeq(i64::MAX)));
    all.map(|((child, parent), required)| Edge { child: *child, parent: *parent, required: *required })
}
