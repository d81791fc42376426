//! How a scenario gets into a store: by the engine's verbs, or row by row.

use crate::scenario::{Scenario, ScenarioOp, Stands};
use crate::{Planted, World};
use leasehold_core::model::{Digest, Lane, OpSeq, OpSpec, RequestId, Timestamp, WorkflowSeq, WorkflowSpec};
use leasehold_core::state::{Counters, OpStatus, Share, StoredStatus, share};
use leasehold_core::store::rows::{Edge, NewOp, NewWorkflow, QueuedOp, WorkflowChange, WriteSet};
use leasehold_core::store::{BoxError, StoreResult, Tx};
use std::collections::BTreeMap;

impl Scenario {
    /// The workflow as an application gives it.
    pub fn spec(&self, world: &World) -> WorkflowSpec {
        let mut spec = self.workflow.clone();
        if !self.named {
            spec.id = world.fresh_id();
        }
        spec.ops = self.ops.iter().map(|op| op.spec.clone()).collect();
        spec
    }

    /// Creates the workflow and drives each op, parents first, to where it is to stand: by the engine's own verbs alone.
    ///
    /// # Errors
    /// What a verb returns, or that an op could not be brought there.
    pub fn build(&self, world: &World) -> Result<Planted, BoxError> {
        let spec = self.spec(world);
        world.create(spec.clone())?;
        let mut planted = Planted::find(world, &spec.id)?;
        for op in &self.ops {
            let id = op.spec.id.as_str();
            match &op.stands {
                Stands::AsDerived => {}
                Stands::Succeeded => {
                    let claimed = planted.claim_op(world, &op.spec, "builder")?;
                    world.complete_one(&claimed, "null")?;
                }
                Stands::Failed => {
                    let claimed = planted.claim_op(world, &op.spec, "builder")?;
                    world.fail_for_good(&claimed)?;
                }
                Stands::LeasedBy(worker) => {
                    let claimed = planted.claim_op(world, &op.spec, worker)?;
                    planted.claimed.insert(id.to_owned(), claimed);
                }
                Stands::Row(_) => return Err(format!("op {id} stands where only planted rows can: use plant").into()),
            }
        }
        Ok(planted)
    }

    /// Writes the rows themselves, in one transaction by the storage contract alone: for cases about single steps.
    ///
    /// # Errors
    /// What a step returns.
    pub(crate) fn plant(&self, world: &World) -> Result<Planted, BoxError> {
        let spec = self.spec(world);
        let (workflow, ops, lanes) = world.tx(|tx| self.plant_in(tx, &spec))?;
        let mut planted = Planted { workflow, id: spec.id, ops, lanes, claimed: BTreeMap::new() };
        for op in &self.ops {
            if let Stands::LeasedBy(worker) = &op.stands {
                let claimed = planted.take_op(world, &op.spec, worker)?;
                planted.claimed.insert(op.spec.id.as_str().to_owned(), claimed);
            }
        }
        Ok(planted)
    }

    fn plant_in(&self, tx: &mut dyn Tx, spec: &WorkflowSpec) -> StoreResult<(WorkflowSeq, BTreeMap<String, OpSeq>, Vec<Lane>)> {
        let now = tx.now()?;
        let inserted = tx.insert_workflows(&[new_workflow(spec, now)])?;
        let Some((_, workflow)) = inserted.first().cloned() else { panic!("workflow {:?} is there already", spec.id) };
        let seqs = tx.reserve_ops(self.ops.len())?;
        let places: BTreeMap<&str, (OpSeq, &ScenarioOp)> =
            self.ops.iter().zip(&seqs).map(|(op, seq)| (op.spec.id.as_str(), (*seq, op))).collect();
        let mut set = WriteSet::default();
        let mut statuses: BTreeMap<OpSeq, OpStatus> = BTreeMap::new();
        let mut counters = Counters::default();
        for (op, seq) in self.ops.iter().zip(&seqs) {
            let mut counts = Share { unmet: 0, broken: 0 };
            for dependency in &op.spec.after {
                let Some((parent, _)) = places.get(dependency.on.as_str()) else { panic!("{:?} is not an op", dependency.on) };
                let Some(status) = statuses.get(parent) else { panic!("{:?} must come before {:?}", dependency.on, op.spec.id) };
                let share = share(dependency.required, *status);
                counts = Share { unmet: counts.unmet + share.unmet, broken: counts.broken + share.broken };
                set.edges.push(Edge { child: *seq, parent: *parent, required: dependency.required });
            }
            let stored = match &op.stands {
                Stands::AsDerived if counts.broken > 0 => StoredStatus::Blocked,
                Stands::AsDerived if counts.unmet > 0 => StoredStatus::Pending,
                Stands::AsDerived | Stands::LeasedBy(_) => StoredStatus::Open,
                Stands::Succeeded => StoredStatus::Succeeded,
                Stands::Failed => StoredStatus::Failed,
                Stands::Row(status) => *status,
            };
            statuses.insert(*seq, stored.status(false));
            counters.add(stored, 1);
            let lane = lane_of(&op.spec, spec);
            if stored == StoredStatus::Open {
                let due_at = op.due_at.unwrap_or(now);
                let place = QueuedOp { op: *seq, lane: lane.key, priority: op.spec.priority, due_at, fence: op.queue_fence, failures: 0 };
                if due_at > now { set.delayed.push(place) } else { set.ready.push(place) }
            }
            if !set.lanes.contains(&lane) {
                set.lanes.push(lane.clone());
            }
            set.ops.push(new_op(*seq, workflow, &op.spec, lane, stored, counts, now));
        }
        let lanes = set.lanes.clone();
        let status = counters.derived();
        let finished_at = status.is_ended().then_some(now);
        set.workflows.push(WorkflowChange { seq: workflow, status, cancel_requested: false, counters, finished_at, at: now });
        tx.write(&set)?;
        Ok((workflow, places.iter().map(|(id, (seq, _))| ((*id).to_owned(), *seq)).collect(), lanes))
    }
}

impl Scenario {
    /// The scenario's ops as rows for a workflow that is there, ready and without dependencies.
    pub(crate) fn new_ops(&self, tx: &mut dyn Tx, world: &World, workflow: WorkflowSeq) -> StoreResult<Vec<NewOp>> {
        let spec = self.spec(world);
        let now = tx.now()?;
        let seqs = tx.reserve_ops(self.ops.len())?;
        let none = Share { unmet: 0, broken: 0 };
        let rows = self.ops.iter().zip(seqs);
        Ok(rows.map(|(op, seq)| new_op(seq, workflow, &op.spec, lane_of(&op.spec, &spec), StoredStatus::Open, none, now)).collect())
    }
}

fn lane_of(op: &OpSpec, workflow: &WorkflowSpec) -> Lane {
    Lane::new(op.site.clone().unwrap_or_else(|| workflow.site.clone()), op.queue.clone(), op.kind.clone(), op.agent.clone())
}

/// The row of a workflow that `spec` describes.
pub(crate) fn new_workflow(spec: &WorkflowSpec, created_at: Timestamp) -> NewWorkflow {
    NewWorkflow {
        id: spec.id.clone(),
        request: RequestId::random(),
        name: spec.name.clone(),
        digest: spec.digest,
        input: spec.input.clone(),
        metadata: spec.metadata.clone(),
        site: spec.site.clone(),
        subject: spec.subject.clone(),
        created_at,
    }
}

fn new_op(
    seq: OpSeq,
    workflow: WorkflowSeq,
    spec: &OpSpec,
    lane: Lane,
    status: StoredStatus,
    counts: Share,
    created_at: Timestamp,
) -> NewOp {
    NewOp {
        seq,
        workflow,
        id: spec.id.clone(),
        parent: None,
        lane,
        priority: spec.priority,
        input: spec.input.clone(),
        metadata: spec.metadata.clone(),
        retry: spec.retry,
        dedup_key: spec.dedup_key.clone(),
        time_limit: spec.time_limit,
        spec: Digest::of_bytes(spec.id.as_str().as_bytes()),
        status,
        unmet: counts.unmet,
        broken: counts.broken,
        created_at,
    }
}
