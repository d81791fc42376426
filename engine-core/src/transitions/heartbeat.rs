//! Keeps leases alive (L4, T8), and remembers how far time has come (T7).

use super::trust::MARK_STEP;
use crate::model::{Micros, OpSeq};
use crate::store::rows::{Lease, LeaseKey};
use crate::store::{StoreError, Tx};
use std::collections::{BTreeSet, HashMap};

/// What became of one lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeartbeatOutcome {
    /// It holds, until the expiry it now has.
    Held(Lease),
    /// It does not hold any more; its worker must stop.
    Lost,
    /// The clock is behind the lease's beginning: nothing was written; try again.
    ClockBehind,
}

/// Extends those of `leases` that hold to now + `by`, never shortening one; answers for each in turn, alike for one that
/// is named twice. Raises the mark of time on the way.
///
/// # Locks
/// Lease rows, in op order; the clock's, which it does not wait for.
///
/// # Errors
/// [`StoreError`]; no lease was extended.
pub fn heartbeat(tx: &mut dyn Tx, leases: &[LeaseKey], by: Micros) -> Result<Vec<HeartbeatOutcome>, StoreError> {
    let distinct: Vec<LeaseKey> = leases.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
    let held: HashMap<LeaseKey, Lease> = tx.extend_leases(&distinct, by)?.into_iter().map(|lease| (lease.key, lease)).collect();
    let missing: Vec<LeaseKey> = distinct.into_iter().filter(|key| !held.contains_key(key)).collect();
    let early = behind_clock(tx, &missing)?;
    if !held.is_empty() {
        tx.raise_mark(MARK_STEP)?;
    }
    Ok(leases
        .iter()
        .map(|key| match held.get(key) {
            Some(lease) => HeartbeatOutcome::Held(lease.clone()),
            None if early.contains(key) => HeartbeatOutcome::ClockBehind,
            None => HeartbeatOutcome::Lost,
        })
        .collect())
}

/// Those of `leases` that are there but begin later than now.
pub(super) fn behind_clock(tx: &mut dyn Tx, leases: &[LeaseKey]) -> Result<Vec<LeaseKey>, StoreError> {
    if leases.is_empty() {
        return Ok(Vec::new());
    }
    let mut ops: Vec<OpSeq> = leases.iter().map(|key| key.op).collect();
    ops.sort_unstable();
    ops.dedup();
    let there = tx.leases_of(&ops)?;
    let now = tx.now()?;
    Ok(there.into_iter().filter(|lease| lease.acquired_at > now && leases.contains(&lease.key)).map(|lease| lease.key).collect())
}
