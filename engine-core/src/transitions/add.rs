//! Adds ops to a workflow that is there: by a client, or emitted by a running op (S9, Q4, I4).

use super::act::{Actor, act, replay};
use super::journal::{About, Journal};
use super::plan::PlannedOp;
use super::ripple::{Ripple, Tally};
use super::{GraphError, Notice, Plan, TransitionError};
use crate::model::{DedupKey, Fence, OpId, OpSeq, RequestId, SiteName, Timestamp, WorkflowId, WorkflowSeq};
use crate::state::{OpStatus, Share, WorkflowStatus, share};
use crate::store::rows::{Edge, EventKind, LockedWorkflow, NewOp, OpState, Reach, WorkflowChange, WriteSet};
use crate::store::{StoreError, Tx, Wait};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// Ops to add to a workflow.
#[derive(Debug, Clone)]
pub struct AddOps {
    /// The call.
    pub request: RequestId,
    /// Who, and why.
    pub actor: Actor,
    /// The workflow.
    pub workflow: WorkflowId,
    /// The ops.
    pub plan: Plan,
}

/// One op that was asked for, and the op that now does it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddedOp {
    /// The id that was asked for.
    pub id: OpId,
    /// The op that does it: another one when it carries the same dedup key.
    pub holder: OpId,
    /// Where that one stands.
    pub status: OpStatus,
    /// Whether this call made it.
    pub created: bool,
}

/// What became of a call, and what observers hear.
#[derive(Debug)]
pub struct AddedOps {
    /// Each op that was asked for.
    pub ops: Vec<AddedOp>,
    /// What observers hear.
    pub notices: Vec<Notice>,
}

/// Adds ops to a running or failed workflow; a failed one then runs. Ops may depend on finished ones.
///
/// # Errors
/// [`TransitionError`]; nothing was written.
pub fn add_ops(tx: &mut dyn Tx, call: &AddOps) -> Result<AddedOps, TransitionError> {
    let workflow = lock_by_id(tx, &call.workflow)?;
    let ids: Vec<&OpId> = call.plan.ops.iter().map(|op| &op.spec.id).collect();
    let question = format!("add ops to {:?}: {ids:?}", call.workflow);
    if let Some(ops) = replay(tx, call.request, &question)? {
        return Ok(AddedOps { ops, notices: Vec::new() });
    }
    match workflow.status {
        WorkflowStatus::Running | WorkflowStatus::Failed => {}
        WorkflowStatus::Succeeded | WorkflowStatus::Canceled => {
            let advice = "ops can only be added while it runs or is failed: start another workflow";
            return Err(TransitionError::WorkflowStatus { id: workflow.id, status: workflow.status, advice });
        }
    }
    let now = tx.now()?;
    let mut ripple = Ripple::default();
    let mut additions = Additions::prepare(tx, &[(workflow.seq, &call.plan)], now)?;
    let ops = additions.admit(&workflow, None, &call.plan, &mut ripple)??;
    additions.learn_broken(tx, &mut ripple)?;
    ripple.settle();

    let mut set = WriteSet::default();
    let mut journal = Journal::new(now, Some(call.actor.name.clone()));
    let mut tally = Tally::default();
    let ids = HashMap::from([(workflow.seq, workflow.id.clone())]);
    let ops = additions.write(&ripple, &mut tally, &mut set, ops);
    ripple.write(now, &ids, &mut tally, &mut set, &mut journal);
    let change = changed(&workflow, &tally, now);
    let about = About { workflow: (workflow.seq, &workflow.id), op: None, fence: None };
    journal.tell(EventKind::WorkflowUpdated, about, Some(change.status.to_string()));
    set.workflows.push(change);
    set.act = Some(act(call.request, question, &call.actor, &ops, now)?);
    write_guarded(tx, set, &mut journal)?;
    Ok(AddedOps { ops, notices: journal.notices })
}

/// Locks one workflow by its public id.
pub(super) fn lock_by_id(tx: &mut dyn Tx, id: &WorkflowId) -> Result<LockedWorkflow, TransitionError> {
    let missing = || TransitionError::NoWorkflow(id.clone());
    let row = tx.workflows(std::slice::from_ref(id))?.pop().ok_or_else(missing)?;
    tx.lock_workflows(&[row.seq], Wait::Block)?.pop().ok_or_else(missing)
}

/// A workflow's new facts, with what `tally` counted.
pub(super) fn changed(workflow: &LockedWorkflow, tally: &Tally, now: Timestamp) -> WorkflowChange {
    let counters = tally.applied(workflow.seq, &workflow.counters);
    let status = if workflow.cancel_requested { WorkflowStatus::Canceled } else { counters.derived() };
    WorkflowChange {
        seq: workflow.seq,
        status,
        cancel_requested: workflow.cancel_requested,
        counters,
        finished_at: status.is_ended().then_some(now),
        at: now,
    }
}

/// Writes `set` with the journal's events, and stops when a guarded change did not apply: under the workflow's lock
/// that cannot happen, so the stored graph has drifted from what this engine writes.
pub(super) fn write_guarded(tx: &mut dyn Tx, mut set: WriteSet, journal: &mut Journal) -> Result<(), StoreError> {
    set.events = std::mem::take(&mut journal.events);
    set.changes.sort_unstable_by_key(|change| change.op);
    let moved = tx.write(&set)?;
    if moved.len() == set.changes.len() {
        return Ok(());
    }
    let stuck: Vec<OpSeq> = set.changes.iter().map(|change| change.op).filter(|op| !moved.contains(op)).collect();
    Err(StoreError::Rejected(format!("ops {stuck:?} are not where their workflow's lock left them: the stored state has drifted").into()))
}

/// Ops that one transaction adds, to any number of workflows.
#[derive(Debug)]
pub(super) struct Additions {
    now: Timestamp,
    /// Ops that are there, by what the plans name.
    found: HashMap<(WorkflowSeq, OpId), OpState>,
    holders: HashMap<(WorkflowSeq, DedupKey), OpState>,
    /// Where they stand, before this transaction's own moves, which flow along the new edges later.
    standing: HashMap<OpSeq, OpStatus>,
    /// Ops of this transaction.
    drafts: BTreeMap<OpSeq, Draft>,
    seqs: std::vec::IntoIter<OpSeq>,
    edges: Vec<Edge>,
    /// Ops that are there and got a broken parent.
    broken: Vec<OpSeq>,
}

#[derive(Debug)]
struct Draft {
    op: PlannedOp,
    workflow: WorkflowSeq,
    parent: Option<OpSeq>,
    site: SiteName,
}

/// Who emits ops.
#[derive(Debug, Clone, Copy)]
pub(super) struct Emitter<'a> {
    pub(super) op: OpSeq,
    pub(super) id: &'a OpId,
    pub(super) site: &'a SiteName,
}

impl Additions {
    /// Reads what the plans name and reserves keys, in a bounded number of statements.
    pub(super) fn prepare(tx: &mut dyn Tx, plans: &[(WorkflowSeq, &Plan)], now: Timestamp) -> Result<Self, StoreError> {
        let mut ids = Vec::new();
        let mut keys = Vec::new();
        for (workflow, plan) in plans {
            for op in &plan.ops {
                ids.push((*workflow, op.spec.id.clone()));
                ids.extend(op.after.iter().map(|(on, _)| on).chain(&op.before).map(|id| (*workflow, id.clone())));
                keys.extend(op.spec.dedup_key.iter().map(|key| (*workflow, key.clone())));
            }
        }
        ids.sort_unstable();
        ids.dedup();
        keys.sort_unstable();
        keys.dedup();
        let (found, keyed) = (tx.ops_by_id(&ids)?, tx.ops_by_dedup_key(&keys)?);
        let standing = found.iter().chain(&keyed).map(|state| (state.seq, state.status.status(false))).collect();
        let found = found.into_iter().map(|state| ((state.workflow, state.id.clone()), state)).collect();
        let holders = keyed.into_iter().filter_map(|state| Some(((state.workflow, state.dedup_key.clone()?), state))).collect();
        let seqs = tx.reserve_ops(plans.iter().map(|(_, plan)| plan.len()).sum())?.into_iter();
        Ok(Self { now, found, holders, standing, drafts: BTreeMap::new(), seqs, edges: Vec::new(), broken: Vec::new() })
    }

    /// Takes one plan in, or refuses it whole with the reason.
    pub(super) fn admit(
        &mut self,
        workflow: &LockedWorkflow,
        emitter: Option<Emitter<'_>>,
        plan: &Plan,
        ripple: &mut Ripple,
    ) -> Result<Result<Vec<AddedOp>, GraphError>, StoreError> {
        let admitted = match self.check(workflow.seq, emitter, plan) {
            Ok(admitted) => admitted,
            Err(refused) => return Ok(Err(refused)),
        };
        let mut places: Vec<OpSeq> = Vec::with_capacity(plan.len());
        let mut added = Vec::with_capacity(plan.len());
        for (at, (op, holder)) in plan.ops.iter().zip(admitted).enumerate() {
            let created = holder.is_none();
            let (seq, id) = match holder {
                Some(holder) => (holder.seq, holder.id),
                None => (self.draft(workflow, emitter, plan, (at, op), &places, ripple)?, op.spec.id.clone()),
            };
            places.push(seq);
            // The status is filled in once everything has settled.
            added.push(AddedOp { id: op.spec.id.clone(), holder: id, status: OpStatus::Pending, created });
        }
        for (id, at) in &plan.attached {
            if let Some(holder) = added.get(*at).map(|op| op.holder.clone()) {
                added.push(AddedOp { id: id.clone(), holder, status: OpStatus::Pending, created: false });
            }
        }
        Ok(Ok(added))
    }

    /// For each op of the plan the op that is there already and does it, if any.
    fn check(&self, workflow: WorkflowSeq, emitter: Option<Emitter<'_>>, plan: &Plan) -> Result<Vec<Option<OpState>>, GraphError> {
        plan.check_no_hidden_cycle(emitter.map(|emitter| emitter.id))?;
        let mut holders = Vec::with_capacity(plan.len());
        for op in &plan.ops {
            let id = &op.spec.id;
            let same_id = self.found.get(&(workflow, id.clone()));
            if let Some(state) = same_id.filter(|state| state.spec != op.digest || state.parent != emitter.map(|emitter| emitter.op)) {
                return Err(GraphError::OpExists(state.id.clone()));
            }
            let same_key = op.spec.dedup_key.as_ref().and_then(|key| self.holders.get(&(workflow, key.clone())));
            let holder = same_id.or(same_key);
            if holder.is_none() {
                for (on, _) in &op.after {
                    if !self.found.contains_key(&(workflow, on.clone())) {
                        return Err(GraphError::UnknownDependency { op: id.clone(), missing: on.clone() });
                    }
                }
                for target in &op.before {
                    let Some(state) = self.found.get(&(workflow, target.clone())) else {
                        return Err(GraphError::UnknownBefore { op: id.clone(), missing: target.clone() });
                    };
                    let status = state.status.status(false);
                    if !matches!(status, OpStatus::Pending | OpStatus::Blocked) {
                        return Err(GraphError::BeforeTooLate { op: id.clone(), target: target.clone(), status });
                    }
                }
            }
            holders.push(holder.cloned());
        }
        Ok(holders)
    }

    fn draft(
        &mut self,
        workflow: &LockedWorkflow,
        emitter: Option<Emitter<'_>>,
        plan: &Plan,
        (at, op): (usize, &PlannedOp),
        places: &[OpSeq],
        ripple: &mut Ripple,
    ) -> Result<OpSeq, StoreError> {
        let seq = self.seqs.next().ok_or_else(|| StoreError::Rejected("the store reserved too few ops".into()))?;
        let mut counts = Share { unmet: 0, broken: 0 };
        let inside =
            plan.inside.range((at, 0)..=(at, usize::MAX)).filter_map(|((_, parent), required)| Some((*places.get(*parent)?, *required)));
        let outside = op.after.iter().filter_map(|(on, required)| Some((self.found.get(&(workflow.seq, on.clone()))?.seq, *required)));
        let mut parents: BTreeMap<OpSeq, bool> = BTreeMap::new();
        for (parent, required) in inside.chain(outside) {
            // Two names may lead to one op through a dedup key.
            *parents.entry(parent).or_insert(false) |= required;
        }
        for (parent, required) in parents {
            let share = share(required, self.standing.get(&parent).copied().unwrap_or(OpStatus::Pending));
            counts = Share { unmet: counts.unmet + share.unmet, broken: counts.broken + share.broken };
            ripple.connect(parent, seq, required);
            self.edges.push(Edge { child: seq, parent, required });
        }
        let status = match (counts.broken > 0, counts.unmet > 0) {
            (true, _) => OpStatus::Blocked,
            (false, true) => OpStatus::Pending,
            (false, false) => OpStatus::Ready,
        };
        let site = op.spec.site.as_ref().or(emitter.map(|emitter| emitter.site)).unwrap_or(&workflow.site);
        let state = OpState {
            seq,
            workflow: workflow.seq,
            id: op.spec.id.clone(),
            status: status.stored(),
            unmet: counts.unmet,
            broken: counts.broken,
            fence: Fence::NONE,
            failures: 0,
            losses: 0,
            lane: op.lane(site).key,
            priority: op.spec.priority,
            retry: op.spec.retry,
            parent: emitter.map(|emitter| emitter.op),
            dedup_key: op.spec.dedup_key.clone(),
            spec: op.digest,
        };
        ripple.know_new(state.clone());
        for target in op.before.iter().filter_map(|target| self.found.get(&(workflow.seq, target.clone()))) {
            ripple.know(target.clone());
            ripple.connect(seq, target.seq, true);
            ripple.burden(target.seq, share(true, status));
            self.edges.push(Edge { child: target.seq, parent: seq, required: true });
            if status == OpStatus::Blocked {
                self.broken.push(target.seq);
            }
        }
        if let Some(key) = &state.dedup_key {
            self.holders.insert((workflow.seq, key.clone()), state.clone());
        }
        self.standing.insert(seq, status);
        self.found.insert((workflow.seq, state.id.clone()), state);
        self.drafts
            .insert(seq, Draft { op: op.clone(), workflow: workflow.seq, parent: emitter.map(|emitter| emitter.op), site: site.clone() });
        Ok(seq)
    }

    /// Reads what lies below ops that new parents may block.
    pub(super) fn learn_broken(&self, tx: &mut dyn Tx, ripple: &mut Ripple) -> Result<(), StoreError> {
        if self.broken.is_empty() {
            return Ok(());
        }
        let edges = tx.downstream(&self.broken, Reach::Descendants)?;
        ripple.learn(edges);
        Ok(())
    }

    /// Writes the new ops as they stand after settling; returns `added` with the statuses filled in.
    pub(super) fn write(self, ripple: &Ripple, tally: &mut Tally, set: &mut WriteSet, mut added: Vec<AddedOp>) -> Vec<AddedOp> {
        if !added.is_empty() {
            let known =
                self.found.values().chain(self.holders.values()).map(|state| (&state.id, ripple.outcome(state.seq).unwrap_or(state)));
            let statuses: HashMap<&OpId, OpStatus> = known.map(|(id, state)| (id, state.status.status(false))).collect();
            for op in &mut added {
                op.status = statuses.get(&op.holder).copied().unwrap_or(op.status);
            }
        }
        set.edges.extend(self.edges);
        let mut lanes = BTreeMap::new();
        for (seq, draft) in self.drafts {
            let Some(state) = ripple.outcome(seq) else { continue };
            let lane = draft.op.lane(&draft.site);
            lanes.entry(lane.key).or_insert_with(|| lane.clone());
            tally.appears(draft.workflow, state.status);
            let spec = draft.op.spec;
            set.ops.push(NewOp {
                seq,
                workflow: draft.workflow,
                id: spec.id,
                parent: draft.parent,
                lane,
                priority: spec.priority,
                input: spec.input,
                metadata: spec.metadata,
                retry: spec.retry,
                dedup_key: spec.dedup_key,
                time_limit: spec.time_limit,
                spec: draft.op.digest,
                status: state.status,
                unmet: state.unmet,
                broken: state.broken,
                created_at: self.now,
            });
        }
        set.lanes.extend(lanes.into_values().flat_map(|lane| [lane.apart(), lane]));
        added
    }
}
