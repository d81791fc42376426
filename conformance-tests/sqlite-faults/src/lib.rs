//! Faults for Leasehold's tests on SQLite, with real processes: a writer that is killed, a lock that is held, a disk that
//! is full or read-only.
//!
//! - [`worker`] is what a process of the tests does: it works and says at once what the store has acknowledged.
//! - [`victim`] starts such a process and kills it.
//! - [`lock`] and [`disk`] are what further processes do.
//! - [`judge`] holds what was acknowledged against the file.
//!
//! `LEASEHOLD_LONG=1` runs the tests at their full size; without it they are sized for a run at every commit.

pub mod disk;
pub mod judge;
pub mod lock;
pub mod victim;
pub mod worker;

/// An error of a test's helper: what went wrong, for a person.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// What a test's helper returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Whether the tests run at their full size.
pub fn long() -> bool {
    std::env::var_os("LEASEHOLD_LONG").is_some_and(|value| !value.is_empty() && value != "0")
}
