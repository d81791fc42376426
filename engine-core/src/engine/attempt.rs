//! One attempt: its handler as a task, watched by another (L5, L15, Q8).

use super::context::{Left, OpContext};
use super::handler::HandlerError;
use super::held::Held;
use super::session::Session;
use super::stop::{StopReason, StopSwitch};
use crate::model::{ErrorClass, Json, Limits, Micros, OpError, check_size};
use crate::store::rows::ClaimedOp;
use crate::transitions::{End, Plan};
use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::{JoinError, JoinHandle};
use tracing::Instrument;

/// Begins the attempt of `op`, whose lease lasts from `confirmed_at` at least; or gives it back at once when that is over
/// or the session stops. While it lasts the session claims no other suspect if it is one.
pub(super) fn begin(session: &Arc<Session>, op: ClaimedOp, confirmed_at: Instant, suspect: bool) {
    let (op, stop) = (Arc::new(op), StopSwitch::default());
    let settings = &session.settings;
    let lease = settings.lease.as_duration();
    let expired = confirmed_at.elapsed() >= lease;
    session.slots.begin();
    let held = Held::new(Arc::clone(&op), stop.clone(), confirmed_at, suspect);
    if expired || session.slots.is_stopping() || !session.held.hold(held, lease) {
        session.slots.ended();
        session.hand_in(op, End::Release, None);
        return;
    }
    let guard = Guard { session: Arc::clone(session), op, stop, began: Instant::now() };
    settings.runtime.spawn(guard.watch());
}

/// Whoever holds this answers for the attempt; dropped with its runtime, it gives the op back.
struct Guard {
    session: Arc<Session>,
    op: Arc<ClaimedOp>,
    stop: StopSwitch,
    began: Instant,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.session.end(&self.op, &self.stop, || End::Release, self.began.elapsed());
    }
}

impl Guard {
    async fn watch(self) {
        if self.stop.reason().is_some() {
            // Told to stop before it began: dropping the guard gives the op back, or finds that it was.
            return;
        }
        let settings = &self.session.settings;
        let Some(handler) = settings.handlers.get(&self.op.kind).map(Arc::clone) else {
            // The claim names the kinds that it takes; dropping the guard gives the op back.
            tracing::error!(kind = self.op.kind.as_str(), "the store leased an op of a kind that was not asked for");
            return;
        };
        let (session, key) = (Arc::downgrade(&self.session), self.op.lease.key);
        let rest = move || {
            if let Some(session) = session.upgrade() {
                session.held.ends_elsewhere(&key);
            }
        };
        let ctx = OpContext::new(Arc::clone(&self.op), self.stop.for_handler(), settings.client.clone(), rest);
        let span = tracing::info_span!(
            "attempt",
            otel.kind = "consumer",
            messaging.system = "leasehold",
            messaging.operation.name = "process",
            messaging.destination.name = self.op.queue.as_str(),
            messaging.message.id = self.op.op_id.as_str(),
            messaging.message.conversation_id = self.op.workflow_id.as_str(),
            messaging.client.id = settings.worker.as_str(),
            leasehold.kind = self.op.kind.as_str(),
            leasehold.site = self.op.site.as_str(),
            leasehold.attempt = self.op.lease.key.fence.0,
            error.r#type = tracing::field::Empty,
        );
        let run = {
            let ctx = ctx.clone();
            async move { handler.run(ctx).await }
        };
        // A task of its own: a panic ends there, and it can be dropped while this one goes on.
        let mut task = tokio::spawn(run.instrument(span.clone()));
        let joined = self.join(&mut task).await;
        let run_time = self.began.elapsed();
        let end = || {
            let end = judge(self.stop.reason(), joined, &ctx, &settings.limits, self.op.time_limit.map(Micros::as_duration));
            if let End::Fail { error, .. } = &end {
                span.record("error.type", error.code.as_str());
            }
            span.in_scope(|| tracing::debug!(run_time_us = u64::try_from(run_time.as_micros()).unwrap_or(u64::MAX), "attempt ended"));
            end
        };
        self.session.end(&self.op, &self.stop, end, run_time);
    }

    /// Waits for the handler, or for a reason to stop it; then a moment more, and then drops it.
    async fn join(&self, task: &mut JoinHandle<Result<Json, HandlerError>>) -> Joined {
        let time_limit = self.op.time_limit;
        let overtime = async move {
            match time_limit {
                Some(limit) => tokio::time::sleep(limit.as_duration()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            done = &mut *task => return Joined::of(done),
            () = self.stop.turned() => {}
            () = overtime => {
                self.stop.turn(StopReason::TimedOut);
            }
        }
        let wait = self.session.settings.stop_wait;
        if let Ok(done) = tokio::time::timeout(wait, &mut *task).await {
            return Joined::of(done);
        }
        task.abort();
        Joined::Dropped
    }
}

/// How a handler's task ended.
enum Joined {
    Returned(Result<Json, HandlerError>),
    Panicked(String),
    /// It was told to stop and did not, or its runtime went away.
    Dropped,
}

impl Joined {
    fn of(done: Result<Result<Json, HandlerError>, JoinError>) -> Self {
        match done.map_err(JoinError::try_into_panic) {
            Ok(returned) => Self::Returned(returned),
            Err(Ok(panic)) => Self::Panicked(panic_message(panic.as_ref())),
            Err(Err(_)) => Self::Dropped,
        }
    }
}

/// What is to be recorded of the attempt.
fn judge(reason: Option<StopReason>, joined: Joined, ctx: &OpContext, limits: &Limits, time_limit: Option<Duration>) -> End {
    match (reason, joined) {
        (Some(StopReason::TimedOut), _) => {
            let limit = time_limit.unwrap_or_default();
            let error = OpError::new(OpError::TIMED_OUT, format!("the attempt ran longer than its time limit of {limit:?}"));
            End::Fail { error, class: ErrorClass::Retryable, delay: None }
        }
        // The ledger answers: a success, if the application's transaction was committed.
        (_, Joined::Returned(Ok(_))) if ctx.ends_elsewhere() => {
            let message = "the handler ended this attempt in a transaction of its own and did not commit it";
            End::Fail { error: OpError::new(OpError::NOT_COMMITTED, message), class: ErrorClass::Retryable, delay: None }
        }
        (_, Joined::Returned(Ok(result))) => match checked(result, ctx.take_left(), limits) {
            Ok(end) => end,
            Err(error) => End::Fail { error: error.storable(limits.error_bytes), class: ErrorClass::Permanent, delay: None },
        },
        (_, Joined::Returned(Err(HandlerError { until: Some(until), .. }))) => End::Suspend { until },
        // Told to stop by the worker, a handler's error says nothing about the op.
        (Some(StopReason::Shutdown), _) | (_, Joined::Dropped) => End::Release,
        (_, Joined::Returned(Err(error))) => {
            End::Fail { error: error.storable(limits.error_bytes), class: error.class, delay: error.delay }
        }
        (_, Joined::Panicked(message)) => {
            let error = HandlerError::retryable(message).code(OpError::PANICKED).storable(limits.error_bytes);
            End::Fail { error, class: ErrorClass::Retryable, delay: None }
        }
    }
}

/// A success within the limits, or the error that it is instead.
pub(super) fn checked(result: Json, left: Left, limits: &Limits) -> Result<End, HandlerError> {
    let refuse = |code: &str, message: String| HandlerError::permanent(message).code(code);
    check_size("the result", result.as_str().len(), limits.result_bytes).map_err(|error| refuse(OpError::BAD_RESULT, error.to_string()))?;
    let Left { emitted, artifacts, records } = left;
    let emitted = if emitted.is_empty() {
        None
    } else {
        Some(Plan::new(emitted, limits).map_err(|error| refuse(OpError::BAD_EMISSION, error.to_string()))?)
    };
    Ok(End::Complete { result, artifacts, records, emitted })
}

/// What a panic said.
pub(super) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("it panicked with a value that is no text").to_owned()
}
