//! What the ops of the load do.

use super::worker::{Line, Ran, Tell};
use crate::Dice;
use leasehold_core::client::Op;
use leasehold_core::engine::{HandlerError, OpContext};
use leasehold_core::model::{Backoff, Micros, RetryPolicy};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The kinds that workers serve; they all do what the input says.
pub const KINDS: [&str; 3] = ["noop", "nap", "seed"];

/// The input of an op.
#[allow(clippy::unsafe_derive_deserialize, reason = "no method here is unsafe; a macro of an async one expands to what is")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Task {
    /// How long it takes.
    pub millis: u64,
    /// In how many of a thousand attempts it fails, to be tried again.
    pub flaky_permille: u64,
    /// The attempts up to this number fail for good: a person must retry them.
    pub broken_until: i64,
    /// How many ops it adds when it succeeds.
    pub emits: u64,
}

impl Task {
    /// An op that does this, tried again as often as it takes and soon: an op that fails for good has met a defect.
    pub fn op(self, id: &str) -> Op {
        let kind = match self {
            Self { emits: 1.., .. } => "seed",
            Self { millis: 1.., .. } => "nap",
            Self { .. } => "noop",
        };
        let retry = RetryPolicy {
            max_attempts: 1_000,
            max_lost: 1_000,
            backoff: Backoff::Fixed,
            base: Micros::from_millis(50),
            ..RetryPolicy::default()
        };
        Op::new(id, kind).retry(retry).input(&self)
    }

    /// Runs one attempt.
    pub(super) async fn run(self, ctx: OpContext, tell: &Tell) -> Result<i64, HandlerError> {
        let ran = Ran { workflow: ctx.workflow_id().to_string(), op: ctx.op_id().to_string(), fence: ctx.attempt() };
        tell(&Line::Begun(ran.clone()));
        if self.millis > 0 {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(self.millis)) => {}
                () = ctx.cancellation().cancelled() => return Err(HandlerError::retryable("told to stop").code("stopped")),
            }
        }
        if ran.fence <= self.broken_until {
            return Err(HandlerError::permanent("as the input says").code("broken"));
        }
        // Drawn from op and attempt, so that an op that failed does not always fail.
        let op =
            ran.workflow.bytes().chain(ran.op.bytes()).fold(ran.fence.unsigned_abs(), |sum, byte| sum.wrapping_mul(31) + u64::from(byte));
        if Dice::new(op).roll(1_000) < self.flaky_permille {
            return Err(HandlerError::retryable("as the dice fell").code("flaky"));
        }
        for at in 0..self.emits {
            ctx.emit(Self::default().op(&format!("{}.{at}", ran.op)).queue(ctx.queue().as_str()))?;
        }
        tell(&Line::Done(ran.clone()));
        Ok(ran.fence)
    }
}
