//! What an engine makes of its store's clock (T7): it says once that the clock is behind, and sees when time jumps forward.

use super::notice::{Notice, NoticeKind};
use super::session::Settings;
use crate::model::Timestamp;
use crate::store::rows::EventKind;
use crate::store::{ClockBehind, StoreError, StoreExt, TxKind};
use crate::transitions;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Shared by all who look after the store in one engine.
#[derive(Debug)]
pub(super) struct ClockWatch {
    /// How far the clock may be behind the latest time that it has shown.
    pub(super) tolerance: Duration,
    /// How long live workers have to renew their leases after a jump, which is how far time must jump to be noticed: a
    /// healthy lease has two heartbeats left, so a smaller jump leaves it one. Zero does not look for jumps.
    pub(super) grace: Duration,
    /// It was said that the clock is behind.
    told: AtomicBool,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    last: Option<Glance>,
    /// This process did not run for a while, and so perhaps no worker of this host.
    overslept: bool,
    /// When leases were last spared.
    spared: Option<Instant>,
}

/// So many graces after leases were spared, having overslept is no reason to spare any: on a host that is overloaded every
/// pass is late, and what dead workers hold would never end.
const GRACES_BETWEEN: u32 = 10;

/// The store's time, and this process's own before it was asked for.
#[derive(Debug, Clone, Copy)]
struct Glance {
    store: Timestamp,
    began: Instant,
}

impl ClockWatch {
    pub(super) fn new(tolerance: Duration, grace: Duration) -> Self {
        Self { tolerance, grace, told: AtomicBool::new(false), seen: Mutex::default() }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        // Every statement that holds it leaves it consistent.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the clock is behind: in the history, unless it is there, and to whoever observes this process, once.
    pub(super) fn behind(&self, settings: &Settings, behind: ClockBehind) -> Result<(), StoreError> {
        if !behind.noted {
            settings.store.with(TxKind::Maintenance, |tx| transitions::note_anomaly(tx, self.tolerance))?;
        }
        if !self.told.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                now = %behind.now,
                mark = %behind.mark,
                "the store's clock is behind a time that it has shown before; nothing is claimed, recovered or woken until it is right \
                 again, or an operator trusts it (`leasehold clock trust`)"
            );
            let code = Some(behind.to_string());
            let notices = settings.hub.notices();
            notices.tell(|| Notice { at: Some(behind.now), code, ..Notice::new(NoticeKind::Event(EventKind::ClockAnomaly)) });
        }
        Ok(())
    }

    /// Notes that the clock can be relied on.
    pub(super) fn right(&self) {
        if self.told.swap(false, Ordering::Relaxed) {
            tracing::info!("the store's clock is right again");
        }
    }

    /// Notes that this process was stopped for longer than it meant to wait. A host that sleeps may or may not count that
    /// time in its own monotonic clock.
    pub(super) fn overslept(&self) {
        self.seen().overslept = true;
    }

    /// Compares how far the store's time has come with how long this process knows it took, since the last look. After a
    /// jump runs `spare` with the last instant before it; others who look wait for that. Whether there was one.
    ///
    /// `now` was read by a call that began at `began`.
    pub(super) fn look(
        &self,
        now: Timestamp,
        began: Instant,
        spare: impl FnOnce(Timestamp) -> Result<(), StoreError>,
    ) -> Result<bool, StoreError> {
        if self.grace.is_zero() {
            return Ok(false);
        }
        let mut seen = self.seen();
        let overslept = seen.overslept && seen.spared.is_none_or(|spared| spared.elapsed() > self.grace * GRACES_BETWEEN);
        let jumped_from = seen.last.filter(|last| overslept || now.since(last.store) > last.began.elapsed() + self.grace);
        let mut spared = seen.spared;
        if let Some(last) = jumped_from {
            // Only then forgotten: if it fails, the next look finds the jump again.
            spare(last.store)?;
            spared = Some(Instant::now());
        }
        *seen = Seen { last: Some(Glance { store: now, began }), overslept: false, spared };
        Ok(jumped_from.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(10);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000).unwrap()
    }

    fn look(watch: &ClockWatch, seconds: i64) -> Option<Timestamp> {
        let mut spared = None;
        let jumped = watch.look(at(seconds), Instant::now(), |live_at| {
            spared = Some(live_at);
            Ok(())
        });
        assert_eq!(jumped.unwrap(), spared.is_some());
        spared
    }

    #[test]
    fn a_jump_is_more_than_the_process_knows_of_and_one_heartbeat() {
        let watch = ClockWatch::new(Duration::ZERO, GRACE);
        assert_eq!(look(&watch, 100), None, "there is nothing to compare with");
        assert_eq!(look(&watch, 109), None);
        assert_eq!(look(&watch, 7_309), Some(at(109)));
        assert_eq!(look(&watch, 7_309), None, "once");
        assert_eq!(look(&watch, 50), None, "backward is no jump");
        let off = ClockWatch::new(Duration::ZERO, Duration::ZERO);
        assert_eq!((look(&off, 100), look(&off, 7_309)), (None, None));
    }

    #[test]
    fn a_process_that_was_stopped_spares_although_its_own_clock_says_so_too() {
        let watch = ClockWatch::new(Duration::ZERO, GRACE);
        look(&watch, 100);
        watch.overslept();
        assert_eq!(look(&watch, 101), Some(at(100)));
        assert_eq!(look(&watch, 102), None);
        watch.overslept();
        assert_eq!(look(&watch, 103), None, "who oversleeps all the time is no ground for patience without end");
        assert_eq!(look(&watch, 7_300), Some(at(103)), "but a jump is");
    }

    #[test]
    fn a_jump_that_could_not_be_answered_is_found_again() {
        let watch = ClockWatch::new(Duration::ZERO, GRACE);
        look(&watch, 100);
        assert!(watch.look(at(7_300), Instant::now(), |_| Err(StoreError::Busy("held".into()))).is_err());
        assert_eq!(look(&watch, 7_301), Some(at(100)));
    }
}
