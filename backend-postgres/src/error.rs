//! Sorting what Postgres and libpq report by what the caller can do about it.

use crate::connection::chain;
use diesel::pg::PgConnection;
use diesel::r2d2::R2D2Connection;
use diesel::result::{ConnectionError, DatabaseErrorKind, Error};
use leasehold_core::store::{BoxError, StoreError};

/// Whether a connection can be used again after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    /// It can, after a rollback.
    Kept,
    /// It is gone, or leads to a server that takes no writes, or keeps plans of an older schema.
    Dropped,
}

/// A message of the server, and what it means. diesel hands out no SQLSTATE for these, only the kind `Unknown`; the
/// server is asked for untranslated messages (see `connection.rs`).
const MESSAGES: &[(&str, Sort, Link)] = &[
    // 40P01
    ("deadlock detected", Sort::Conflict, Link::Kept),
    // 55P03
    ("canceling statement due to lock timeout", Sort::Conflict, Link::Kept),
    // 0A000: a migration changed a table under a prepared statement.
    ("cached plan must not change result type", Sort::Conflict, Link::Dropped),
    // 57014
    ("canceling statement due to statement timeout", Sort::Busy, Link::Kept),
    ("canceling statement due to user request", Sort::Busy, Link::Kept),
    // 57P01, 57P02, 25P03, 57P05
    ("terminating connection", Sort::Unavailable, Link::Dropped),
    // libpq's own words for a lost connection; it is not always aware of the loss itself.
    ("server closed the connection unexpectedly", Sort::Unavailable, Link::Dropped),
    ("could not send data to server", Sort::Unavailable, Link::Dropped),
    ("could not receive data from server", Sort::Unavailable, Link::Dropped),
    ("no connection to the server", Sort::Unavailable, Link::Dropped),
    ("SSL connection has been closed unexpectedly", Sort::Unavailable, Link::Dropped),
    ("SSL SYSCALL error", Sort::Unavailable, Link::Dropped),
    // 53100: of a table's file, of a temporary file, of the write-ahead log
    ("could not extend file", Sort::Full, Link::Kept),
    ("No space left on device", Sort::Full, Link::Kept),
    // XX001, XX002
    ("invalid page in block", Sort::Corrupt, Link::Kept),
    ("missing chunk number", Sort::Corrupt, Link::Kept),
    ("could not read block", Sort::Corrupt, Link::Kept),
    // 26000, 42P05: a pooler gave the session of another client.
    ("prepared statement \"__diesel", Sort::Pooled, Link::Dropped),
];

/// What the caller can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Conflict,
    Busy,
    Unavailable,
    Full,
    Corrupt,
    Pooled,
}

/// The error of a statement on `conn`, with what follows from it for the connection.
pub(crate) fn sorted_on(conn: &mut PgConnection, error: Error) -> (StoreError, Link) {
    // Whatever the words, a connection that knows itself lost cannot have heard the end.
    if conn.is_broken() { (StoreError::Unavailable(Box::new(error)), Link::Dropped) } else { sorted(error) }
}

/// A driver's error, with what follows from it for the connection.
pub(crate) fn sorted(error: Error) -> (StoreError, Link) {
    match &error {
        Error::DatabaseError(DatabaseErrorKind::Unknown, reason) => {
            let message = reason.message();
            match MESSAGES.iter().find(|(text, ..)| message.contains(text)) {
                Some((_, sort, link)) => (sort.error(Box::new(error)), *link),
                None => (leasehold_sql::store_error(error), Link::Kept),
            }
        }
        Error::DatabaseError(
            DatabaseErrorKind::ReadOnlyTransaction | DatabaseErrorKind::ClosedConnection | DatabaseErrorKind::UnableToSendCommand,
            _,
        )
        | Error::BrokenTransactionManager
        | Error::RollbackErrorOnCommit { .. } => (leasehold_sql::store_error(error), Link::Dropped),
        _ => (leasehold_sql::store_error(error), Link::Kept),
    }
}

impl Sort {
    fn error(self, source: BoxError) -> StoreError {
        match self {
            Self::Conflict => StoreError::Conflict(source),
            Self::Busy => StoreError::Busy(source),
            Self::Unavailable => StoreError::Unavailable(source),
            Self::Full => StoreError::Full(source),
            Self::Corrupt => StoreError::Corrupt(source),
            Self::Pooled => StoreError::Rejected(Box::new(NamedStatementsBehindPooler(source))),
        }
    }
}

/// A pooler in transaction mode does not keep named statements with their client.
#[derive(Debug, thiserror::Error)]
#[error("a pooler lost a prepared statement: add prepared_statements=off to the store's URL")]
struct NamedStatementsBehindPooler(#[source] BoxError);

/// Why no connection could be opened: nothing was sent, so nothing was written.
pub(crate) fn sorted_connecting(error: ConnectionError) -> StoreError {
    // 53300: the server is there, and full.
    const CROWDED: [&str; 3] = ["too many clients", "too many connections", "remaining connection slots"];
    // 28P01, 28000, 3D000, and what libpq says of a URL that it does not take: trying again changes nothing.
    const MISTAKEN: [&str; 6] = [
        "password authentication failed",
        "no password supplied",
        "no pg_hba.conf entry",
        "does not exist",
        "invalid connection option",
        "invalid URI",
    ];
    let says =
        |texts: &[&str]| matches!(&error, ConnectionError::BadConnection(message) if texts.iter().any(|text| message.contains(text)));
    if says(&CROWDED) {
        StoreError::Busy(Box::new(error))
    } else if says(&MISTAKEN) || matches!(error, ConnectionError::InvalidConnectionUrl(_) | ConnectionError::InvalidCString(_)) {
        StoreError::Rejected(Box::new(error))
    } else {
        StoreError::Unavailable(Box::new(error))
    }
}

/// The first error of a transaction, kept so that every further step fails alike.
#[derive(Debug)]
pub(crate) struct Failure {
    rebuild: fn(BoxError) -> StoreError,
    message: String,
}

impl Failure {
    pub(crate) fn of(error: &StoreError) -> Self {
        let rebuild: fn(BoxError) -> StoreError = match error {
            StoreError::Conflict(_) => StoreError::Conflict,
            StoreError::Busy(_) => StoreError::Busy,
            StoreError::Unavailable(_) => StoreError::Unavailable,
            StoreError::Full(_) => StoreError::Full,
            StoreError::ReadOnly(_) => StoreError::ReadOnly,
            StoreError::Corrupt(_) => StoreError::Corrupt,
            _ => StoreError::Rejected,
        };
        Self { rebuild, message: chain(error) }
    }
    /// The same kind of error once more.
    pub(crate) fn again(&self) -> StoreError {
        (self.rebuild)(format!("an earlier step of this transaction failed: {}", self.message).into())
    }
}
