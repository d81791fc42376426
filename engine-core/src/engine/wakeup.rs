//! Wakes ops whose instant has come (W2, L13).

use super::session::Settings;
use crate::client::with_causes;
use crate::store::rows::OpWait;
use crate::store::{StoreError, StoreExt, TxKind};
use crate::transitions::{self, BatchLimit, WokenOp};

/// One bounded pass of wake-ups. A row that cannot be handled is isolated, reported and left; the rest goes on.
pub(super) fn wake(settings: &Settings, limit: BatchLimit) -> Result<Vec<WokenOp>, StoreError> {
    // A probe of an index, so that an engine with nobody to wake takes no lock.
    let due = settings.store.with(TxKind::Read, |tx| tx.due_waits(limit.get()))?;
    let mut woken = Vec::with_capacity(due.len());
    if !due.is_empty() {
        wake_part(settings, &due, &mut woken)?;
        tracing::debug!(
            messaging.system = "leasehold",
            messaging.operation.name = "wake",
            messaging.batch.message_count = woken.len(),
            "waiting ops woken"
        );
    }
    Ok(woken)
}

fn wake_part(settings: &Settings, part: &[OpWait], woken: &mut Vec<WokenOp>) -> Result<(), StoreError> {
    let done = settings.hub.transact(
        settings.store.as_ref(),
        TxKind::Maintenance,
        |tx| transitions::wake_waits(tx, part),
        |done| std::mem::take(&mut done.notices),
        |_, notice| notice,
    );
    match (done, part) {
        (Ok(done), _) => woken.extend(done.ops),
        (Err(StoreError::Rejected(error)), [wait]) => {
            tracing::error!(op = wait.key.op.0, error = with_causes(error.as_ref()), "an op that is due cannot be woken; the others are");
        }
        (Err(StoreError::Rejected(_)), _) => {
            let (first, second) = part.split_at(part.len() / 2);
            wake_part(settings, first, woken)?;
            wake_part(settings, second, woken)?;
        }
        (Err(error), _) => return Err(error),
    }
    Ok(())
}
