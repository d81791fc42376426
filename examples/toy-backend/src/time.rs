//! Steps on the store's clock and on its maintenance.

use crate::lease::size;
use crate::store::ToyTx;
use crate::tables::rejected;
use leasehold_core::model::{Epoch, LeaseToken, Micros, OpSeq, Timestamp, WorkerName};
use leasehold_core::store::{Candidate, ClockReading, Leadership, PulledBack, Spare, StoreResult, TimeTx};
use serde::{Deserialize, Serialize};

/// What is remembered of the clock.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Clock {
    mark: Option<Timestamp>,
    anomaly_since: Option<Timestamp>,
}

impl Clock {
    pub(crate) fn at(self, now: Timestamp) -> ClockReading {
        ClockReading { now, mark: self.mark, anomaly_since: self.anomaly_since }
    }
}

/// Who leads, or led last.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Leader {
    epoch: Epoch,
    token: LeaseToken,
    name: WorkerName,
    ends_at: Timestamp,
}

impl TimeTx for ToyTx {
    fn clock(&mut self) -> StoreResult<ClockReading> {
        self.read(|tables, now| Ok(tables.clock.at(now)))
    }

    fn raise_mark(&mut self, step: Micros) -> StoreResult<()> {
        let due = self.read(|tables, now| Ok(tables.clock.mark.is_none_or(|mark| mark.after(step).is_ok_and(|next| next <= now))))?;
        if !due {
            return Ok(());
        }
        self.change(|tables, now| {
            tables.clock = Clock { mark: Some(now), anomaly_since: None };
            Ok(())
        })
    }

    fn lock_clock(&mut self) -> StoreResult<ClockReading> {
        // Who writes has the turn, and that is every lock there is.
        self.clock()
    }

    fn set_clock(&mut self, clock: &ClockReading) -> StoreResult<()> {
        self.change(|tables, _| {
            tables.clock = Clock { mark: clock.mark, anomaly_since: clock.anomaly_since };
            Ok(())
        })
    }

    fn pull_back(&mut self, within: Micros) -> StoreResult<PulledBack> {
        self.change(|tables, now| {
            let latest = now.after(within).unwrap_or(Timestamp::MAX);
            let mut back = PulledBack::default();
            if let Some(leader) = &mut tables.leader {
                leader.ends_at = leader.ends_at.min(now);
            }
            for queued in tables.ready.values_mut().filter(|queued| queued.due_at > now) {
                queued.due_at = now;
                back.ready += 1;
            }
            for lease in tables.leases.values_mut().filter(|lease| lease.acquired_at > now || lease.expires_at > latest) {
                lease.acquired_at = lease.acquired_at.min(now);
                lease.expires_at = lease.expires_at.min(latest);
                back.leases += 1;
            }
            Ok(back)
        })
    }

    fn spare_leases(&mut self, spare: &Spare) -> StoreResult<u32> {
        self.change(|tables, _| {
            let window = tables.leases.values().filter(|lease| lease.expires_at > spare.live_at && lease.expires_at < spare.until);
            let mut spared: Vec<(Timestamp, OpSeq)> = window.map(|lease| (lease.expires_at, lease.key.op)).collect();
            spared.sort_unstable();
            spared.truncate(size(spare.limit));
            for (_, op) in &spared {
                if let Some(lease) = tables.leases.get_mut(op) {
                    lease.expires_at = spare.until;
                }
            }
            Ok(u32::try_from(spared.len()).unwrap_or(spare.limit))
        })
    }

    fn elect(&mut self, candidate: &Candidate) -> StoreResult<Leadership> {
        let running = self.read(|tables, now| Ok(tables.leader.clone().filter(|leader| leader.ends_at > now)))?;
        if let Some(leader) = running.as_ref().filter(|leader| leader.token != candidate.token) {
            let Leader { epoch, name, ends_at, .. } = leader.clone();
            return self.read(|_, now| Ok(Leadership { epoch, leader: name, ends_at, now, mine: false }));
        }
        self.change(|tables, now| {
            let ends_at = now.after(candidate.term).map_err(|error| rejected(error.to_string()))?;
            let last = tables.leader.as_ref().map_or(Epoch(0), |leader| leader.epoch);
            let epoch = running.map_or(Epoch(last.0 + 1), |leader| leader.epoch);
            tables.leader = Some(Leader { epoch, token: candidate.token, name: candidate.name.clone(), ends_at });
            Ok(Leadership { epoch, leader: candidate.name.clone(), ends_at, now, mine: true })
        })
    }

    fn resign(&mut self, token: LeaseToken, epoch: Epoch) -> StoreResult<()> {
        self.change(|tables, now| {
            if let Some(leader) = tables.leader.as_mut().filter(|leader| leader.token == token && leader.epoch == epoch) {
                leader.ends_at = leader.ends_at.min(now);
            }
            Ok(())
        })
    }

    fn hold_epoch(&mut self, epoch: Epoch) -> StoreResult<bool> {
        self.read(|tables, _| Ok(tables.leader.as_ref().is_some_and(|leader| leader.epoch == epoch)))
    }
}
