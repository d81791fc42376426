//! Telling one handler to stop, and why: the first reason stands.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use tokio_util::sync::CancellationToken;

/// Why a handler was told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopReason {
    /// Its lease is gone or can no longer be relied on: nothing of it is recorded.
    LeaseLost,
    /// It ran longer than its op allows.
    TimedOut,
    /// The worker shuts down.
    Shutdown,
}

/// One handler's switch, shared by whoever may turn it.
#[derive(Debug, Clone, Default)]
pub(super) struct StopSwitch {
    token: CancellationToken,
    reason: Arc<OnceLock<StopReason>>,
    left: Arc<AtomicBool>,
}

impl StopSwitch {
    /// Tells the handler to stop; `false` when it was told before.
    pub(super) fn turn(&self, reason: StopReason) -> bool {
        let first = self.reason.set(reason).is_ok();
        self.token.cancel();
        first
    }

    /// Why it was told to stop, if it was.
    pub(super) fn reason(&self) -> Option<StopReason> {
        self.reason.get().copied()
    }

    /// What the handler sees: it may cancel it for its own tasks without turning the switch.
    pub(super) fn for_handler(&self) -> CancellationToken {
        self.token.child_token()
    }

    /// Whether the caller is the first to give the attempt's place up; whoever is, counts it.
    pub(super) fn leave(&self) -> bool {
        !self.left.swap(true, Ordering::AcqRel)
    }

    /// Waits until it is turned.
    pub(super) async fn turned(&self) {
        self.token.cancelled().await;
    }
}
