//! Bringing a schema up to date.

use crate::connection::Connector;
use crate::error;
use crate::options::PostgresOptions;
use crate::tx::PgTx;
use diesel::connection::SimpleConnection;
use diesel::migration::MigrationVersion;
use diesel::pg::PgConnection;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Text};
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};
use leasehold_core::store::{SchemaError, StoreError, StoreResult};
use leasehold_sql::statement;
use std::sync::Arc;

const MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations");

/// The newest schema that this program knows.
pub const SCHEMA_VERSION: i64 = 3;

/// How long a process waits for another that migrates the same schema.
const MIGRATION_LOCK_TIMEOUT_MS: u64 = 120_000;

/// What a schema says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, QueryableByName)]
pub(crate) struct SchemaVersion {
    #[diesel(sql_type = BigInt)]
    pub(crate) version: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) writable_since: i64,
}

#[derive(QueryableByName)]
struct Found {
    #[diesel(sql_type = Bool)]
    found: bool,
}

const INFO_EXISTS: &str = "SELECT to_regclass('schema_info') IS NOT NULL AS found";
const INFO: &str = "SELECT version, writable_since FROM schema_info";

/// Creates the schema or brings it up to date, and returns the migrations that ran. Any number of processes may do so
/// at once: one runs them, in one transaction, and the others wait for it.
///
/// # Errors
/// [`StoreError::Schema`] for one that a newer program made, which is left as it is; [`StoreError`] when the database
/// cannot be reached or the user may not create what is missing.
pub fn migrate(options: &PostgresOptions) -> StoreResult<Vec<String>> {
    let mut link = Connector::new(Arc::new(options.clone())).open()?;
    let done: Result<Vec<String>, Stop> = link.conn.transaction(|conn| migrate_in(conn, options));
    done.map_err(|stop| stop.0)
}

fn migrate_in(conn: &mut PgConnection, options: &PostgresOptions) -> Result<Vec<String>, Stop> {
    let schema = &options.schema;
    // A database may set another isolation level; behind the advisory lock each statement must see what was committed.
    conn.batch_execute(&format!(
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCAL search_path TO {}, pg_temp; SET LOCAL statement_timeout TO 0; \
         SET LOCAL lock_timeout TO {MIGRATION_LOCK_TIMEOUT_MS}; SET LOCAL client_min_messages TO warning",
        schema.quoted()
    ))?;
    diesel::sql_query("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))")
        .bind::<Text, _>(format!("leasehold migrations of {schema}"))
        .execute(conn)?;
    let info: Found = diesel::sql_query(INFO_EXISTS).get_result(conn)?;
    if info.found {
        let version: SchemaVersion = diesel::sql_query(INFO).get_result(conn)?;
        if newer(version).is_some() || version.version >= SCHEMA_VERSION {
            return check(Some(version)).map(|()| Vec::new()).map_err(Stop);
        }
    } else {
        let schema_exists: Found =
            diesel::sql_query("SELECT to_regnamespace($1) IS NOT NULL AS found").bind::<Text, _>(schema.quoted()).get_result(conn)?;
        // Not IF NOT EXISTS, which asks for the right to create one also where it is there.
        if !schema_exists.found {
            conn.batch_execute(&format!("CREATE SCHEMA {}", schema.quoted()))?;
        }
    }
    let ran: Vec<MigrationVersion<'_>> = conn.run_pending_migrations(MIGRATIONS).map_err(|error| Stop(migration_error(error)))?;
    Ok(ran.iter().map(ToString::to_string).collect())
}

/// What the schema says of itself; `None` where there is none.
pub(crate) fn schema_version(tx: &mut PgTx<'_>) -> StoreResult<Option<SchemaVersion>> {
    let info: Vec<Found> = tx.rows(statement(INFO_EXISTS))?;
    if info.iter().any(|row| row.found) { Ok(tx.rows(statement(INFO))?.pop()) } else { Ok(None) }
}

/// Whether this program may write to the schema.
pub(crate) fn check(schema: Option<SchemaVersion>) -> StoreResult<()> {
    let found = schema.map_or(0, |schema| schema.version);
    match schema.and_then(newer) {
        Some(newer) => Err(StoreError::Schema(newer)),
        None if found < SCHEMA_VERSION => Err(StoreError::Schema(SchemaError::Older { found, known: SCHEMA_VERSION })),
        None => Ok(()),
    }
}

fn newer(schema: SchemaVersion) -> Option<SchemaError> {
    let SchemaVersion { version: found, writable_since: needed } = schema;
    (needed > SCHEMA_VERSION).then_some(SchemaError::Newer { found, needed, known: SCHEMA_VERSION })
}

/// Lets the store's error pass through diesel's transaction.
struct Stop(StoreError);

impl From<diesel::result::Error> for Stop {
    fn from(error: diesel::result::Error) -> Self {
        Self(error::sorted(error).0)
    }
}

fn migration_error(error: Box<dyn std::error::Error + Send + Sync>) -> StoreError {
    match error.downcast::<diesel::result::Error>() {
        Ok(error) => error::sorted(*error).0,
        Err(error) => StoreError::Rejected(error),
    }
}
