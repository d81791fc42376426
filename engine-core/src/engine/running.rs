//! An engine that runs, and how it ends (L15).
//!
//! Whatever waits here does so on a thread of its own: handlers may block the runtime, its timers included.

use super::attempt::panic_message;
use super::batcher::commit_loop;
use super::claimer::{Until, claim_loop};
use super::error::EngineError;
use super::heartbeat::{beat_loop, fence_loop};
use super::outbox::Line;
use super::probe::probe_loop;
use super::report::RunReport;
use super::session::{Broken, Session, Settings};
use super::stop::StopReason;
use super::upkeep::upkeep_loop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// How long the last commits of a shutdown may take once every handler has stopped, so that it ends within a second of its grace.
const LAST_COMMITS: Duration = Duration::from_millis(300);
/// How much longer a shutdown waits for the thread of the last commit to end.
const LAST_THREAD: Duration = Duration::from_millis(50);
/// The same for an engine that is dropped, which nobody waits for.
const COMMITS_AFTER_DROP: Duration = Duration::from_secs(5);

/// An engine that runs. Dropped without [`Running::shutdown`] it stops at once, in the background: handlers are told to
/// stop and their ops given back.
#[derive(Debug)]
#[must_use = "an engine stops when this is dropped"]
pub struct Running {
    session: Arc<Session>,
}

impl Running {
    pub(super) fn begin(settings: &Arc<Settings>, until: Until) -> Result<Self, EngineError> {
        let session = Session::new(Arc::clone(settings), until != Until::Stopped);
        // From here on a thread that cannot be made stops those that were, by the drop.
        let running = Self { session: Arc::clone(&session) };
        part(&session, "leasehold-commit", |session| commit_loop(session, Line::Fresh))?;
        part(&session, "leasehold-apart", |session| commit_loop(session, Line::Apart))?;
        part(&session, "leasehold-beat", |session| beat_loop(session))?;
        part(&session, "leasehold-fence", |session| fence_loop(session))?;
        if until == Until::Stopped {
            part(&session, "leasehold-upkeep", |session| upkeep_loop(session))?;
        }
        session.outbox.claiming(true);
        part(&session, "leasehold-claim", move |session| {
            if let Err(error) = claim_loop(session, until) {
                session.break_down(Broken::Store(error));
            }
            session.outbox.claiming(false);
        })
        .inspect_err(|_| session.outbox.claiming(false))?;
        // A cycle by hand looks when it is told to, and at nothing else.
        if until == Until::Stopped {
            session.listen_to_others();
            if !settings.probes.is_empty() {
                settings.runtime.spawn(probe_loop(Arc::downgrade(&session)));
            }
        }
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
    pub async fn shutdown(self) -> Result<RunReport, EngineError> {
        self.session.slots.stop();
        self.session.quit.cancel();
        self.ended_by(shut_down).await?;
        let counts = self.session.tally().counts;
        Ok(counts)
    }

    /// Waits for the claim loop to end by itself and for what it began; by hand only.
    pub(super) async fn finish(self) -> Result<Arc<Session>, EngineError> {
        self.ended_by(|session| {
            session.outbox.wait_for_claimer(None, || session.is_broken());
            session.slots.wait_until_drained(None, || session.is_broken());
            close(session);
        })
        .await?;
        Ok(Arc::clone(&self.session))
    }

    /// Ends the session by `end`, on a thread; whether it had broken down.
    async fn ended_by(&self, end: impl FnOnce(&Session) + Send + 'static) -> Result<(), EngineError> {
        let (ended, hears) = oneshot::channel();
        part(&self.session, "leasehold-stop", move |session| {
            end(session);
            // Whoever waited may have gone.
            let _ = ended.send(());
        })?;
        // An error means that the end itself panicked, and the session knows.
        let _ = hears.await;
        match self.session.take_broken() {
            None => Ok(()),
            Some(Broken::Store(error)) => Err(error.into()),
            Some(Broken::Panicked(message)) => Err(EngineError::Panicked(message)),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After a shutdown nothing runs any more, and this does nothing.
        self.session.slots.stop();
        self.session.quit.cancel();
        self.session.give_back_running();
        self.session.outbox.close(COMMITS_AFTER_DROP);
    }
}

fn shut_down(session: &Session) {
    let settings = &session.settings;
    let until = Some(Instant::now() + settings.grace);
    let quiet = session.outbox.wait_for_claimer(until, || false) && session.slots.wait_until_drained(until, || session.is_broken());
    if !quiet {
        tracing::info!(open = session.slots.open(), "the grace is over; handlers that still run are told to stop");
        session.held.stop_all(StopReason::Shutdown);
        // A little longer than handlers have, for their watchers to hand in what became of them.
        let until = Some(Instant::now() + settings.stop_wait + settings.stop_wait / 5);
        session.slots.wait_until_drained(until, || session.is_broken());
        session.give_back_running();
    }
    close(session);
}

/// Lets the threads end: what is left in the outbox is committed, or given up after a moment.
fn close(session: &Session) {
    session.slots.stop();
    session.outbox.close(LAST_COMMITS);
    if !session.outbox.wait_until_over(LAST_COMMITS + LAST_THREAD) {
        tracing::warn!("the last commit waits for the store; its thread ends when that answers");
    }
}

/// Runs one part of the engine on a thread of its own.
fn part(session: &Arc<Session>, name: &str, run: impl FnOnce(&Arc<Session>) + Send + 'static) -> Result<(), EngineError> {
    let session = Arc::clone(session);
    let body = move || {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(&session))) {
            session.break_down(Broken::Panicked(panic_message(panic.as_ref())));
            session.outbox.abandon();
            session.held.close();
        }
    };
    thread::Builder::new().name(name.to_owned()).spawn(body).map_err(EngineError::Thread)?;
    Ok(())
}
