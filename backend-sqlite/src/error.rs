//! Sorting SQLite's errors by what the caller can do about them.
//!
//! diesel hands on SQLite's message and, but for broken constraints, not its code; so the messages are what is sorted.
//! They are constants of SQLite, and a test provokes each.

use diesel::ConnectionError;
use diesel::result::{DatabaseErrorKind, Error};
use leasehold_core::store::{BoxError, StoreError};
use std::path::PathBuf;
use std::time::Duration;

/// Why a place cannot be a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The path names a folder.
    #[error("{} is a folder, not a database file", .0.display())]
    IsFolder(PathBuf),
    /// The folder that should hold the file is missing.
    #[error("the folder {} does not exist; create it first", .0.display())]
    NoFolder(PathBuf),
    /// There is no file, and none was to be made.
    #[error("there is no database at {}", .0.display())]
    NoFile(PathBuf),
    /// The file's permissions forbid writing.
    #[error("the file {} is marked read-only", .0.display())]
    ReadOnlyFile(PathBuf),
    /// The folder takes no new files: another's, or on a disk that is mounted read-only.
    #[error("the folder {} takes no new files, and the database's log is kept there", .path.display())]
    ReadOnlyFolder {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        #[source]
        reason: std::io::Error,
    },
    /// SQLite takes paths as UTF-8.
    #[error("the path {} is not UTF-8", .0.display())]
    NotUtf8(PathBuf),
    /// The file system gives no shared memory, as many network file systems.
    #[error("{} is on a file system without a write-ahead log (journal mode {mode:?}); use a local disk", .path.display())]
    NoWal {
        /// The file.
        path: PathBuf,
        /// The journal mode that SQLite fell back to.
        mode: String,
    },
}

/// Why a call gave up waiting.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// Another process, or another store of this one, kept the file's lock.
    #[error("something else held the lock of {place} for {waited:?}: another process of this store, a backup or an open SQL shell")]
    Locked {
        /// The file.
        place: String,
        /// How long the call waited.
        waited: Duration,
    },
    /// Other calls of this store kept the write connection, or all readers.
    #[error("the call did not get a connection of its own store within {waited:?}")]
    Turn {
        /// How long the call waited.
        waited: Duration,
    },
}

/// What SQLite says when a lock is held: the only errors that are worth waiting for.
const BUSY: &[&str] = &["database is locked", "database table is locked", "database schema is locked", "locking protocol"];
const FULL: &[&str] = &["database or disk is full"];
const READ_ONLY: &[&str] = &["attempt to write a readonly database"];
const CORRUPT: &[&str] = &["file is not a database", "database disk image is malformed", "unsupported file format"];
const UNAVAILABLE: &[&str] = &["disk I/O error", "unable to open database file", "out of memory", "interrupted"];

/// Whether `error` says that a lock is held.
pub(crate) fn is_busy(error: &Error) -> bool {
    matches!(error, Error::DatabaseError(DatabaseErrorKind::Unknown, info) if says(info.message(), BUSY))
}

/// Sorts an error of a statement.
pub(crate) fn store_error(error: Error) -> StoreError {
    match &error {
        Error::DatabaseError(DatabaseErrorKind::Unknown, info) => match sorted(info.message()) {
            Some(sort) => sort(Box::new(error)),
            None => leasehold_sql::store_error(error),
        },
        _ => leasehold_sql::store_error(error),
    }
}

/// Sorts an error of opening a connection.
pub(crate) fn connection_error(error: ConnectionError) -> StoreError {
    let sort = match &error {
        ConnectionError::BadConnection(message) => sorted(message),
        ConnectionError::CouldntSetupConfiguration(Error::DatabaseError(_, info)) => sorted(info.message()),
        _ => None,
    };
    sort.unwrap_or(StoreError::Unavailable)(Box::new(error))
}

/// Sorts an error of the pool, which keeps the last message only.
pub(crate) fn pool_error(error: r2d2::Error, waited: Duration) -> StoreError {
    match sorted(&error.to_string()) {
        Some(sort) => sort(Box::new(error)),
        None => StoreError::Busy(Box::new(WaitError::Turn { waited })),
    }
}

/// Sorts an error of a migration, which wraps the driver's in a type of its own.
pub(crate) fn migration_error(error: BoxError) -> StoreError {
    sorted(&error.to_string()).unwrap_or(StoreError::Rejected)(error)
}

type Sort = fn(BoxError) -> StoreError;

fn sorted(message: &str) -> Option<Sort> {
    let sorts: [(&[&str], Sort); 5] = [
        (BUSY, StoreError::Busy),
        (FULL, StoreError::Full),
        (READ_ONLY, StoreError::ReadOnly),
        (CORRUPT, StoreError::Corrupt),
        (UNAVAILABLE, StoreError::Unavailable),
    ];
    sorts.into_iter().find(|(messages, _)| says(message, messages)).map(|(_, sort)| sort)
}

fn says(message: &str, known: &[&str]) -> bool {
    known.iter().any(|known| message.contains(known))
}

/// The same error for another member of a lost group.
pub(crate) fn again(error: &StoreError) -> StoreError {
    let source = || std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string).into();
    match error {
        StoreError::Conflict(_) => StoreError::Conflict(source()),
        StoreError::Busy(_) => StoreError::Busy(source()),
        StoreError::Full(_) => StoreError::Full(source()),
        StoreError::ReadOnly(_) => StoreError::ReadOnly(source()),
        StoreError::Corrupt(_) => StoreError::Corrupt(source()),
        StoreError::Schema(schema) => StoreError::Schema(schema.clone()),
        StoreError::Rejected(_) => StoreError::Rejected(source()),
        StoreError::RolledBack => StoreError::RolledBack,
        // Of an error that this backend does not know, the most careful is assumed: that the commit may have happened.
        _ => StoreError::Unavailable(source()),
    }
}

#[cfg(test)]
mod tests;
