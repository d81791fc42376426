//! A schema of a test's own.

use crate::server::{NoServer, Server};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use std::sync::atomic::{AtomicU32, Ordering};

/// The name of a schema that nobody else uses, dropped with all that is in it when the test ends. The store under test
/// creates it.
#[derive(Debug)]
pub struct TestSchema {
    server_url: String,
    name: String,
}

impl TestSchema {
    /// A schema on the server of this process.
    ///
    /// # Errors
    /// [`NoServer`], which says what to install.
    pub fn new() -> Result<Self, NoServer> {
        Ok(Self::on(Server::shared()?.url()))
    }

    /// A schema on the server at `url`.
    pub fn on(url: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let unique = uuid::Uuid::new_v4().simple().to_string();
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Self { server_url: url.to_owned(), name: format!("test {number} {unique}") }
    }

    /// Its name. It holds spaces, so that a statement which forgets to quote it fails.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The store's URL: the server's, with the schema.
    pub fn url(&self) -> String {
        let separator = if self.server_url.contains('?') { '&' } else { '?' };
        format!("{}{separator}schema={}", self.server_url, self.name.replace(' ', "%20"))
    }

    /// A connection of the test's own that sees the schema.
    ///
    /// # Errors
    /// [`NoServer`] when the server does not answer any more.
    pub fn connect(&self) -> Result<PgConnection, NoServer> {
        let mut conn = PgConnection::establish(&self.server_url).map_err(|error| NoServer(error.to_string()))?;
        conn.batch_execute(&format!("SET search_path TO \"{}\"", self.name)).map_err(|error| NoServer(error.to_string()))?;
        Ok(conn)
    }
}

impl Drop for TestSchema {
    fn drop(&mut self) {
        let dropped = self.connect().and_then(|mut conn| {
            let drop =
                format!("SET lock_timeout TO '10s'; SET client_min_messages TO warning; DROP SCHEMA IF EXISTS \"{}\" CASCADE", self.name);
            conn.batch_execute(&drop).map_err(|error| NoServer(error.to_string()))
        });
        if let Err(error) = dropped {
            // A panic here would hide why the test failed; a schema that stays behind disturbs no other test.
            eprintln!("the schema {:?} stays behind: {error}", self.name);
        }
    }
}
