//! One transaction: what its steps have in common.

use crate::error::store_error;
use crate::set::Set;
use diesel::RunQueryDsl;
use diesel::query_dsl::methods::{ExecuteDsl, LoadQuery};
use diesel::sql_types::Text;
use diesel::sqlite::SqliteConnection;
use leasehold_core::model::Timestamp;
use leasehold_core::store::{StoreError, StoreResult, Tx, TxKind};
use leasehold_sql::rows::{Number, Row};
use leasehold_sql::{Bound, Statement, rejected, statement};

pub(crate) const LAST_UPDATE: &str = "SELECT max(updated_at_us) AS number FROM workflows";

/// The steps, on a connection whose transaction is open.
pub(crate) struct SqliteTx<'c> {
    conn: &'c mut SqliteConnection,
    kind: TxKind,
    now: Timestamp,
    failed: bool,
    rows: usize,
    updated_past: Option<i64>,
}

impl<'c> SqliteTx<'c> {
    /// A transaction on `conn` that judges everything at `now`.
    pub(crate) fn new(conn: &'c mut SqliteConnection, kind: TxKind, now: Timestamp) -> Self {
        Self { conn, kind, now, failed: false, rows: 0, updated_past: None }
    }
    /// Whether a step failed.
    pub(crate) fn failed(&self) -> bool {
        self.failed
    }
    /// About how many rows it wrote.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }
    /// The transaction's time, for binds.
    pub(crate) fn now_us(&self) -> i64 {
        self.now.as_micros()
    }
    pub(crate) fn time(&self) -> Timestamp {
        self.now
    }

    /// Runs a step that reads, unless one has failed before.
    pub(crate) fn read<T>(&mut self, step: impl FnOnce(&mut Self) -> StoreResult<T>) -> StoreResult<T> {
        if self.failed {
            return Err(rejected("an earlier step of this transaction failed"));
        }
        let result = step(self);
        self.failed = result.is_err();
        result
    }

    /// Runs a step that writes or locks, likewise.
    pub(crate) fn change<T>(&mut self, step: impl FnOnce(&mut Self) -> StoreResult<T>) -> StoreResult<T> {
        self.read(|tx| {
            if tx.kind == TxKind::Read {
                return Err(StoreError::ReadOnly("a read transaction writes and locks nothing".into()));
            }
            step(tx)
        })
    }

    /// Sends a statement and reads its rows.
    pub(crate) fn load<'q, R, Q>(&mut self, query: Q) -> StoreResult<Vec<R::Value>>
    where
        R: Row,
        Q: LoadQuery<'q, SqliteConnection, R>,
    {
        leasehold_sql::rows::read_all(self.load_rows(query)?)
    }

    /// Sends a statement and hands on its rows as they are.
    pub(crate) fn load_rows<'q, R, Q>(&mut self, query: Q) -> StoreResult<Vec<R>>
    where
        Q: LoadQuery<'q, SqliteConnection, R>,
    {
        query.internal_load(self.conn).and_then(Iterator::collect).map_err(store_error)
    }

    /// Sends a statement that writes; returns how many rows it changed.
    pub(crate) fn execute<Q>(&mut self, query: Q) -> StoreResult<usize>
    where
        Q: RunQueryDsl<SqliteConnection> + ExecuteDsl<SqliteConnection>,
    {
        let changed = query.execute(self.conn).map_err(store_error)?;
        self.wrote(changed);
        Ok(changed)
    }

    /// Sends a statement whose only parameter is a set, and reads its rows.
    pub(crate) fn load_set<R>(&mut self, sql: &'static str, set: Set) -> StoreResult<Vec<R::Value>>
    where
        R: Row,
        Bound<Statement, String, Text>: for<'q> LoadQuery<'q, SqliteConnection, R>,
    {
        let mut values = Vec::new();
        for part in set {
            values.extend(self.load::<R, _>(statement(sql).bind::<Text, _>(part))?);
        }
        Ok(values)
    }

    /// Sends a statement that writes and whose only parameter is a set; returns how many rows it changed.
    pub(crate) fn execute_set(&mut self, sql: &'static str, set: Set) -> StoreResult<usize> {
        let mut changed = 0;
        for part in set {
            changed += self.execute(statement(sql).bind::<Text, _>(part))?;
        }
        Ok(changed)
    }

    /// Counts rows that a statement with a result has written.
    pub(crate) fn wrote(&mut self, rows: usize) {
        self.rows += rows;
    }

    /// One microsecond past every `updated_at` that was committed before this transaction wrote one itself.
    pub(crate) fn updated_past(&mut self) -> StoreResult<i64> {
        if let Some(known) = self.updated_past {
            return Ok(known);
        }
        let last = self.load_rows::<Number, _>(statement(LAST_UPDATE))?.into_iter().next().and_then(|row| row.number);
        let past = last.map_or(Timestamp::MIN.as_micros(), |last| last + 1);
        self.updated_past = Some(past);
        Ok(past)
    }
}

impl Tx for SqliteTx<'_> {
    fn now(&mut self) -> StoreResult<Timestamp> {
        self.read(|tx| Ok(tx.now))
    }
}
