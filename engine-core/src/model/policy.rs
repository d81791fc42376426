//! Admission: lanes, gates and the limits of a queue (Q1, Q5).

use super::{AgentName, GateKey, KindName, LaneKey, QueueName, SiteName, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::time::Duration;

/// What a worker chooses by: every op waits in one lane. Its gate is the pair (site, queue) that limits count on.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lane {
    /// The hash of the four below, with a last bit that tells whether its ops run [apart](Lane::apart).
    pub key: LaneKey,
    /// The hash of site and queue.
    pub gate: GateKey,
    /// The ops' site.
    pub site: SiteName,
    /// The ops' queue.
    pub queue: QueueName,
    /// The ops' kind.
    pub kind: KindName,
    /// The agent that the ops name.
    pub agent: Option<AgentName>,
}

impl Lane {
    /// The lane of ops with these properties that nothing is held against.
    pub fn new(site: SiteName, queue: QueueName, kind: KindName, agent: Option<AgentName>) -> Self {
        let gate = gate_key(&site, &queue);
        let key = LaneKey(hash63(&[
            site.as_str(),
            queue.as_str(),
            kind.as_str(),
            // A name is never empty, so "none" cannot be mistaken for one.
            agent.as_ref().map_or("", AgentName::as_str),
        ]));
        Self { key: key.together(), gate, site, queue, kind, agent }
    }

    /// The lane of the same ops once they are suspected of killing their workers. A worker runs one op of such lanes at a time.
    #[must_use]
    pub fn apart(&self) -> Self {
        Self { key: self.key.apart(), ..self.clone() }
    }
}

impl LaneKey {
    /// The lane of ops that run beside any other: an even number.
    #[must_use]
    pub const fn together(self) -> Self {
        Self(self.0 & !1)
    }
    /// Its twin, for ops that run apart from each other: the odd number behind it.
    #[must_use]
    pub const fn apart(self) -> Self {
        Self(self.0 | 1)
    }
    /// Whether it is a lane for ops that run apart from each other.
    pub const fn is_apart(self) -> bool {
        self.0 & 1 == 1
    }
}

/// The key of the gate of (site, queue).
pub fn gate_key(site: &SiteName, queue: &QueueName) -> GateKey {
    GateKey(hash63(&[site.as_str(), queue.as_str()]))
}

/// 63 bits of SHA-256 over the length-prefixed parts: positive in every database's 64-bit integer.
fn hash63(parts: &[&str]) -> i64 {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    let digest: [u8; 32] = hash.finalize().into();
    let first = digest.first_chunk().map_or(0, |bytes| i64::from_be_bytes(*bytes));
    first & i64::MAX
}

/// A token bucket: `per_second` tokens flow in, `burst` at most wait; a claim takes one per op.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RateLimit {
    /// Tokens per second, above zero and finite.
    pub per_second: f64,
    /// The most tokens that wait, at least 1.
    pub burst: u32,
}

/// The limits of a queue, for one site or for any. The most specific policy wins; a queue without one is unlimited.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueuePolicy {
    /// The site it is for; `None` is every site that has no policy of its own, each counted apart.
    pub site: Option<SiteName>,
    /// The queue it is for.
    pub queue: QueueName,
    /// The most ops leased at once.
    pub max_in_flight: Option<u32>,
    /// How fast ops may start.
    pub rate: Option<RateLimit>,
}

/// Why a policy is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PolicyError {
    /// A rate that no bucket can follow.
    #[error("queue {queue}: a rate of {per_second} per second is not above zero and finite")]
    Rate {
        /// The queue.
        queue: QueueName,
        /// The rate given.
        per_second: f64,
    },
    /// A bucket that never holds a token.
    #[error("queue {queue}: a burst of zero admits nothing; hold the queue instead")]
    Burst {
        /// The queue.
        queue: QueueName,
    },
}

impl QueuePolicy {
    /// No limit for `queue` on any site; add them with the fields.
    pub fn unlimited(queue: QueueName) -> Self {
        Self { site: None, queue, max_in_flight: None, rate: None }
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// [`PolicyError`] for a rate or burst that cannot work.
    pub fn check(&self) -> Result<(), PolicyError> {
        if let Some(rate) = self.rate {
            if !(rate.per_second.is_finite() && rate.per_second > 0.0) {
                return Err(PolicyError::Rate { queue: self.queue.clone(), per_second: rate.per_second });
            }
            if rate.burst == 0 {
                return Err(PolicyError::Burst { queue: self.queue.clone() });
            }
        }
        Ok(())
    }
}

/// The durable state of a gate's token bucket, in millionths of a token so that every backend counts alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// Tokens there, in millionths.
    pub micro_tokens: i64,
    /// When they were counted.
    pub counted_at: Timestamp,
}

/// One token, in the unit of [`Bucket::micro_tokens`].
pub const MICRO_TOKENS: i64 = 1_000_000;

impl RateLimit {
    /// How long a refilled bucket takes to hold a whole token; nothing when it does.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates at a wait without end"
    )]
    pub fn next_token_in(&self, bucket: Option<&Bucket>) -> Duration {
        let missing = bucket.map_or(0, |bucket| (MICRO_TOKENS - bucket.micro_tokens).max(0));
        Duration::from_micros((missing as f64 / self.per_second).ceil() as u64)
    }

    /// What the bucket holds at `now`: refilled by the time that has passed, never above the burst, never below zero,
    /// unchanged by a clock that went back. A gate's first bucket is full.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "saturates far above any burst")]
    pub fn refilled(&self, bucket: Option<Bucket>, now: Timestamp) -> Bucket {
        let full = i64::from(self.burst) * MICRO_TOKENS;
        let Some(bucket) = bucket else {
            return Bucket { micro_tokens: full, counted_at: now };
        };
        let gained = (now.since(bucket.counted_at).as_micros() as f64 * self.per_second) as i64;
        Bucket { micro_tokens: bucket.micro_tokens.clamp(0, full).saturating_add(gained).clamp(0, full), counted_at: now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_differ_by_every_part_and_share_their_gate() {
        let lane = |kind: &str, agent: Option<&str>| {
            Lane::new(SiteName::default(), QueueName::default(), KindName::new(kind).unwrap(), agent.map(|a| AgentName::new(a).unwrap()))
        };
        let (a, b, c) = (lane("a", None), lane("b", None), lane("a", Some("gpu")));
        assert!(a.key != b.key && a.key != c.key && b.key != c.key);
        assert!(a.gate == b.gate && a.gate == c.gate);
        assert!(a.key.0 >= 0);
    }

    #[test]
    fn a_bucket_stays_within_its_bounds_whatever_the_clock_does() {
        let rate = RateLimit { per_second: 2.0, burst: 3 };
        let at = |micros| Timestamp::from_micros(micros).unwrap();
        let empty = Bucket { micro_tokens: 0, counted_at: at(10_000_000) };
        assert_eq!(rate.refilled(Some(empty), at(10_500_000)).micro_tokens, MICRO_TOKENS);
        assert_eq!(rate.refilled(Some(empty), at(99_000_000)).micro_tokens, 3 * MICRO_TOKENS);
        assert_eq!(rate.refilled(Some(empty), at(5_000_000)), Bucket { micro_tokens: 0, counted_at: at(5_000_000) });
        assert_eq!(rate.refilled(None, at(0)).micro_tokens, 3 * MICRO_TOKENS);
        assert_eq!(rate.next_token_in(Some(&empty)), Duration::from_millis(500));
        assert_eq!(rate.next_token_in(None), Duration::ZERO);
    }
}
