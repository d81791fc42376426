//! Steps on the store's clock and on its maintenance: how far time has come, and who keeps the store up (T7, L10).

use super::StoreResult;
use crate::model::{Epoch, LeaseToken, Micros, Timestamp, WorkerName};
use std::time::Duration;

/// Steps on the one row that remembers the time, and on the one that names the leader.
pub trait TimeTx {
    /// Reads the clock: the time now, and what is remembered of it. Locks nothing.
    ///
    /// # Atomicity
    /// One statement, which reads the time as well.
    /// # Errors
    /// As every step.
    fn clock(&mut self) -> StoreResult<ClockReading>;

    /// Raises the mark to now when it is `step` or more behind, and forgets an anomaly then; else does nothing.
    ///
    /// # Contract
    /// The mark never moves back. The row is never waited for: whoever holds it locked raises it as well, or resets it.
    /// # Atomicity
    /// One statement, which reads the time as well.
    /// # Errors
    /// As every step.
    fn raise_mark(&mut self, step: Micros) -> StoreResult<()>;

    /// [`clock`](Self::clock), read behind a lock on the row.
    ///
    /// # Errors
    /// As every step.
    fn lock_clock(&mut self) -> StoreResult<ClockReading>;

    /// Stores what is remembered of the clock, whose row this transaction holds locked; `now` is not stored.
    ///
    /// # Errors
    /// As every step.
    fn set_clock(&mut self, clock: &ClockReading) -> StoreResult<()>;

    /// Brings back what lies ahead of now: whatever leads ends its term now; `ready` ops are due now at the latest; leases
    /// begin now at the latest and end `within` at the latest.
    ///
    /// # Atomicity
    /// A bounded number of statements, in this order of tables. Rows of one table are locked in op order.
    /// # Errors
    /// As every step.
    fn pull_back(&mut self, within: Micros) -> StoreResult<PulledBack>;

    /// Extends to `until` up to `limit` leases that expire later than `live_at` and earlier than `until`, the earliest
    /// first; returns how many. Leases that another transaction holds are left out: their owners are about to renew or end them.
    ///
    /// # Atomicity
    /// One statement. Rows are locked in op order.
    /// # Errors
    /// As every step.
    fn spare_leases(&mut self, spare: &Spare) -> StoreResult<u32>;

    /// Makes the candidate the leader, or keeps it; tells who leads then, until when.
    ///
    /// # Contract
    /// The leader whose term has not ended, by its token, keeps its epoch and gets a new term from now on. When no term
    /// runs, because it ends now or before, the candidate leads, with the next epoch; so epochs strictly grow. Else nothing
    /// changes. Time is read behind the lock of the row.
    /// # Atomicity
    /// A bounded number of statements. A row that is held shared by [`hold_epoch`](Self::hold_epoch) is waited for only by
    /// who may become or stay the leader.
    /// # Errors
    /// As every step; [`super::StoreError::Rejected`] when the term would end past year 9999.
    fn elect(&mut self, candidate: &Candidate) -> StoreResult<Leadership>;

    /// Ends the term of the leader with this token and epoch now, if it is still that one.
    ///
    /// # Errors
    /// As every step.
    fn resign(&mut self, token: LeaseToken, epoch: Epoch) -> StoreResult<()>;

    /// Locks the leader's row shared until this transaction ends; whether its epoch is `epoch`.
    ///
    /// # Contract
    /// Any number of transactions hold it at once; none is elected meanwhile.
    /// # Errors
    /// As every step.
    fn hold_epoch(&mut self, epoch: Epoch) -> StoreResult<bool>;
}

/// The clock, and what the store remembers of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    /// The store's time.
    pub now: Timestamp,
    /// The latest time that was remembered; `None` before the first.
    pub mark: Option<Timestamp>,
    /// Since when the clock is known to be behind the mark, by the clock itself.
    pub anomaly_since: Option<Timestamp>,
}

impl ClockReading {
    /// By how much the clock is behind the mark; zero where it is not.
    pub fn behind(&self) -> Duration {
        self.mark.map_or(Duration::ZERO, |mark| mark.since(self.now))
    }

    /// Whether time can be relied on: the clock is behind the mark by no more than `tolerance`.
    ///
    /// # Errors
    /// [`ClockBehind`].
    pub fn trusted(&self, tolerance: Duration) -> Result<(), ClockBehind> {
        match self.mark {
            Some(mark) if mark.since(self.now) > tolerance => Err(ClockBehind { now: self.now, mark, noted: self.anomaly_since.is_some() }),
            Some(_) | None => Ok(()),
        }
    }
}

/// That the clock is behind the latest time that was remembered, by more than the tolerance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the clock shows {now}, {:?} behind {mark}, which it has shown before", .mark.since(*.now))]
pub struct ClockBehind {
    /// The store's time.
    pub now: Timestamp,
    /// The latest time that was remembered.
    pub mark: Timestamp,
    /// Whether it is in the history already.
    pub noted: bool,
}

/// What was brought back to now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PulledBack {
    /// Rows of `ready`.
    pub ready: u64,
    /// Leases.
    pub leases: u64,
}

/// Which leases to extend because time jumped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spare {
    /// They held at this instant, which was before the jump.
    pub live_at: Timestamp,
    /// They hold until this one then.
    pub until: Timestamp,
    /// At most so many.
    pub limit: u32,
}

/// Who wants to lead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The secret of this incarnation, made once: a name proves nothing.
    pub token: LeaseToken,
    /// What it calls itself.
    pub name: WorkerName,
    /// How long its term is.
    pub term: Micros,
}

/// Who leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leadership {
    /// The leader's number.
    pub epoch: Epoch,
    /// What it calls itself.
    pub leader: WorkerName,
    /// When its term ends.
    pub ends_at: Timestamp,
    /// The store's time.
    pub now: Timestamp,
    /// Whether it is the candidate that asked.
    pub mine: bool,
}
