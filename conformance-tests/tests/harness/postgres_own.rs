//! An application with a table of its own beside a store's on Postgres.

use diesel::connection::SimpleConnection;
use diesel::pg::PgConnection;
use diesel::prelude::*;
use diesel::sql_types::Text;
use leasehold_conformance::{Door, LentBody, OwnBody, OwnTransactions, OwnTx};
use leasehold_core::store::BoxError;
use leasehold_postgres::PostgresStore;
use leasehold_test_postgres::TestSchema;
use std::sync::Arc;

/// The application.
pub(crate) struct Own {
    store: Arc<PostgresStore>,
    schema: Arc<TestSchema>,
    /// Whole, whatever the search path: the application's is not the store's.
    table: String,
}

#[derive(QueryableByName)]
struct Note {
    #[diesel(sql_type = Text)]
    note: String,
}

impl Own {
    pub(crate) fn new(store: Arc<PostgresStore>, schema: Arc<TestSchema>) -> Result<Self, BoxError> {
        let table = format!("\"{}\".business", schema.name());
        schema.connect()?.batch_execute(&format!("CREATE TABLE {table} (note TEXT NOT NULL)"))?;
        Ok(Self { store, schema, table })
    }
}

impl OwnTransactions for Own {
    fn transaction(&self, door: Door, body: &mut OwnBody<'_>) -> Result<(), BoxError> {
        match door {
            Door::Lent => self.schema.connect()?.transaction(|conn| body(&mut Open { own: self, conn })),
            Door::Borrowed => self.store.transaction(|conn| body(&mut Open { own: self, conn })),
        }
    }

    fn rows(&self) -> Result<Vec<String>, BoxError> {
        let rows: Vec<Note> =
            diesel::sql_query(format!("SELECT note FROM {} ORDER BY note", self.table)).load(&mut self.schema.connect()?)?;
        Ok(rows.into_iter().map(|row| row.note).collect())
    }
}

struct Open<'t> {
    own: &'t Own,
    conn: &'t mut PgConnection,
}

impl OwnTx for Open<'_> {
    fn insert(&mut self, row: &str) -> Result<(), BoxError> {
        diesel::sql_query(format!("INSERT INTO {} (note) VALUES ($1)", self.own.table)).bind::<Text, _>(row).execute(self.conn)?;
        Ok(())
    }

    fn lend(&mut self, body: &mut LentBody<'_>) -> Result<(), BoxError> {
        self.own.store.on(self.conn, |tx| body(tx))
    }
}
