//! A clock in the place of the database's.

use crate::schema::TestSchema;
use crate::server::NoServer;
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// Stands until it is moved. The store's function `now_us()` is replaced by one that reads a table; being volatile, it
/// sees what is committed at each call, as a clock does, also inside one statement.
pub struct DatabaseClock {
    conn: Mutex<PgConnection>,
}

#[derive(QueryableByName)]
struct Reading {
    #[diesel(sql_type = BigInt)]
    us: i64,
}

impl DatabaseClock {
    /// Replaces the clock of a store that has been migrated, for every connection to it; it stands at `start_us`.
    ///
    /// # Errors
    /// [`NoServer`] with what the server said.
    pub fn install(schema: &TestSchema, start_us: i64) -> Result<Self, NoServer> {
        let mut conn = schema.connect()?;
        let name = schema.name();
        conn.batch_execute(&format!(
            "CREATE TABLE test_clock (us BIGINT NOT NULL);
             INSERT INTO test_clock (us) VALUES ({start_us});
             CREATE OR REPLACE FUNCTION now_us() RETURNS BIGINT LANGUAGE sql VOLATILE PARALLEL UNSAFE
                 AS 'SELECT us FROM \"{name}\".test_clock'"
        ))
        .map_err(told)?;
        Ok(Self { conn: Mutex::new(conn) })
    }

    /// What it shows.
    ///
    /// # Errors
    /// [`NoServer`] with what the server said.
    pub fn now_us(&self) -> Result<i64, NoServer> {
        self.ask("SELECT us FROM test_clock", None)
    }

    /// Moves it anywhere, also backward.
    ///
    /// # Errors
    /// [`NoServer`] with what the server said.
    pub fn set_us(&self, us: i64) -> Result<(), NoServer> {
        self.ask("UPDATE test_clock SET us = $1 RETURNING us", Some(us)).map(drop)
    }

    /// Moves it forward.
    ///
    /// # Errors
    /// [`NoServer`] with what the server said.
    pub fn advance_us(&self, by: i64) -> Result<(), NoServer> {
        self.ask("UPDATE test_clock SET us = us + $1 RETURNING us", Some(by)).map(drop)
    }

    fn ask(&self, sql: &str, number: Option<i64>) -> Result<i64, NoServer> {
        let mut conn = self.conn.lock().unwrap_or_else(PoisonError::into_inner);
        let reading: Reading = match number {
            Some(number) => diesel::sql_query(sql).bind::<BigInt, _>(number).get_result(&mut *conn),
            None => diesel::sql_query(sql).get_result(&mut *conn),
        }
        .map_err(told)?;
        Ok(reading.us)
    }
}

impl fmt::Debug for DatabaseClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseClock").finish_non_exhaustive()
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is what map_err hands over")]
fn told(error: diesel::result::Error) -> NoServer {
    NoServer(error.to_string())
}
