//! An application with a table of its own beside a store's in one SQLite file.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::Text;
use diesel::sqlite::SqliteConnection;
use leasehold_conformance::{Door, LentBody, OwnBody, OwnTransactions, OwnTx};
use leasehold_core::store::BoxError;
use leasehold_sqlite::SqliteStore;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The application. It opens the store anew for each transaction: a case may have closed its own.
pub(crate) struct Own<O> {
    path: PathBuf,
    open: O,
}

#[derive(QueryableByName)]
struct Note {
    #[diesel(sql_type = Text)]
    note: String,
}

impl<O> Own<O> {
    pub(crate) fn new(path: &Path, open: O) -> Result<Self, BoxError> {
        let own = Self { path: path.to_owned(), open };
        own.connect()?.batch_execute("CREATE TABLE business (note TEXT NOT NULL)")?;
        Ok(own)
    }

    fn connect(&self) -> Result<SqliteConnection, BoxError> {
        let mut conn = SqliteConnection::establish(&self.path.to_string_lossy())?;
        conn.batch_execute("PRAGMA busy_timeout = 10000")?;
        Ok(conn)
    }
}

impl<O> OwnTransactions for Own<O>
where
    O: Fn() -> Result<Arc<SqliteStore>, BoxError> + Send + Sync,
{
    fn transaction(&self, door: Door, body: &mut OwnBody<'_>) -> Result<(), BoxError> {
        let store = (self.open)()?;
        match door {
            Door::Lent => self.connect()?.immediate_transaction(|conn| body(&mut Open { store: &store, conn })),
            Door::Borrowed => store.transaction(|conn| body(&mut Open { store: &store, conn })),
        }
    }

    fn rows(&self) -> Result<Vec<String>, BoxError> {
        let rows: Vec<Note> = diesel::sql_query("SELECT note FROM business ORDER BY note").load(&mut self.connect()?)?;
        Ok(rows.into_iter().map(|row| row.note).collect())
    }
}

struct Open<'t> {
    store: &'t SqliteStore,
    conn: &'t mut SqliteConnection,
}

impl OwnTx for Open<'_> {
    fn insert(&mut self, row: &str) -> Result<(), BoxError> {
        diesel::sql_query("INSERT INTO business (note) VALUES (?)").bind::<Text, _>(row).execute(self.conn)?;
        Ok(())
    }

    fn lend(&mut self, body: &mut LentBody<'_>) -> Result<(), BoxError> {
        self.store.on(self.conn, |tx| body(tx))
    }
}
