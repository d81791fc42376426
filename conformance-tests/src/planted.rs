//! What a scenario has become in a store.

use crate::World;
use crate::scenario::{LEASE, name};
use leasehold_core::model::{Lane, LeaseToken, OpSeq, OpSpec, WorkerName, WorkflowId, WorkflowSeq};
use leasehold_core::store::BoxError;
use leasehold_core::store::rows::{Claim, ClaimedOp, LaneTake, LeaseKey};
use std::collections::BTreeMap;

/// What a scenario has become.
#[derive(Debug, Clone)]
pub struct Planted {
    /// The workflow's key.
    pub workflow: WorkflowSeq,
    /// The workflow's id.
    pub id: WorkflowId,
    pub(crate) ops: BTreeMap<String, OpSeq>,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) claimed: BTreeMap<String, ClaimedOp>,
}

impl Planted {
    /// What stands in the store under `id`.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn find(world: &World, id: &WorkflowId) -> Result<Self, BoxError> {
        let row = world.workflow(id)?;
        let mut ops = BTreeMap::new();
        let mut lanes = Vec::new();
        for view in world.all_ops(row.seq)? {
            let lane = Lane::new(view.site.clone(), view.queue.clone(), view.kind.clone(), view.agent.clone());
            if !lanes.contains(&lane) {
                lanes.push(lane);
            }
            ops.insert(view.state.id.as_str().to_owned(), view.state.seq);
        }
        Ok(Self { workflow: row.seq, id: id.clone(), ops, lanes, claimed: BTreeMap::new() })
    }

    /// The key of an op.
    ///
    /// # Panics
    /// When the scenario has no such op.
    pub fn op(&self, id: &str) -> OpSeq {
        match self.ops.get(id) {
            Some(seq) => *seq,
            None => panic!("the scenario has no op {id:?}"),
        }
    }

    /// What was claimed for an op that is leased.
    ///
    /// # Panics
    /// When the scenario leased no such op.
    pub fn claimed(&self, id: &str) -> ClaimedOp {
        match self.claimed.get(id) {
            Some(claimed) => claimed.clone(),
            None => panic!("the scenario leased no op {id:?}"),
        }
    }

    /// The lease of an op that is leased.
    ///
    /// # Panics
    /// When the scenario leased no such op.
    pub fn lease(&self, id: &str) -> LeaseKey {
        self.claimed(id).lease.key
    }

    /// A claim of up to `limit` ops of each gate, from all lanes of the scenario.
    pub(crate) fn claim(&self, limit: u32) -> Claim {
        let takes = self.lanes.iter().map(|lane| LaneTake { lane: lane.key, gate: lane.gate, limit }).collect();
        Claim { token: LeaseToken::random(), worker: name::<WorkerName>("w1"), lease: LEASE, takes }
    }

    /// Claims exactly this op by the engine's claim.
    pub(crate) fn claim_op(&self, world: &World, spec: &OpSpec, worker: &str) -> Result<ClaimedOp, BoxError> {
        let wanted = self.op(spec.id.as_str());
        let mut claimed = world.claim_kind(worker, spec.kind.as_str(), 1)?;
        match claimed.pop() {
            Some(op) if op.lease.key.op == wanted => Ok(op),
            Some(op) => Err(format!("the scenario wanted to lease {:?} and got {:?}: give it a kind of its own", spec.id, op.op_id).into()),
            None => Err(format!("the scenario wanted to lease {:?} and nothing was ready", spec.id).into()),
        }
    }

    /// Claims exactly this op by the storage contract's step.
    pub(crate) fn take_op(&self, world: &World, spec: &OpSpec, worker: &str) -> Result<ClaimedOp, BoxError> {
        let wanted = self.op(spec.id.as_str());
        let lanes = self.lanes.iter().filter(|lane| lane.queue == spec.queue && lane.kind == spec.kind && lane.agent == spec.agent);
        let takes = lanes.map(|lane| LaneTake { lane: lane.key, gate: lane.gate, limit: 1 }).collect();
        let claim = Claim { token: LeaseToken::random(), worker: name::<WorkerName>(worker), lease: LEASE, takes };
        let claimed = world.tx(|tx| tx.claim_ready(&claim))?;
        match <[ClaimedOp; 1]>::try_from(claimed) {
            Ok([op]) if op.lease.key.op == wanted => Ok(op),
            Ok([op]) => Err(format!("the scenario wanted to lease {:?} and got {:?}", spec.id, op.op_id).into()),
            Err(claimed) => Err(format!("the scenario wanted to lease {:?} and got {} ops", spec.id, claimed.len()).into()),
        }
    }
}
