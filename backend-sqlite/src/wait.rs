//! Steps on ops that wait.

use crate::graph::of_ops;
use crate::set::{self, Set, cells};
use crate::tx::SqliteTx;
use diesel::sql_types::{BigInt, Text};
use leasehold_core::model::{OpSeq, Timestamp};
use leasehold_core::store::rows::{OpWait, OpWake, TakeWait, TakenWaits, WaitKey, WaitReason};
use leasehold_core::store::{StoreResult, WaitTx};
use leasehold_sql::{rows, statement, wait_columns};

pub(crate) const DUE_WAITS: &str =
    concat!("SELECT ", wait_columns!(), " FROM waits WHERE due_at_us <= ?1 ORDER BY due_at_us, op LIMIT ?2 + 0");

pub(crate) const WAITS_FOR: &str =
    concat!("SELECT ", wait_columns!(), " FROM waits WHERE reason = ?1 AND op > ?2 ORDER BY op LIMIT ?3 + 0");

// At its instant a wake-up is due (T5).
pub(crate) const TAKE_DUE_WAITS: &str = concat!(
    "DELETE FROM waits
      WHERE op IN (SELECT wa.op
                     FROM jsonb_each(?1) AS k
                    CROSS JOIN waits AS wa ON wa.op = k.value ->> 0
                    WHERE wa.fence = k.value ->> 1 AND wa.due_at_us <= ?2)
     RETURNING ",
    wait_columns!()
);

pub(crate) const TAKE_WAITS: &str = concat!(
    "DELETE FROM waits
      WHERE op IN (SELECT wa.op
                     FROM jsonb_each(?1) AS k
                    CROSS JOIN waits AS wa ON wa.op = k.value ->> 0
                    WHERE wa.fence = k.value ->> 1)
     RETURNING ",
    wait_columns!()
);

pub(crate) const WAITS_OF: &str =
    concat!("SELECT ", wait_columns!(), " FROM waits WHERE op IN (SELECT value FROM json_each(?1)) ORDER BY op");

pub(crate) const WAKES_OF: &str =
    concat!("SELECT ", wait_columns!(), ", woken_at_us FROM wakes WHERE op IN (SELECT value FROM json_each(?1)) ORDER BY op");

pub(crate) const INSERT_WAITS: &str = "
    INSERT INTO waits (op, workflow, fence, reason, since_us, due_at_us)
    SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5
      FROM jsonb_each(?1)";

pub(crate) const PUT_WAKES: &str = "
    INSERT INTO wakes (op, workflow, fence, reason, since_us, due_at_us, woken_at_us)
    SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6
      FROM jsonb_each(?1)
     WHERE true
        ON CONFLICT (op) DO UPDATE
       SET fence = excluded.fence, reason = excluded.reason, since_us = excluded.since_us, due_at_us = excluded.due_at_us,
           woken_at_us = excluded.woken_at_us";

impl WaitTx for SqliteTx<'_> {
    fn due_waits(&mut self, limit: u32) -> StoreResult<Vec<OpWait>> {
        self.read(|tx| {
            let query = statement(DUE_WAITS).bind::<BigInt, _>(tx.now_us()).bind::<BigInt, _>(i64::from(limit));
            tx.load::<rows::Wait, _>(query)
        })
    }

    fn waits_for(&mut self, reason: WaitReason, after: Option<OpSeq>, limit: u32) -> StoreResult<Vec<OpWait>> {
        self.read(|tx| {
            let query = statement(WAITS_FOR)
                .bind::<Text, _>(reason.as_str())
                .bind::<BigInt, _>(after.map_or(i64::MIN, |after| after.0))
                .bind::<BigInt, _>(i64::from(limit));
            tx.load::<rows::Wait, _>(query)
        })
    }

    fn take_waits(&mut self, waits: &[WaitKey], take: TakeWait) -> StoreResult<TakenWaits> {
        self.change(|tx| {
            let mut taken = Vec::new();
            for part in set::rows(waits, |key| cells![key.op.0, key.fence.0]) {
                taken.extend(match take {
                    TakeWait::Due => {
                        tx.load::<rows::Wait, _>(statement(TAKE_DUE_WAITS).bind::<Text, _>(part).bind::<BigInt, _>(tx.now_us()))?
                    }
                    TakeWait::There => tx.load::<rows::Wait, _>(statement(TAKE_WAITS).bind::<Text, _>(part))?,
                });
            }
            tx.wrote(taken.len());
            Ok(TakenWaits { now: tx.time(), waits: taken })
        })
    }

    fn waits_of(&mut self, ops: &[OpSeq]) -> StoreResult<Vec<OpWait>> {
        self.read(|tx| tx.load_set::<rows::Wait>(WAITS_OF, of_ops(ops)))
    }

    fn wakes_of(&mut self, ops: &[OpSeq]) -> StoreResult<Vec<OpWake>> {
        self.read(|tx| tx.load_set::<rows::Wake>(WAKES_OF, of_ops(ops)))
    }
}

/// The parameters of [`INSERT_WAITS`].
pub(crate) fn waits(waits: &[OpWait]) -> Set {
    let mut in_order: Vec<&OpWait> = waits.iter().collect();
    in_order.sort_unstable_by_key(|wait| wait.key);
    set::rows(in_order, |wait| {
        cells![
            wait.key.op.0,
            wait.workflow.0,
            wait.key.fence.0,
            wait.reason.as_str(),
            wait.since.as_micros(),
            wait.due_at.map(Timestamp::as_micros),
        ]
    })
}

/// The parameters of [`PUT_WAKES`].
pub(crate) fn wakes(wakes: &[OpWake]) -> Set {
    let mut in_order: Vec<&OpWake> = wakes.iter().collect();
    in_order.sort_unstable_by_key(|wake| wake.wait.key);
    set::rows(in_order, |wake| {
        let wait = &wake.wait;
        cells![
            wait.key.op.0,
            wait.workflow.0,
            wait.key.fence.0,
            wait.reason.as_str(),
            wait.since.as_micros(),
            wait.due_at.map(Timestamp::as_micros),
            wake.woken_at.as_micros(),
        ]
    })
}
