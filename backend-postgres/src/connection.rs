//! Connections: one reserved for each of claim, commit and heartbeat, a pool for everything else.

use crate::error::{sorted_connecting, sorted_on};
use crate::options::PostgresOptions;
use diesel::connection::CacheSize;
use diesel::pg::PgConnection;
use diesel::prelude::*;
use diesel::r2d2::R2D2Connection;
use diesel::sql_types::{BigInt, Text};
use leasehold_core::store::{StoreError, StoreResult, TxKind};
use r2d2::{ManageConnection, Pool, PooledConnection};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// Snapshots by 64-bit transaction ids, parallel-safe CTEs and everything else that the statements use; older servers
/// are past their end of life.
const SERVER_VERSION_MIN: i64 = 140_000;

/// Since this version a right to set one parameter can be granted.
const SERVER_VERSION_WITH_PARAMETER_GRANTS: i64 = 150_000;

/// A connection, and what is known of it.
pub(crate) struct Link {
    pub(crate) conn: PgConnection,
    /// It must not be used again.
    pub(crate) broken: bool,
    /// It has run a transaction, so it may have died unnoticed since.
    pub(crate) used: bool,
    /// Whether each transaction asks for untranslated messages, by which errors are sorted.
    pub(crate) untranslated: bool,
}

/// Opens connections.
#[derive(Debug, Clone)]
pub(crate) struct Connector {
    options: Arc<PostgresOptions>,
    /// Why the last try failed; `None` after one that did not.
    last_failure: Arc<Mutex<Option<String>>>,
}

#[derive(QueryableByName)]
struct Server {
    #[diesel(sql_type = BigInt)]
    version: i64,
    #[diesel(sql_type = Text)]
    encoding: String,
    #[diesel(sql_type = Text)]
    messages: String,
    #[diesel(sql_type = Text)]
    superuser: String,
}

#[derive(QueryableByName)]
struct Granted {
    #[diesel(sql_type = diesel::sql_types::Bool)]
    granted: bool,
}

impl Connector {
    pub(crate) fn new(options: Arc<PostgresOptions>) -> Self {
        Self { options, last_failure: Arc::default() }
    }

    /// Opens a connection, and checks once what the statements count on.
    pub(crate) fn open(&self) -> StoreResult<Link> {
        let opened = self.try_open();
        *lock(&self.last_failure) = opened.as_ref().err().map(chain);
        opened
    }

    fn try_open(&self) -> StoreResult<Link> {
        let mut conn = PgConnection::establish(self.options.libpq_url()).map_err(sorted_connecting)?;
        if !self.options.prepared_statements {
            conn.set_prepared_statement_cache_size(CacheSize::Disabled);
        }
        let server: Server = diesel::sql_query(
            "SELECT current_setting('server_version_num')::bigint AS version, current_setting('server_encoding') AS encoding,
                    current_setting('lc_messages') AS messages, current_setting('is_superuser') AS superuser",
        )
        .get_result(&mut conn)
        .map_err(|error| sorted_on(&mut conn, error).0)?;
        if server.version < SERVER_VERSION_MIN {
            let major = server.version / 10_000;
            return Err(leasehold_sql::rejected(format!("the server is PostgreSQL {major}; this program needs 14 or later")));
        }
        if server.encoding != "UTF8" {
            return Err(leasehold_sql::rejected(format!(
                "the database's encoding is {}, which does not hold every text; make one with ENCODING 'UTF8'",
                server.encoding
            )));
        }
        let untranslated = may_ask_for_english(&mut conn, &server)?;
        Ok(Link { conn, broken: false, used: false, untranslated })
    }
}

/// Whether transactions must and may set `lc_messages`. Errors that diesel does not tell apart are known by their text.
fn may_ask_for_english(conn: &mut PgConnection, server: &Server) -> StoreResult<bool> {
    let english = ["", "C", "C.UTF-8", "C.utf8", "POSIX"].contains(&server.messages.as_str()) || server.messages.starts_with("en_");
    if english {
        return Ok(false);
    }
    let granted = if server.superuser == "on" {
        true
    } else if server.version >= SERVER_VERSION_WITH_PARAMETER_GRANTS {
        diesel::sql_query("SELECT has_parameter_privilege('lc_messages', 'SET') AS granted")
            .get_result::<Granted>(conn)
            .map_err(|error| sorted_on(conn, error).0)?
            .granted
    } else {
        false
    };
    if !granted {
        tracing::warn!(
            lc_messages = server.messages,
            "the server translates its messages, so deadlocks and lock time-outs are not told apart from defects: set lc_messages to C, \
             or GRANT SET ON PARAMETER lc_messages to this user"
        );
    }
    Ok(granted)
}

impl ManageConnection for Connector {
    type Connection = Link;
    type Error = StoreError;

    fn connect(&self) -> StoreResult<Link> {
        self.open()
    }
    fn is_valid(&self, link: &mut Link) -> StoreResult<()> {
        link.conn.ping().map_err(|error| sorted_on(&mut link.conn, error).0)
    }
    fn has_broken(&self, link: &mut Link) -> bool {
        link.broken || link.conn.is_broken()
    }
}

/// What the pool's own threads could not open; who waits for a connection is told as well.
#[derive(Debug)]
struct Log;

impl r2d2::HandleError<StoreError> for Log {
    fn handle_error(&self, error: StoreError) {
        tracing::warn!(error = chain(&error), "no connection could be opened");
    }
}

/// Every connection of one store.
pub(crate) struct Connections {
    connector: Connector,
    claim: Mutex<Option<Link>>,
    commit: Mutex<Option<Link>>,
    heartbeat: Mutex<Option<Link>>,
    pool: Pool<Connector>,
}

impl Connections {
    /// Opens none yet.
    pub(crate) fn new(options: &Arc<PostgresOptions>) -> Self {
        let connector = Connector::new(Arc::clone(options));
        let pool = Pool::builder()
            .max_size(options.pool_size)
            .min_idle(Some(0))
            // The ping is a round trip; a connection that died is replaced when its transaction begins.
            .test_on_check_out(false)
            .connection_timeout(options.pool_timeout)
            .error_handler(Box::new(Log))
            .build_unchecked(connector.clone());
        Self { connector, claim: Mutex::default(), commit: Mutex::default(), heartbeat: Mutex::default(), pool }
    }

    pub(crate) const fn connector(&self) -> &Connector {
        &self.connector
    }

    /// Lends a connection to `run`. Claim, commit and heartbeat each have their own, so that no client's call keeps
    /// them waiting; a second one of a kind at the same time takes from the pool. A broken one is closed afterwards.
    pub(crate) fn with<T>(&self, kind: TxKind, run: impl FnOnce(&mut Link) -> T) -> StoreResult<T> {
        let reserved = match kind {
            TxKind::Claim => Some(&self.claim),
            TxKind::Commit => Some(&self.commit),
            TxKind::Heartbeat => Some(&self.heartbeat),
            TxKind::Read | TxKind::Client | TxKind::Maintenance => None,
        };
        let slot = match reserved.map(Mutex::try_lock) {
            Some(Ok(slot)) => slot,
            // Whoever panicked took its connection with it.
            Some(Err(TryLockError::Poisoned(slot))) => slot.into_inner(),
            Some(Err(TryLockError::WouldBlock)) | None => return self.pooled().map(|mut link| run(&mut link)),
        };
        self.with_reserved(slot, run)
    }

    fn with_reserved<T>(&self, mut slot: MutexGuard<'_, Option<Link>>, run: impl FnOnce(&mut Link) -> T) -> StoreResult<T> {
        let mut link = match slot.take() {
            Some(link) => link,
            None => self.connector.open()?,
        };
        let out = run(&mut link);
        if !self.connector.has_broken(&mut link) {
            *slot = Some(link);
        }
        Ok(out)
    }

    fn pooled(&self) -> StoreResult<PooledConnection<Connector>> {
        self.pool.get().map_err(|_| match lock(&self.connector.last_failure).clone() {
            Some(failure) => StoreError::Unavailable(failure.into()),
            None => StoreError::Busy(format!("pool exhausted: its {} connections were in use all the while", self.pool.max_size()).into()),
        })
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("pool", &self.pool.state()).finish_non_exhaustive()
    }
}

/// What a panicking thread left is as good as what any other left.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An error with all its reasons.
pub(crate) fn chain(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(reason) = source {
        text = format!("{text}: {reason}");
        source = reason.source();
    }
    text
}
