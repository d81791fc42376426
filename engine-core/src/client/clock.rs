//! The store's clock, for operators (T7).

use super::{Actor, Client, ClientError};
use crate::model::{Micros, RequestId, Timestamp};
use crate::store::ClockReading;
use crate::transitions::{self, ClockTrusted, LEASES_WITHIN, TrustClock};
use std::time::Duration;

/// The store's clock, as it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockStatus {
    /// What it shows.
    pub now: Timestamp,
    /// The latest time that it is known to have shown; workers raise it once a second while they hold leases, or lead.
    pub mark: Option<Timestamp>,
    /// How far it is behind the mark.
    pub behind: Duration,
    /// How far it may be.
    pub tolerance: Duration,
    /// Since when the history says that it is behind, by the clock itself.
    pub anomaly_since: Option<Timestamp>,
}

impl ClockStatus {
    /// Whether nothing is claimed, recovered or woken until the clock is right again or trusted.
    pub fn held(&self) -> bool {
        self.behind > self.tolerance
    }
}

impl Client {
    /// The store's clock, and whether it is relied on.
    ///
    /// # Errors
    /// [`ClientError::Store`].
    pub async fn clock_status(&self) -> Result<ClockStatus, ClientError> {
        let tolerance = self.core.clock_tolerance;
        self.read(move |tx| {
            let clock = tx.clock()?;
            let ClockReading { now, mark, anomaly_since } = clock;
            Ok(ClockStatus { now, mark, behind: clock.behind(), tolerance, anomaly_since })
        })
        .await
    }

    /// Relies on the clock as it stands: the mark is set to now, whichever way that is. Where the clock was behind, ready
    /// ops are due now at the latest, and leases end within [`LEASES_WITHIN`].
    ///
    /// # Errors
    /// [`ClientError::Store`].
    pub async fn trust_clock(&self, actor: &Actor) -> Result<ClockTrusted, ClientError> {
        self.trust_clock_within(actor, LEASES_WITHIN).await
    }

    /// [`Client::trust_clock`], with leases that end within `leases_within`: at least a third of the longest lease in use,
    /// so that owners that are alive renew theirs before.
    ///
    /// # Errors
    /// [`ClientError::Store`].
    pub async fn trust_clock_within(&self, actor: &Actor, leases_within: Micros) -> Result<ClockTrusted, ClientError> {
        let call = TrustClock { request: RequestId::random(), actor: actor.clone(), leases_within };
        let trusted = self.change(move |tx| transitions::trust_clock(tx, &call), |trusted| std::mem::take(&mut trusted.notices)).await?;
        self.core.hub.ring_everywhere();
        Ok(trusted)
    }
}
