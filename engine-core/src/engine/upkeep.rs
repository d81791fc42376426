//! Keeps the store up, if this process is the one that leads (L10): a thread of its own, so that it goes on while all
//! handlers are busy and while the claim loop waits.
//!
//! What claims need is not left to it: each claim loop recovers what is in its way.

use super::recovery::ExpiredLeases;
use super::retrying::Pauses;
use super::session::Session;
use super::sweep::sweep;
use super::wakeup::DueWaits;
use crate::client::with_causes;
use crate::model::Epoch;
use crate::store::StoreError;
use crate::transitions::{BatchLimit, Pass};
use std::time::{Duration, Instant};

/// Makes passes until the session stops, then gives the lead up.
pub(super) fn upkeep_loop(session: &Session) {
    let settings = &session.settings;
    let (mut pauses, mut wait) = (Pauses::new(), Duration::ZERO);
    loop {
        let lay_down = Instant::now();
        if !session.slots.pause(wait) {
            break;
        }
        if lay_down.elapsed() > wait + settings.clock.grace {
            settings.clock.overslept();
        }
        match pass(session) {
            Ok(more) => {
                pauses = Pauses::new();
                wait = if more { Duration::ZERO } else { settings.poll };
            }
            Err(error) => {
                tracing::warn!(error = with_causes(&error), "maintenance failed; trying again");
                wait = pauses.next().min(settings.office.length());
            }
        }
    }
    if let Err(error) = settings.office.resign(settings) {
        // The term ends by itself.
        tracing::debug!(error = with_causes(&error), "the lead could not be given up");
    }
}

/// One bounded pass, if this process leads; whether more is known to be left.
fn pass(session: &Session) -> Result<bool, StoreError> {
    let settings = &session.settings;
    let Some(epoch) = settings.office.epoch(settings)? else { return Ok(false) };
    match tend(session, Some(epoch))? {
        Pass::Done(more) => {
            settings.clock.right();
            Ok(more)
        }
        Pass::ClockBehind(behind) => session.clock_behind(behind).map(|()| false),
        Pass::NotLeader => {
            settings.office.lost();
            Ok(false)
        }
    }
}

/// One bounded pass over everything that time has made due, under the leader's epoch or in a claim's way; whether more is
/// known to be left.
pub(super) fn tend(session: &Session, epoch: Option<Epoch>) -> Result<Pass<bool>, StoreError> {
    let settings = &session.settings;
    let recovered = match sweep::<ExpiredLeases>(settings, BatchLimit::DEFAULT, epoch)? {
        Pass::Done(recovered) => recovered,
        Pass::ClockBehind(behind) => return Ok(Pass::ClockBehind(behind)),
        Pass::NotLeader => return Ok(Pass::NotLeader),
    };
    session.tally().recovered(recovered.done);
    let woken = sweep::<DueWaits>(settings, BatchLimit::DEFAULT, epoch)?;
    Ok(woken.map(|woken| {
        session.tally().woken(woken.done);
        recovered.more || woken.more
    }))
}
