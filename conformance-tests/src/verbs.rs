//! The engine's verbs, each as one short call in a transaction of its own.

use crate::World;
use crate::scenario::{LEASE, json, name};
use crate::world::{Lost, transact};
use crate::{Planted, Scenario};
use leasehold_core::model::{
    ErrorClass, Fence, KindName, LeaseToken, Limits, Micros, OpError, QueuePolicy, RateLimit, RequestId, Timestamp, WorkerName,
    WorkflowSpec,
};
use leasehold_core::state::OpStatus;
use leasehold_core::store::rows::{ClaimedOp, Lease, LeaseKey};
use leasehold_core::store::{BoxError, StoreError, Tx, TxKind, Wait};
use leasehold_core::transitions::{
    self, Actor, AddOps, AddedOp, BatchLimit, CLOCK_TOLERANCE, CancelWorkflow, Canceled, ClaimCursor, ClaimReport, ClaimRequest,
    CreateMode, CreateOutcome, CreateRequest, DispatchOutcome, End, Ended, Finish, HeartbeatOutcome, OpVerdict, Pass, Plan, Recovered,
    RetryOps, RetryTarget, SettleOp, TransitionError, Until, Upkeep, Woken,
};

impl Lost for TransitionError {
    fn lost_a_race(&self) -> bool {
        matches!(self, Self::Store(error) if error.lost_a_race())
    }
}

/// Ops promoted before a claim: more than any case delays at once.
const PROMOTED: u32 = 10_000;

/// Upkeep that goes by no epoch.
pub(crate) const IN_THE_WAY: Upkeep = Upkeep { epoch: None, tolerance: CLOCK_TOLERANCE };

/// A claim of every kind.
pub(crate) fn claim_request(worker: &str, capacity: u32) -> ClaimRequest {
    ClaimRequest {
        token: LeaseToken::random(),
        worker: name::<WorkerName>(worker),
        lease: LEASE,
        capacity,
        kinds: None,
        agents: Vec::new(),
        cursor: ClaimCursor::default(),
        suspects: true,
        repeated: false,
        tolerance: CLOCK_TOLERANCE,
    }
}

/// How an attempt that was claimed shall end.
fn finish(claimed: &ClaimedOp, end: End) -> Finish {
    Finish { lease: claimed.lease.key, workflow: claimed.lease.workflow, op_id: claimed.op_id.clone(), site: claimed.site.clone(), end }
}

/// Its completion with `result`.
pub(crate) fn completion(claimed: &ClaimedOp, result: &str) -> Finish {
    finish(claimed, End::Complete { result: json(result), artifacts: Vec::new(), records: Vec::new(), emitted: None })
}

/// Its failure with a retryable error.
pub(crate) fn failure(claimed: &ClaimedOp) -> Finish {
    finish(claimed, End::Fail { error: OpError::new("flaky", "try again"), class: ErrorClass::Retryable, delay: None })
}

/// Its failure with an error that no attempt would mend.
pub(crate) fn permanent_failure(claimed: &ClaimedOp) -> Finish {
    finish(claimed, End::Fail { error: OpError::new("broken", "never works"), class: ErrorClass::Permanent, delay: None })
}

/// That its op waits until then.
pub(crate) fn suspension(claimed: &ClaimedOp, until: Until) -> Finish {
    finish(claimed, End::Suspend { until })
}

/// That its handler gave no answer.
pub(crate) fn abandonment(claimed: &ClaimedOp) -> Finish {
    finish(claimed, End::Abandon { error: OpError::new(OpError::TIMED_OUT, "it took too long") })
}

/// A verdict on an attempt of an op.
pub(crate) fn settling(of: &Planted, op: &str, attempt: Fence, verdict: OpVerdict) -> SettleOp {
    let (request, actor) = (RequestId::random(), Actor::new("operator"));
    SettleOp { request, actor, workflow: of.id.clone(), op: name(op), attempt, verdict }
}

/// Its release.
pub(crate) fn giving_back(claimed: &ClaimedOp) -> Finish {
    finish(claimed, End::Release)
}

/// The ops of a scenario as a plan.
pub(crate) fn plan(world: &World, scenario: &Scenario) -> Result<Plan, TransitionError> {
    Plan::new(scenario.spec(world).ops, &Limits::default())
}

/// A queue's limit.
pub(crate) fn limit(queue: &str, max_in_flight: u32) -> QueuePolicy {
    QueuePolicy { max_in_flight: Some(max_in_flight), ..QueuePolicy::unlimited(name(queue)) }
}

/// A queue's rate.
pub(crate) fn rate(queue: &str, per_second: f64, burst: u32) -> QueuePolicy {
    QueuePolicy { rate: Some(RateLimit { per_second, burst }), ..QueuePolicy::unlimited(name(queue)) }
}

impl World {
    // ---- create ----

    /// Makes a new workflow.
    ///
    /// # Errors
    /// The transition's.
    pub fn create(&self, spec: WorkflowSpec) -> Result<CreateOutcome, TransitionError> {
        self.create_with(&CreateRequest::new(spec, RequestId::random(), CreateMode::Start, &Limits::default())?)
    }

    /// Makes a workflow, or attaches to the one that is there.
    ///
    /// # Errors
    /// The transition's.
    pub fn ensure(&self, spec: WorkflowSpec) -> Result<CreateOutcome, TransitionError> {
        self.create_with(&CreateRequest::new(spec, RequestId::random(), CreateMode::Ensure, &Limits::default())?)
    }

    /// One call of create, under its own request id.
    ///
    /// # Errors
    /// The transition's.
    pub(crate) fn create_with(&self, request: &CreateRequest) -> Result<CreateOutcome, TransitionError> {
        let mut report = transact(self.store().as_ref(), TxKind::Client, |tx| {
            transitions::create(tx, std::slice::from_ref(request)).map_err(TransitionError::from)
        })?;
        match report.outcomes.pop() {
            Some(outcome) => outcome.map(|created| created.outcome),
            None => unreachable!("create answers each request"),
        }
    }

    /// Adds a scenario's ops to a workflow.
    ///
    /// # Errors
    /// The transition's.
    pub(crate) fn add(&self, to: &Planted, scenario: &Scenario) -> Result<Vec<AddedOp>, TransitionError> {
        self.add_with(&AddOps {
            request: RequestId::random(),
            actor: Actor::new("case"),
            workflow: to.id.clone(),
            plan: plan(self, scenario)?,
        })
    }

    /// One call of add, under its own request id.
    ///
    /// # Errors
    /// The transition's.
    pub(crate) fn add_with(&self, call: &AddOps) -> Result<Vec<AddedOp>, TransitionError> {
        transact(self.store().as_ref(), TxKind::Client, |tx| transitions::add_ops(tx, call)).map(|added| added.ops)
    }

    // ---- leases ----

    /// Leases up to `capacity` ops of any kind to `worker`, for 30 s.
    ///
    /// # Errors
    /// The store's.
    pub fn claim(&self, worker: &str, capacity: u32) -> Result<Vec<ClaimedOp>, StoreError> {
        self.claim_with(&claim_request(worker, capacity)).map(|report| report.ops)
    }

    /// Leases up to `capacity` ops of one kind.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn claim_kind(&self, worker: &str, kind: &str, capacity: u32) -> Result<Vec<ClaimedOp>, StoreError> {
        let kinds = Some(vec![name::<KindName>(kind)]);
        self.claim_with(&ClaimRequest { kinds, ..claim_request(worker, capacity) }).map(|report| report.ops)
    }

    /// Leases exactly one op, which must be there.
    ///
    /// # Errors
    /// The store's, or that nothing was ready.
    pub(crate) fn claim_one(&self, worker: &str) -> Result<ClaimedOp, BoxError> {
        self.claim(worker, 1)?.pop().ok_or_else(|| "nothing was ready to be claimed".into())
    }

    /// Promotes what is due, then claims, as the engine's claim loop does.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn claim_with(&self, request: &ClaimRequest) -> Result<ClaimReport, StoreError> {
        transact(self.store().as_ref(), TxKind::Claim, |tx| {
            transitions::promote(tx, PROMOTED, IN_THE_WAY)?;
            transitions::claim(tx, request)
        })
    }

    /// Extends leases by 30 s.
    ///
    /// # Errors
    /// The store's.
    pub fn heartbeat(&self, leases: &[LeaseKey]) -> Result<Vec<HeartbeatOutcome>, StoreError> {
        self.heartbeat_by(leases, LEASE)
    }

    /// Extends leases.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn heartbeat_by(&self, leases: &[LeaseKey], by: Micros) -> Result<Vec<HeartbeatOutcome>, StoreError> {
        transact(self.store().as_ref(), TxKind::Heartbeat, |tx| transitions::heartbeat(tx, leases, by))
    }

    /// Dispatches leases.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn dispatch(&self, leases: &[LeaseKey]) -> Result<Vec<DispatchOutcome>, StoreError> {
        transact(self.store().as_ref(), TxKind::Heartbeat, |tx| transitions::dispatch(tx, leases))
    }

    /// Ends attempts.
    ///
    /// # Errors
    /// The store's.
    pub fn finish(&self, batch: &[Finish]) -> Result<Vec<Ended>, StoreError> {
        transact(self.store().as_ref(), TxKind::Commit, |tx| transitions::finish(tx, batch, Wait::Block)).map(|report| report.outcomes)
    }

    /// Ends one attempt.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn finish_one(&self, item: Finish) -> Result<Ended, StoreError> {
        self.finish(&[item]).map(|mut outcomes| match outcomes.pop() {
            Some(outcome) => outcome,
            None => unreachable!("finish answers each attempt"),
        })
    }

    /// Completes an op, which must succeed.
    ///
    /// # Errors
    /// The store's, or the outcome when it is another.
    pub(crate) fn complete_one(&self, claimed: &ClaimedOp, result: &str) -> Result<(), BoxError> {
        match self.finish_one(completion(claimed, result))? {
            Ended::Succeeded => Ok(()),
            other => Err(format!("op {:?} did not succeed: {other:?}", claimed.op_id).into()),
        }
    }

    /// Fails an op for good, which must do so.
    ///
    /// # Errors
    /// The store's, or the outcome when it is another.
    pub(crate) fn fail_for_good(&self, claimed: &ClaimedOp) -> Result<(), BoxError> {
        match self.finish_one(permanent_failure(claimed))? {
            Ended::Failed { .. } => Ok(()),
            other => Err(format!("op {:?} did not fail: {other:?}", claimed.op_id).into()),
        }
    }

    /// Takes expired leases back, as what is in a claim's way.
    ///
    /// # Errors
    /// The store's, or that the clock is behind.
    pub fn recover(&self, limit: i64) -> Result<Recovered, BoxError> {
        match self.recover_by(IN_THE_WAY, limit)? {
            Pass::Done(recovered) => Ok(recovered),
            other => Err(format!("the recovery was not done: {other:?}").into()),
        }
    }

    /// Takes expired leases back, as a pass of upkeep.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn recover_by(&self, door: Upkeep, limit: i64) -> Result<Pass<Recovered>, BoxError> {
        let limit = BatchLimit::new(limit)?;
        let pass = |tx: &mut dyn Tx| transitions::upkeep(tx, door, |tx| transitions::recover(tx, limit));
        Ok(transact(self.store().as_ref(), TxKind::Maintenance, pass)?)
    }

    /// Lets an op wait; returns when it is woken.
    ///
    /// # Errors
    /// The store's, or the outcome when it is another.
    pub(crate) fn suspend_one(&self, claimed: &ClaimedOp, until: Until) -> Result<Timestamp, BoxError> {
        match self.finish_one(suspension(claimed, until))? {
            Ended::Suspended { due_at } => Ok(due_at),
            other => Err(format!("op {:?} does not wait: {other:?}", claimed.op_id).into()),
        }
    }

    /// Wakes ops that are due, as what is in a claim's way.
    ///
    /// # Errors
    /// The store's, or that the clock is behind.
    pub fn wake(&self, limit: i64) -> Result<Woken, BoxError> {
        match self.wake_by(IN_THE_WAY, limit)? {
            Pass::Done(woken) => Ok(woken),
            other => Err(format!("nobody was woken: {other:?}").into()),
        }
    }

    /// Wakes ops that are due, as a pass of upkeep.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn wake_by(&self, door: Upkeep, limit: i64) -> Result<Pass<Woken>, BoxError> {
        let limit = BatchLimit::new(limit)?;
        let pass = |tx: &mut dyn Tx| transitions::upkeep(tx, door, |tx| transitions::wake(tx, limit));
        Ok(transact(self.store().as_ref(), TxKind::Maintenance, pass)?)
    }

    // ---- operators ----

    /// Retries one failed op.
    ///
    /// # Errors
    /// The transition's.
    pub(crate) fn retry_op(&self, of: &Planted, op: &str) -> Result<Vec<String>, TransitionError> {
        self.retry(of, RetryTarget::Op(name(op)))
    }

    /// Retries failed ops.
    ///
    /// # Errors
    /// The transition's.
    pub(crate) fn retry(&self, of: &Planted, target: RetryTarget) -> Result<Vec<String>, TransitionError> {
        self.retry_with(&RetryOps { request: RequestId::random(), actor: Actor::new("operator"), workflow: of.id.clone(), target })
    }

    /// One call of retry, under its own request id.
    ///
    /// # Errors
    /// The transition's.
    pub(crate) fn retry_with(&self, call: &RetryOps) -> Result<Vec<String>, TransitionError> {
        let retried = transact(self.store().as_ref(), TxKind::Client, |tx| transitions::retry(tx, call))?;
        Ok(retried.ops.iter().map(ToString::to_string).collect())
    }

    /// Says what became of an attempt; answers where the op stands then.
    ///
    /// # Errors
    /// The transition's.
    pub(crate) fn settle(&self, of: &Planted, op: &str, attempt: Fence, verdict: OpVerdict) -> Result<OpStatus, TransitionError> {
        self.settle_with(&settling(of, op, attempt, verdict))
    }

    /// One call of settle, under its own request id.
    ///
    /// # Errors
    /// The transition's.
    pub(crate) fn settle_with(&self, call: &SettleOp) -> Result<OpStatus, TransitionError> {
        transact(self.store().as_ref(), TxKind::Client, |tx| transitions::settle(tx, call)).map(|settled| settled.status)
    }

    /// Cancels a workflow.
    ///
    /// # Errors
    /// The transition's.
    pub(crate) fn cancel(&self, workflow: &Planted) -> Result<Canceled, TransitionError> {
        self.cancel_with(&CancelWorkflow { request: RequestId::random(), actor: Actor::new("operator"), workflow: workflow.id.clone() })
    }

    /// One call of cancel, under its own request id.
    ///
    /// # Errors
    /// The transition's.
    pub(crate) fn cancel_with(&self, call: &CancelWorkflow) -> Result<Canceled, TransitionError> {
        transact(self.store().as_ref(), TxKind::Client, |tx| transitions::cancel_workflow(tx, call))
    }

    /// Stores queue policies.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn set_policies(&self, policies: &[QueuePolicy]) -> Result<(), StoreError> {
        self.tx(|tx| tx.set_policies(policies))
    }

    // ---- what has become of it ----

    /// Where an op stands.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn status(&self, of: &Planted, op: &str) -> Result<OpStatus, BoxError> {
        Ok(self.view(of.op(op))?.status)
    }

    /// Where these ops stand, in turn.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn statuses(&self, of: &Planted, ops: &[&str]) -> Result<Vec<OpStatus>, BoxError> {
        ops.iter().map(|op| self.status(of, op)).collect()
    }

    /// The lease of an op as it is stored.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn stored_lease(&self, key: LeaseKey) -> Result<Option<Lease>, StoreError> {
        self.read(|tx| tx.leases_of(&[key.op])).map(|mut leases| leases.pop())
    }

    /// Claims and completes all there is until nothing is ready; returns how many ops that were.
    ///
    /// # Errors
    /// The store's, or an outcome that is no success.
    pub(crate) fn drain(&self, worker: &str) -> Result<usize, BoxError> {
        /// As many as the engine's commit batcher takes at once.
        const BATCH: u32 = 1_000;
        let mut drained = 0;
        loop {
            let claimed = self.claim(worker, BATCH)?;
            if claimed.is_empty() {
                return Ok(drained);
            }
            let batch: Vec<Finish> = claimed.iter().map(|op| completion(op, "null")).collect();
            let outcomes = self.finish(&batch)?;
            if let Some(other) = outcomes.iter().find(|outcome| **outcome != Ended::Succeeded) {
                return Err(format!("an op did not succeed: {other:?}").into());
            }
            drained += outcomes.len();
        }
    }
}
