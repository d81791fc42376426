//! An engine that runs, and how it ends (L15).

use super::attempt::panic_message;
use super::batcher::commit_loop;
use super::claimer::{Until, claim_loop};
use super::error::EngineError;
use super::heartbeat::{beat_loop, fence_loop};
use super::report::RunReport;
use super::session::{Broken, Session, Settings};
use super::stop::StopReason;
use crate::store::StoreError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// How long the last commits may take once every handler has stopped: the end of a shutdown stays within a second of its grace.
const LAST_COMMITS: Duration = Duration::from_millis(400);

/// An engine that runs. Dropped without [`Running::shutdown`] it stops at once, in the background: handlers are told to
/// stop and their ops given back.
#[derive(Debug)]
#[must_use = "an engine stops when this is dropped"]
pub struct Running {
    session: Arc<Session>,
    claimer: Option<oneshot::Receiver<Result<(), StoreError>>>,
    /// Heard from when the thread of that name ends.
    others: Vec<oneshot::Receiver<()>>,
}

impl Running {
    pub(super) fn begin(settings: &Arc<Settings>, until: Until) -> Result<Self, EngineError> {
        let session = Session::new(Arc::clone(settings), until != Until::Stopped);
        // From here on a thread that cannot be made stops those that were, by the drop.
        let mut running = Self { session: Arc::clone(&session), claimer: None, others: Vec::with_capacity(3) };
        running.others.push(part(&session, "leasehold-commit", |session| commit_loop(session))?);
        running.others.push(part(&session, "leasehold-beat", |session| beat_loop(session))?);
        running.others.push(part(&session, "leasehold-fence", |session| fence_loop(session))?);
        session.outbox.claiming(true);
        let claimer = part(&session, "leasehold-claim", move |session| {
            let done = claim_loop(session, until);
            session.outbox.claiming(false);
            done
        });
        running.claimer = Some(claimer.inspect_err(|_| session.outbox.claiming(false))?);
        Ok(running)
    }

    /// Waits until the engine has broken down by itself, which it tells by [`Running::shutdown`].
    pub async fn broken(&self) {
        self.session.down.cancelled().await;
    }

    /// Stops: claims no more, waits for running handlers up to the engine's grace, tells the rest to stop, gives back what
    /// does not, and saves what can be saved.
    ///
    /// # Errors
    /// Why the engine had stopped by itself, if it had.
    pub async fn shutdown(mut self) -> Result<RunReport, EngineError> {
        let session = Arc::clone(&self.session);
        session.slots.stop();
        let grace = session.settings.grace;
        let quiet = async {
            self.claimer_ended().await?;
            session.slots.drained().await;
            Ok::<(), EngineError>(())
        };
        let ended = timeout(grace, quiet).await;
        if ended.is_err() {
            tracing::info!(open = session.slots.open(), "the grace is over; handlers that still run are told to stop");
            session.held.stop_all(StopReason::Shutdown);
            let stop_wait = session.settings.stop_wait;
            // A little longer than handlers have, for their watchers to hand in what became of them.
            if timeout(stop_wait + stop_wait / 5, session.slots.drained()).await.is_err() {
                session.give_back_running();
            }
        }
        self.close().await;
        ended.unwrap_or(Ok(()))?;
        self.verdict()
    }

    /// Waits for the claim loop to end by itself and for what it began; by hand only.
    pub(super) async fn finish(mut self) -> Result<Arc<Session>, EngineError> {
        let down = self.session.down.clone();
        let ended = self.claimer_ended().await;
        tokio::select! {
            () = self.session.slots.drained() => {}
            () = down.cancelled() => {}
        }
        self.close().await;
        ended?;
        self.verdict()?;
        Ok(Arc::clone(&self.session))
    }

    async fn claimer_ended(&mut self) -> Result<(), EngineError> {
        match self.claimer.take() {
            Some(claimer) => match claimer.await {
                Ok(done) => Ok(done?),
                // It panicked, which the session knows.
                Err(_) => Ok(()),
            },
            None => Ok(()),
        }
    }

    /// Lets the threads end: what is left in the outbox is committed, or given up after a moment.
    async fn close(&mut self) {
        self.session.slots.stop();
        self.session.outbox.close(LAST_COMMITS);
        let all = async {
            for other in self.others.drain(..) {
                // One that panicked has ended as well.
                let _ = other.await;
            }
        };
        if timeout(LAST_COMMITS * 2, all).await.is_err() {
            tracing::warn!("a thread of the engine waits for the store; it ends when that answers");
        }
    }

    fn verdict(&self) -> Result<RunReport, EngineError> {
        match self.session.broken() {
            None => Ok(self.session.tally().counts),
            Some(Broken::Panicked(message)) => Err(EngineError::Panicked(message.clone())),
            Some(Broken::Store(error)) => Err(StoreError::Unavailable(error.to_string().into()).into()),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.session.slots.stop();
        // After a shutdown nothing runs any more, and this does nothing.
        self.session.give_back_running();
        self.session.outbox.close(LAST_COMMITS);
    }
}

/// Runs one part of the engine on a thread of its own; what it returned is heard on the receiver.
fn part<T: Send + 'static>(
    session: &Arc<Session>,
    name: &str,
    run: impl FnOnce(&Arc<Session>) -> T + Send + 'static,
) -> Result<oneshot::Receiver<T>, EngineError> {
    let (ended, hears) = oneshot::channel();
    let session = Arc::clone(session);
    let body = move || match catch_unwind(AssertUnwindSafe(|| run(&session))) {
        // Nobody need listen.
        Ok(done) => drop(ended.send(done)),
        Err(panic) => {
            session.break_down(Broken::Panicked(panic_message(panic.as_ref())));
            session.outbox.claiming(false);
            session.outbox.close(Duration::ZERO);
            session.held.close();
        }
    };
    thread::Builder::new().name(name.to_owned()).spawn(body).map_err(EngineError::Thread)?;
    Ok(hears)
}
