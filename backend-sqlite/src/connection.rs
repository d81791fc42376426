//! Connections: where they lead, and how each is set up.

use crate::error::{OpenError, WaitError, connection_error, is_busy, store_error};
use crate::store::{Location, SqliteOptions, Synchronous};
use diesel::connection::{InstrumentationEvent, SimpleConnection};
use diesel::r2d2::{ConnectionManager, CustomizeConnection, Pool};
use diesel::result::{DatabaseErrorKind, QueryResult};
use diesel::sql_types::{BigInt, Text};
use diesel::sqlite::SqliteConnection;
use diesel::{Connection, QueryableByName, RunQueryDsl};
use leasehold_core::store::{StoreError, StoreResult};
use leasehold_sql::statement;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The pool of readers.
pub(crate) type Readers = Pool<ConnectionManager<SqliteConnection>>;

/// What a connection keeps of the log after a checkpoint, so that one long reader does not leave a large file for ever.
const JOURNAL_SIZE_LIMIT: u32 = 64 * 1024 * 1024;
/// Pages in the log before a commit moves them into the file (SQLite's own default, said because the log's size rests on it).
const WAL_AUTOCHECKPOINT: u32 = 1_000;
/// Page cache of a connection, in KiB: a completion batch touches a few thousand pages.
const CACHE_KIB: u32 = 16 * 1024;
/// The pause between two tries where SQLite does not wait by itself.
const RETRY_PAUSE: Duration = Duration::from_millis(1);

/// Counts the statements of a store's steps.
#[derive(Debug, Clone, Default)]
pub(crate) struct Statements(Arc<AtomicU64>);

impl Statements {
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
    fn watch(&self, conn: &mut SqliteConnection) {
        let sent = Arc::clone(&self.0);
        conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
            if matches!(event, InstrumentationEvent::StartQuery { .. }) {
                sent.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    /// Sends a statement that begins, saves or ends a transaction, or sets a connection up; it is not counted.
    pub(crate) fn control(&self, conn: &mut SqliteConnection, sql: &str) -> QueryResult<()> {
        let result = conn.batch_execute(sql);
        self.0.fetch_sub(1, Ordering::Relaxed);
        result
    }

    /// A number that another connection's commit changes, and this one's own does not; it is not counted either.
    pub(crate) fn data_version(&self, conn: &mut SqliteConnection) -> QueryResult<i64> {
        #[derive(QueryableByName)]
        struct Version {
            #[diesel(sql_type = BigInt)]
            data_version: i64,
        }
        let version = statement("PRAGMA data_version").get_result::<Version>(conn);
        self.0.fetch_sub(1, Ordering::Relaxed);
        version.map(|version| version.data_version)
    }
}

/// Makes connections to one place.
#[derive(Debug, Clone)]
pub(crate) struct Connector {
    pub(crate) options: SqliteOptions,
    pub(crate) statements: Statements,
}

impl Connector {
    /// Opens a connection that only has its time-out: nothing is read or written yet.
    pub(crate) fn connect(&self) -> StoreResult<SqliteConnection> {
        self.connect_to(&self.options.location.url_of_existing()?)
    }

    /// The same for a file that may have to be made.
    pub(crate) fn connect_or_make(&self) -> StoreResult<SqliteConnection> {
        self.connect_to(&self.options.location.url()?)
    }

    fn connect_to(&self, url: &str) -> StoreResult<SqliteConnection> {
        let mut conn = SqliteConnection::establish(url).map_err(connection_error)?;
        self.set_up(&mut conn, Instant::now() + self.options.call_deadline)?;
        Ok(conn)
    }

    fn set_up(&self, conn: &mut SqliteConnection, deadline: Instant) -> StoreResult<()> {
        self.statements.watch(conn);
        // First of all: without it the next pragma fails on a busy file at once.
        let wait = format!("PRAGMA busy_timeout = {}", self.options.busy_timeout.as_millis());
        self.control_until(deadline, conn, &wait)
    }

    /// Makes `conn` a writer.
    pub(crate) fn set_up_writer(&self, conn: &mut SqliteConnection) -> StoreResult<()> {
        let deadline = Instant::now() + self.options.call_deadline;
        if let Location::File(path) = &self.options.location {
            let mode = until(deadline, || journal_mode(conn)).map_err(|error| self.sort(error))?;
            if !mode.eq_ignore_ascii_case("wal") {
                return Err(StoreError::Rejected(Box::new(OpenError::NoWal { path: path.clone(), mode })));
            }
        }
        let synchronous = match self.options.synchronous {
            Synchronous::Full => "FULL",
            Synchronous::Normal => "NORMAL",
        };
        for pragma in [
            format!("PRAGMA synchronous = {synchronous}"),
            // The build switches them on; hot tables have none, and the graph's are kept by the transitions.
            "PRAGMA foreign_keys = OFF".to_owned(),
            format!("PRAGMA journal_size_limit = {JOURNAL_SIZE_LIMIT}"),
            format!("PRAGMA wal_autocheckpoint = {WAL_AUTOCHECKPOINT}"),
            format!("PRAGMA cache_size = -{CACHE_KIB}"),
            "PRAGMA temp_store = MEMORY".to_owned(),
        ] {
            self.control_until(deadline, conn, &pragma)?;
        }
        if let Some(pages) = self.options.max_pages {
            self.control_until(deadline, conn, &format!("PRAGMA max_page_count = {pages}"))?;
        }
        Ok(())
    }

    /// A connection for the writer.
    pub(crate) fn writer(&self) -> StoreResult<SqliteConnection> {
        let open = || {
            let mut conn = self.connect()?;
            self.set_up_writer(&mut conn)?;
            Ok(conn)
        };
        open().map_err(|error| self.options.location.explain(error))
    }

    /// The pool of readers; `None` for memory, which is one connection's own.
    pub(crate) fn readers(&self) -> StoreResult<Option<Readers>> {
        if matches!(self.options.location, Location::Memory) {
            return Ok(None);
        }
        let pool = Pool::builder()
            .max_size(self.options.readers.max(1))
            // Opened when they are needed; a ping at every checkout would be a statement more for each read.
            .min_idle(Some(0))
            .test_on_check_out(false)
            .connection_timeout(self.options.call_deadline)
            .connection_customizer(Box::new(SetUpReader(self.clone())))
            .build(ConnectionManager::new(self.options.location.url_of_existing()?))
            .map_err(|error| crate::error::pool_error(error, Duration::ZERO))?;
        Ok(Some(pool))
    }

    /// Sends a control statement, again while the file is busy.
    pub(crate) fn control_until(&self, deadline: Instant, conn: &mut SqliteConnection, sql: &str) -> StoreResult<()> {
        until(deadline, || self.statements.control(conn, sql)).map_err(|error| self.sort(error))
    }

    /// Sorts an error; one that says busy is the end of all patience here.
    pub(crate) fn sort(&self, error: diesel::result::Error) -> StoreError {
        if is_busy(&error) {
            let place = self.options.location.to_string();
            return StoreError::Busy(Box::new(WaitError::Locked { place, waited: self.options.call_deadline }));
        }
        store_error(error)
    }
}

/// Tries until the file is not busy, or to the deadline. SQLite itself waits for `busy_timeout` in most tries.
pub(crate) fn until<T>(deadline: Instant, mut attempt: impl FnMut() -> QueryResult<T>) -> QueryResult<T> {
    loop {
        match attempt() {
            Err(error) if is_busy(&error) && Instant::now() < deadline => std::thread::sleep(RETRY_PAUSE),
            result => return result,
        }
    }
}

/// Switches to the write-ahead log; returns the journal mode that the file has then.
fn journal_mode(conn: &mut SqliteConnection) -> QueryResult<String> {
    #[derive(QueryableByName)]
    struct Mode {
        #[diesel(sql_type = Text)]
        journal_mode: String,
    }
    diesel::sql_query("PRAGMA journal_mode = WAL").get_result::<Mode>(conn).map(|mode| mode.journal_mode)
}

#[derive(Debug)]
struct SetUpReader(Connector);

impl CustomizeConnection<SqliteConnection, diesel::r2d2::Error> for SetUpReader {
    fn on_acquire(&self, conn: &mut SqliteConnection) -> Result<(), diesel::r2d2::Error> {
        let deadline = Instant::now() + self.0.options.call_deadline;
        let cache = format!("PRAGMA cache_size = -{CACHE_KIB}");
        let set_up = self.0.set_up(conn, deadline).and_then(|()| {
            for pragma in ["PRAGMA query_only = ON", "PRAGMA temp_store = MEMORY", &cache] {
                self.0.control_until(deadline, conn, pragma)?;
            }
            Ok(())
        });
        set_up.map_err(|error| {
            // The pool speaks diesel's errors, and keeps only their text.
            let reason = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            diesel::r2d2::Error::QueryError(diesel::result::Error::DatabaseError(DatabaseErrorKind::Unknown, Box::new(reason)))
        })
    }
}
