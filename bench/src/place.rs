//! Where stores are made: a folder for SQLite files, or a Postgres server.

use crate::Failure;
use crate::floor::{Floor, PostgresFloor, SqliteFloor};
use leasehold_test_postgres::{Cluster, TestSchema};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;

/// The database of a run.
#[derive(Debug)]
pub(crate) enum Place {
    Sqlite { folder: PathBuf, _temporary: Option<TempDir> },
    Postgres { url: String, _cluster: Option<Cluster> },
}

/// What the server that this program starts does not share with Postgres as it is installed: it is durable by default,
/// which the server of the tests is not.
const DEFAULT_DURABILITY: &str = "fsync = on\nfull_page_writes = on\nsynchronous_commit = on\nwal_level = replica\n";

impl Place {
    /// As `--store` says.
    pub(crate) fn open(store: &str) -> Result<Self, Failure> {
        match store.split_once(':') {
            None if store == "sqlite" => {
                let folder = tempfile::Builder::new().prefix("leasehold-bench-").tempdir()?;
                Ok(Self::Sqlite { folder: folder.path().to_owned(), _temporary: Some(folder) })
            }
            Some(("sqlite", folder)) => {
                std::fs::create_dir_all(folder)?;
                Ok(Self::Sqlite { folder: folder.into(), _temporary: None })
            }
            None if store == "postgres" => {
                let cluster = Cluster::start_with(DEFAULT_DURABILITY, &[])?;
                Ok(Self::Postgres { url: cluster.url().to_owned(), _cluster: Some(cluster) })
            }
            Some(("postgres" | "postgresql", _)) => Ok(Self::Postgres { url: store.to_owned(), _cluster: None }),
            _ => Err(format!("--store {store:?} is neither sqlite, sqlite:FOLDER, postgres nor postgres://…").into()),
        }
    }

    /// A place for one store that nobody else uses, gone when it is dropped. Nothing is made there yet.
    pub(crate) fn fresh(&self) -> Fresh {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        match self {
            Self::Sqlite { folder, .. } => {
                let number = COUNT.fetch_add(1, Ordering::Relaxed);
                Fresh::File(folder.join(format!("{}-{number}.db", std::process::id())))
            }
            Self::Postgres { url, .. } => Fresh::Schema { server: url.clone(), schema: TestSchema::on(url) },
        }
    }

    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Sqlite { .. } => "sqlite",
            Self::Postgres { .. } => "postgres",
        }
    }

    /// Versions and durability, as the database tells them.
    pub(crate) fn settings(&self) -> Result<BTreeMap<String, String>, Failure> {
        let mut settings = self.fresh().floor()?.settings()?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        settings.insert("cores".to_owned(), cores.to_string());
        settings.insert("leasehold".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        if let Ok(load) = std::fs::read_to_string("/proc/loadavg") {
            settings.insert("load when it began".to_owned(), load.split(' ').take(3).collect::<Vec<_>>().join(" "));
        }
        Ok(settings)
    }
}

/// A place for one store.
#[derive(Debug)]
pub(crate) enum Fresh {
    File(PathBuf),
    Schema { server: String, schema: TestSchema },
}

impl Fresh {
    /// The URL for the engine.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::File(path) => format!("sqlite:{}", path.display()),
            Self::Schema { schema, .. } => schema.url(),
        }
    }

    /// The same for a process that only polls; `None` where hints are always on.
    pub(crate) fn url_without_hints(&self) -> Option<String> {
        match self {
            Self::File(_) => None,
            Self::Schema { .. } => Some(format!("{}&hints=off", self.url())),
        }
    }

    /// Raw SQL there.
    pub(crate) fn floor(&self) -> Result<Box<dyn Floor>, Failure> {
        Ok(match self {
            Self::File(path) => Box::new(SqliteFloor::new(path.clone())),
            Self::Schema { server, schema } => Box::new(PostgresFloor::new(server, schema.name())?),
        })
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if let Self::File(path) = self {
            for end in ["", "-wal", "-shm"] {
                // One that was not made need not be removed.
                let _ = std::fs::remove_file(with_end(path, end));
            }
        }
    }
}

/// The path of a file that SQLite keeps beside another.
pub(crate) fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}
