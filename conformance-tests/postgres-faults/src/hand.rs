//! One transition at a time, on a store of its own: what races are made of.

use crate::Result;
use leasehold_core::client::Workflow;
use leasehold_core::model::{
    ErrorClass, Json, LeaseToken, Limits, Micros, OpError, OpId, OpSpec, QueuePolicy, RequestId, WorkerName, WorkflowId, WorkflowSpec,
};
use leasehold_core::store::rows::{ClaimedOp, LeaseKey};
use leasehold_core::store::{StoreError, StoreExt, TxKind, Wait};
use leasehold_core::transitions::{
    self, Actor, AddOps, AddedOp, BatchLimit, CLOCK_TOLERANCE, CancelWorkflow, Canceled, ClaimCursor, ClaimReport, ClaimRequest,
    CreateMode, CreateOutcome, CreateRequest, End, Ended, Finish, HeartbeatOutcome, Plan, Recovered, RetryOps, RetryTarget,
    TransitionError,
};
use leasehold_postgres::PostgresStore;
use std::sync::Arc;

/// How long the leases of hands last: longer than any test, however busy the machine. What is to expire is given less.
pub const LEASE: Micros = Micros::from_secs(4 * 3600);

/// The verbs over one store, each one transaction and tried once: an error of the store is the caller's.
#[derive(Debug, Clone)]
pub struct Hand {
    store: Arc<PostgresStore>,
    name: WorkerName,
}

impl Hand {
    /// A hand with connections of its own to the store at `url`.
    ///
    /// # Errors
    /// When the store cannot be opened.
    pub fn connect(url: &str, name: &str) -> Result<Self> {
        Ok(Self { store: Arc::new(PostgresStore::connect(url)?), name: WorkerName::new(name)? })
    }

    /// Its store.
    pub const fn store(&self) -> &Arc<PostgresStore> {
        &self.store
    }

    /// Makes workflows, in one transaction.
    ///
    /// # Errors
    /// The transition's.
    pub fn create(&self, workflows: impl IntoIterator<Item = Workflow>) -> Result<Vec<WorkflowId>> {
        let requests = workflows.into_iter().map(|workflow| creation(workflow.build()?)).collect::<Result<Vec<CreateRequest>>>()?;
        let report = self.store.with(TxKind::Client, |tx| transitions::create(tx, &requests))?;
        report.outcomes.into_iter().map(|created| Ok(created?.id)).collect()
    }

    /// Makes one workflow by a request that may have been made before.
    ///
    /// # Errors
    /// The transition's.
    pub fn create_with(&self, request: &CreateRequest) -> Result<CreateOutcome, TransitionError> {
        let report = self.store.with(TxKind::Client, |tx| transitions::create(tx, std::slice::from_ref(request)))?;
        match report.outcomes.into_iter().next() {
            Some(outcome) => outcome.map(|created| created.outcome),
            None => unreachable!("create answers each request"),
        }
    }

    /// What a claim of up to `capacity` ops asks for.
    pub fn claim_request(&self, capacity: u32) -> ClaimRequest {
        ClaimRequest {
            token: LeaseToken::random(),
            worker: self.name.clone(),
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

    /// Leases up to `capacity` ops.
    ///
    /// # Errors
    /// The store's.
    pub fn claim(&self, capacity: u32) -> Result<Vec<ClaimedOp>, StoreError> {
        self.claim_with(&self.claim_request(capacity)).map(|report| report.ops)
    }

    /// One claim.
    ///
    /// # Errors
    /// The store's.
    pub fn claim_with(&self, request: &ClaimRequest) -> Result<ClaimReport, StoreError> {
        self.store.with(TxKind::Claim, |tx| transitions::claim(tx, request))
    }

    /// Moves up to `limit` ops that are due to where they can be claimed.
    ///
    /// # Errors
    /// The store's.
    pub fn promote(&self, limit: u32) -> Result<u32, StoreError> {
        self.store.with(TxKind::Claim, |tx| tx.promote(limit))
    }

    /// Takes expired leases back.
    ///
    /// # Errors
    /// The store's.
    pub fn recover(&self) -> Result<Recovered, StoreError> {
        self.store.with(TxKind::Maintenance, |tx| transitions::recover(tx, BatchLimit::DEFAULT))
    }

    /// Renews one lease.
    ///
    /// # Errors
    /// The store's.
    pub fn heartbeat(&self, lease: LeaseKey, by: Micros) -> Result<HeartbeatOutcome, StoreError> {
        let mut answers = self.store.with(TxKind::Heartbeat, |tx| transitions::heartbeat(tx, &[lease], by))?;
        Ok(answers.pop().unwrap_or(HeartbeatOutcome::Lost))
    }

    /// Ends one attempt.
    ///
    /// # Errors
    /// The store's.
    pub fn finish(&self, item: Finish) -> Result<Ended, StoreError> {
        Ok(self.finish_all(&[item])?.pop().unwrap_or(Ended::LeaseLost))
    }

    /// Ends attempts, in one transaction.
    ///
    /// # Errors
    /// The store's.
    pub fn finish_all(&self, batch: &[Finish]) -> Result<Vec<Ended>, StoreError> {
        Ok(self.store.with(TxKind::Commit, |tx| transitions::finish(tx, batch, Wait::Block))?.outcomes)
    }

    /// Retries one op.
    ///
    /// # Errors
    /// The transition's.
    pub fn retry(&self, workflow: &WorkflowId, op: &str) -> Result<Vec<OpId>, TransitionError> {
        let call = self.retrying(workflow, op);
        self.retry_with(&call)
    }

    /// A call to retry one op.
    pub fn retrying(&self, workflow: &WorkflowId, op: &str) -> RetryOps {
        // A name that is none finds no op.
        let target = OpId::new(op).map_or(RetryTarget::AllFailed, RetryTarget::Op);
        RetryOps { request: RequestId::random(), actor: self.actor(), workflow: workflow.clone(), target }
    }

    /// One call of retry.
    ///
    /// # Errors
    /// The transition's.
    pub fn retry_with(&self, call: &RetryOps) -> Result<Vec<OpId>, TransitionError> {
        self.store.with(TxKind::Client, |tx| transitions::retry(tx, call)).map(|retried| retried.ops)
    }

    /// Cancels a workflow.
    ///
    /// # Errors
    /// The transition's.
    pub fn cancel(&self, workflow: &WorkflowId) -> Result<Canceled, TransitionError> {
        self.cancel_with(&CancelWorkflow { request: RequestId::random(), actor: self.actor(), workflow: workflow.clone() })
    }

    /// One call of cancel.
    ///
    /// # Errors
    /// The transition's.
    pub fn cancel_with(&self, call: &CancelWorkflow) -> Result<Canceled, TransitionError> {
        self.store.with(TxKind::Client, |tx| transitions::cancel_workflow(tx, call))
    }

    /// Adds ops to a workflow.
    ///
    /// # Errors
    /// The transition's.
    pub fn add(&self, workflow: &WorkflowId, ops: Vec<OpSpec>) -> Result<Vec<AddedOp>, TransitionError> {
        self.add_with(&self.adding(workflow, ops)?)
    }

    /// A call to add ops.
    ///
    /// # Errors
    /// For ops that make no graph.
    pub fn adding(&self, workflow: &WorkflowId, ops: Vec<OpSpec>) -> Result<AddOps, TransitionError> {
        let plan = Plan::new(ops, &Limits::default())?;
        Ok(AddOps { request: RequestId::random(), actor: self.actor(), workflow: workflow.clone(), plan })
    }

    /// One call of add.
    ///
    /// # Errors
    /// The transition's.
    pub fn add_with(&self, call: &AddOps) -> Result<Vec<AddedOp>, TransitionError> {
        self.store.with(TxKind::Client, |tx| transitions::add_ops(tx, call)).map(|added| added.ops)
    }

    /// Limits a queue.
    ///
    /// # Errors
    /// The store's.
    pub fn limit(&self, policies: &[QueuePolicy]) -> Result<(), StoreError> {
        self.store.with(TxKind::Client, |tx| tx.set_policies(policies))
    }

    /// How a call says who makes it.
    pub fn actor(&self) -> Actor {
        Actor::new(self.name.to_string())
    }
}

/// A request to make a workflow.
///
/// # Errors
/// For a workflow that cannot be stored.
pub fn creation(spec: WorkflowSpec) -> Result<CreateRequest> {
    Ok(CreateRequest::new(spec, RequestId::random(), CreateMode::Start, &Limits::default())?)
}

/// How an attempt that was claimed ends.
pub fn ending(claimed: &ClaimedOp, end: End) -> Finish {
    Finish { lease: claimed.lease.key, workflow: claimed.lease.workflow, op_id: claimed.op_id.clone(), site: claimed.site.clone(), end }
}

/// Its success.
pub fn success(claimed: &ClaimedOp) -> Finish {
    let result = Json::encode(&claimed.lease.key.fence.0).unwrap_or_default();
    ending(claimed, End::Complete { result, artifacts: Vec::new(), records: Vec::new(), emitted: None })
}

/// Its failure for good.
pub fn failure(claimed: &ClaimedOp) -> Finish {
    ending(claimed, End::Fail { error: OpError::new("broken", "as the test wants it"), class: ErrorClass::Permanent, delay: None })
}

/// Its failure for now: the next attempt may begin after `delay`.
pub fn setback(claimed: &ClaimedOp, delay: Micros) -> Finish {
    let error = OpError::new("flaky", "as the test wants it");
    ending(claimed, End::Fail { error, class: ErrorClass::Retryable, delay: Some(delay) })
}
