//! The Postgres store of Leasehold: many processes and hosts on one database.
//!
//! [`PostgresStore`] implements the [storage contract](leasehold_core::store) with row locks. What is particular to it:
//!
//! - **Time** is the database's, read behind the locks that a decision rests on; host clocks do not matter.
//! - **Nothing is session state.** Schema, isolation level and time limits travel with each BEGIN, so a pooler in
//!   transaction mode may stand between; add `prepared_statements=off` to the URL then.
//! - **Connections.** Claiming, committing and heartbeats have one each, all other calls share a pool. A connection that
//!   died between two transactions is replaced; one that dies inside makes its call [`Unavailable`], and one on a server
//!   that turned read-only is closed.
//! - **Hints** of what other processes changed come by NOTIFY on one more connection, sent after the commit; `hints=off` in the
//!   URL leaves them out. Where they cannot come, behind a pooler, a store finds out and says so once.
//! - **Readers of events and updates** stop short of what an open transaction could still precede.
//!
//! # Building
//! By default libpq and OpenSSL are built from source: that takes a C compiler, `make` and `perl`, and no libraries that
//! are installed beforehand. With `OPENSSL_NO_VENDOR=1` in the environment the system's OpenSSL is used instead (its
//! development files must be there), which saves minutes. The feature `bundled-without-tls` in place of the default
//! builds libpq alone; `sslmode=require` is then an error. With neither, the libpq that `pkg-config` or `pg_config`
//! finds is linked.
//!
//! [`Unavailable`]: leasehold_core::store::StoreError::Unavailable

mod claim;
mod connection;
mod error;
#[cfg(feature = "faults")]
mod faults;
mod finality;
mod graph;
mod hint;
mod inspect;
mod lease;
mod migrate;
mod options;
mod own;
#[cfg(test)]
mod plans;
mod read;
mod store;
mod time;
mod tx;
mod wait;
mod write;

/// Whose connections a store lends: the application needs the same version.
pub use diesel;
#[cfg(feature = "faults")]
pub use faults::Fault;
pub use migrate::{SCHEMA_VERSION, migrate};
pub use options::{OptionsError, PostgresOptions, SchemaName};
pub use store::PostgresStore;
