//! The application's own transaction: its rows and the engine's commit or roll back together (B5).

use crate::error::sorted;
use crate::store::PostgresStore;
use crate::tx::PgTx;
use diesel::QueryableByName;
use diesel::connection::{AnsiTransactionManager as Manager, SimpleConnection, TransactionManager};
use diesel::pg::PgConnection;
use diesel::prelude::*;
use diesel::sql_types::Text;
use leasehold_core::store::{StoreError, StoreResult, Tx, TxKind};
use leasehold_sql::rows::Number;
use leasehold_sql::{rejected, statement};

/// Undone alone when the engine's part fails, so that the application may still go on with its own.
const ENTER: &str = "SAVEPOINT leasehold_own";
const LEAVE: &str = "RELEASE SAVEPOINT leasehold_own";
const UNDO: &str = "ROLLBACK TO SAVEPOINT leasehold_own; RELEASE SAVEPOINT leasehold_own";

#[derive(QueryableByName)]
struct Setting {
    #[diesel(sql_type = Text)]
    setting: String,
}

impl PostgresStore {
    /// Lends the engine's steps to `body`, inside the transaction that the application has begun on `conn`.
    ///
    /// # Contract
    /// Call it last and then commit: it locks rows that workers need, and they are locked until the commit. An error
    /// undoes what `body` did here and nothing else; what it means for the rest is the application's to say. Nothing is
    /// tried again. The search path is the store's own while `body` runs, and the application's again afterwards. Any
    /// isolation level will do: one that sees an old snapshot gets [`StoreError::Conflict`] where a row that it needs has
    /// changed since, and is then to be begun anew by the application. It also takes a connection of the store's pool for
    /// a moment.
    ///
    /// # Errors
    /// What `body` returned; [`StoreError::Rejected`] outside a transaction.
    pub fn on<T, E: From<StoreError>>(&self, conn: &mut PgConnection, body: impl FnOnce(&mut dyn Tx) -> Result<T, E>) -> Result<T, E> {
        conn.batch_execute(ENTER).map_err(|error| StoreError::from(NotOpen::or_sorted(error)))?;
        let done = self.lend(conn, body);
        let left = match &done {
            Ok(_) => LEAVE,
            Err(_) => UNDO,
        };
        match conn.batch_execute(left) {
            Ok(()) => done,
            // An error of the body comes first: it is the cause.
            Err(error) => done.and_then(|_| Err(sorted(error).0.into())),
        }
    }

    fn lend<T, E: From<StoreError>>(&self, conn: &mut PgConnection, body: impl FnOnce(&mut dyn Tx) -> Result<T, E>) -> Result<T, E> {
        let before = change_search_path(conn, &self.search_path())?;
        let floor = if sees_the_past(conn)? { self.latest_update(conn)? } else { None };
        let mut tx = PgTx::lent(conn, self.session(), floor);
        let value = body(&mut tx)?;
        // A step that failed has failed the whole part, whatever the body made of it.
        if let Some(failure) = tx.failure() {
            return Err(failure.into());
        }
        change_search_path(conn, &before)?;
        Ok(value)
    }

    /// The latest update that is committed, which a transaction with an old snapshot cannot see and must not fall behind:
    /// a reader's cursor may be there already. From the table's lock on no reader takes a later one for final.
    fn latest_update(&self, conn: &mut PgConnection) -> StoreResult<Option<i64>> {
        const LOCK: &str = "LOCK TABLE workflows IN ROW EXCLUSIVE MODE";
        const LATEST: &str = "SELECT updated_at_us AS number FROM workflows ORDER BY updated_at_us DESC, seq DESC LIMIT 1";
        conn.batch_execute(LOCK).map_err(|error| sorted(error).0)?;
        let latest: Option<Number> = self.read_now(LATEST)?;
        Ok(latest.and_then(|row| row.number))
    }

    /// Runs `body` in a transaction on a connection of the store's pool and commits it: for the application's own
    /// statements, in its own search path, and for the engine's by [`PostgresStore::on`] at the end.
    ///
    /// # Errors
    /// What `body` returned, after a rollback; [`StoreError::Unavailable`] from the commit means that it may have happened.
    pub fn transaction<T, E: From<StoreError>>(&self, body: impl FnOnce(&mut PgConnection) -> Result<T, E>) -> Result<T, E> {
        self.borrow(TxKind::Client, |conn| {
            let sort = |error| E::from(sorted(error).0);
            // Through diesel's own manager, so that the application may nest transactions, and a panic of `body` is seen
            // as a connection that must not be used again.
            Manager::begin_transaction_sql(conn, "BEGIN ISOLATION LEVEL READ COMMITTED").map_err(sort)?;
            match body(conn) {
                Ok(value) => Manager::commit_transaction(conn).map_err(sort).map(|()| value),
                Err(error) => {
                    // Where this fails the connection is gone, and its transaction with it.
                    let _ = Manager::rollback_transaction(conn);
                    Err(error)
                }
            }
        })?
    }
}

/// Whether the transaction goes on seeing what was there when it began.
fn sees_the_past(conn: &mut PgConnection) -> StoreResult<bool> {
    const ISOLATION: &str = "SELECT current_setting('transaction_isolation') AS setting";
    let isolation: Setting = statement(ISOLATION).get_result(conn).map_err(|error| sorted(error).0)?;
    Ok(!matches!(isolation.setting.as_str(), "read committed" | "read uncommitted"))
}

/// Sets the search path until the transaction ends; returns what it was.
fn change_search_path(conn: &mut PgConnection, path: &str) -> StoreResult<String> {
    const READ: &str = "SELECT current_setting('search_path') AS setting";
    const SET: &str = "SELECT set_config('search_path', $1, TRUE) AS setting";
    let before: Setting = statement(READ).get_result(conn).map_err(|error| sorted(error).0)?;
    let _: Setting = statement(SET).bind::<Text, _>(path).get_result(conn).map_err(|error| sorted(error).0)?;
    Ok(before.setting)
}

/// Why the door stayed shut.
enum NotOpen {
    NoTransaction,
    Failed(StoreError),
}

impl NotOpen {
    fn or_sorted(error: diesel::result::Error) -> Self {
        // 25P01; diesel hands out no SQLSTATE for it.
        if error.to_string().contains("can only be used in transaction blocks") {
            Self::NoTransaction
        } else {
            Self::Failed(sorted(error).0)
        }
    }
}

impl From<NotOpen> for StoreError {
    fn from(why: NotOpen) -> Self {
        match why {
            NotOpen::NoTransaction => {
                rejected("the connection is not in a transaction: begin one, so that your rows and the engine's commit together")
            }
            NotOpen::Failed(error) => error,
        }
    }
}
