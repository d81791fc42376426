//! What every pass of upkeep must hold to: the clock can be relied on, and the pass is still the leader's (T7, L10).

use super::trust::MARK_STEP;
use crate::model::{Epoch, LeaseToken};
use crate::store::{Candidate, ClockBehind, Leadership, StoreError, Tx};
use std::time::Duration;

/// What a pass of upkeep depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Upkeep {
    /// The epoch under which its process leads. `None` is only for what is safe whoever does it, because each row is
    /// guarded by itself and the work is bounded: what a claim recovers, wakes and promotes because it is in its way.
    pub epoch: Option<Epoch>,
    /// How far the clock may be behind the latest time that it has shown.
    pub tolerance: Duration,
}

/// How a pass of upkeep ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pass<T> {
    /// It was done.
    Done(T),
    /// It holds, and nothing was written: the clock cannot be relied on.
    ClockBehind(ClockBehind),
    /// Nothing was written: another process leads by now.
    NotLeader,
}

impl<T> Pass<T> {
    /// What was done, changed by `change`.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Pass<U> {
        match self {
            Self::Done(done) => Pass::Done(change(done)),
            Self::ClockBehind(behind) => Pass::ClockBehind(behind),
            Self::NotLeader => Pass::NotLeader,
        }
    }
}

/// Runs `body` as one pass of upkeep: the door through which recovery, wake-ups, schedules and retention write. The epoch
/// is held shared until the transaction ends, so nobody is elected before its commit, and an old epoch writes nothing.
///
/// # Locks
/// The leader's row, shared; then those of `body`.
///
/// # Errors
/// [`StoreError`], of `body` too; nothing was written.
pub fn upkeep<T>(tx: &mut dyn Tx, door: Upkeep, body: impl FnOnce(&mut dyn Tx) -> Result<T, StoreError>) -> Result<Pass<T>, StoreError> {
    if let Some(epoch) = door.epoch
        && !tx.hold_epoch(epoch)?
    {
        return Ok(Pass::NotLeader);
    }
    if let Err(behind) = tx.clock()?.trusted(door.tolerance) {
        return Ok(Pass::ClockBehind(behind));
    }
    body(tx).map(Pass::Done)
}

/// Moves up to `limit` ops that are due from `delayed` to `ready`; how many.
///
/// # Locks
/// `delayed` rows, skipping what others hold.
///
/// # Errors
/// [`StoreError`]; nothing was written.
pub fn promote(tx: &mut dyn Tx, limit: u32, door: Upkeep) -> Result<Pass<u32>, StoreError> {
    upkeep(tx, door, |tx| tx.promote(limit))
}

/// Makes `candidate` the leader if no term runs, or gives it another term if it leads; who leads then. Raises the mark of
/// time on the way.
///
/// # Locks
/// The leader's row; the clock's, which it does not wait for.
///
/// # Errors
/// [`StoreError`]; nothing was written.
pub fn elect(tx: &mut dyn Tx, candidate: &Candidate) -> Result<Leadership, StoreError> {
    let leadership = tx.elect(candidate)?;
    if leadership.mine {
        tx.raise_mark(MARK_STEP)?;
    }
    Ok(leadership)
}

/// Gives the lead up, so that the next one need not wait for the term's end.
///
/// # Locks
/// The leader's row.
///
/// # Errors
/// [`StoreError`]; nothing was written.
pub fn resign(tx: &mut dyn Tx, token: LeaseToken, epoch: Epoch) -> Result<(), StoreError> {
    tx.resign(token, epoch)
}
