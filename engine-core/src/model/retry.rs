//! When a failed attempt is tried again (Q8).

use super::{Fence, Micros, OpSeq};
use serde::{Deserialize, Serialize};

/// How the delay grows from one failure to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backoff {
    /// The same delay every time.
    Fixed,
    /// The first delay, once more for each failure.
    Linear,
    /// The first delay, doubled for each failure.
    Exponential,
}

/// How a delay is spread, so that work that failed together does not come back together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Jitter {
    /// Not at all.
    None,
    /// Evenly between nothing and the whole delay.
    Full,
}

/// Whether an attempt may be repeated when nobody knows what it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// It may: a second run does no harm.
    #[default]
    Repeatable,
    /// It may not: after an attempt whose worker was lost, or that was stopped, ran out of time or panicked, the op waits for
    /// a verdict of a person or a probe. An error that its handler returned is known, and tried again as the policy says.
    Once,
}

impl Effect {
    /// Whether it may be repeated.
    pub const fn is_repeatable(&self) -> bool {
        matches!(self, Self::Repeatable)
    }
}

/// How often, and how long after each failure, an op is tried again. Stored whole with the op.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetryPolicy {
    /// Attempts that may fail before the op fails, at least 1. Lost workers, suspensions and releases do not count.
    pub max_attempts: u32,
    /// How the delay grows.
    pub backoff: Backoff,
    /// The delay after the first failure.
    #[serde(rename = "base_us")]
    pub base: Micros,
    /// No delay is longer.
    #[serde(rename = "cap_us")]
    pub cap: Micros,
    /// How a delay is spread.
    pub jitter: Jitter,
    /// Workers that may be lost with the op before it fails as "worker lost", at least 1.
    pub max_lost: u32,
    /// Whether an attempt may be repeated when nobody knows what it did.
    #[serde(skip_serializing_if = "Effect::is_repeatable")]
    pub effect: Effect,
}

impl Default for RetryPolicy {
    /// 3 attempts, exponential from 1 s to 5 min with full jitter; 5 lost workers.
    fn default() -> Self {
        Self {
            max_attempts: 3,
            backoff: Backoff::Exponential,
            base: Micros::from_secs(1),
            cap: Micros::from_secs(300),
            jitter: Jitter::Full,
            max_lost: 5,
            effect: Effect::Repeatable,
        }
    }
}

impl RetryPolicy {
    /// One attempt: its first failure is the op's.
    #[must_use]
    pub fn once() -> Self {
        Self { max_attempts: 1, ..Self::default() }
    }

    /// The same with `max_attempts`.
    #[must_use]
    pub fn attempts(self, max_attempts: u32) -> Self {
        Self { max_attempts, ..self }
    }

    /// The delay after the failure numbered `failures` (from 1) of `op`'s attempt `fence`.
    ///
    /// The spread is drawn from op and fence, so every process gives the same verdict.
    pub fn delay(&self, failures: u32, op: OpSeq, fence: Fence) -> Micros {
        let steps = failures.saturating_sub(1);
        let factor = match self.backoff {
            Backoff::Fixed => 1,
            Backoff::Linear => failures.max(1),
            // Past 2^31 every base exceeds every cap.
            Backoff::Exponential => 1_u32.checked_shl(steps.min(31)).unwrap_or(u32::MAX),
        };
        let delay = self.base.saturating_mul(factor).min(self.cap);
        match self.jitter {
            Jitter::None => delay,
            Jitter::Full => spread(delay, op, fence),
        }
    }
}

/// An even draw from 1 µs to `delay`, from a hash of `op` and `fence` (the finaliser of `SplitMix64`).
fn spread(delay: Micros, op: OpSeq, fence: Fence) -> Micros {
    let mut hash = op.0.unsigned_abs().wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ fence.0.unsigned_abs().wrapping_mul(0xD1B5_4A32_D192_ED03);
    for multiplier in [0xBF58_476D_1CE4_E5B9_u64, 0x94D0_49BB_1331_11EB] {
        hash = (hash ^ (hash >> 29)).wrapping_mul(multiplier);
    }
    hash ^= hash >> 32;
    let drawn = (u128::from(hash) * u128::from(delay.get().unsigned_abs())) >> 64;
    i64::try_from(drawn).ok().and_then(|micros| Micros::new(micros + 1).ok()).unwrap_or(delay).min(delay)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_never_overflows_and_never_passes_its_cap() {
        for backoff in [Backoff::Fixed, Backoff::Linear, Backoff::Exponential] {
            for jitter in [Jitter::None, Jitter::Full] {
                let policy = RetryPolicy { backoff, jitter, base: Micros::from_secs(u32::MAX), ..RetryPolicy::default() };
                for failures in [0, 1, 2, 31, 32, 33, 63, 64, 65, u32::MAX] {
                    let delay = policy.delay(failures, OpSeq(7), Fence(i64::from(failures)));
                    assert!(delay.get() >= 1 && delay <= policy.cap, "{backoff:?} {failures}");
                }
            }
        }
    }

    #[test]
    fn exponential_doubles_and_linear_adds() {
        let policy = RetryPolicy { jitter: Jitter::None, ..RetryPolicy::default() };
        let delays = |backoff| [1, 2, 3, 4].map(|n| RetryPolicy { backoff, ..policy }.delay(n, OpSeq(1), Fence(1)).get() / 1_000_000);
        assert_eq!(delays(Backoff::Exponential), [1, 2, 4, 8]);
        assert_eq!(delays(Backoff::Linear), [1, 2, 3, 4]);
        assert_eq!(delays(Backoff::Fixed), [1, 1, 1, 1]);
    }

    #[test]
    fn jitter_spreads_what_failed_together() {
        let policy = RetryPolicy { base: Micros::from_secs(100), ..RetryPolicy::default() };
        let delays: std::collections::BTreeSet<i64> =
            (0..1_000).map(|op| policy.delay(1, OpSeq(op), Fence(1)).get() / 10_000_000).collect();
        assert_eq!(delays.len(), 10, "a thousand ops fall into every tenth of the delay");
    }
}
