//! The application's own transaction: its rows and the engine's commit or roll back together (B5).

use crate::connection::until;
use crate::error::{is_busy, store_error};
use crate::store::{CHANGE_NOTHING, Location, SqliteStore};
use crate::tx::SqliteTx;
use diesel::connection::{AnsiTransactionManager as Manager, SimpleConnection, TransactionManager};
use diesel::result::Error;
use diesel::sqlite::SqliteConnection;
use leasehold_core::store::{StoreError, Tx, TxKind};
use leasehold_sql::rejected;
use std::time::Instant;

/// Undone alone when the engine's part fails, so that the application may still go on with its own.
const ENTER: &str = "SAVEPOINT leasehold_own";
const LEAVE: &str = "RELEASE leasehold_own";
const UNDO: &str = "ROLLBACK TO leasehold_own; RELEASE leasehold_own";
const NO_TRANSACTION: &str =
    "the connection is not in a transaction: begin one IMMEDIATE, so that your rows and the engine's commit together";
const DEFERRED: &str = "another connection has written since this transaction first read, so it can never write: it began DEFERRED. \
                        Roll it back and begin it IMMEDIATE (diesel: `immediate_transaction`)";

impl SqliteStore {
    /// Lends the engine's steps to `body`, inside the transaction that the application has begun on `conn`, a connection
    /// of its own to the store's file.
    ///
    /// # Contract
    /// Begin the transaction IMMEDIATE, call this last and then commit: nobody else can write until the commit. An error
    /// undoes what `body` did here and nothing else; what it means for the rest is the application's to say. Nothing is
    /// tried again.
    ///
    /// # Errors
    /// What `body` returned; [`StoreError::Rejected`] outside a transaction, and in a deferred one that has read what is
    /// no longer so.
    pub fn on<T, E: From<StoreError>>(&self, conn: &mut SqliteConnection, body: impl FnOnce(&mut dyn Tx) -> Result<T, E>) -> Result<T, E> {
        // SAVEPOINT would begin a transaction where none is open, so this is asked first; BEGIN fails inside of one.
        if conn.batch_execute("BEGIN").is_ok() {
            conn.batch_execute("ROLLBACK").map_err(store_error)?;
            return Err(rejected(NO_TRANSACTION).into());
        }
        conn.batch_execute(CHANGE_NOTHING).map_err(|error| if is_busy(&error) { rejected(DEFERRED) } else { store_error(error) })?;
        conn.batch_execute(ENTER).map_err(store_error)?;
        let done = self.lend(conn, body);
        let left = match &done {
            Ok(_) => LEAVE,
            Err(_) => UNDO,
        };
        match conn.batch_execute(left) {
            Ok(()) => done,
            // An error of the body comes first: it is the cause.
            Err(error) => done.and_then(|_| Err(store_error(error).into())),
        }
    }

    fn lend<T, E: From<StoreError>>(&self, conn: &mut SqliteConnection, body: impl FnOnce(&mut dyn Tx) -> Result<T, E>) -> Result<T, E> {
        let mut tx = SqliteTx::new(conn, TxKind::Client, self.clock.now());
        let value = body(&mut tx)?;
        // A step that failed has failed the whole part, whatever the body made of it.
        if tx.failed() {
            return Err(rejected("a step failed and the body went on as if it had not").into());
        }
        Ok(value)
    }

    /// Runs `body` in an immediate transaction on a connection of its own and commits it: for the application's own
    /// statements, and for the engine's by [`SqliteStore::on`] at the end. A busy file is waited for until the call's deadline.
    ///
    /// # Errors
    /// What `body` returned, after a rollback; [`StoreError::Rejected`] for a store in memory, whose one connection is
    /// not lent.
    pub fn transaction<T, E: From<StoreError>>(&self, body: impl FnOnce(&mut SqliteConnection) -> Result<T, E>) -> Result<T, E> {
        let connector = &self.connector;
        if matches!(connector.options.location, Location::Memory) {
            return Err(rejected("a store in memory has one connection, which is not lent: use a file").into());
        }
        let deadline = Instant::now() + connector.options.call_deadline;
        let sort = |error: Error| E::from(connector.sort(error));
        let mut conn = connector.writer()?;
        // Through diesel's own manager, so that the application may nest transactions. The connection is not used again,
        // so whatever happens to `body`, what is not committed here is rolled back by closing it.
        until(deadline, || Manager::begin_transaction_sql(&mut conn, "BEGIN IMMEDIATE")).map_err(sort)?;
        let value = body(&mut conn)?;
        Manager::commit_transaction(&mut conn).map_err(sort)?;
        Ok(value)
    }
}
