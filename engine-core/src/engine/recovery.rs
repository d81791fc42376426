//! Takes expired leases back (L7, L13), spares those that a jump of time ended (T7), and moves what is due.

use super::session::Settings;
use super::sweep::{Due, SetAside};
use crate::model::{Epoch, Micros, OpSeq, Timestamp, WorkflowSeq};
use crate::store::rows::{Lease, LeaseKey};
use crate::store::{Spare, StoreError, StoreExt, StoreResult, Tx, TxKind};
use crate::transitions::{self, BatchLimit, Notice, Pass, RecoveredOp, Upkeep, upkeep};
use std::time::Instant;

/// Expired leases, to be taken back.
#[derive(Debug)]
pub(super) struct ExpiredLeases;

impl Due for ExpiredLeases {
    type Row = Lease;
    type Key = LeaseKey;
    type Done = RecoveredOp;

    const NAME: &'static str = "recover";

    fn list(tx: &mut dyn Tx, limit: u32) -> StoreResult<Vec<Lease>> {
        tx.expired_leases(limit)
    }
    fn handle(tx: &mut dyn Tx, rows: &[Lease]) -> StoreResult<(Vec<RecoveredOp>, Vec<Notice>)> {
        transitions::recover_leases(tx, rows).map(|recovered| (recovered.ops, recovered.notices))
    }
    fn key(row: &Lease) -> LeaseKey {
        row.key
    }
    fn op(key: LeaseKey) -> OpSeq {
        key.op
    }
    fn workflow(row: &Lease) -> WorkflowSeq {
        row.workflow
    }
    fn done(done: &RecoveredOp) -> LeaseKey {
        done.lease
    }
    fn aside(settings: &Settings) -> &SetAside<LeaseKey> {
        &settings.leases_aside
    }
}

/// Looks whether time has jumped since the last look, and spares the leases that held before if it has.
pub(super) fn look(settings: &Settings) -> Result<(), StoreError> {
    let began = Instant::now();
    let now = settings.store.with(TxKind::Read, |tx| tx.now())?;
    spare_if_jumped(settings, now, began).map(drop)
}

/// The same, where `now` was just read by a call that began at `began`; whether it has.
pub(super) fn spare_if_jumped(settings: &Settings, now: Timestamp, began: Instant) -> Result<bool, StoreError> {
    settings.clock.look(now, began, |live_at| spare(settings, live_at))
}

/// Gives the leases that held at `live_at`, before time jumped, one heartbeat from now on: their owners may be alive.
fn spare(settings: &Settings, live_at: Timestamp) -> Result<(), StoreError> {
    let door = Upkeep { epoch: None, tolerance: settings.clock.tolerance };
    let grace = Micros::try_from(settings.clock.grace).map_err(|error| StoreError::Rejected(error.into()))?;
    let limit = BatchLimit::DEFAULT.get();
    let (mut until, mut spared) = (None, 0_u64);
    loop {
        let pass = settings.store.with(TxKind::Maintenance, |tx| {
            upkeep(tx, door, |tx| {
                let until = match until {
                    Some(until) => until,
                    None => tx.now()?.after(grace).map_err(|overflow| StoreError::Rejected(overflow.into()))?,
                };
                Ok((until, tx.spare_leases(&Spare { live_at, until, limit })?))
            })
        })?;
        // A clock that is behind by now holds recovery as well.
        let Pass::Done((end, count)) = pass else { return Ok(()) };
        until = Some(end);
        spared += u64::from(count);
        if count < limit {
            break;
        }
    }
    tracing::warn!(leases = spared, %live_at, "time jumped forward; workers that are alive have one heartbeat to renew their leases");
    Ok(())
}

/// The most delayed ops that one pass moves to `ready`.
pub(super) const PROMOTE_MAX: u32 = 1_000;

/// Moves what is due from `delayed` to `ready`; how many.
pub(super) fn promote(settings: &Settings, limit: u32, epoch: Option<Epoch>) -> Result<Pass<u32>, StoreError> {
    let door = Upkeep { epoch, tolerance: settings.clock.tolerance };
    // A claim never waits for a row, and the leader's row may have to be waited for.
    let kind = if epoch.is_some() { TxKind::Maintenance } else { TxKind::Claim };
    settings.store.with(kind, |tx| transitions::promote(tx, limit, door))
}
