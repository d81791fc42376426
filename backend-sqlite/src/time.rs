//! Steps on the store's clock and on its maintenance.

use crate::lease::after;
use crate::tx::SqliteTx;
use diesel::sql_types::{BigInt, Nullable, Text};
use leasehold_core::model::{Epoch, LeaseToken, Micros, Timestamp};
use leasehold_core::store::{Candidate, ClockReading, Leadership, PulledBack, Spare, StoreResult, TimeTx};
use leasehold_sql::{rejected, rows, statement};

pub(crate) const CLOCK: &str = "SELECT mark_us, anomaly_since_us FROM clock WHERE id = 1";

pub(crate) const RAISE_MARK: &str = "
    UPDATE clock
       SET mark_us = ?1, anomaly_since_us = NULL
     WHERE id = 1 AND (mark_us IS NULL OR mark_us <= ?1 - ?2)";

pub(crate) const SET_CLOCK: &str = "UPDATE clock SET mark_us = ?1, anomaly_since_us = ?2 WHERE id = 1";

pub(crate) const END_TERM: &str = "UPDATE maintenance SET ends_at_us = ?1 WHERE id = 1 AND ends_at_us > ?1";

// An operator's act, after the clock went wrong: it may read whole tables.
pub(crate) const PULL_BACK_READY: &str = "UPDATE ready SET due_at_us = ?1 WHERE due_at_us > ?1";
pub(crate) const PULL_BACK_LEASES: &str = "
    UPDATE leases
       SET acquired_at_us = min(acquired_at_us, ?1), expires_at_us = min(expires_at_us, ?2)
     WHERE acquired_at_us > ?1 OR expires_at_us > ?2";

pub(crate) const SPARE_LEASES: &str = "
    UPDATE leases
       SET expires_at_us = ?1
     WHERE op IN (SELECT op
                    FROM leases
                   WHERE expires_at_us > ?2 AND expires_at_us < ?1
                   ORDER BY expires_at_us, op
                   LIMIT ?3 + 0)";

pub(crate) const ELECT: &str = "
    UPDATE maintenance
       SET epoch = CASE WHEN ends_at_us > ?1 THEN epoch ELSE epoch + 1 END, token = ?2, leader = ?3, ends_at_us = ?4
     WHERE id = 1 AND (token = ?2 OR ends_at_us <= ?1)";

pub(crate) const LEADER: &str = "SELECT epoch, leader, ends_at_us, ?1 AS now_us FROM maintenance WHERE id = 1";

pub(crate) const RESIGN: &str = "
    UPDATE maintenance
       SET ends_at_us = ?1
     WHERE id = 1 AND token = ?2 AND epoch = ?3 AND ends_at_us > ?1";

// The transaction has the file's only write lock, so what it reads stays so.
pub(crate) const HOLD_EPOCH: &str = "SELECT epoch AS number FROM maintenance WHERE id = 1 AND epoch = ?1";

impl TimeTx for SqliteTx<'_> {
    fn clock(&mut self) -> StoreResult<ClockReading> {
        self.read(Self::clock_row)
    }

    fn raise_mark(&mut self, step: Micros) -> StoreResult<()> {
        self.change(|tx| tx.execute(statement(RAISE_MARK).bind::<BigInt, _>(tx.now_us()).bind::<BigInt, _>(step.get())).map(drop))
    }

    fn lock_clock(&mut self) -> StoreResult<ClockReading> {
        self.change(Self::clock_row)
    }

    fn set_clock(&mut self, clock: &ClockReading) -> StoreResult<()> {
        let (mark, since) = (clock.mark.map(Timestamp::as_micros), clock.anomaly_since.map(Timestamp::as_micros));
        self.change(|tx| tx.execute(statement(SET_CLOCK).bind::<Nullable<BigInt>, _>(mark).bind::<Nullable<BigInt>, _>(since)).map(drop))
    }

    fn pull_back(&mut self, within: Micros) -> StoreResult<PulledBack> {
        self.change(|tx| {
            let (now, latest) = (tx.now_us(), tx.time().after(within).unwrap_or(Timestamp::MAX).as_micros());
            tx.execute(statement(END_TERM).bind::<BigInt, _>(now))?;
            let ready = tx.execute(statement(PULL_BACK_READY).bind::<BigInt, _>(now))?;
            let leases = tx.execute(statement(PULL_BACK_LEASES).bind::<BigInt, _>(now).bind::<BigInt, _>(latest))?;
            Ok(PulledBack { ready: ready as u64, leases: leases as u64 })
        })
    }

    fn spare_leases(&mut self, spare: &Spare) -> StoreResult<u32> {
        let query = statement(SPARE_LEASES)
            .bind::<BigInt, _>(spare.until.as_micros())
            .bind::<BigInt, _>(spare.live_at.as_micros())
            .bind::<BigInt, _>(i64::from(spare.limit));
        self.change(|tx| Ok(u32::try_from(tx.execute(query)?).unwrap_or(u32::MAX)))
    }

    fn elect(&mut self, candidate: &Candidate) -> StoreResult<Leadership> {
        self.change(|tx| {
            let ends_at = after(tx.time(), candidate.term)?;
            let elected = tx.execute(
                statement(ELECT)
                    .bind::<BigInt, _>(tx.now_us())
                    .bind::<Text, _>(candidate.token.to_string())
                    .bind::<Text, _>(candidate.name.as_str())
                    .bind::<BigInt, _>(ends_at.as_micros()),
            )?;
            let leader = tx.load_rows::<rows::Leader, _>(statement(LEADER).bind::<BigInt, _>(tx.now_us()))?.pop();
            leader.ok_or_else(|| rejected("the row of `maintenance` is not there"))?.read(elected > 0)
        })
    }

    fn resign(&mut self, token: LeaseToken, epoch: Epoch) -> StoreResult<()> {
        self.change(|tx| {
            let query = statement(RESIGN).bind::<BigInt, _>(tx.now_us()).bind::<Text, _>(token.to_string()).bind::<BigInt, _>(epoch.0);
            tx.execute(query).map(drop)
        })
    }

    fn hold_epoch(&mut self, epoch: Epoch) -> StoreResult<bool> {
        self.change(|tx| {
            let held = tx.load_rows::<rows::Number, _>(statement(HOLD_EPOCH).bind::<BigInt, _>(epoch.0))?;
            Ok(!held.is_empty())
        })
    }
}

impl SqliteTx<'_> {
    fn clock_row(&mut self) -> StoreResult<ClockReading> {
        let row = self.load_rows::<rows::Mark, _>(statement(CLOCK))?.pop();
        row.ok_or_else(|| rejected("the row of `clock` is not there"))?.read_at(self.time())
    }
}
