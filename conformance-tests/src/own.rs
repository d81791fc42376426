//! What the author of a backend brings for the application's own transactions (B5).

use leasehold_core::store::{BoxError, Tx};

/// Whose the connection is that a transaction of the application's runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// The application's: it begins and commits as it always does, and lends the open transaction to the store.
    Lent,
    /// The store's: it begins and commits, and lends the open transaction to the application.
    Borrowed,
}

impl Door {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Lent, Self::Borrowed];
}

/// Transactions of an application that keeps rows of its own, in a table of its own, in the store's database.
pub trait OwnTransactions: Send + Sync {
    /// Runs `body` in a transaction through `door` and commits; where `body` fails, rolls back and returns its error.
    ///
    /// # Errors
    /// What `body` returned, or why the transaction could not begin or commit.
    fn transaction(&self, door: Door, body: &mut OwnBody<'_>) -> Result<(), BoxError>;

    /// The application's rows that are committed, in the order of their text.
    ///
    /// # Errors
    /// Why they cannot be read.
    fn rows(&self) -> Result<Vec<String>, BoxError>;
}

/// What an application does in a transaction of its own.
pub type OwnBody<'b> = dyn FnMut(&mut dyn OwnTx) -> Result<(), BoxError> + 'b;

/// What the store does in it.
pub type LentBody<'b> = dyn FnMut(&mut dyn Tx) -> Result<(), BoxError> + 'b;

/// An open transaction of the application's.
pub trait OwnTx {
    /// Puts a row into the application's table.
    ///
    /// # Errors
    /// The database's.
    fn insert(&mut self, row: &str) -> Result<(), BoxError>;

    /// Lends the store's steps to `body`, inside this transaction.
    ///
    /// # Errors
    /// What `body` returned, once what it did is undone; or the store's.
    fn lend(&mut self, body: &mut LentBody<'_>) -> Result<(), BoxError>;
}
