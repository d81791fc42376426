//! Steps on the store's clock and on its maintenance.

use super::tables::{ClockRow, LeaderRow};
use super::{MemoryTx, count, reject};
use crate::model::{Epoch, LeaseToken, Micros, OpSeq, Timestamp};
use crate::store::rows::{Lease, QueuedOp};
use crate::store::{Candidate, ClockReading, Leadership, PulledBack, Spare, StoreError, StoreResult, TimeTx};
use std::ops::Bound;

impl TimeTx for MemoryTx<'_> {
    fn clock(&mut self) -> StoreResult<ClockReading> {
        self.read(|tables, now| Ok(tables.clock_reading(now)))
    }

    fn raise_mark(&mut self, step: Micros) -> StoreResult<()> {
        self.change(|tx| {
            let due = tx.tables.clock_row().mark.is_none_or(|mark| mark.after(step).is_ok_and(|next| next <= tx.now));
            if due {
                let row = ClockRow { mark: Some(tx.now), anomaly_since: None };
                tx.tables.clock.set((), row);
            }
            Ok(())
        })
    }

    fn lock_clock(&mut self) -> StoreResult<ClockReading> {
        self.change(|tx| {
            tx.clock_locked = true;
            Ok(tx.tables.clock_reading(tx.now))
        })
    }

    fn set_clock(&mut self, clock: &ClockReading) -> StoreResult<()> {
        self.change(|tx| {
            if !tx.clock_locked {
                return Err(reject("the clock is set without its row being locked"));
            }
            tx.tables.clock.set((), ClockRow { mark: clock.mark, anomaly_since: clock.anomaly_since });
            Ok(())
        })
    }

    fn pull_back(&mut self, within: Micros) -> StoreResult<PulledBack> {
        self.change(|tx| {
            let (now, latest) = (tx.now, tx.now.after(within).unwrap_or(Timestamp::MAX));
            if let Some(leader) = tx.tables.leader.get(&()).cloned().filter(|leader| leader.ends_at > now) {
                tx.tables.leader.set((), LeaderRow { ends_at: now, ..leader });
            }
            let ready: Vec<QueuedOp> = tx.tables.ready.iter().map(|(_, queued)| *queued).filter(|queued| queued.due_at > now).collect();
            for queued in &ready {
                tx.tables.remove_ready(queued.op);
                tx.tables.insert_ready(QueuedOp { due_at: now, ..*queued })?;
            }
            let ahead = |lease: &&Lease| lease.acquired_at > now || lease.expires_at > latest;
            let leases: Vec<Lease> = tx.tables.leases.iter().map(|(_, lease)| lease).filter(ahead).cloned().collect();
            for lease in &leases {
                tx.tables.remove_lease(lease.key.op);
                let (acquired_at, expires_at) = (lease.acquired_at.min(now), lease.expires_at.min(latest));
                tx.tables.insert_lease(Lease { acquired_at, expires_at, ..lease.clone() })?;
            }
            Ok(PulledBack { ready: ready.len() as u64, leases: leases.len() as u64 })
        })
    }

    fn spare_leases(&mut self, spare: &Spare) -> StoreResult<u32> {
        self.change(|tx| {
            let from = Bound::Excluded((spare.live_at, OpSeq(i64::MAX)));
            let window = tx.tables.leases_by_expiry.range((from, Bound::Excluded((spare.until, OpSeq(i64::MIN)))));
            let ops: Vec<OpSeq> = window.take(spare.limit as usize).map(|((_, op), ())| *op).collect();
            for op in &ops {
                if let Some(lease) = tx.tables.remove_lease(*op) {
                    tx.tables.insert_lease(Lease { expires_at: spare.until, ..lease })?;
                }
            }
            Ok(count(ops.len()))
        })
    }

    fn elect(&mut self, candidate: &Candidate) -> StoreResult<Leadership> {
        self.change(|tx| {
            let (now, ends_at) = (tx.now, after(tx.now, candidate.term)?);
            let row = tx.tables.leader.get(&()).cloned();
            let running = row.as_ref().filter(|row| row.ends_at > now);
            let epoch = match running {
                Some(row) if row.token == candidate.token => row.epoch,
                Some(row) => {
                    return Ok(Leadership { epoch: row.epoch, leader: row.name.clone(), ends_at: row.ends_at, now, mine: false });
                }
                None => row.map_or(Epoch(1), |row| Epoch(row.epoch.0 + 1)),
            };
            tx.tables.leader.set((), LeaderRow { epoch, token: candidate.token, name: candidate.name.clone(), ends_at });
            Ok(Leadership { epoch, leader: candidate.name.clone(), ends_at, now, mine: true })
        })
    }

    fn resign(&mut self, token: LeaseToken, epoch: Epoch) -> StoreResult<()> {
        self.change(|tx| {
            let mine = |row: &LeaderRow| row.token == token && row.epoch == epoch && row.ends_at > tx.now;
            if let Some(row) = tx.tables.leader.get(&()).cloned().filter(mine) {
                tx.tables.leader.set((), LeaderRow { ends_at: tx.now, ..row });
            }
            Ok(())
        })
    }

    fn hold_epoch(&mut self, epoch: Epoch) -> StoreResult<bool> {
        self.change(|tx| Ok(tx.tables.leader.get(&()).is_some_and(|row| row.epoch == epoch)))
    }
}

fn after(now: Timestamp, by: Micros) -> StoreResult<Timestamp> {
    now.after(by).map_err(|overflow| StoreError::Rejected(overflow.into()))
}
