//! What a handler knows of its attempt, and what it may leave behind.

use super::attempt::checked;
use super::handler::HandlerError;
use super::session::finish_of;
use crate::client::{Client, ClientError, Op, with_causes};
use crate::model::{
    Artifact, ArtifactName, Digest, Json, KindName, Micros, NameError, OpError, OpId, OpSpec, QueueName, Record, SiteName, Timestamp,
    WorkflowId, check_size,
};
use crate::store::rows::{ClaimedOp, OpWake};
use crate::transitions::{Finish, Until};
use serde::de::DeserializeOwned;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// One attempt, as its handler sees it. Cheap to clone.
///
/// What is [emitted](OpContext::emit), [attached](OpContext::attach) or [recorded](OpContext::record) is kept until the
/// handler succeeds and then committed with its result, under the lease, or not at all.
///
/// # Waiting
/// A handler that has nothing to do for a while gives its lease up by returning [`wait_for`](OpContext::wait_for) or
/// [`wait_until`](OpContext::wait_until). The op then waits, without a worker, a slot of its queue or an attempt of its
/// budget, through any number of restarts. When the instant has come its handler is run from the beginning once more,
/// and sees by [`woken`](OpContext::woken) that it has waited:
///
/// ```
/// use leasehold_core::engine::{HandlerError, OpContext};
/// use std::time::Duration;
///
/// async fn remind(ctx: OpContext, address: String) -> Result<(), HandlerError> {
///     if ctx.woken().await?.is_none() {
///         return Err(ctx.wait_for(Duration::from_secs(600)));
///     }
///     println!("to {address}: ten minutes have passed");
///     Ok(())
/// }
/// # let _ = remind;
/// ```
#[derive(Debug, Clone)]
pub struct OpContext {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    op: Arc<ClaimedOp>,
    cancellation: CancellationToken,
    client: Client,
    left: Mutex<Left>,
    elsewhere: Elsewhere,
}

/// Tells the engine that an attempt ends in a transaction of the application's own.
struct Elsewhere {
    begun: AtomicBool,
    rest: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Elsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Elsewhere").field("begun", &self.begun).finish_non_exhaustive()
    }
}

/// What a handler leaves besides its result.
#[derive(Debug, Default)]
pub(super) struct Left {
    pub(super) emitted: Vec<OpSpec>,
    pub(super) artifacts: Vec<Artifact>,
    pub(super) records: Vec<Record>,
}

impl OpContext {
    pub(super) fn new(
        op: Arc<ClaimedOp>,
        cancellation: CancellationToken,
        client: Client,
        rest: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let elsewhere = Elsewhere { begun: AtomicBool::new(false), rest: Box::new(rest) };
        Self { inner: Arc::new(Inner { op, cancellation, client, left: Mutex::default(), elsewhere }) }
    }

    /// What ends this attempt with `result`, and what was left besides, in a transaction of the application's own. From
    /// now on its heartbeat rests: the transaction may hold the lease's row.
    pub(crate) fn finish_elsewhere(&self, result: Json) -> Result<Finish, HandlerError> {
        let end = checked(result, self.take_left(), self.client().limits())?;
        self.inner.elsewhere.begun.store(true, Ordering::SeqCst);
        (self.inner.elsewhere.rest)();
        Ok(finish_of(&self.inner.op, end))
    }

    /// Whether the attempt was to end in a transaction of the application's own.
    pub(super) fn ends_elsewhere(&self) -> bool {
        self.inner.elsewhere.begun.load(Ordering::SeqCst)
    }

    /// The workflow.
    pub fn workflow_id(&self) -> &WorkflowId {
        &self.inner.op.workflow_id
    }
    /// The op.
    pub fn op_id(&self) -> &OpId {
        &self.inner.op.op_id
    }
    /// The op that emitted it.
    pub fn parent(&self) -> Option<&OpId> {
        self.inner.op.parent.as_ref()
    }
    /// The op's kind.
    pub fn kind(&self) -> &KindName {
        &self.inner.op.kind
    }
    /// The op's queue.
    pub fn queue(&self) -> &QueueName {
        &self.inner.op.queue
    }
    /// The op's site.
    pub fn site(&self) -> &SiteName {
        &self.inner.op.site
    }
    /// The attempt's number, which is also its fence: it grows with every lease of this op and never repeats. An outside
    /// system that remembers the highest it has seen can refuse a worker that lost its lease.
    pub fn attempt(&self) -> i64 {
        self.inner.op.lease.key.fence.0
    }
    /// How many attempts have failed before this one.
    pub fn failures(&self) -> u32 {
        self.inner.op.failures
    }
    /// What the op was given.
    pub fn input(&self) -> &Json {
        &self.inner.op.input
    }
    /// What people and tools attached to the op.
    pub fn metadata(&self) -> &Json {
        &self.inner.op.metadata
    }
    /// A key that is the same on every attempt of this op and of no other: 64 hexadecimal digits, fit for a header.
    pub fn idempotency_key(&self) -> String {
        idempotency_key(self.workflow_id(), self.op_id())
    }
    /// Tells when to stop: the lease is lost, the workflow was canceled, the time is over, or the worker shuts down. A
    /// handler that goes on is dropped at its next `.await` after a moment.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.inner.cancellation
    }
    /// What a handler returns as its error for its op to wait so long: [see above](OpContext#waiting). The instant is
    /// fixed when this is committed, by the store's clock.
    ///
    /// A duration that is zero, or ends past year 9999, is no wait: the op then fails with the code `bad_wait`.
    pub fn wait_for(&self, duration: Duration) -> HandlerError {
        match Micros::try_from(duration) {
            Ok(duration) => HandlerError::waiting(Until::For(duration)),
            Err(error) => HandlerError::permanent(format!("the wait: {error}")).code(OpError::BAD_WAIT),
        }
    }
    /// What a handler returns as its error for its op to wait until `instant`: [see above](OpContext#waiting). One that
    /// has passed is due at once.
    pub fn wait_until(&self, instant: Timestamp) -> HandlerError {
        HandlerError::waiting(Until::At(instant))
    }
    /// How the op's last wait ended; `None` when it never waited. It stays known in all later attempts, so that one that
    /// fails after the wait does not wait again.
    ///
    /// # Errors
    /// Retryable when the store failed.
    pub async fn woken(&self) -> Result<Option<OpWake>, HandlerError> {
        self.client().last_wake(self.inner.op.lease.key.op).await.map_err(failed_read)
    }

    /// A client of the same store.
    pub fn client(&self) -> &Client {
        &self.inner.client
    }

    /// The result of the op `id` of the same workflow.
    ///
    /// # Errors
    /// Permanent when there is no such op, it has no result, or the result is no `T`; retryable when the store failed.
    pub async fn dependency<T: DeserializeOwned>(&self, id: &str) -> Result<T, HandlerError> {
        let result = self.dependency_json(id).await?;
        result.decode().map_err(|error| HandlerError::permanent(format!("the result of op {id:?}: {}", with_causes(&error))))
    }

    /// [`OpContext::dependency`] as JSON.
    ///
    /// # Errors
    /// As [`OpContext::dependency`].
    pub async fn dependency_json(&self, id: &str) -> Result<Json, HandlerError> {
        let op = OpId::new(id).map_err(|error| misnamed(&error))?;
        self.client().op_result(self.workflow_id(), &op).await.map_err(failed_read)
    }

    /// The results of all ops that this one waits for and that have succeeded, by id, in one read.
    ///
    /// # Errors
    /// Retryable when the store failed.
    pub async fn dependencies(&self) -> Result<Vec<(OpId, Json)>, HandlerError> {
        self.client().dependency_results(self.inner.op.lease.key.op).await.map_err(failed_read)
    }

    /// The content of the artifact `name` of the op `id` of the same workflow.
    ///
    /// # Errors
    /// Permanent when there is no such op or artifact; retryable when the store failed.
    pub async fn artifact_of(&self, id: &str, name: &str) -> Result<Vec<u8>, HandlerError> {
        let op = OpId::new(id).map_err(|error| misnamed(&error))?;
        let name = ArtifactName::new(name).map_err(|error| misnamed(&error))?;
        self.client().artifact(self.workflow_id(), &op, &name).await.map_err(failed_read)
    }

    /// Adds `op` to the workflow when this one succeeds. It knows this op as its parent and inherits its site.
    ///
    /// # Errors
    /// Permanent, with the code `bad_emission`, when its description is not valid.
    pub fn emit(&self, op: Op) -> Result<(), HandlerError> {
        let refuse = |message: String| HandlerError::permanent(message).code(OpError::BAD_EMISSION);
        let spec = op.build().map_err(|error| refuse(error.to_string()))?;
        if let Some(problem) = self.client().kind_problem(&spec.kind) {
            return Err(refuse(format!("op {:?}: {problem}", spec.id)));
        }
        self.left(|left| left.emitted.push(spec));
        Ok(())
    }

    /// Keeps `artifact` with this op when it succeeds, in place of an earlier one of its name.
    ///
    /// # Errors
    /// Permanent, with the code `bad_result`, when it is over its limit.
    pub fn attach(&self, artifact: Artifact) -> Result<(), HandlerError> {
        let limits = self.client().limits();
        check_size(format!("the artifact {:?}", artifact.name), artifact.content.len(), limits.artifact_bytes)
            .and_then(|()| {
                let size = artifact.metadata.as_str().len();
                check_size(format!("the metadata of the artifact {:?}", artifact.name), size, limits.input_bytes)
            })
            .map_err(|error| HandlerError::permanent(error.to_string()).code(OpError::BAD_RESULT))?;
        self.left(|left| left.artifacts.push(artifact));
        Ok(())
    }

    /// Keeps `record` with the workflow when this op succeeds, in place of an earlier one of its key.
    ///
    /// # Errors
    /// Permanent, with the code `bad_result`, when it is over its limit.
    pub fn record(&self, record: Record) -> Result<(), HandlerError> {
        let what = format!("the record {:?} of {:?}", record.key, record.collection);
        check_size(what, record.value.as_str().len(), self.client().limits().record_bytes)
            .map_err(|error| HandlerError::permanent(error.to_string()).code(OpError::BAD_RESULT))?;
        self.left(|left| left.records.push(record));
        Ok(())
    }

    fn left<T>(&self, change: impl FnOnce(&mut Left) -> T) -> T {
        change(&mut self.inner.left.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes what the handler left.
    pub(super) fn take_left(&self) -> Left {
        self.left(std::mem::take)
    }
}

/// A key of the op and of no other.
pub(super) fn idempotency_key(workflow: &WorkflowId, op: &OpId) -> String {
    let (workflow, op) = (workflow.as_str(), op.as_str());
    // The length keeps ("a", "b/c") apart from ("a/b", "c").
    Digest::of_bytes(format!("{}/{workflow}/{op}", workflow.len()).as_bytes()).to_string()
}

fn misnamed(error: &NameError) -> HandlerError {
    HandlerError::permanent(error.to_string())
}

/// A store may be there again for the next attempt; what is missing or has another shape will be the same then.
fn failed_read(error: ClientError) -> HandlerError {
    match error {
        ClientError::Store(_) | ClientError::ShuttingDown => error.into(),
        _ => HandlerError::permanent(with_causes(&error)),
    }
}
