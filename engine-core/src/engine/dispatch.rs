//! Dispatches ops whose effect must not be repeated, before their handlers begin (L16).

use super::retrying::Pauses;
use super::session::Session;
use crate::client::with_causes;
use crate::store::rows::LeaseKey;
use crate::store::{StoreExt, TxKind};
use crate::transitions::{self, DispatchOutcome};

/// Commits that the handlers of `keys` may begin; answers for each in turn. Nothing is answered, and none may begin, when
/// the store could not be asked while any was `wanted` still.
pub(super) fn dispatched(session: &Session, keys: &[LeaseKey], wanted: impl Fn() -> bool) -> Vec<DispatchOutcome> {
    if keys.is_empty() {
        return Vec::new();
    }
    let mut pauses = Pauses::new();
    loop {
        match session.settings.store.with(TxKind::Heartbeat, |tx| transitions::dispatch(tx, keys)) {
            Ok(outcomes) => return outcomes,
            Err(error) => {
                tracing::warn!(error = with_causes(&error), ops = keys.len(), "dispatch failed");
                if !error.is_transient() || !wanted() || !session.slots.pause(pauses.next()) {
                    return Vec::new();
                }
            }
        }
    }
}
