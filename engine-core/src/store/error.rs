//! Why a store call failed, sorted by what the caller can do about it.

/// An error of a driver.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What a store call returns.
pub type StoreResult<T> = Result<T, StoreError>;

/// Why a store call failed, sorted by what the caller can do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another transaction won, and nothing was written: run the body again.
    #[error("lost a race with another transaction")]
    Conflict(#[source] BoxError),
    /// The database was too busy until the call's deadline; nothing was written. Try later, or find who holds it.
    #[error("the database is busy")]
    Busy(#[source] BoxError),
    /// The database could not be reached, or its answer was lost: a commit may have happened. Repeat with the same ids.
    #[error("the database is unavailable")]
    Unavailable(#[source] BoxError),
    /// No space is left; nothing was written. Free space and repeat.
    #[error("the database has no space left")]
    Full(#[source] BoxError),
    /// The database takes no writes here; nothing was written.
    #[error("the database is read-only")]
    ReadOnly(#[source] BoxError),
    /// The file is not a sound database. Stop and restore.
    #[error("the database is corrupt or not a database")]
    Corrupt(#[source] BoxError),
    /// The schema does not fit this program.
    #[error("the schema does not fit")]
    Schema(#[source] SchemaError),
    /// A defect, a broken schema, or one bad row: the same call will fail the same way.
    #[error("the database rejected the operation")]
    Rejected(#[source] BoxError),
    /// The body asked for a rollback; it kept the reason itself.
    #[error("the transaction was rolled back by its body")]
    RolledBack,
}

/// Why a schema does not fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// The schema was made by a newer program that this one must not write beside.
    #[error("the schema is version {found} and needs a program that knows version {needed}; this one knows {known}: upgrade it")]
    Newer {
        /// The schema's version.
        found: i64,
        /// The oldest version that a program must know to write.
        needed: i64,
        /// The newest version that this program knows.
        known: i64,
    },
    /// The schema is not there or older than this program.
    #[error("the schema is version {found} and this program needs {known}: run the migrations (`leasehold migrate`)")]
    Older {
        /// The schema's version, 0 for none.
        found: i64,
        /// The version that this program needs.
        known: i64,
    },
}

impl StoreError {
    /// Whether running the whole transaction again, with the same ids, may succeed soon.
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Conflict(_) | Self::Busy(_) | Self::Unavailable(_))
    }
}
