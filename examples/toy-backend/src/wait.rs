//! Steps on ops that wait.

use crate::store::ToyTx;
use leasehold_core::model::OpSeq;
use leasehold_core::store::rows::{OpWait, OpWake, TakeWait, TakenWaits, WaitKey, WaitReason};
use leasehold_core::store::{StoreResult, WaitTx};
use std::collections::BTreeSet;

impl WaitTx for ToyTx {
    fn due_waits(&mut self, limit: u32) -> StoreResult<Vec<OpWait>> {
        self.read(|tables, now| {
            let mut due: Vec<OpWait> =
                tables.waits.values().filter(|wait| wait.due_at.is_some_and(|due_at| due_at <= now)).cloned().collect();
            due.sort_by_key(|wait| (wait.due_at, wait.key.op));
            due.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
            Ok(due)
        })
    }

    fn waits_for(&mut self, reason: WaitReason, after: Option<OpSeq>, limit: u32) -> StoreResult<Vec<OpWait>> {
        let wanted = |wait: &&OpWait| wait.reason == reason && after.is_none_or(|after| wait.key.op > after);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        self.read(|tables, _| Ok(tables.waits.values().filter(wanted).take(limit).cloned().collect()))
    }

    fn take_waits(&mut self, waits: &[WaitKey], take: TakeWait) -> StoreResult<TakenWaits> {
        let keys: BTreeSet<&WaitKey> = waits.iter().collect();
        self.change(|tables, now| {
            let stands = |wait: &OpWait| match take {
                TakeWait::Due => wait.due_at.is_some_and(|due_at| due_at <= now),
                TakeWait::There => true,
            };
            let ops: Vec<OpSeq> =
                tables.waits.values().filter(|wait| keys.contains(&wait.key) && stands(wait)).map(|wait| wait.key.op).collect();
            Ok(TakenWaits { now, waits: ops.iter().filter_map(|op| tables.waits.remove(op)).collect() })
        })
    }

    fn waits_of(&mut self, ops: &[OpSeq]) -> StoreResult<Vec<OpWait>> {
        let ops: BTreeSet<&OpSeq> = ops.iter().collect();
        self.read(|tables, _| Ok(ops.into_iter().filter_map(|op| tables.waits.get(op)).cloned().collect()))
    }

    fn wakes_of(&mut self, ops: &[OpSeq]) -> StoreResult<Vec<OpWake>> {
        let ops: BTreeSet<&OpSeq> = ops.iter().collect();
        self.read(|tables, _| Ok(ops.into_iter().filter_map(|op| tables.wakes.get(op)).cloned().collect()))
    }
}
