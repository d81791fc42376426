//! The store: where it is, how it is opened, and which connection a transaction gets.

use crate::connection::{Connector, Readers, Statements, until};
use crate::error::{OpenError, pool_error, store_error};
use crate::group::{Run, Writer};
use crate::hint::Watch;
use crate::migrate;
use crate::tx::SqliteTx;
use diesel::sql_types::Text;
use diesel::sqlite::SqliteConnection;
use diesel::{QueryableByName, RunQueryDsl};
use leasehold_core::store::{Clock, Hints, Store, StoreError, StoreInfo, StoreResult, Tx, TxKind};
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where a store lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// In this process, until the store is dropped.
    Memory,
    /// In this file, beside which SQLite keeps a `-wal` and a `-shm` file while it is in use.
    File(PathBuf),
}

/// When a commit is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Synchronous {
    /// When it is acknowledged: it survives a power cut.
    Full,
    /// Some time later: a power cut may take the last commits away, a crash of the process takes none.
    Normal,
}

/// When a commit group ends, whichever comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupLimits {
    /// Members.
    pub members: usize,
    /// Rows written.
    pub rows: usize,
    /// Age.
    pub time: Duration,
}

/// How to open a store; made from a path or `:memory:`, with fields to change.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SqliteOptions {
    /// Where it lives.
    pub location: Location,
    /// When a commit is durable; full by default.
    pub synchronous: Synchronous,
    /// How long SQLite itself waits for a lock in one try; 10 ms by default. Short, because the store repeats the try
    /// until the call's deadline, and SQLite's own waits grow so long that a busy neighbour always wins.
    pub busy_timeout: Duration,
    /// How long a call waits for the lock of the file and for a connection; 30 s by default.
    pub call_deadline: Duration,
    /// How many reads run at once; 4 by default. In memory there is one connection for all.
    pub readers: u32,
    /// When a commit group ends; after 64 members, 2,000 rows or 5 ms by default.
    pub group: GroupLimits,
    /// The most pages, of 4 KiB by default, that the file may have; no limit by default. Beyond it the store is
    /// [`StoreError::Full`].
    pub max_pages: Option<u32>,
    /// How often a process that works looks whether another has committed, so that it need not wait for its next poll:
    /// every 20 ms by default, `None` never. A look reads a few bytes of shared memory.
    pub look_every: Option<Duration>,
}

/// A store on SQLite; see the [crate](crate).
pub struct SqliteStore {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) connector: Connector,
    writer: Writer,
    readers: Option<Readers>,
    hints: Option<Arc<Watch>>,
}

/// Only a writer may do it, and the page is written all the same.
pub(crate) const CHANGE_NOTHING: &str = "UPDATE schema_info SET version = version WHERE id = 0";

impl SqliteStore {
    /// Opens the store, or makes it, and brings its schema up to this program's. Any number of processes may do this at
    /// the same time.
    ///
    /// # Errors
    /// [`StoreError::Schema`] for a schema that only a newer program may write to; nothing was changed.
    /// [`StoreError::Rejected`] with an [`OpenError`] for a place that cannot be a store, and the other variants as the
    /// database says.
    pub fn open(options: impl Into<SqliteOptions>, clock: Arc<dyn Clock>) -> StoreResult<Self> {
        let connector = Connector { options: options.into(), statements: Statements::default() };
        connector.options.location.check()?;
        let location = connector.options.location.clone();
        let open = || {
            let mut conn = connector.connect_or_make()?;
            migrate::refuse_newer(&connector, &mut conn)?;
            connector.set_up_writer(&mut conn)?;
            migrate::migrate(&connector, &mut conn)?;
            Self::with(connector, conn, clock)
        };
        open().map_err(|error| location.explain(error))
    }

    /// Opens a store that exists, and changes nothing of its schema.
    ///
    /// # Errors
    /// As [`Self::open`]; [`StoreError::Schema`] also for a schema that is older than this program or not there.
    pub fn open_existing(options: impl Into<SqliteOptions>, clock: Arc<dyn Clock>) -> StoreResult<Self> {
        let connector = Connector { options: options.into(), statements: Statements::default() };
        connector.options.location.check()?;
        connector.options.location.check_exists()?;
        let location = connector.options.location.clone();
        let open = || {
            let mut conn = connector.connect()?;
            migrate::require_current(&connector, &mut conn)?;
            connector.set_up_writer(&mut conn)?;
            Self::with(connector, conn, clock)
        };
        open().map_err(|error| location.explain(error))
    }

    fn with(connector: Connector, conn: SqliteConnection, clock: Arc<dyn Clock>) -> StoreResult<Self> {
        let readers = connector.readers()?;
        let hints = connector.options.look_every.filter(|_| readers.is_some()).map(|every| Arc::new(Watch::new(connector.clone(), every)));
        Ok(Self { clock, writer: Writer::new(connector.clone(), conn), connector, readers, hints })
    }

    /// How many statements the steps of this store's transactions have sent so far, without those that begin, save and
    /// end transactions: what a test compares with a budget.
    pub fn statements(&self) -> u64 {
        self.connector.statements.count()
    }

    /// Runs `body` on a reader, inside one snapshot.
    fn read(&self, readers: &Readers, body: &mut dyn FnMut(&mut SqliteConnection) -> StoreResult<()>) -> StoreResult<()> {
        let waited = self.connector.options.call_deadline;
        let deadline = Instant::now() + waited;
        let mut conn = readers.get().map_err(|error| pool_error(error, waited))?;
        self.connector.control_until(deadline, &mut conn, "BEGIN")?;
        let mut snapshot = Snapshot { connector: &self.connector, conn: &mut conn };
        snapshot.take(deadline)?;
        body(snapshot.conn)
    }

    fn write(&self, urgent: bool, kind: TxKind, body: &mut dyn FnMut(&mut dyn Tx) -> StoreResult<()>) -> StoreResult<()> {
        // The time is read when the body has the lock, not when the call began to wait for it.
        self.writer.run(urgent, &mut |conn| run(&mut SqliteTx::new(conn, kind, self.clock.now()), body))
    }
}

/// Runs `body` over the steps.
fn run(tx: &mut SqliteTx<'_>, body: &mut dyn FnMut(&mut dyn Tx) -> StoreResult<()>) -> Run {
    let outcome = body(tx);
    Run { outcome, step_failed: tx.failed(), rows: tx.rows() }
}

impl Store for SqliteStore {
    fn transact(&self, kind: TxKind, body: &mut dyn FnMut(&mut dyn Tx) -> StoreResult<()>) -> StoreResult<()> {
        match (kind, &self.readers) {
            (TxKind::Read, Some(readers)) => {
                self.read(readers, &mut |conn| run(&mut SqliteTx::new(conn, kind, self.clock.now()), body).verdict())
            }
            (TxKind::Heartbeat, _) => self.write(true, kind, body),
            (TxKind::Read | TxKind::Claim | TxKind::Commit | TxKind::Client | TxKind::Maintenance, _) => self.write(false, kind, body),
        }
    }

    fn describe(&self) -> StoreResult<StoreInfo> {
        #[derive(QueryableByName)]
        struct Version {
            #[diesel(sql_type = Text)]
            version: String,
        }
        let mut found = None;
        let mut ask = |conn: &mut SqliteConnection| -> StoreResult<()> {
            let version: Version = diesel::sql_query("SELECT sqlite_version() AS version").get_result(conn).map_err(store_error)?;
            let schema = migrate::schema(conn).map_err(store_error)?.map_or(0, |schema| schema.version);
            found = Some((version.version, schema));
            Ok(())
        };
        match &self.readers {
            Some(readers) => self.read(readers, &mut ask)?,
            None => self.writer.run(false, &mut |conn| {
                let outcome = ask(conn);
                Run { step_failed: outcome.is_err(), outcome, rows: 0 }
            })?,
        }
        let Some((version, schema)) = found else { unreachable!("the transaction succeeded, so its body has run") };
        Ok(StoreInfo { backend: "sqlite", location: self.connector.options.location.to_string(), version, schema })
    }

    fn try_write(&self) -> StoreResult<()> {
        self.writer.run(false, &mut |conn| {
            let outcome = diesel::sql_query(CHANGE_NOTHING).execute(conn).map(drop).map_err(store_error);
            Run { step_failed: outcome.is_err(), outcome, rows: 1 }
        })
    }

    fn hints(&self) -> Option<Arc<dyn Hints>> {
        self.hints.as_ref().map(|hints| Arc::clone(hints) as Arc<dyn Hints>)
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("options", &self.connector.options).finish_non_exhaustive()
    }
}

/// An open transaction of a reader; dropping it, also by a panic, ends it.
struct Snapshot<'c> {
    connector: &'c Connector,
    conn: &'c mut SqliteConnection,
}

impl Snapshot<'_> {
    /// A deferred transaction begins with its first read. Done here, where a busy file (another process recovers the
    /// log after a crash) can still be waited for.
    fn take(&mut self, deadline: Instant) -> StoreResult<()> {
        let read = "SELECT version FROM schema_info";
        until(deadline, || self.connector.statements.control(self.conn, read)).map_err(|error| self.connector.sort(error))
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        // It fails only when an error has ended the transaction before.
        let _ = self.connector.statements.control(self.conn, "ROLLBACK");
    }
}

impl Location {
    /// What can be told without opening the file. Opening it here, outside SQLite, is not an option: closing any handle
    /// of a file drops the locks that this process holds on it.
    fn check(&self) -> StoreResult<()> {
        let Self::File(path) = self else { return Ok(()) };
        match std::fs::metadata(path) {
            Ok(file) if file.is_dir() => Err(refused(OpenError::IsFolder(path.clone()))),
            Ok(file) if file.permissions().readonly() => Err(StoreError::ReadOnly(Box::new(OpenError::ReadOnlyFile(path.clone())))),
            Ok(_) => Ok(()),
            Err(_) => match path.parent() {
                Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => Err(refused(OpenError::NoFolder(folder.to_owned()))),
                _ => Ok(()),
            },
        }
    }

    fn check_exists(&self) -> StoreResult<()> {
        match self {
            Self::File(path) if !path.exists() => Err(refused(OpenError::NoFile(path.clone()))),
            Self::File(_) | Self::Memory => Ok(()),
        }
    }

    /// SQLite says of any file that it cannot open only that it cannot. One reason is an operator's to mend, and not worth
    /// trying again: nothing can be written beside the file.
    pub(crate) fn explain(&self, error: StoreError) -> StoreError {
        let (Self::File(path), StoreError::Unavailable(_)) = (self, &error) else { return error };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // A name of this process alone, so that nobody's file is touched.
        let probe = folder.join(format!(".leasehold-{}", std::process::id()));
        match std::fs::OpenOptions::new().write(true).create_new(true).open(&probe) {
            Err(reason) if matches!(reason.kind(), ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied) => {
                StoreError::ReadOnly(Box::new(OpenError::ReadOnlyFolder { path: folder.to_owned(), reason }))
            }
            Ok(made) => {
                drop(made);
                // It stays behind only where a file can be made and not removed, which explains nothing here.
                let _ = std::fs::remove_file(&probe);
                error
            }
            Err(_) => error,
        }
    }

    /// As SQLite takes it, to make the file if it is not there.
    pub(crate) fn url(&self) -> StoreResult<String> {
        match self {
            Self::Memory => Ok(MEMORY.to_owned()),
            Self::File(path) => match path.to_str() {
                // SQLite reads these beginnings as URLs; here they are files.
                Some(text) if text.starts_with("file:") || text.starts_with("sqlite:") || text == MEMORY => Ok(format!("./{text}")),
                Some(text) => Ok(text.to_owned()),
                None => Err(refused(OpenError::NotUtf8(path.clone()))),
            },
        }
    }

    /// As SQLite takes it, to fail if the file is not there: a store whose file was removed must not go on in an empty one.
    pub(crate) fn url_of_existing(&self) -> StoreResult<String> {
        let url = self.url()?;
        // A URL of a Windows path has a form of its own.
        if matches!(self, Self::Memory) || cfg!(windows) {
            return Ok(url);
        }
        let escaped = url.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
        Ok(format!("file:{escaped}?mode=rw"))
    }
}

/// How SQLite and this crate spell a store in memory.
const MEMORY: &str = ":memory:";

fn refused(error: OpenError) -> StoreError {
    StoreError::Rejected(Box::new(error))
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str(MEMORY),
            Self::File(path) => path.display().fmt(f),
        }
    }
}
impl From<&str> for Location {
    fn from(text: &str) -> Self {
        if text == MEMORY { Self::Memory } else { Self::File(text.into()) }
    }
}
impl From<&Path> for Location {
    fn from(path: &Path) -> Self {
        Self::File(path.to_owned())
    }
}

impl From<Location> for SqliteOptions {
    fn from(location: Location) -> Self {
        Self {
            location,
            synchronous: Synchronous::Full,
            busy_timeout: Duration::from_millis(10),
            call_deadline: Duration::from_secs(30),
            readers: 4,
            group: GroupLimits { members: 64, rows: 2_000, time: Duration::from_millis(5) },
            max_pages: None,
            look_every: Some(Duration::from_millis(20)),
        }
    }
}
impl From<&str> for SqliteOptions {
    fn from(text: &str) -> Self {
        Location::from(text).into()
    }
}
impl From<&Path> for SqliteOptions {
    fn from(path: &Path) -> Self {
        Location::from(path).into()
    }
}
