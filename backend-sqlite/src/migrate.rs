//! The schema: which version a file has, and bringing it up to this program's (P1).

use crate::connection::{Connector, until};
use crate::error::{is_busy, migration_error};
use diesel::QueryableByName;
use diesel::RunQueryDsl;
use diesel::result::{Error, QueryResult};
use diesel::sql_types::BigInt;
use diesel::sqlite::SqliteConnection;
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};
use leasehold_core::store::{SchemaError, StoreError, StoreResult};
use std::time::Instant;

/// The schema's version that this program was written for.
pub const SCHEMA_VERSION: i64 = 3;

const MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations");

/// What a file says of its schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, QueryableByName)]
pub(crate) struct Schema {
    /// Its version.
    #[diesel(sql_type = BigInt)]
    pub(crate) version: i64,
    /// The version that a program must know to write to it.
    #[diesel(sql_type = BigInt)]
    writable_since: i64,
}

/// The schema of the file; `None` where there is none.
pub(crate) fn schema(conn: &mut SqliteConnection) -> QueryResult<Option<Schema>> {
    #[derive(QueryableByName)]
    struct Tables {
        #[diesel(sql_type = BigInt)]
        tables: i64,
    }
    const TABLES: &str = "SELECT count(*) AS tables FROM sqlite_schema WHERE type = 'table' AND name = 'schema_info'";
    const SCHEMA: &str = "SELECT version, writable_since FROM schema_info WHERE id = 1";
    if diesel::sql_query(TABLES).get_result::<Tables>(conn)?.tables == 0 {
        return Ok(None);
    }
    diesel::sql_query(SCHEMA).get_result(conn).map(Some)
}

/// Refuses a schema that is for newer programs only. Reads; writes nothing.
pub(crate) fn refuse_newer(connector: &Connector, conn: &mut SqliteConnection) -> StoreResult<Option<Schema>> {
    let deadline = Instant::now() + connector.options.call_deadline;
    let found = until(deadline, || schema(conn)).map_err(|error| connector.sort(error))?;
    match found {
        Some(schema) if schema.writable_since > SCHEMA_VERSION => Err(newer(schema)),
        found => Ok(found),
    }
}

/// Requires a schema that this program can work with as it is.
pub(crate) fn require_current(connector: &Connector, conn: &mut SqliteConnection) -> StoreResult<()> {
    let found = refuse_newer(connector, conn)?.map_or(0, |schema| schema.version);
    if found < SCHEMA_VERSION {
        return Err(StoreError::Schema(SchemaError::Older { found, known: SCHEMA_VERSION }));
    }
    Ok(())
}

/// Runs the migrations that are missing, once, however many processes start together: the check and the steps stand in
/// one transaction that holds the file's write lock, so the losers wait and then find nothing to do, and a step that
/// fails takes all of them back.
pub(crate) fn migrate(connector: &Connector, conn: &mut SqliteConnection) -> StoreResult<()> {
    let deadline = Instant::now() + connector.options.call_deadline;
    loop {
        match conn.immediate_transaction(run_missing) {
            Ok(()) => return Ok(()),
            Err(Failure::Query(error)) if is_busy(&error) && Instant::now() < deadline => {}
            Err(Failure::Query(error)) => return Err(connector.sort(error)),
            Err(Failure::Store(error)) => return Err(error),
        }
    }
}

fn run_missing(conn: &mut SqliteConnection) -> Result<(), Failure> {
    // Read again behind the lock: another process may just have migrated.
    match schema(conn)? {
        Some(found) if found.writable_since > SCHEMA_VERSION => return Err(Failure::Store(newer(found))),
        Some(found) if found.version >= SCHEMA_VERSION => return Ok(()),
        Some(_) | None => {}
    }
    conn.run_pending_migrations(MIGRATIONS).map(|_| ()).map_err(|error| Failure::Store(migration_error(error)))
}

fn newer(schema: Schema) -> StoreError {
    StoreError::Schema(SchemaError::Newer { found: schema.version, needed: schema.writable_since, known: SCHEMA_VERSION })
}

/// Lets both kinds of error pass through diesel's transaction.
enum Failure {
    Query(Error),
    Store(StoreError),
}
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Query(error)
    }
}

#[cfg(test)]
mod tests;
