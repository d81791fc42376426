//! Stores that outlive a process, on clocks that stand still.

use leasehold_conformance::start;
use leasehold_core::model::{Micros, Timestamp};
use leasehold_core::store::{BoxError, ManualClock, Store};
use leasehold_postgres::PostgresStore;
use leasehold_sqlite::SqliteStore;
use leasehold_test_postgres::{DatabaseClock, TestSchema};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

/// Which database.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    Sqlite,
    Postgres,
}

impl Place {
    pub(crate) const ALL: [Self; 2] = [Self::Sqlite, Self::Postgres];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite_file",
            Self::Postgres => "postgres",
        }
    }
}

/// An empty store, until this is dropped.
pub(crate) enum Ground {
    Sqlite { folder: TempDir, clock: Arc<ManualClock>, now: Mutex<Timestamp> },
    Postgres { schema: TestSchema, clock: DatabaseClock, now: Mutex<Timestamp> },
}

/// Divides the path of a file from the instant at which its clock stands.
const AT: char = '@';

impl Ground {
    pub(crate) fn new(place: Place) -> Result<Self, BoxError> {
        let now = Mutex::new(start());
        match place {
            Place::Sqlite => Ok(Self::Sqlite { folder: tempfile::tempdir()?, clock: Arc::new(ManualClock::at(start())), now }),
            Place::Postgres => {
                let schema = TestSchema::new()?;
                PostgresStore::connect(&schema.url())?;
                let clock = DatabaseClock::install(&schema, start().as_micros())?;
                Ok(Self::Postgres { schema, clock, now })
            }
        }
    }

    /// What a child needs to open it with its clock where it stands.
    pub(crate) fn url(&self) -> Result<String, BoxError> {
        match self {
            Self::Sqlite { folder, now, .. } => {
                let path = folder.path().join("store.db");
                let path = path.to_str().ok_or("the temporary folder's path is no text")?;
                Ok(format!("sqlite:{}{AT}{path}", now.lock().unwrap().as_micros()))
            }
            Self::Postgres { schema, .. } => Ok(schema.url()),
        }
    }

    /// Opens the store at the URL that a child was given.
    pub(crate) fn open_at(url: &str) -> Result<Arc<dyn Store>, BoxError> {
        match url.strip_prefix("sqlite:").and_then(|rest| rest.split_once(AT)) {
            Some((at, path)) => {
                let clock = ManualClock::at(Timestamp::from_micros(at.parse()?)?);
                Ok(Arc::new(SqliteStore::open(PathBuf::from(path).as_path(), Arc::new(clock))?))
            }
            None => Ok(Arc::new(PostgresStore::connect(url)?)),
        }
    }

    pub(crate) fn open(&self) -> Result<Arc<dyn Store>, BoxError> {
        match self {
            Self::Sqlite { folder, clock, .. } => {
                let path = folder.path().join("store.db");
                Ok(Arc::new(SqliteStore::open(path.as_path(), Arc::clone(clock) as Arc<_>)?))
            }
            Self::Postgres { schema, .. } => Ok(Arc::new(PostgresStore::connect(&schema.url())?)),
        }
    }

    /// Moves the clock on.
    pub(crate) fn advance(&self, by: Micros) -> Result<(), BoxError> {
        let (Self::Sqlite { now, .. } | Self::Postgres { now, .. }) = self;
        let mut now = now.lock().unwrap();
        *now = now.after(by)?;
        match self {
            Self::Sqlite { clock, .. } => clock.set(*now),
            Self::Postgres { clock, .. } => clock.set_us(now.as_micros())?,
        }
        Ok(())
    }
}
