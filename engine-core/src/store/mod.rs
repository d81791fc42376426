//! The storage contract: what the author of a backend implements.
//!
//! A backend supplies transactions ([`Store`]) and set-based steps inside them ([`Tx`]). It decides nothing: guards and
//! target values arrive as arguments, from the [transitions](crate::transitions).

mod clock;
mod error;
mod graph;
mod hint;
mod inspect;
mod lease;
mod read;
pub mod rows;
mod time;
mod wait;

pub use clock::{Clock, ManualClock, SystemClock};
pub use error::{BoxError, SchemaError, StoreError, StoreResult};
pub use graph::GraphTx;
pub use hint::{Hint, Hints, Listener};
pub use inspect::{FactsOf, InspectTx, OpFacts, Place};
pub use lease::LeaseTx;
pub use read::ReadTx;
pub use time::{Candidate, ClockBehind, ClockReading, Leadership, PulledBack, Spare, TimeTx};
pub use wait::WaitTx;

use crate::model::Timestamp;
use std::fmt::Debug;
use std::sync::Arc;

/// What a transaction is for: a backend chooses connection, priority and time limits by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TxKind {
    /// Reads one snapshot; writes nothing.
    Read,
    /// Promotes, or claims ready ops. Never waits for a row.
    Claim,
    /// Ends attempts. One at a time a process.
    Commit,
    /// Extends and dispatches leases. Has a connection of its own and goes before everything else.
    Heartbeat,
    /// A call of a client or an operator.
    Client,
    /// Recovery and other upkeep.
    Maintenance,
}

/// What to do about a row that another transaction holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Wait for it, within the store's time limit.
    Block,
    /// Wait for it, but about a tenth of a second at most: past that the transaction fails with
    /// [`StoreError::Conflict`] or [`StoreError::Busy`]. Who waits so stands in line, and yet stops nobody for long.
    Briefly,
    /// Leave it out.
    Skip,
}

/// Runs transactions. Object-safe, so that engines and clients share an `Arc<dyn Store>`.
pub trait Store: Debug + Send + Sync {
    /// Runs `body` in one transaction and commits when it returns `Ok`.
    ///
    /// # Contract
    /// One try: a store repeats only the waiting for its own locks, within its time limit. The body may run zero or more
    /// times, but never after this returns; it touches only `tx`, overwrites what it hands out, and does not call the store. After the
    /// first error of a step every further step fails, and a body that returns `Ok` all the same is not committed: the
    /// call fails. A panic of the body rolls back and goes on in the caller. This blocks: async code calls it on a
    /// blocking thread.
    ///
    /// # Errors
    /// What the body returned, after a rollback; or why the transaction could not begin or commit.
    /// [`StoreError::Unavailable`] from the commit means that it may have happened.
    fn transact(&self, kind: TxKind, body: &mut dyn FnMut(&mut dyn Tx) -> StoreResult<()>) -> StoreResult<()>;

    /// What the store is and which schema it has.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be asked.
    fn describe(&self) -> StoreResult<StoreInfo>;

    /// Commits a write that changes nothing, to learn whether the store takes one: a read tells nothing about a full
    /// disk, or a server that has become a stand-by.
    ///
    /// # Errors
    /// [`StoreError`], by which a caller knows what is wrong.
    fn try_write(&self) -> StoreResult<()>;

    /// How to hear of what other processes change; `None` where there is no way but to look.
    fn hints(&self) -> Option<Arc<dyn Hints>>;
}

/// What a store is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreInfo {
    /// Which backend: `memory`, `sqlite`, `postgres`.
    pub backend: &'static str,
    /// Where it is, without any password.
    pub location: String,
    /// The database's version.
    pub version: String,
    /// The schema's version; 0 where there is none.
    pub schema: i64,
}

/// The steps of one transaction.
///
/// Every step takes a set, costs a bounded number of statements whatever the set's size, and decides nothing. An empty
/// set sends no statement. No step has a default: a slow one is visible where it is written.
///
/// A set names each thing once. What a step returns is in no order, unless the step names one. Names and keys are
/// compared byte by byte. What the caller has to see to, such as locks that it must hold, a store need not check.
///
/// # Errors
/// Every step fails with a [`StoreError`]; after the first one every further step of the transaction fails too, and the
/// transaction rolls back.
pub trait Tx: GraphTx + InspectTx + LeaseTx + ReadTx + TimeTx + WaitTx {
    /// The store's time at this call: on a store whose clock is a database's, read from it now, so call it behind the
    /// last lock; on a store whose clock is the host's, the time at which the transaction got the write lock.
    ///
    /// # Contract
    /// From the first call on, a transaction that may write counts as open for [`ReadTx::workflows_since`] and
    /// [`ReadTx::events_since`]: what it writes with this time is not overtaken by a reader's final mark.
    /// # Errors
    /// As every step.
    fn now(&mut self) -> StoreResult<Timestamp>;
}

/// Conveniences over [`Store`]; implemented for every store, by this crate alone.
pub trait StoreExt: Store {
    /// [`Store::transact`] with a result and an error of the caller's own.
    ///
    /// # Errors
    /// What the body returned, or the store's error as an `E`.
    fn with<T, E: From<StoreError>>(&self, kind: TxKind, mut body: impl FnMut(&mut dyn Tx) -> Result<T, E>) -> Result<T, E> {
        let mut out: Option<Result<T, E>> = None;
        let ran = self.transact(kind, &mut |tx| {
            out = None;
            let result = body(tx);
            let failed = result.is_err();
            out = Some(result);
            if failed { Err(StoreError::RolledBack) } else { Ok(()) }
        });
        match (ran, out) {
            (Ok(()), Some(Ok(value))) => Ok(value),
            (Err(StoreError::RolledBack), Some(Err(error))) => Err(error),
            (Err(error), _) => Err(error.into()),
            (Ok(()), _) => unreachable!("the store committed without a successful run of the body"),
        }
    }
}
impl<S: Store + ?Sized> StoreExt for S {}
