//! The SQLite store of Leasehold: one file, or memory, and no server.
//!
//! [`SqliteStore`] implements the [storage contract](leasehold_core::store) with one write connection and a pool of
//! readers. What is particular to it:
//!
//! - **One writer.** A write transaction begins IMMEDIATE and so holds the only lock there is: `lock_workflows` and
//!   `lock_gates` just read, and nothing is ever skipped. Time is the host's, read once when a transaction has the lock.
//! - **Group commit.** Transactions that wait for the writer at the same time are committed together: each runs in a
//!   savepoint of one transaction of SQLite, one after the other on its caller's thread, and one COMMIT makes them all
//!   durable. Nobody gets `Ok` before it returned. When nobody waits, a transaction commits at once.
//! - **Several processes** may share the file. A busy file is waited for inside the store until the call's deadline, and
//!   a process that is not alone leaves the others a gap after each group; `database is locked` is not an outcome.
//! - **Sets** travel as one JSON parameter a statement (a large set as a few), never as a statement a row.
//! - **Durability** is full by default: what was acknowledged survives a power cut ([`Synchronous`]).
//!
//! The file must be on a local disk: SQLite's write-ahead log needs shared memory between its processes.
//!
//! # Examples
//! ```
//! use leasehold_core::store::{StoreError, StoreExt, SystemClock, TxKind};
//! use leasehold_sqlite::SqliteStore;
//! use std::sync::Arc;
//!
//! let store = SqliteStore::open(":memory:", Arc::new(SystemClock))?;
//! let totals = store.with(TxKind::Read, |tx| tx.totals())?;
//! assert_eq!(totals.ops.total(), 0);
//! # Ok::<(), StoreError>(())
//! ```

mod claim;
mod connection;
mod error;
mod graph;
mod group;
mod hint;
mod inspect;
mod lease;
mod migrate;
mod own;
#[cfg(test)]
mod plans;
mod read;
mod set;
mod store;
mod time;
mod tx;
mod wait;
mod write;

/// Whose connections a store lends: the application needs the same version.
pub use diesel;
pub use error::{OpenError, WaitError};
pub use migrate::SCHEMA_VERSION;
pub use store::{GroupLimits, Location, SqliteOptions, SqliteStore, Synchronous};
