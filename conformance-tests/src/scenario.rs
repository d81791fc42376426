//! The one fixture builder: what stands in the store before a case begins.

use crate::World;
use leasehold_core::model::{
    AgentName, DedupKey, Dependency, Digest, Fence, Json, KindName, Lane, LeaseToken, Micros, OpId, OpSeq, OpSpec, QueueName, RetryPolicy,
    SiteName, SubjectId, Timestamp, WorkerName, WorkflowId, WorkflowName, WorkflowSeq, WorkflowSpec,
};
use leasehold_core::state::{Counters, OpStatus, Share, StoredStatus, share};
use leasehold_core::store::rows::{Claim, ClaimedOp, Edge, LaneTake, LeaseKey, NewOp, NewWorkflow, QueuedOp, WorkflowChange, WriteSet};
use leasehold_core::store::{BoxError, StoreResult, Tx};
use std::collections::BTreeMap;

/// How long a scenario's leases last.
pub(crate) const LEASE: Micros = Micros::from_secs(30);

/// A duration of a literal.
pub(crate) fn microseconds(n: i64) -> Micros {
    match Micros::new(n) {
        Ok(micros) => micros,
        Err(error) => panic!("{error}"),
    }
}

/// What a scenario's op has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stands {
    /// Pending, blocked or ready, as its dependencies say.
    AsDerived,
    Succeeded,
    Failed,
    LeasedBy(String),
    /// Only [`Scenario::plant`] can put it there.
    Row(StoredStatus),
}

#[derive(Debug, Clone)]
struct ScenarioOp {
    spec: OpSpec,
    stands: Stands,
    due_at: Option<Timestamp>,
    queue_fence: Fence,
}

/// One workflow with its ops; every field is optional, and what a field implies is worked out.
///
/// Methods that describe an op are about the last one that [`Scenario::op`] began.
#[derive(Debug, Clone)]
pub struct Scenario {
    workflow: WorkflowSpec,
    named: bool,
    ops: Vec<ScenarioOp>,
}

/// Makes a name of a literal; a case's text that is none is a defect of the case.
pub(crate) fn name<T: TryFrom<String>>(text: impl Into<String>) -> T {
    let text = text.into();
    match T::try_from(text.clone()) {
        Ok(name) => name,
        Err(_) => panic!("{text:?} is not a name"),
    }
}

/// Makes JSON of a literal.
pub(crate) fn json(text: &str) -> Json {
    match Json::parse(text) {
        Ok(json) => json,
        Err(error) => panic!("{text} is not JSON: {error}"),
    }
}

impl Default for Scenario {
    fn default() -> Self {
        Self::new()
    }
}

impl Scenario {
    /// A workflow without ops.
    pub fn new() -> Self {
        let workflow = WorkflowSpec {
            id: name("unnamed"),
            name: name("scenario"),
            digest: None,
            input: Json::null(),
            metadata: Json::null(),
            site: SiteName::default(),
            subject: None,
            ops: Vec::new(),
        };
        Self { workflow, named: false, ops: Vec::new() }
    }

    // ---- the workflow ----

    /// Its id; without one each build makes its own.
    #[must_use]
    pub fn id(mut self, id: &str) -> Self {
        self.workflow.id = name(id);
        self.named = true;
        self
    }
    /// Its name.
    #[must_use]
    pub fn called(mut self, workflow: &str) -> Self {
        self.workflow.name = name::<WorkflowName>(workflow);
        self
    }
    /// Its identity's digest: that of this text.
    #[must_use]
    pub fn identity(mut self, text: &str) -> Self {
        self.workflow.digest = Some(Digest::of_bytes(text.as_bytes()));
        self
    }
    /// Its input.
    #[must_use]
    pub fn started_with(mut self, input: &str) -> Self {
        self.workflow.input = json(input);
        self
    }
    /// Its metadata.
    #[must_use]
    pub fn workflow_metadata(mut self, metadata: &str) -> Self {
        self.workflow.metadata = json(metadata);
        self
    }
    /// The site of ops that name none.
    #[must_use]
    pub fn at_site(mut self, site: &str) -> Self {
        self.workflow.site = name(site);
        self
    }
    /// Whom it is about.
    #[must_use]
    pub fn about(mut self, subject: &str) -> Self {
        self.workflow.subject = Some(name::<SubjectId>(subject));
        self
    }

    // ---- its ops ----

    /// Begins an op. Its kind is its id, so that it can be claimed by itself.
    #[must_use]
    pub fn op(mut self, id: &str) -> Self {
        let spec = OpSpec::new(name(id), name(id));
        self.ops.push(ScenarioOp { spec, stands: Stands::AsDerived, due_at: None, queue_fence: Fence::NONE });
        self
    }
    /// Begins `count` ops named `prefix0`, `prefix1` …, all of the kind `prefix`.
    #[must_use]
    pub fn ops(mut self, prefix: &str, count: usize) -> Self {
        for at in 0..count {
            self = self.op(&format!("{prefix}{at}")).kind(prefix);
        }
        self
    }
    fn last(mut self, change: impl FnOnce(&mut ScenarioOp)) -> Self {
        match self.ops.last_mut() {
            Some(op) => change(op),
            None => panic!("the scenario describes an op before it begins one"),
        }
        self
    }
    /// It waits for these to succeed.
    #[must_use]
    pub fn after(self, parents: &[&str]) -> Self {
        self.depends(parents, true)
    }
    /// It waits for these to settle.
    #[must_use]
    pub fn after_settled(self, parents: &[&str]) -> Self {
        self.depends(parents, false)
    }
    fn depends(self, parents: &[&str], required: bool) -> Self {
        self.last(|op| op.spec.after.extend(parents.iter().map(|on| Dependency { on: name(*on), required })))
    }
    /// These wait for it.
    #[must_use]
    pub fn before(self, children: &[&str]) -> Self {
        self.last(|op| op.spec.before.extend(children.iter().map(|id| name::<OpId>(*id))))
    }
    /// Its kind; its id without one.
    #[must_use]
    pub fn kind(self, kind: &str) -> Self {
        self.last(|op| op.spec.kind = name::<KindName>(kind))
    }
    /// Its queue.
    #[must_use]
    pub fn queue(self, queue: &str) -> Self {
        self.last(|op| op.spec.queue = name::<QueueName>(queue))
    }
    /// Its site.
    #[must_use]
    pub fn site(self, site: &str) -> Self {
        self.last(|op| op.spec.site = Some(name(site)))
    }
    /// The agent it names.
    #[must_use]
    pub fn agent(self, agent: &str) -> Self {
        self.last(|op| op.spec.agent = Some(name::<AgentName>(agent)))
    }
    /// Its priority.
    #[must_use]
    pub fn priority(self, priority: i32) -> Self {
        self.last(|op| op.spec.priority = priority)
    }
    /// Its input.
    #[must_use]
    pub fn input(self, input: &str) -> Self {
        self.last(|op| op.spec.input = json(input))
    }
    /// Its metadata.
    #[must_use]
    pub fn metadata(self, metadata: &str) -> Self {
        self.last(|op| op.spec.metadata = json(metadata))
    }
    /// When it is tried again.
    #[must_use]
    pub fn retry(self, retry: RetryPolicy) -> Self {
        self.last(|op| op.spec.retry = retry)
    }
    /// Its dedup key.
    #[must_use]
    pub fn dedup_key(self, key: &str) -> Self {
        self.last(|op| op.spec.dedup_key = Some(name::<DedupKey>(key)))
    }
    /// How long an attempt may run.
    #[must_use]
    pub fn time_limit(self, limit: Micros) -> Self {
        self.last(|op| op.spec.time_limit = Some(limit))
    }

    // ---- what has become of them ----

    /// It has succeeded.
    #[must_use]
    pub fn succeeded(self) -> Self {
        self.last(|op| op.stands = Stands::Succeeded)
    }
    /// It has failed for good.
    #[must_use]
    pub fn failed(self) -> Self {
        self.last(|op| op.stands = Stands::Failed)
    }
    /// `worker` holds its lease, for [`LEASE`] from now.
    #[must_use]
    pub fn leased_by(self, worker: &str) -> Self {
        self.last(|op| op.stands = Stands::LeasedBy(worker.to_owned()))
    }
    /// Its row says this, whatever its dependencies say.
    #[must_use]
    pub(crate) fn row(self, status: StoredStatus) -> Self {
        self.last(|op| op.stands = Stands::Row(status))
    }
    /// It may be claimed from `due_at` on; later than now it waits in `delayed`.
    #[must_use]
    pub(crate) fn due(self, due_at: Timestamp) -> Self {
        self.last(|op| op.due_at = Some(due_at))
    }
    /// Its place in the queue says that its last attempt had this fence.
    #[must_use]
    pub(crate) fn queued_with_fence(self, fence: i64) -> Self {
        self.last(|op| op.queue_fence = Fence(fence))
    }

    // ---- building ----

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
        request: leasehold_core::model::RequestId::random(),
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

/// What a scenario has become.
#[derive(Debug, Clone)]
pub struct Planted {
    /// The workflow's key.
    pub workflow: WorkflowSeq,
    /// The workflow's id.
    pub id: WorkflowId,
    pub(crate) ops: BTreeMap<String, OpSeq>,
    pub(crate) lanes: Vec<Lane>,
    claimed: BTreeMap<String, ClaimedOp>,
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
    fn claim_op(&self, world: &World, spec: &OpSpec, worker: &str) -> Result<ClaimedOp, BoxError> {
        let wanted = self.op(spec.id.as_str());
        let mut claimed = world.claim_kind(worker, spec.kind.as_str(), 1)?;
        match claimed.pop() {
            Some(op) if op.lease.key.op == wanted => Ok(op),
            Some(op) => Err(format!("the scenario wanted to lease {:?} and got {:?}: give it a kind of its own", spec.id, op.op_id).into()),
            None => Err(format!("the scenario wanted to lease {:?} and nothing was ready", spec.id).into()),
        }
    }

    /// Claims exactly this op by the storage contract's step.
    fn take_op(&self, world: &World, spec: &OpSpec, worker: &str) -> Result<ClaimedOp, BoxError> {
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
