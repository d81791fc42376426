//! Takes expired leases back before claiming (L7, L13), and moves what is due.

use super::session::Settings;
use crate::client::with_causes;
use crate::store::rows::Lease;
use crate::store::{StoreError, StoreExt, TxKind};
use crate::transitions::{self, BatchLimit, RecoveredOp};

/// One bounded pass of recovery. A row that cannot be handled is isolated, reported and left; the rest goes on.
pub(super) fn recover(settings: &Settings, limit: BatchLimit) -> Result<Vec<RecoveredOp>, StoreError> {
    // A probe of an index, so that an engine with nothing to recover takes no lock.
    let expired = settings.store.with(TxKind::Read, |tx| tx.expired_leases(limit.get()))?;
    let mut recovered = Vec::with_capacity(expired.len());
    if !expired.is_empty() {
        recover_part(settings, &expired, &mut recovered)?;
        tracing::info!(
            messaging.system = "leasehold",
            messaging.operation.name = "recover",
            messaging.batch.message_count = recovered.len(),
            "expired leases taken back"
        );
    }
    Ok(recovered)
}

fn recover_part(settings: &Settings, part: &[Lease], recovered: &mut Vec<RecoveredOp>) -> Result<(), StoreError> {
    let done = settings.hub.transact(
        settings.store.as_ref(),
        TxKind::Maintenance,
        |tx| transitions::recover_leases(tx, part),
        |done| std::mem::take(&mut done.notices),
        |_, notice| notice,
    );
    match (done, part) {
        (Ok(done), _) => recovered.extend(done.ops),
        (Err(StoreError::Rejected(error)), [lease]) => {
            tracing::error!(
                op = lease.key.op.0,
                error = with_causes(error.as_ref()),
                "an expired lease cannot be taken back; the others are"
            );
        }
        (Err(StoreError::Rejected(_)), _) => {
            let (first, second) = part.split_at(part.len() / 2);
            recover_part(settings, first, recovered)?;
            recover_part(settings, second, recovered)?;
        }
        (Err(error), _) => return Err(error),
    }
    Ok(())
}

/// The most delayed ops that one pass moves to `ready`.
pub(super) const PROMOTE_MAX: u32 = 1_000;

/// Moves what is due from `delayed` to `ready`; how many.
pub(super) fn promote(settings: &Settings, limit: u32) -> Result<u32, StoreError> {
    settings.store.with(TxKind::Claim, |tx| tx.promote(limit))
}
