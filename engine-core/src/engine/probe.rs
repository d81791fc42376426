//! Asks the application what became of attempts that gave no answer (L9).

use super::context::idempotency_key;
use super::handler::HandlerError;
use super::session::{Session, Settings};
use crate::client::{Actor, Client, ClientError, OpVerdict, UnknownOutcome, with_causes};
use crate::model::{Fence, Json, KindName, OpError, OpId, OpSeq, Timestamp, WorkflowId};
use crate::state::OpStatus;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::task::JoinSet;

/// The most probes of one pass: they run side by side, and the rest is for the next.
const PROBES_MAX: u32 = 16;
/// How long one probe may take; what it does not know by then is still unknown.
const PROBE_LIMIT: Duration = Duration::from_secs(30);

/// An attempt that gave no answer, as its probe sees it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ProbeContext {
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// The op.
    pub op_id: OpId,
    /// Its kind.
    pub kind: KindName,
    /// The attempt's number.
    pub attempt: Fence,
    /// What the op was given.
    pub input: Json,
    /// Since when it waits for a verdict.
    pub since: Timestamp,
    /// What is known of how the attempt ended.
    pub error: Option<OpError>,
    /// The key that the handler could hand to outside systems: the same on every attempt.
    pub idempotency_key: String,
    /// A client of the same store.
    pub client: Client,
}

/// What a probe has found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeAnswer {
    /// What became of the attempt.
    Known(OpVerdict),
    /// Nothing; it is asked again later, unless a person knows sooner.
    StillUnknown,
}

/// One op that a probe settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbedOp {
    /// Its workflow.
    pub workflow: WorkflowId,
    /// The op.
    pub op: OpId,
    /// The attempt that was judged.
    pub attempt: Fence,
    /// Where the op stands now.
    pub status: OpStatus,
}

type Answer = Pin<Box<dyn Future<Output = Result<ProbeAnswer, HandlerError>> + Send>>;

/// The application's function for one kind.
pub(super) type Probe = Arc<dyn Fn(ProbeContext) -> Answer + Send + Sync>;

/// Makes a [`Probe`] of an async function.
pub(super) fn probe<F, Fut, E>(function: F) -> Probe
where
    F: Fn(ProbeContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<ProbeAnswer, E>> + Send + 'static,
    E: Into<HandlerError>,
{
    Arc::new(move |ctx| {
        let answer = function(ctx);
        Box::pin(async move { answer.await.map_err(Into::into) })
    })
}

/// Probes until the session ends, a pass every `probe_every`.
pub(super) async fn probe_loop(session: Weak<Session>) {
    let mut after = None;
    loop {
        let Some((settings, quit)) = session.upgrade().map(|session| (Arc::clone(&session.settings), session.quit.clone())) else { return };
        let one = async {
            match pass(&settings, after).await {
                Ok((next, _)) => after = next,
                Err(error) => tracing::warn!(error = with_causes(&error), "ops that wait for a verdict could not be read; trying again"),
            }
            tokio::time::sleep(settings.probe_every).await;
        };
        tokio::select! {
            () = quit.cancelled() => return,
            () = one => {}
        }
    }
}

/// One bounded pass behind `after`: asks the probes about ops that wait for a verdict, and settles what they know. Where
/// the next one begins, and what was settled.
pub(super) async fn pass(settings: &Settings, after: Option<OpSeq>) -> Result<(Option<OpSeq>, Vec<ProbedOp>), ClientError> {
    if settings.probes.is_empty() {
        return Ok((None, Vec::new()));
    }
    let found = settings.client.unknown_outcomes(after, PROBES_MAX).await?;
    let whole = u32::try_from(found.len()).is_ok_and(|count| count == PROBES_MAX);
    let next = found.last().map(|last| last.op.state.seq).filter(|_| whole);
    let mut asked = JoinSet::new();
    for outcome in found {
        let Some(probe) = settings.probes.get(&outcome.op.kind).map(Arc::clone) else { continue };
        let (client, actor) = (settings.client.clone(), Actor::new(format!("probe of {}", settings.worker)));
        asked.spawn(async move { ask(&probe, outcome, client, &actor).await });
    }
    let mut settled = Vec::new();
    while let Some(done) = asked.join_next().await {
        match done {
            Ok(op) => settled.extend(op),
            Err(panic) => tracing::error!(%panic, "a probe panicked; what it was asked about is still unknown"),
        }
    }
    Ok((next, settled))
}

async fn ask(probe: &Probe, outcome: UnknownOutcome, client: Client, actor: &Actor) -> Option<ProbedOp> {
    let UnknownOutcome { workflow, op, wait } = outcome;
    let (op_id, attempt) = (op.state.id, wait.key.fence);
    let ctx = ProbeContext {
        workflow_id: workflow.clone(),
        op_id: op_id.clone(),
        kind: op.kind,
        attempt,
        input: op.input,
        since: wait.since,
        error: op.error,
        idempotency_key: idempotency_key(&workflow, &op_id),
        client: client.clone(),
    };
    let verdict = match tokio::time::timeout(PROBE_LIMIT, probe(ctx)).await {
        Ok(Ok(ProbeAnswer::Known(verdict))) => verdict,
        Ok(Ok(ProbeAnswer::StillUnknown)) => return None,
        Ok(Err(error)) => {
            tracing::warn!(workflow = workflow.as_str(), op = op_id.as_str(), %error, "a probe failed; the outcome is still unknown");
            return None;
        }
        Err(_) => {
            tracing::warn!(workflow = workflow.as_str(), op = op_id.as_str(), "a probe took too long; the outcome is still unknown");
            return None;
        }
    };
    match client.settle_op(&workflow, &op_id, attempt, verdict, actor).await {
        Ok(status) => Some(ProbedOp { workflow, op: op_id, attempt, status }),
        Err(error) => {
            // A person or another process may have been first.
            tracing::info!(
                workflow = workflow.as_str(),
                op = op_id.as_str(),
                error = with_causes(&error),
                "a probe's verdict was not taken"
            );
            None
        }
    }
}
