//! Sorting what is the same for every driver.

use diesel::result::{DatabaseErrorKind, Error};
use leasehold_core::store::StoreError;

/// A stored value that this program does not understand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Where it is stored.
    pub column: &'static str,
    /// What is stored there.
    pub value: String,
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the stored {} {:?} cannot be read", self.column, self.value)
    }
}
impl std::error::Error for Unreadable {}

impl From<Unreadable> for StoreError {
    fn from(error: Unreadable) -> Self {
        Self::Rejected(Box::new(error))
    }
}

/// [`StoreError::Rejected`] with a reason of the backend's own.
pub fn rejected(reason: impl Into<String>) -> StoreError {
    StoreError::Rejected(reason.into().into())
}

/// Sorts a driver's error by what is portable of it; a backend first sorts what it knows better.
pub fn store_error(error: Error) -> StoreError {
    match &error {
        Error::DatabaseError(DatabaseErrorKind::SerializationFailure, _) => StoreError::Conflict(Box::new(error)),
        Error::DatabaseError(DatabaseErrorKind::ReadOnlyTransaction, _) => StoreError::ReadOnly(Box::new(error)),
        Error::DatabaseError(DatabaseErrorKind::ClosedConnection | DatabaseErrorKind::UnableToSendCommand, _)
        | Error::BrokenTransactionManager
        | Error::RollbackErrorOnCommit { .. } => StoreError::Unavailable(Box::new(error)),
        // Constraints, syntax, values that do not convert: the same call fails the same way.
        _ => StoreError::Rejected(Box::new(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn database(kind: DatabaseErrorKind) -> Error {
        Error::DatabaseError(kind, Box::new("reason".to_owned()))
    }

    #[test]
    fn what_every_driver_has_in_common_is_sorted_by_what_the_caller_can_do() {
        assert!(matches!(store_error(database(DatabaseErrorKind::SerializationFailure)), StoreError::Conflict(_)));
        assert!(matches!(store_error(database(DatabaseErrorKind::ClosedConnection)), StoreError::Unavailable(_)));
        assert!(matches!(store_error(database(DatabaseErrorKind::ReadOnlyTransaction)), StoreError::ReadOnly(_)));
        assert!(matches!(store_error(database(DatabaseErrorKind::UniqueViolation)), StoreError::Rejected(_)));
        assert!(matches!(store_error(Error::NotFound), StoreError::Rejected(_)));
    }
}
