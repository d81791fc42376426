//! Driving an engine by hand (L14).

use super::claimer::Until;
use super::recovery;
use super::report::CycleReport;
use super::retrying::retry;
use super::running::Running;
use super::wakeup;
use super::{Engine, EngineError};
use crate::client::ClientError;
use crate::store::StoreError;
use crate::transitions::{BatchLimit, RecoveredOp, WokenOp};
use std::sync::Arc;

/// What one pass of upkeep did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reconciled {
    /// The ops whose expired leases were taken back.
    pub recovered: Vec<RecoveredOp>,
    /// The ops that were woken.
    pub woken: Vec<WokenOp>,
    /// How many ops became due and may be claimed now.
    pub promoted: u32,
}

impl Engine {
    /// Does one cycle: recovers expired leases, wakes and promotes what is due, claims up to `max_workers` ops, runs their handlers
    /// and commits what became of them. What that makes ready is for the next cycle.
    ///
    /// # Errors
    /// [`EngineError::Store`] when the store failed for longer than the engine's patience: an error, never a retried op.
    pub async fn run_once(&self) -> Result<CycleReport, EngineError> {
        self.by_hand(Until::Once).await
    }

    /// Works until nothing can be claimed and nothing runs. Ops that wait for a later instant, or for a
    /// token of their queue's bucket, are left to it.
    ///
    /// # Errors
    /// As [`Engine::run_once`].
    pub async fn run_until_idle(&self) -> Result<CycleReport, EngineError> {
        self.by_hand(Until::Idle).await
    }

    async fn by_hand(&self, until: Until) -> Result<CycleReport, EngineError> {
        let session = Running::begin(&self.settings, until)?.finish().await?;
        let report = session.tally().cycle();
        Ok(report)
    }

    /// Does one bounded pass of upkeep and nothing else: takes back at most `limit` expired leases, wakes at most
    /// as many waiting ops, and promotes at most as many that are due.
    ///
    /// # Errors
    /// [`EngineError::Store`].
    pub async fn reconcile_once(&self, limit: BatchLimit) -> Result<Reconciled, EngineError> {
        let settings = Arc::clone(&self.settings);
        let pass = move || {
            let recovered = retry(settings.patience, || recovery::recover(&settings, limit))?;
            let woken = retry(settings.patience, || wakeup::wake(&settings, limit))?;
            let promoted = retry(settings.patience, || recovery::promote(&settings, limit.get()))?;
            Ok::<_, StoreError>(Reconciled { recovered, woken, promoted })
        };
        match tokio::task::spawn_blocking(pass).await {
            Ok(done) => Ok(done?),
            Err(stopped) => match stopped.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(ClientError::ShuttingDown.into()),
            },
        }
    }
}
