//! A complete storage backend in plain code, for authors of backends to read beside `docs/BACKENDS.md`.
//!
//! It keeps every promise of the contract and passes the conformance suite. It is a toy because of how it rolls back: a
//! transaction that writes works on a clone of all tables, and its commit writes all of them to the file, so that cost
//! grows with the data.
//!
//! Read in this order: `store.rs` (what a transaction is), `tables.rs` (what there is to store), `graph.rs`, `lease.rs`,
//! `time.rs` and `read.rs` (the steps), `disk.rs` and `codec.rs` (the file).
//!
//! # Examples
//! ```
//! use leasehold_core::model::{QueueName, QueuePolicy};
//! use leasehold_core::store::{StoreExt, StoreResult, SystemClock, TxKind};
//! use leasehold_toy_backend::ToyStore;
//! use std::sync::Arc;
//!
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("store");
//! let store = ToyStore::open(&path, Arc::new(SystemClock))?;
//! let policy = QueuePolicy { max_in_flight: Some(4), ..QueuePolicy::unlimited(QueueName::default()) };
//! store.with(TxKind::Client, |tx| tx.set_policies(&[policy.clone()]))?;
//!
//! let again = ToyStore::open(&path, Arc::new(SystemClock))?;
//! let found: StoreResult<_> = again.with(TxKind::Read, |tx| tx.policies());
//! assert_eq!(found?, [policy]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod codec;
mod disk;
mod graph;
mod inspect;
mod lease;
mod read;
mod store;
mod tables;
mod time;
mod wait;

pub use store::ToyStore;

// The page's code is compiled and run with this crate's tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/BACKENDS.md")]
struct Page;
