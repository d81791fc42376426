//! Rows as a database gives them, on their way to the core's values.

mod inspect;
mod lease;
mod op;
mod read;
mod time;
mod wait;
mod workflow;

pub use inspect::{Edge, Facts, OpCounts, Placed};
pub use lease::{Attempt, Claimed, Lease, LockedGate, OpenLane, OuterBucket, Ready};
pub use op::{Downstream, Op, OpResult, OpView, OuterLease, Upstream};
pub use read::{Act, Artifact, Content, Event, LeaseTotals, OuterPolicy, QueueStatus, Record, StatusTotals};
pub use time::{Leader, Mark, SeenLane};
pub use wait::{OuterWait, Wait, Wake};
pub use workflow::{Counts, RunningCount, Workflow, WorkflowKey, WorkflowLock};

use crate::Unreadable;
use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Nullable};
use leasehold_core::model::{OpSeq, Timestamp};
use leasehold_core::store::StoreResult;
use std::fmt::Display;
use std::str::FromStr;

/// A row of a result.
pub trait Row {
    /// What it means.
    type Value;

    /// The value.
    ///
    /// # Errors
    /// [`leasehold_core::store::StoreError::Rejected`] with [`Unreadable`] for what this program cannot have stored.
    fn read(self) -> StoreResult<Self::Value>;
}

/// Reads every row.
///
/// # Errors
/// As [`Row::read`].
pub fn read_all<R: Row>(rows: Vec<R>) -> StoreResult<Vec<R::Value>> {
    rows.into_iter().map(Row::read).collect()
}

/// The key of an op, named `seq`.
#[derive(Debug, QueryableByName)]
pub struct Seq {
    /// The key.
    #[diesel(sql_type = BigInt)]
    pub seq: i64,
}
impl Row for Seq {
    type Value = OpSeq;
    fn read(self) -> StoreResult<OpSeq> {
        Ok(OpSeq(self.seq))
    }
}

/// One number or none, named `number`.
#[derive(Debug, QueryableByName)]
pub struct Number {
    /// The number.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub number: Option<i64>,
}

/// An instant of the column `column`.
pub(crate) fn instant(column: &'static str, micros: i64) -> StoreResult<Timestamp> {
    Timestamp::from_micros(micros).map_err(|_| unreadable(column, micros))
}

/// A number that the core counts in a smaller type.
pub(crate) fn number<T: TryFrom<i64>>(column: &'static str, stored: i64) -> StoreResult<T> {
    T::try_from(stored).map_err(|_| unreadable(column, stored))
}

/// A name.
pub(crate) fn name<T: TryFrom<String>>(column: &'static str, stored: String) -> StoreResult<T> {
    // The text moves into the name, so it is there for the error only as the column's name tells.
    T::try_from(stored).map_err(|_| unreadable(column, "not a name"))
}

/// A token, a digest or a request id.
pub(crate) fn parsed<T: FromStr>(column: &'static str, stored: &str) -> StoreResult<T> {
    stored.parse().map_err(|_| unreadable(column, stored))
}

/// One of a closed list of words.
pub(crate) fn word<T>(column: &'static str, stored: &str, from_stored: impl FnOnce(&str) -> Option<T>) -> StoreResult<T> {
    from_stored(stored).ok_or_else(|| unreadable(column, stored))
}

fn unreadable(column: &'static str, value: impl Display) -> leasehold_core::store::StoreError {
    Unreadable { column, value: value.to_string() }.into()
}
