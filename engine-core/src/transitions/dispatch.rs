//! Notes that handlers are about to begin whose effect must not be repeated (L16).

use super::heartbeat::behind_clock;
use crate::store::rows::LeaseKey;
use crate::store::{StoreError, Tx};
use std::collections::BTreeSet;

/// What became of one lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DispatchOutcome {
    /// Its handler may begin.
    Dispatched,
    /// It does not hold any more: its handler must not begin.
    Lost,
    /// The clock is behind the lease's beginning: nothing was written; try again.
    ClockBehind,
}

/// Dispatches those of `leases` that hold; answers for each in turn. A handler begins only behind the commit: from then on
/// an attempt that ends without an answer is one of which nobody knows what it did, and before it never began.
///
/// # Locks
/// Lease rows, in op order.
///
/// # Errors
/// [`StoreError`]; no handler may begin. After [`StoreError::Unavailable`] repeat it.
pub fn dispatch(tx: &mut dyn Tx, leases: &[LeaseKey]) -> Result<Vec<DispatchOutcome>, StoreError> {
    let distinct: Vec<LeaseKey> = leases.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
    let dispatched: BTreeSet<LeaseKey> = tx.dispatch_leases(&distinct)?.into_iter().map(|lease| lease.key).collect();
    let missing: Vec<LeaseKey> = distinct.into_iter().filter(|key| !dispatched.contains(key)).collect();
    let early = behind_clock(tx, &missing)?;
    let outcome = |key: &LeaseKey| match (dispatched.contains(key), early.contains(key)) {
        (true, _) => DispatchOutcome::Dispatched,
        (false, true) => DispatchOutcome::ClockBehind,
        (false, false) => DispatchOutcome::Lost,
    };
    Ok(leases.iter().map(outcome).collect())
}
