//! Driving an engine by hand (L14).

use super::claimer::Until;
use super::probe::{self, ProbedOp};
use super::recovery::{self, ExpiredLeases};
use super::report::CycleReport;
use super::retrying::retry;
use super::running::Running;
use super::session::Settings;
use super::sweep::sweep;
use super::wakeup::DueWaits;
use super::{Engine, EngineError};
use crate::client::ClientError;
use crate::store::rows::{LeaseKey, WaitKey};
use crate::store::{ClockBehind, Leadership};
use crate::transitions::{BatchLimit, Pass, RecoveredOp, WokenOp};
use std::sync::Arc;

/// What one pass of upkeep did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reconciled {
    /// The ops whose expired leases were taken back.
    pub recovered: Vec<RecoveredOp>,
    /// The ops that were woken.
    pub woken: Vec<WokenOp>,
    /// Expired leases that cannot be taken back, each found alone; the rest was. They are tried again a minute later.
    pub isolated: Vec<LeaseKey>,
    /// Waits that are due and cannot be ended, likewise.
    pub isolated_waits: Vec<WaitKey>,
    /// How many ops became due and may be claimed now.
    pub promoted: u32,
    /// The store's clock cannot be relied on, so the pass did nothing: see [`Client::trust_clock`](crate::client::Client::trust_clock).
    pub held: Option<ClockBehind>,
    /// The ops that waited for a verdict, and that a probe settled.
    pub probed: Vec<ProbedOp>,
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

    /// Does one bounded pass of upkeep and nothing else: takes back at most `limit` expired leases, wakes at most as many
    /// waiting ops, promotes at most as many that are due, and asks the probes about some ops that wait for a verdict. The
    /// engine leads the store's maintenance from then on, for a term.
    ///
    /// # Errors
    /// [`EngineError::NotLeader`] when another process leads, also when it was elected during the pass; [`EngineError::Store`].
    pub async fn reconcile_once(&self, limit: BatchLimit) -> Result<Reconciled, EngineError> {
        let settings = Arc::clone(&self.settings);
        let done = match tokio::task::spawn_blocking(move || reconcile(&settings, limit)).await {
            Ok(done) => done?,
            Err(stopped) => match stopped.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => return Err(ClientError::ShuttingDown.into()),
            },
        };
        let (_, probed) = probe::pass(&self.settings, None).await?;
        Ok(Reconciled { probed, ..done })
    }
}

fn reconcile(settings: &Settings, limit: BatchLimit) -> Result<Reconciled, EngineError> {
    let patience = settings.patience;
    let leadership = retry(patience, || settings.office.stand(settings))?;
    if !leadership.mine {
        return Err(not_leader(leadership));
    }
    let epoch = Some(leadership.epoch);
    let mut done = Reconciled::default();
    match retry(patience, || sweep::<ExpiredLeases>(settings, limit, epoch))? {
        Pass::Done(swept) => (done.recovered, done.isolated) = (swept.done, swept.isolated),
        Pass::ClockBehind(behind) => return held(settings, behind, done),
        Pass::NotLeader => return overtaken(settings),
    }
    match retry(patience, || sweep::<DueWaits>(settings, limit, epoch))? {
        Pass::Done(swept) => (done.woken, done.isolated_waits) = (swept.done, swept.isolated),
        Pass::ClockBehind(behind) => return held(settings, behind, done),
        Pass::NotLeader => return overtaken(settings),
    }
    match retry(patience, || recovery::promote(settings, limit.get(), epoch))? {
        Pass::Done(promoted) => done.promoted = promoted,
        Pass::ClockBehind(behind) => return held(settings, behind, done),
        Pass::NotLeader => return overtaken(settings),
    }
    settings.clock.right();
    Ok(done)
}

/// What was done before the clock went back stays so, and is told.
fn held(settings: &Settings, behind: ClockBehind, done: Reconciled) -> Result<Reconciled, EngineError> {
    retry(settings.patience, || settings.clock.behind(settings, behind))?;
    Ok(Reconciled { held: Some(behind), ..done })
}

/// Another process was elected during the pass, so this one was away for longer than its term.
fn overtaken(settings: &Settings) -> Result<Reconciled, EngineError> {
    settings.office.lost();
    let leadership = retry(settings.patience, || settings.office.stand(settings))?;
    if leadership.mine { Ok(Reconciled::default()) } else { Err(not_leader(leadership)) }
}

fn not_leader(leadership: Leadership) -> EngineError {
    EngineError::NotLeader { leader: leadership.leader, ends_at: leadership.ends_at }
}
