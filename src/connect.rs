//! Opening a store by its URL.

use leasehold_core::memory::MemoryStore;
use leasehold_core::store::{Store, StoreError, SystemClock};
use std::sync::Arc;

/// Why a store could not be opened by its URL. No message holds more of the URL than its scheme, as it may hold a password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL names no backend.
    #[error("{given:?} names no store: use sqlite:PATH, sqlite::memory:, memory: or postgres://HOST/DATABASE")]
    UnknownScheme {
        /// What stands before the first colon, or all of it when there is none.
        given: String,
    },
    /// The URL names a backend that this program was built without.
    #[error("this program was built without {backend}: enable the feature `{feature}` of the crate `leasehold`")]
    NotCompiledIn {
        /// The backend.
        backend: &'static str,
        /// The feature that brings it.
        feature: &'static str,
    },
    /// The URL names no place.
    #[error("sqlite: needs a path, such as sqlite:app.db, or sqlite::memory:")]
    NoPath,
    /// The store could not be opened.
    #[error("the store could not be opened")]
    Store(#[from] StoreError),
}

/// Opens the store at `url` and brings its schema up to date.
///
/// - `sqlite:PATH` is a file, made if it is not there; `sqlite::memory:` ends with the program.
/// - `postgres://USER:PASSWORD@HOST/DATABASE` is a server.
/// - `memory:` needs no backend and ends with the program: for tests and trials.
///
/// # Errors
/// [`ConnectError`], also for a backend that was not compiled in.
pub async fn connect(url: &str) -> Result<Arc<dyn Store>, ConnectError> {
    open(url, Schema::Migrate).await
}

/// Opens the store at `url` as it is: one that is not there, or has another schema, is an error.
///
/// # Errors
/// As [`connect`].
pub async fn connect_existing(url: &str) -> Result<Arc<dyn Store>, ConnectError> {
    open(url, Schema::AsItIs).await
}

/// What to do about the schema.
#[derive(Clone, Copy)]
enum Schema {
    Migrate,
    AsItIs,
}

async fn open(url: &str, schema: Schema) -> Result<Arc<dyn Store>, ConnectError> {
    let Some((scheme, rest)) = url.split_once(':') else {
        return Err(ConnectError::UnknownScheme { given: url.to_owned() });
    };
    match scheme {
        "memory" => Ok(Arc::new(MemoryStore::new(Arc::new(SystemClock)))),
        "sqlite" => {
            let path = rest.strip_prefix("//").unwrap_or(rest).to_owned();
            if path.is_empty() {
                return Err(ConnectError::NoPath);
            }
            blocking(move || sqlite(&path, schema)).await
        }
        "postgres" | "postgresql" => {
            let url = url.to_owned();
            blocking(move || postgres(&url, schema)).await
        }
        other => Err(ConnectError::UnknownScheme { given: other.to_owned() }),
    }
}

/// Opening waits for locks and disks: not on the executor's threads.
async fn blocking(open: impl FnOnce() -> Result<Arc<dyn Store>, ConnectError> + Send + 'static) -> Result<Arc<dyn Store>, ConnectError> {
    match tokio::task::spawn_blocking(open).await {
        Ok(opened) => opened,
        Err(stopped) => match stopped.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(StoreError::Unavailable("the runtime shut down".into()).into()),
        },
    }
}

#[cfg(feature = "sqlite")]
fn sqlite(path: &str, schema: Schema) -> Result<Arc<dyn Store>, ConnectError> {
    use leasehold_sqlite::SqliteStore;
    let clock = Arc::new(SystemClock);
    Ok(Arc::new(match schema {
        Schema::Migrate => SqliteStore::open(path, clock)?,
        Schema::AsItIs => SqliteStore::open_existing(path, clock)?,
    }))
}

#[cfg(not(feature = "sqlite"))]
fn sqlite(_path: &str, _schema: Schema) -> Result<Arc<dyn Store>, ConnectError> {
    Err(ConnectError::NotCompiledIn { backend: "SQLite", feature: "sqlite" })
}

#[cfg(feature = "postgres")]
fn postgres(url: &str, schema: Schema) -> Result<Arc<dyn Store>, ConnectError> {
    use leasehold_postgres::{PostgresOptions, PostgresStore};
    let options = PostgresOptions::parse(url).map_err(|error| StoreError::Rejected(error.into()))?;
    Ok(Arc::new(match schema {
        Schema::Migrate => PostgresStore::open(options)?,
        Schema::AsItIs => PostgresStore::open_existing(options)?,
    }))
}

#[cfg(not(feature = "postgres"))]
fn postgres(_url: &str, _schema: Schema) -> Result<Arc<dyn Store>, ConnectError> {
    Err(ConnectError::NotCompiledIn { backend: "Postgres", feature: "postgres" })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn refusal(url: &str) -> String {
        connect(url).await.map(|_| ()).unwrap_err().to_string()
    }

    #[tokio::test]
    async fn a_url_that_names_no_store_is_told_what_would_and_no_password() {
        assert!(refusal("app.db").await.contains("use sqlite:PATH"));
        let refused = refusal("mysql://user:secret@host/db").await;
        assert!(refused.starts_with("\"mysql\" names no store") && !refused.contains("secret"), "{refused}");
        assert!(refusal("sqlite:").await.contains("needs a path"));
        assert!(connect("memory:").await.is_ok());
    }

    #[cfg(not(feature = "postgres"))]
    #[tokio::test]
    async fn a_backend_that_is_not_there_names_its_feature() {
        assert!(refusal("postgres://localhost/x").await.contains("enable the feature `postgres`"));
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn sqlite_opens_in_memory_and_refuses_a_file_that_is_not_there_unless_it_is_to_be_made() {
        assert_eq!(connect("sqlite::memory:").await.unwrap().describe().unwrap().backend, "sqlite");
        assert!(connect_existing("sqlite:/nonexistent/app.db").await.is_err());
    }
}
