//! Raw SQL through a thin driver with prepared statements: the least that the database itself needs for a thing.

mod postgres;
mod rows;
mod sqlite;

pub(crate) use self::postgres::PostgresFloor;
pub(crate) use rows::{Batches, Column, Table};
pub(crate) use sqlite::SqliteFloor;

use crate::Failure;
use std::any::Any;
use std::collections::BTreeMap;
use std::time::Duration;

/// A queue of nothing but keys and payloads, drained.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drain {
    pub(crate) ops: u64,
    /// Ops of one claim and of one completion, each a transaction.
    pub(crate) batch: u32,
    pub(crate) connections: usize,
}

/// One database, spoken to without the engine.
pub(crate) trait Floor: Send + Sync {
    /// What the database says of its version and durability.
    fn settings(&self) -> Result<BTreeMap<String, String>, Failure>;

    /// Makes a table of `ops` rows and drains it: a claim marks the first free rows with their owner, a completion deletes
    /// them by key and owner. Returns how long the drain took.
    fn drain(&self, drain: Drain) -> Result<Duration, Failure>;

    /// Commits `count` single rows one after another; how long each took.
    fn commits(&self, count: usize) -> Result<Vec<Duration>, Failure>;

    /// Makes `leases` rows, each with an indexed expiry, and sets all of their expiries by key, `times` times.
    fn renew(&self, leases: u64, times: usize) -> Result<Vec<Duration>, Failure>;

    /// Makes `leases` expired rows and moves them to a queue, `batch` in a transaction.
    fn recover(&self, leases: u64, batch: u32) -> Result<Duration, Failure>;

    /// The rows of an engine's store that a call to create workflows writes.
    fn read(&self) -> Result<Vec<Table>, Failure>;

    /// Inserts rows into an engine's empty store, a transaction a batch; how long that took.
    fn insert(&self, batches: &Batches) -> Result<Duration, Failure>;

    /// The columns of a table.
    fn columns(&self, table: &str) -> Result<Vec<Column>, Failure>;

    /// Runs statements, ended by semicolons, that both databases understand.
    fn execute(&self, sql: &str) -> Result<(), Failure>;

    /// The one integer that a query finds.
    fn number(&self, sql: &str) -> Result<i64, Failure>;

    /// Keeps a snapshot of now open until it is dropped.
    fn pin(&self) -> Result<Box<dyn Any + Send>, Failure>;

    /// Bytes written to the log so far, where the database counts them.
    fn log_bytes(&self) -> Result<Option<i64>, Failure>;

    /// Bytes of the store's files, and rows that are dead in them where the database counts those.
    fn size(&self) -> Result<(i64, Option<i64>), Failure>;

    /// Numbers of connections worth trying.
    fn connections(&self) -> &'static [usize];
}
