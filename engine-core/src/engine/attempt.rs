//! One attempt: its handler as a task, watched by another (L5, L15, Q8).

use super::context::{Left, OpContext};
use super::dispatch::dispatched;
use super::handler::HandlerError;
use super::held::Held;
use super::session::Session;
use super::stop::{StopReason, StopSwitch};
use crate::model::{Effect, ErrorClass, Json, Limits, Micros, OpError, OpSeq, check_size};
use crate::store::rows::{ClaimedOp, LeaseKey};
use crate::transitions::{DispatchOutcome, End, Plan};
use std::any::Any;
use std::sync::Arc;
use std::time::Instant;
use tokio::task::{JoinError, JoinHandle};
use tracing::Instrument;

/// Begins the attempts of `ops`, whose leases last from `confirmed_at` at least; or gives one back at once when that is
/// over or the session stops. While a suspect's lasts the session claims no other. Those whose effect must not be repeated
/// are dispatched before, behind all others, so that these need not wait.
pub(super) fn begin(session: &Arc<Session>, ops: Vec<ClaimedOp>, suspects: &[OpSeq], confirmed_at: Instant) {
    let (plain, once): (Vec<ClaimedOp>, Vec<ClaimedOp>) = ops.into_iter().partition(|op| op.effect.is_repeatable());
    let held = |ops: Vec<ClaimedOp>| -> Vec<Guard> {
        let hold = |op: ClaimedOp| {
            let suspect = suspects.contains(&op.lease.key.op);
            Guard::hold(session, op, confirmed_at, suspect)
        };
        ops.into_iter().filter_map(hold).collect()
    };
    held(plain).into_iter().for_each(Guard::start);
    let once = held(once);
    let keys: Vec<LeaseKey> = once.iter().map(|guard| guard.op.lease.key).collect();
    let outcomes = dispatched(session, &keys, || once.iter().any(|guard| guard.stop.reason().is_none()));
    for (guard, outcome) in once.into_iter().zip(outcomes) {
        match outcome {
            DispatchOutcome::Dispatched => guard.start(),
            DispatchOutcome::Lost => guard.lose(),
            // Dropped, a guard gives its op back: it never began.
            DispatchOutcome::ClockBehind => {}
        }
    }
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
    /// Holds the lease of `op` and a place for its handler; `None`, and the op is given back, when it is too late for that.
    fn hold(session: &Arc<Session>, op: ClaimedOp, confirmed_at: Instant, suspect: bool) -> Option<Self> {
        let (op, stop) = (Arc::new(op), StopSwitch::default());
        let lease = session.settings.lease.as_duration();
        let expired = confirmed_at.elapsed() >= lease;
        session.slots.begin();
        let held = Held::new(Arc::clone(&op), stop.clone(), confirmed_at, suspect);
        if expired || session.slots.is_stopping() || !session.held.hold(held, lease) {
            session.slots.ended();
            session.hand_in(op, End::Release, None);
            return None;
        }
        Some(Self { session: Arc::clone(session), op, stop, began: Instant::now() })
    }

    fn start(self) {
        let runtime = self.session.settings.runtime.clone();
        runtime.spawn(self.watch());
    }

    /// Notes that the lease was lost before the handler began.
    fn lose(self) {
        let lost = self.session.held.lose(std::iter::once(self.op.lease.key));
        self.session.lost(&lost, "refused");
    }

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
            let end = judge(self.stop.reason(), joined, &ctx, &settings.limits, &self.op);
            if let End::Fail { error, .. } | End::Abandon { error } = &end {
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
fn judge(reason: Option<StopReason>, joined: Joined, ctx: &OpContext, limits: &Limits, op: &ClaimedOp) -> End {
    // Without an answer of the handler nobody knows what it did: a failure where it may do so again.
    let unanswered = |error: OpError| match op.effect {
        Effect::Repeatable => End::Fail { error, class: ErrorClass::Retryable, delay: None },
        Effect::Once => End::Abandon { error },
    };
    match (reason, joined) {
        (Some(StopReason::TimedOut), _) => {
            let limit = op.time_limit.map(Micros::as_duration).unwrap_or_default();
            unanswered(OpError::new(OpError::TIMED_OUT, format!("the attempt ran longer than its time limit of {limit:?}")))
        }
        // The ledger answers: a success, if the application's transaction was committed.
        (_, Joined::Returned(Ok(_))) if ctx.ends_elsewhere() => {
            let message = "the handler ended this attempt in a transaction of its own and did not commit it";
            unanswered(OpError::new(OpError::NOT_COMMITTED, message))
        }
        (_, Joined::Returned(Ok(result))) => match checked(result, ctx.take_left(), limits) {
            Ok(end) => end,
            Err(error) => End::Fail { error: error.storable(limits.error_bytes), class: ErrorClass::Permanent, delay: None },
        },
        (_, Joined::Returned(Err(HandlerError { until: Some(until), .. }))) => End::Suspend { until },
        // Told to stop by the worker, a handler's error says nothing about the op.
        (Some(StopReason::Shutdown), _) | (_, Joined::Dropped) => match op.effect {
            Effect::Repeatable => End::Release,
            Effect::Once => {
                let message = "the worker shut down while the handler ran";
                End::Abandon { error: OpError::new(OpError::OUTCOME_UNKNOWN, message) }
            }
        },
        (_, Joined::Returned(Err(error))) => {
            End::Fail { error: error.storable(limits.error_bytes), class: error.class, delay: error.delay }
        }
        (_, Joined::Panicked(message)) => unanswered(HandlerError::retryable(message).code(OpError::PANICKED).storable(limits.error_bytes)),
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
