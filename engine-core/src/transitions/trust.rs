//! Whether time can be relied on (T7): what is remembered of it, and what an operator does when it went wrong.

use super::act::{Actor, act, replay};
use super::journal::Journal;
use super::{Notice, TransitionError};
use crate::model::{Micros, RequestId, Timestamp};
use crate::store::rows::{EventKind, WriteSet};
use crate::store::{ClockReading, PulledBack, StoreError, Tx};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How far the clock may be behind the latest time that it has shown: what a time server corrects without harm.
pub const CLOCK_TOLERANCE: Duration = Duration::from_secs(5);
/// How far the mark may lag behind the clock, so that it is written once a second however many heartbeats there are.
pub(super) const MARK_STEP: Micros = Micros::from_secs(1);
/// How long leases that the mistaken clock gave may still last, unless an operator says otherwise: owners of leases of up
/// to three hours renew theirs in time, and what the dead ones hold is free within the hour.
pub const LEASES_WITHIN: Micros = Micros::from_secs(3_600);

/// Writes into the history that the clock is behind, once while that lasts; tells whether this call did.
///
/// # Locks
/// The clock's row.
///
/// # Errors
/// [`StoreError`]; nothing was written.
pub fn note_anomaly(tx: &mut dyn Tx, tolerance: Duration) -> Result<Vec<Notice>, StoreError> {
    let clock = tx.lock_clock()?;
    let Err(behind) = clock.trusted(tolerance) else { return Ok(Vec::new()) };
    if behind.noted {
        return Ok(Vec::new());
    }
    tx.set_clock(&ClockReading { anomaly_since: Some(clock.now), ..clock })?;
    let mut journal = Journal::new(clock.now, None);
    journal.tell_of_store(EventKind::ClockAnomaly, Some(behind.to_string()));
    tx.write(&WriteSet { events: std::mem::take(&mut journal.events), ..WriteSet::default() })?;
    Ok(journal.notices)
}

/// A call to rely on the clock as it stands.
#[derive(Debug, Clone)]
pub struct TrustClock {
    /// The call.
    pub request: RequestId,
    /// Who, and why.
    pub actor: Actor,
    /// How long leases that the mistaken clock gave may still last: at least a third of the longest lease in use, so
    /// that owners that are alive renew theirs before.
    pub leases_within: Micros,
}

/// What became of it.
#[derive(Debug)]
pub struct ClockTrusted {
    /// The time that is relied on from now on.
    pub now: Timestamp,
    /// The mark before.
    pub before: Option<Timestamp>,
    /// What the mistaken clock had put ahead of now, and was brought back.
    pub pulled_back: PulledBack,
    /// What observers hear.
    pub notices: Vec<Notice>,
}

#[derive(Serialize, Deserialize)]
struct Answer {
    now: Timestamp,
    before: Option<Timestamp>,
    ready: u64,
    leases: u64,
}

/// Sets the mark to now: the clock is right, and what it showed before was not. Where the mark was ahead, ready ops and
/// leases that lie ahead of now are brought back, as nobody could claim or end them for as long. What waits for an
/// instant goes on to wait for that instant.
///
/// # Locks
/// The clock's row, which nobody waits for while holding another; then the leader's, `ready`, `leases`.
///
/// # Errors
/// [`TransitionError::RequestReused`], [`TransitionError::Store`]; nothing was written.
pub fn trust_clock(tx: &mut dyn Tx, call: &TrustClock) -> Result<ClockTrusted, TransitionError> {
    const QUESTION: &str = "trust the clock";
    let clock = tx.lock_clock()?;
    if let Some(Answer { now, before, ready, leases }) = replay(tx, call.request, QUESTION)? {
        return Ok(ClockTrusted { now, before, pulled_back: PulledBack { ready, leases }, notices: Vec::new() });
    }
    let pulled_back = if clock.behind().is_zero() { PulledBack::default() } else { tx.pull_back(call.leases_within)? };
    tx.set_clock(&ClockReading { mark: Some(clock.now), anomaly_since: None, ..clock })?;
    let mut journal = Journal::new(clock.now, Some(call.actor.name.clone()));
    journal.tell_of_store(EventKind::ClockTrusted, call.actor.reason.clone());
    let PulledBack { ready, leases } = pulled_back;
    let answer = Answer { now: clock.now, before: clock.mark, ready, leases };
    let act = act(call.request, QUESTION.to_owned(), &call.actor, &answer, clock.now)?;
    tx.write(&WriteSet { events: std::mem::take(&mut journal.events), act: Some(act), ..WriteSet::default() })?;
    Ok(ClockTrusted { now: clock.now, before: clock.mark, pulled_back, notices: journal.notices })
}
