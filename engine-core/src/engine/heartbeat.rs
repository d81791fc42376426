//! Keeps this process's leases, and gives up those it cannot rely on (L4, L5, L11).
//!
//! Two threads, so that neither a handler nor a store that hangs holds them up: one renews, the other watches the clock.

use super::recovery;
use super::retrying::Pauses;
use super::session::Session;
use crate::client::with_causes;
use crate::store::rows::LeaseKey;
use crate::store::{StoreError, StoreExt, TxKind};
use crate::transitions::{self, HeartbeatOutcome};
use std::time::{Duration, Instant};

/// Renews all leases in one call every beat, until the session closes.
pub(super) fn beat_loop(session: &Session) {
    let beat = session.settings.beat;
    let (mut pauses, mut wait) = (Pauses::new(), beat);
    while session.held.wait_for_beat(wait) {
        let began = Instant::now();
        // What was claimed or renewed half a beat ago has more than two left.
        let keys = session.held.to_renew(beat / 2, beat);
        if keys.is_empty() || renew(session, &keys) {
            pauses = Pauses::new();
            wait = beat.saturating_sub(began.elapsed());
        } else {
            // One failed beat stops nobody: there is time for many before a lease ends.
            wait = pauses.next().min(beat);
        }
    }
}

/// Whether the store answered.
fn renew(session: &Session, keys: &[LeaseKey]) -> bool {
    let _span = tracing::debug_span!(
        "heartbeat",
        messaging.system = "leasehold",
        messaging.operation.name = "renew",
        messaging.batch.message_count = keys.len()
    )
    .entered();
    // The lease runs from the store's own time inside the call, which is not before this instant.
    let confirmed_at = Instant::now();
    match beat(session, keys) {
        Ok(outcomes) => {
            let with = |wanted: fn(&HeartbeatOutcome) -> bool| {
                keys.iter().zip(&outcomes).filter(move |(_, outcome)| wanted(outcome)).map(|(key, _)| *key)
            };
            session.held.confirmed(with(|outcome| matches!(outcome, HeartbeatOutcome::Held(_))), confirmed_at);
            let lost = session.held.lose(with(|outcome| matches!(outcome, HeartbeatOutcome::Lost)));
            session.lost(&lost, "refused");
            true
        }
        Err(error) => {
            tracing::warn!(error = with_causes(&error), leases = keys.len(), "heartbeat failed; trying again");
            false
        }
    }
}

fn beat(session: &Session, keys: &[LeaseKey]) -> Result<Vec<HeartbeatOutcome>, StoreError> {
    let settings = &session.settings;
    let renew = |keys: &[LeaseKey]| settings.store.with(TxKind::Heartbeat, |tx| transitions::heartbeat(tx, keys, settings.lease));
    let mut outcomes = renew(keys)?;
    if settings.clock.grace.is_zero() || !outcomes.contains(&HeartbeatOutcome::Lost) {
        return Ok(outcomes);
    }
    // Time may have jumped over their ends, and nobody has looked since, or somebody just did: then they are spared by now.
    recovery::look(settings)?;
    let lost: Vec<LeaseKey> =
        keys.iter().zip(&outcomes).filter(|(_, outcome)| **outcome == HeartbeatOutcome::Lost).map(|(key, _)| *key).collect();
    let mut again = renew(&lost)?.into_iter();
    for outcome in outcomes.iter_mut().filter(|outcome| **outcome == HeartbeatOutcome::Lost) {
        *outcome = again.next().unwrap_or(HeartbeatOutcome::Lost);
    }
    Ok(outcomes)
}

/// Stops every handler whose lease can have ended by this process's own clock, also when the store cannot be asked.
pub(super) fn fence_loop(session: &Session) {
    let lease: Duration = session.settings.lease.as_duration();
    while let Some(lost) = session.held.next_outlived(lease) {
        session.lost(&lost, "not_confirmed");
    }
}
