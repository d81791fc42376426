//! The clock of stores whose time authority is the host (T6).

use crate::model::{Micros, Timestamp};
use std::fmt::Debug;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::SystemTime;

/// What tells a store the time. Stores with an authority of their own, such as Postgres, do not ask it.
pub trait Clock: Debug + Send + Sync {
    /// The present instant; it may go backward.
    fn now(&self) -> Timestamp;
}

/// The host's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    /// # Panics
    /// Before year 1 and after year 9999, where no host's clock stands.
    fn now(&self) -> Timestamp {
        let now = SystemTime::now();
        let micros = match now.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_micros()),
            Err(before) => i64::try_from(before.duration().as_micros()).map(|micros| -micros),
        };
        match micros.map(Timestamp::from_micros) {
            Ok(Ok(now)) => now,
            Ok(Err(_)) | Err(_) => unreachable!("the host's clock stands outside the years 1 to 9999"),
        }
    }
}

/// A clock that stands until it is moved: tests make deadlines pass with it instead of sleeping.
///
/// To an engine every move of it is a jump of time, after which leases get one more heartbeat. Build engines on it with
/// [`jump_grace(Duration::ZERO)`](crate::engine::EngineBuilder::jump_grace), unless that is what the test is about.
#[derive(Debug)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// Stands at `start`.
    pub fn at(start: Timestamp) -> Self {
        Self(AtomicI64::new(start.as_micros()))
    }
    /// Moves forward.
    pub fn advance(&self, by: Micros) {
        self.0.fetch_add(by.get(), Ordering::SeqCst);
    }
    /// Moves anywhere, also backward.
    pub fn set(&self, to: Timestamp) {
        self.0.store(to.as_micros(), Ordering::SeqCst);
    }
}
impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        match Timestamp::from_micros(self.0.load(Ordering::SeqCst)) {
            Ok(now) => now,
            Err(_) => unreachable!("tests keep the clock within the years 1 to 9999"),
        }
    }
}
