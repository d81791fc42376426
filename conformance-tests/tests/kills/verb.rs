//! What a child does: each verb, with every id fixed, so that two processes say the same.

use crate::place::Ground;
use leasehold_core::model::{
    Artifact, ArtifactKind, ArtifactName, CollectionName, Dependency, Effect, ErrorClass, Fence, Json, KindName, Limits, Micros, OpError,
    OpId, OpSpec, Record, RecordKey, RetryPolicy, SiteName, WorkerName, WorkflowId, WorkflowName, WorkflowSpec,
};
use leasehold_core::store::rows::ClaimedOp;
use leasehold_core::store::{BoxError, Store, StoreError, StoreExt, TxKind, Wait};
use leasehold_core::transitions::{
    Actor, AddOps, BatchLimit, CLOCK_TOLERANCE, CancelWorkflow, ClaimCursor, ClaimRequest, CreateMode, CreateRequest, End, Finish,
    OpVerdict, Plan, RetryOps, RetryTarget, SettleOp, TransitionError, Until, add_ops, cancel_workflow, claim, create, dispatch, finish,
    heartbeat, recover, retry, settle, wake,
};

/// A verb, and where its op stands before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Create,
    AddOps,
    Promote,
    Claim,
    Heartbeat,
    Complete,
    FailAndTryAgain,
    FailForGood,
    Suspend,
    Dispatch,
    Abandon,
    Settle,
    Release,
    Wake,
    Recover,
    RecoverTheLast,
    Retry,
    Cancel,
}

const LEASE: Micros = Micros::from_secs(30);
const WAIT: End = End::Suspend { until: Until::For(LEASE) };
const FIRST_CLAIM: &str = "00000000-0000-4000-8000-000000000001";
const THIS_CALL: &str = "00000000-0000-4000-8000-000000000002";

impl Verb {
    pub(crate) const ALL: [Self; 18] = [
        Self::Create,
        Self::AddOps,
        Self::Promote,
        Self::Claim,
        Self::Heartbeat,
        Self::Complete,
        Self::FailAndTryAgain,
        Self::FailForGood,
        Self::Suspend,
        Self::Dispatch,
        Self::Abandon,
        Self::Settle,
        Self::Release,
        Self::Wake,
        Self::Recover,
        Self::RecoverTheLast,
        Self::Retry,
        Self::Cancel,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::AddOps => "add_ops",
            Self::Promote => "promote",
            Self::Claim => "claim",
            Self::Heartbeat => "heartbeat",
            Self::Complete => "complete",
            Self::FailAndTryAgain => "a_failure_that_is_tried_again",
            Self::FailForGood => "a_failure_for_good",
            Self::Suspend => "suspend",
            Self::Dispatch => "dispatch",
            Self::Abandon => "abandon",
            Self::Settle => "settle",
            Self::Release => "release",
            Self::Wake => "wake",
            Self::Recover => "recover",
            Self::RecoverTheLast => "the_recovery_that_gives_up",
            Self::Retry => "retry",
            Self::Cancel => "cancel",
        }
    }
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verb| verb.name() == name)
    }
    /// Whether the repetition gets the first answer; a pass of upkeep tells what *it* did instead.
    pub(crate) const fn answers_alike(self) -> bool {
        !matches!(self, Self::Promote | Self::Wake | Self::Recover | Self::RecoverTheLast)
    }

    const fn is_about_effects(self) -> bool {
        matches!(self, Self::Dispatch | Self::Abandon | Self::Settle)
    }

    /// Brings a new store to where the verb can be said.
    pub(crate) fn prepare(self, ground: &Ground) -> Result<Call, BoxError> {
        let store = ground.open()?;
        let store = store.as_ref();
        let effect = if self.is_about_effects() { Effect::Once } else { Effect::Repeatable };
        let max_lost = if self == Self::RecoverTheLast { 1 } else { RetryPolicy::default().max_lost };
        start_workflow(store, "w", RetryPolicy { max_lost, effect, ..RetryPolicy::default() })?;
        match self {
            Self::Create | Self::AddOps | Self::Claim => {}
            Self::Heartbeat | Self::Complete | Self::FailAndTryAgain | Self::FailForGood | Self::Suspend | Self::Release | Self::Cancel => {
                claim_as(store, FIRST_CLAIM, false)?;
                ground.advance(Micros::from_secs(10))?;
            }
            Self::Recover | Self::RecoverTheLast => {
                claim_as(store, FIRST_CLAIM, false)?;
                ground.advance(LEASE)?;
            }
            Self::Dispatch => drop(claim_as(store, FIRST_CLAIM, false)?),
            Self::Abandon | Self::Settle => {
                claim_as(store, FIRST_CLAIM, false)?;
                let call = Call::read(self, store)?;
                let key = call.claimed()?.lease.key;
                store.with(TxKind::Heartbeat, |tx| dispatch(tx, &[key]))?;
                if self == Self::Settle {
                    call.finish(store, abandonment())?;
                    return Ok(call);
                }
            }
            Self::Wake => {
                claim_as(store, FIRST_CLAIM, false)?;
                Call::read(self, store)?.finish(store, WAIT)?;
                ground.advance(LEASE)?;
            }
            Self::Promote => {
                fail_first(store, ErrorClass::Retryable)?;
                ground.advance(Micros::from_secs(600))?;
            }
            Self::Retry => fail_first(store, ErrorClass::Permanent)?,
        }
        Call::read(self, store)
    }
}

/// A verb with all it needs to know of the store.
pub(crate) struct Call {
    verb: Verb,
    claimed: Option<ClaimedOp>,
}

impl Call {
    /// Reads what the verb is about.
    pub(crate) fn read(verb: Verb, store: &dyn Store) -> Result<Self, BoxError> {
        let token = FIRST_CLAIM.parse()?;
        let claimed = store.with(TxKind::Read, |tx| tx.claimed_by(token))?.pop();
        Ok(Self { verb, claimed })
    }

    fn claimed(&self) -> Result<&ClaimedOp, BoxError> {
        Ok(self.claimed.as_ref().ok_or("nothing was claimed")?)
    }

    /// Says it. `repeated` is told where a verb wants to know that it may have been said before.
    pub(crate) fn perform(&self, store: &dyn Store, repeated: bool) -> Result<String, BoxError> {
        let (actor, workflow) = (Actor::new("operator"), id("w")?);
        let request = THIS_CALL.parse()?;
        match self.verb {
            Verb::Create => start_workflow(store, "another", RetryPolicy::default()),
            Verb::AddOps => {
                let plan = Plan::new(vec![op("added", &["b"])?, op("more", &[])?], &Limits::default())?;
                let call = AddOps { request, actor, workflow, plan };
                Ok(format!("{:?}", store.with(TxKind::Client, |tx| add_ops(tx, &call))?.ops))
            }
            Verb::Promote => Ok(store.with(TxKind::Claim, |tx| tx.promote(10))?.to_string()),
            Verb::Claim => claim_as(store, THIS_CALL, repeated),
            Verb::Heartbeat => {
                let key = self.claimed()?.lease.key;
                Ok(format!("{:?}", store.with(TxKind::Heartbeat, |tx| heartbeat(tx, &[key], LEASE))?))
            }
            Verb::Complete => self.finish(store, completion()?),
            Verb::FailAndTryAgain => self.finish(store, failure(ErrorClass::Retryable)),
            Verb::FailForGood => self.finish(store, failure(ErrorClass::Permanent)),
            Verb::Suspend => self.finish(store, WAIT),
            Verb::Dispatch => {
                let key = self.claimed()?.lease.key;
                Ok(format!("{:?}", store.with(TxKind::Heartbeat, |tx| dispatch(tx, &[key]))?))
            }
            Verb::Abandon => self.finish(store, abandonment()),
            Verb::Settle => {
                let verdict = OpVerdict::Succeed { result: Json::parse("7")? };
                let call = SettleOp { request, actor, workflow, op: OpId::new("a")?, attempt: Fence::NONE.next(), verdict };
                Ok(format!("{:?}", store.with(TxKind::Client, |tx| settle(tx, &call))?.status))
            }
            Verb::Release => self.finish(store, End::Release),
            Verb::Wake => Ok(format!("{:?}", store.with(TxKind::Maintenance, |tx| wake(tx, BatchLimit::DEFAULT))?.ops)),
            Verb::Recover | Verb::RecoverTheLast => {
                Ok(format!("{:?}", store.with(TxKind::Maintenance, |tx| recover(tx, BatchLimit::DEFAULT))?.ops))
            }
            Verb::Retry => {
                let call = RetryOps { request, actor, workflow, target: RetryTarget::AllFailed };
                Ok(format!("{:?}", store.with(TxKind::Client, |tx| retry(tx, &call))?.ops))
            }
            Verb::Cancel => {
                let call = CancelWorkflow { request, actor, workflow };
                let canceled = store.with(TxKind::Client, |tx| cancel_workflow(tx, &call))?;
                Ok(format!("{} {}", canceled.ops, canceled.running))
            }
        }
    }

    fn finish(&self, store: &dyn Store, end: End) -> Result<String, BoxError> {
        finish_op(store, self.claimed()?, end)
    }
}

fn id(text: &str) -> Result<WorkflowId, BoxError> {
    Ok(WorkflowId::new(text)?)
}

fn op(id: &str, after: &[&str]) -> Result<OpSpec, BoxError> {
    let mut spec = OpSpec::new(OpId::new(id)?, KindName::new("k")?);
    for parent in after {
        spec.after.push(Dependency { on: OpId::new(*parent)?, required: true });
    }
    Ok(spec)
}

/// `a`, what requires it, and what requires that; only `a` can be claimed.
fn start_workflow(store: &dyn Store, name: &str, retry: RetryPolicy) -> Result<String, BoxError> {
    let mut first = op("a", &[])?;
    first.retry = retry;
    let spec = WorkflowSpec {
        id: id(name)?,
        name: WorkflowName::new("killed")?,
        digest: None,
        input: Json::null(),
        metadata: Json::null(),
        site: SiteName::default(),
        subject: None,
        ops: vec![first, op("b", &["a"])?, op("c", &["b"])?],
    };
    let request = CreateRequest::new(spec, THIS_CALL.parse()?, CreateMode::Start, &Limits::default())?;
    let report = store.with(TxKind::Client, |tx| create(tx, std::slice::from_ref(&request)).map_err(TransitionError::from))?;
    Ok(format!("{:?}", report.outcomes))
}

fn claim_as(store: &dyn Store, token: &str, repeated: bool) -> Result<String, BoxError> {
    let request = ClaimRequest {
        token: token.parse()?,
        worker: WorkerName::new("dies")?,
        lease: LEASE,
        capacity: 10,
        kinds: None,
        agents: Vec::new(),
        cursor: ClaimCursor::default(),
        suspects: true,
        tolerance: CLOCK_TOLERANCE,
        repeated,
    };
    let ops = store.with(TxKind::Claim, |tx| Ok::<_, StoreError>(claim(tx, &request)?.ops))?;
    Ok(format!("{:?}", ops.iter().map(|op| &op.lease).collect::<Vec<_>>()))
}

fn finish_op(store: &dyn Store, claimed: &ClaimedOp, end: End) -> Result<String, BoxError> {
    let item = Finish {
        lease: claimed.lease.key,
        workflow: claimed.lease.workflow,
        op_id: claimed.op_id.clone(),
        site: claimed.site.clone(),
        end,
    };
    let report = store.with(TxKind::Commit, |tx| finish(tx, std::slice::from_ref(&item), Wait::Block))?;
    Ok(format!("{:?}", report.outcomes))
}

fn abandonment() -> End {
    End::Abandon { error: OpError::new(OpError::PANICKED, "it panicked") }
}

fn failure(class: ErrorClass) -> End {
    End::Fail { error: OpError::new("broken", "it broke"), class, delay: None }
}

/// A success that leaves everything a success can leave.
fn completion() -> Result<End, BoxError> {
    let artifact = Artifact {
        name: ArtifactName::new("report")?,
        kind: ArtifactKind::Text,
        content_type: "text/plain".to_owned(),
        metadata: Json::null(),
        content: b"done".to_vec(),
    };
    let record = Record { collection: CollectionName::new("c")?, key: RecordKey::new("k")?, value: Json::parse("1")? };
    let emitted = Plan::new(vec![op("emitted", &[])?], &Limits::default())?;
    Ok(End::Complete { result: Json::parse("7")?, artifacts: vec![artifact], records: vec![record], emitted: Some(emitted) })
}

/// Claims `a` and fails it.
fn fail_first(store: &dyn Store, class: ErrorClass) -> Result<(), BoxError> {
    claim_as(store, FIRST_CLAIM, false)?;
    let call = Call::read(Verb::Retry, store)?;
    call.finish(store, failure(class))?;
    Ok(())
}
