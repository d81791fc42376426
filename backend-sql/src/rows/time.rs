//! Rows of the clock and of maintenance.

use super::{instant, name};
use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Nullable, Text};
use leasehold_core::model::{Epoch, Timestamp};
use leasehold_core::store::{ClockReading, Leadership, StoreResult, rows};

/// What is remembered of the clock: the row of `clock`.
#[derive(Debug, Clone, Copy, QueryableByName)]
#[expect(missing_docs, reason = "the columns of the migrations")]
pub struct Mark {
    #[diesel(sql_type = Nullable<BigInt>)]
    pub mark_us: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub anomaly_since_us: Option<i64>,
}

impl Mark {
    /// The clock, which shows `now`.
    ///
    /// # Errors
    /// As [`super::Row::read`].
    pub fn read_at(self, now: Timestamp) -> StoreResult<ClockReading> {
        Ok(ClockReading {
            now,
            mark: self.mark_us.map(|mark| instant("clock.mark_us", mark)).transpose()?,
            anomaly_since: self.anomaly_since_us.map(|since| instant("clock.anomaly_since_us", since)).transpose()?,
        })
    }
}

/// A lane, and the clock that was read on the way to it.
#[derive(Debug, QueryableByName)]
pub struct SeenLane {
    /// The lane.
    #[diesel(embed)]
    pub lane: super::OpenLane,
    /// The clock.
    #[diesel(embed)]
    pub mark: Mark,
}

impl SeenLane {
    /// The lanes of one statement, which read the clock at `now`.
    ///
    /// # Errors
    /// As [`super::Row::read`].
    pub fn read_all_at(seen: Vec<Self>, now: Timestamp) -> StoreResult<rows::OpenLanes> {
        let clock = seen.first().map(|first| first.mark.read_at(now)).transpose()?;
        let lanes = super::read_all(seen.into_iter().map(|seen| seen.lane).collect())?;
        Ok(rows::OpenLanes { clock, lanes })
    }
}

/// Who leads, at `now_us`.
#[derive(Debug, QueryableByName)]
#[expect(missing_docs, reason = "the columns of the migrations")]
pub struct Leader {
    #[diesel(sql_type = BigInt)]
    pub epoch: i64,
    #[diesel(sql_type = Text)]
    pub leader: String,
    #[diesel(sql_type = BigInt)]
    pub ends_at_us: i64,
    #[diesel(sql_type = BigInt)]
    pub now_us: i64,
}

impl Leader {
    /// The leadership, which is that of the one who asked or not.
    ///
    /// # Errors
    /// As [`super::Row::read`].
    pub fn read(self, mine: bool) -> StoreResult<Leadership> {
        Ok(Leadership {
            epoch: Epoch(self.epoch),
            leader: name("maintenance.leader", self.leader)?,
            ends_at: instant("maintenance.ends_at_us", self.ends_at_us)?,
            now: instant("the clock", self.now_us)?,
            mine,
        })
    }
}
