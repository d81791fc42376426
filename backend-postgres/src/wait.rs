//! Steps on ops that wait.

use crate::graph::ops;
use crate::tx::PgTx;
use crate::write::column;
use diesel::QueryableByName;
use diesel::sql_types::{Array, BigInt, Nullable, Text};
use leasehold_core::model::{OpSeq, Timestamp};
use leasehold_core::store::rows::{OpWait, OpWake, TakeWait, TakenWaits, WaitKey, WaitReason};
use leasehold_core::store::{StoreError, StoreResult, Tx, WaitTx};
use leasehold_sql::rows::Row;
use leasehold_sql::{rows, statement, wait_columns};

pub(crate) const DUE_WAITS: &str =
    concat!("SELECT ", wait_columns!(), " FROM waits WHERE due_at_us <= (SELECT now_us()) ORDER BY due_at_us, op LIMIT $1");

pub(crate) const WAITS_FOR: &str = concat!("SELECT ", wait_columns!(), " FROM waits WHERE reason = $1 AND op > $2 ORDER BY op LIMIT $3");

/// Deletes the waits named for which `$stands` is true. The workflows' locks are the waits' locks, so nothing is waited
/// for, and the statement's own time is behind them.
macro_rules! take_waits {
    ($stands:literal) => {
        concat!(
            "WITH clock AS MATERIALIZED (SELECT now_us() AS us),
             held AS MATERIALIZED (
                 SELECT wa.op FROM unnest($1, $2) AS k (op, fence)
                   JOIN waits AS wa ON wa.op = k.op AND wa.fence = k.fence
                  CROSS JOIN clock
                  WHERE ",
            $stands,
            " ORDER BY wa.op)
             DELETE FROM waits AS wa USING clock
              WHERE wa.op = ANY(ARRAY(SELECT op FROM held))
             RETURNING wa.op, wa.workflow, wa.fence, wa.reason, wa.since_us, wa.due_at_us, clock.us AS judged_at_us"
        )
    };
}
// At its instant a wake-up is due (T5).
pub(crate) const TAKE_DUE_WAITS: &str = take_waits!("wa.due_at_us <= clock.us");
pub(crate) const TAKE_WAITS: &str = take_waits!("TRUE");

pub(crate) const WAITS_OF: &str = concat!("SELECT ", wait_columns!(), " FROM waits WHERE op = ANY($1) ORDER BY op");

pub(crate) const WAKES_OF: &str = concat!("SELECT ", wait_columns!(), ", woken_at_us FROM wakes WHERE op = ANY($1) ORDER BY op");

const INSERT_WAITS: &str = "
    INSERT INTO waits (op, workflow, fence, reason, since_us, due_at_us)
    SELECT op, workflow, fence, reason, since_us, due_at_us
      FROM unnest($1, $2, $3, $4, $5, $6) AS w (op, workflow, fence, reason, since_us, due_at_us)
     ORDER BY op";

const UPSERT_WAKES: &str = "
    INSERT INTO wakes (op, workflow, fence, reason, since_us, due_at_us, woken_at_us)
    SELECT op, workflow, fence, reason, since_us, due_at_us, woken_at_us
      FROM unnest($1, $2, $3, $4, $5, $6, $7) AS w (op, workflow, fence, reason, since_us, due_at_us, woken_at_us)
     ORDER BY op
    ON CONFLICT (op) DO UPDATE
       SET fence = excluded.fence, reason = excluded.reason, since_us = excluded.since_us, due_at_us = excluded.due_at_us,
           woken_at_us = excluded.woken_at_us";

/// A wait that was taken away, and when it was judged.
#[derive(QueryableByName)]
struct TakenWait {
    #[diesel(embed)]
    wait: rows::Wait,
    #[diesel(sql_type = BigInt)]
    judged_at_us: i64,
}

impl WaitTx for PgTx<'_> {
    fn due_waits(&mut self, limit: u32) -> StoreResult<Vec<OpWait>> {
        self.load::<rows::Wait, _>(statement(DUE_WAITS).bind::<BigInt, _>(i64::from(limit)))
    }

    fn waits_for(&mut self, reason: WaitReason, after: Option<OpSeq>, limit: u32) -> StoreResult<Vec<OpWait>> {
        let query = statement(WAITS_FOR)
            .bind::<Text, _>(reason.as_str())
            .bind::<BigInt, _>(after.map_or(i64::MIN, |after| after.0))
            .bind::<BigInt, _>(i64::from(limit));
        self.load::<rows::Wait, _>(query)
    }

    fn take_waits(&mut self, waits: &[WaitKey], take: TakeWait) -> StoreResult<TakenWaits> {
        let mut taken = TakenWaits { now: Timestamp::MIN, waits: Vec::new() };
        if !waits.is_empty() {
            let sql = match take {
                TakeWait::Due => TAKE_DUE_WAITS,
                TakeWait::There => TAKE_WAITS,
            };
            let query = statement(sql)
                .bind::<Array<BigInt>, _>(column(waits, |key| key.op.0))
                .bind::<Array<BigInt>, _>(column(waits, |key| key.fence.0));
            let rows: Vec<TakenWait> = self.rows(query)?;
            for row in rows {
                let judged_at = Timestamp::from_micros(row.judged_at_us).map_err(|error| StoreError::Rejected(error.into()));
                let read = row.wait.read().and_then(|wait| Ok((wait, judged_at?)));
                let (wait, now) = read.map_err(|error| self.fail(error))?;
                self.require("workflow", self.workflows.contains(&wait.workflow.0), &wait.workflow.0)?;
                taken.now = now;
                taken.waits.push(wait);
            }
        }
        if taken.waits.is_empty() {
            // Nothing stood as asked, so no row tells when that was judged; now is behind the locks as well.
            taken.now = self.now()?;
        }
        Ok(taken)
    }

    fn waits_of(&mut self, seqs: &[OpSeq]) -> StoreResult<Vec<OpWait>> {
        if seqs.is_empty() {
            return Ok(Vec::new());
        }
        self.load::<rows::Wait, _>(statement(WAITS_OF).bind::<Array<BigInt>, _>(ops(seqs)))
    }

    fn wakes_of(&mut self, seqs: &[OpSeq]) -> StoreResult<Vec<OpWake>> {
        if seqs.is_empty() {
            return Ok(Vec::new());
        }
        self.load::<rows::Wake, _>(statement(WAKES_OF).bind::<Array<BigInt>, _>(ops(seqs)))
    }
}

impl PgTx<'_> {
    pub(crate) fn insert_waits(&mut self, waits: &[OpWait]) -> StoreResult<()> {
        let query = statement(INSERT_WAITS)
            .bind::<Array<BigInt>, _>(column(waits, |wait| wait.key.op.0))
            .bind::<Array<BigInt>, _>(column(waits, |wait| wait.workflow.0))
            .bind::<Array<BigInt>, _>(column(waits, |wait| wait.key.fence.0))
            .bind::<Array<Text>, _>(column(waits, |wait| wait.reason.as_str()))
            .bind::<Array<BigInt>, _>(column(waits, |wait| wait.since.as_micros()))
            .bind::<Array<Nullable<BigInt>>, _>(column(waits, |wait| wait.due_at.map(Timestamp::as_micros)));
        self.execute(query).map(drop)
    }

    pub(crate) fn upsert_wakes(&mut self, wakes: &[OpWake]) -> StoreResult<()> {
        let query = statement(UPSERT_WAKES)
            .bind::<Array<BigInt>, _>(column(wakes, |wake| wake.wait.key.op.0))
            .bind::<Array<BigInt>, _>(column(wakes, |wake| wake.wait.workflow.0))
            .bind::<Array<BigInt>, _>(column(wakes, |wake| wake.wait.key.fence.0))
            .bind::<Array<Text>, _>(column(wakes, |wake| wake.wait.reason.as_str()))
            .bind::<Array<BigInt>, _>(column(wakes, |wake| wake.wait.since.as_micros()))
            .bind::<Array<Nullable<BigInt>>, _>(column(wakes, |wake| wake.wait.due_at.map(Timestamp::as_micros)))
            .bind::<Array<BigInt>, _>(column(wakes, |wake| wake.woken_at.as_micros()));
        self.execute(query).map(drop)
    }
}
