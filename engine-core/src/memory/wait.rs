//! Steps on ops that wait.

use super::MemoryTx;
use crate::model::OpSeq;
use crate::store::rows::{OpWait, OpWake, TakeWait, TakenWaits, WaitKey, WaitReason};
use crate::store::{StoreResult, WaitTx};
use std::collections::BTreeSet;
use std::ops::Bound;

impl WaitTx for MemoryTx<'_> {
    fn due_waits(&mut self, limit: u32) -> StoreResult<Vec<OpWait>> {
        self.read(|tables, now| {
            let due = tables.waits_by_due.range(..=(now, OpSeq(i64::MAX))).take(limit as usize);
            Ok(due.filter_map(|((_, op), ())| tables.waits.get(op)).cloned().collect())
        })
    }

    fn waits_for(&mut self, reason: WaitReason, after: Option<OpSeq>, limit: u32) -> StoreResult<Vec<OpWait>> {
        self.read(|tables, _| {
            let behind = after.map_or(Bound::Unbounded, Bound::Excluded);
            let waits = tables.waits.range((behind, Bound::Unbounded)).map(|(_, wait)| wait).filter(|wait| wait.reason == reason);
            Ok(waits.take(limit as usize).cloned().collect())
        })
    }

    fn take_waits(&mut self, waits: &[WaitKey], take: TakeWait) -> StoreResult<TakenWaits> {
        self.change(|tx| {
            let now = tx.now;
            let stands = |wait: &OpWait| match take {
                TakeWait::Due => wait.due_at.is_some_and(|due_at| due_at <= now),
                TakeWait::There => true,
            };
            let distinct: BTreeSet<WaitKey> = waits.iter().copied().collect();
            let mut taken = Vec::new();
            for key in distinct {
                let Some(wait) = tx.tables.waits.get(&key.op).filter(|wait| wait.key == key && stands(wait)) else { continue };
                tx.require_lock(wait.workflow)?;
                taken.extend(tx.tables.remove_wait(key.op));
            }
            Ok(TakenWaits { now, waits: taken })
        })
    }

    fn waits_of(&mut self, ops: &[OpSeq]) -> StoreResult<Vec<OpWait>> {
        self.read(|tables, _| {
            let distinct: BTreeSet<OpSeq> = ops.iter().copied().collect();
            Ok(distinct.iter().filter_map(|op| tables.waits.get(op)).cloned().collect())
        })
    }

    fn wakes_of(&mut self, ops: &[OpSeq]) -> StoreResult<Vec<OpWake>> {
        self.read(|tables, _| {
            let distinct: BTreeSet<OpSeq> = ops.iter().copied().collect();
            Ok(distinct.iter().filter_map(|op| tables.wakes.get(op)).cloned().collect())
        })
    }
}
