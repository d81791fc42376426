//! A database of a test's own: for what Postgres counts by database, such as deadlocks.

use crate::Result;
use crate::url::ServerUrl;
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use leasehold_test_postgres::Server;
use std::thread;
use std::time::{Duration, Instant};

/// A database on the server of this process, dropped with all that is in it when the test ends.
#[derive(Debug)]
pub struct TestDatabase {
    server: ServerUrl,
    url: ServerUrl,
    name: String,
}

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = BigInt)]
    count: i64,
}

impl TestDatabase {
    /// Makes one.
    ///
    /// # Errors
    /// What is missing, or what the server said.
    pub fn new() -> Result<Self> {
        let server = ServerUrl::parse(Server::shared()?.url())?;
        let name = format!("leasehold_test_{}", uuid::Uuid::new_v4().simple());
        let database = Self { url: server.clone().on_database(&name), server, name };
        database.administer(&format!("CREATE DATABASE {} ENCODING 'UTF8' TEMPLATE template0", database.name))?;
        Ok(database)
    }

    /// How to reach it.
    pub const fn url(&self) -> &ServerUrl {
        &self.url
    }

    /// The store's URL.
    pub fn store_url(&self) -> String {
        self.url.clone().with("schema", SCHEMA).to_string()
    }

    /// A connection that sees the store's tables.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn connect(&self) -> Result<PgConnection> {
        connect(&self.url)
    }

    /// Deadlocks that the server has broken in this database, since it was made. Sessions report them at their end, so it
    /// waits for every session's.
    ///
    /// # Errors
    /// What the server said, or that a session does not end.
    pub fn deadlocks(&self) -> Result<i64> {
        let mut conn = PgConnection::establish(&self.server.to_string())?;
        let mut count = |sql: &str| diesel::sql_query(sql).bind::<Text, _>(&self.name).get_result::<Count>(&mut conn).map(|row| row.count);
        let deadline = Instant::now() + Duration::from_secs(10);
        while count("SELECT count(*) AS count FROM pg_stat_activity WHERE datname = $1")? > 0 {
            if Instant::now() > deadline {
                return Err(format!("sessions in {} do not end", self.name).into());
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(count("SELECT deadlocks AS count FROM pg_stat_database WHERE datname = $1")?)
    }

    fn administer(&self, sql: &str) -> Result<()> {
        Ok(PgConnection::establish(&self.server.to_string())?.batch_execute(sql)?)
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        if let Err(error) = self.administer(&format!("DROP DATABASE {} WITH (FORCE)", self.name)) {
            // A panic here would hide why the test failed; a database that stays behind disturbs no other test.
            eprintln!("the database {} stays behind: {error}", self.name);
        }
    }
}

/// The schema of stores in a database of their own.
pub const SCHEMA: &str = "leasehold";

/// A connection to the server at `url` that sees the tables of a store in [`SCHEMA`].
///
/// # Errors
/// When the server does not answer.
pub fn connect(url: &ServerUrl) -> Result<PgConnection> {
    let mut conn = PgConnection::establish(&url.clone().without("schema").to_string())?;
    conn.batch_execute(&format!("SET search_path TO {SCHEMA}"))?;
    Ok(conn)
}

/// The answer to a query for a `count`.
///
/// # Errors
/// What the server said.
pub fn count(conn: &mut PgConnection, sql: &str) -> Result<i64> {
    Ok(diesel::sql_query(sql).get_result::<Count>(conn)?.count)
}

/// Ends up to two sessions of stores in the database of `conn`, whichever; returns how many.
///
/// # Errors
/// What the server said.
pub fn end_sessions(conn: &mut PgConnection) -> Result<i64> {
    let terminate = "
        SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) AS count
          FROM (SELECT pid FROM pg_stat_activity
                 WHERE datname = current_database() AND application_name = 'leasehold' ORDER BY random() LIMIT 2) AS victims";
    count(conn, terminate)
}
