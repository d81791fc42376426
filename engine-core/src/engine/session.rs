//! What the parts of one running engine share.

use super::clock::ClockWatch;
use super::handler::Handler;
use super::held::{HeldLeases, Lost};
use super::hub::{Bell, Hub};
use super::notice::{Notice, NoticeKind};
use super::office::Office;
use super::outbox::Outbox;
use super::probe::Probe;
use super::report::Tally;
use super::slots::Slots;
use super::stop::{StopReason, StopSwitch};
use super::sweep::SetAside;
use crate::client::Client;
use crate::client::with_causes;
use crate::model::{AgentName, KindName, Limits, Micros, WorkerName};
use crate::store::rows::{ClaimedOp, LeaseKey, WaitKey};
use crate::store::{ClockBehind, Hint, Listener, Store, StoreError};
use crate::transitions::{End, Finish};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// What an engine was built with.
pub(super) struct Settings {
    pub(super) store: Arc<dyn Store>,
    pub(super) hub: Arc<Hub>,
    pub(super) client: Client,
    pub(super) runtime: tokio::runtime::Handle,
    pub(super) handlers: BTreeMap<KindName, Arc<dyn Handler>>,
    pub(super) probes: BTreeMap<KindName, Probe>,
    pub(super) probe_every: Duration,
    pub(super) agents: Vec<AgentName>,
    pub(super) worker: WorkerName,
    pub(super) workers_max: usize,
    pub(super) lease: Micros,
    pub(super) beat: Duration,
    pub(super) poll: Duration,
    pub(super) grace: Duration,
    pub(super) stop_wait: Duration,
    pub(super) patience: Duration,
    pub(super) limits: Limits,
    pub(super) automatic: bool,
    pub(super) clock: ClockWatch,
    pub(super) office: Office,
    pub(super) leases_aside: SetAside<LeaseKey>,
    pub(super) waits_aside: SetAside<WaitKey>,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("store", &self.store)
            .field("worker", &self.worker)
            .field("kinds", &self.handlers.keys())
            .field("workers_max", &self.workers_max)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

/// One run of an engine: from a start, or from a cycle by hand, to its end.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) settings: Arc<Settings>,
    pub(super) held: HeldLeases,
    pub(super) slots: Slots,
    pub(super) outbox: Outbox,
    tally: Mutex<Tally>,
    /// Why a part of the engine ended before it was told to; everything stops then.
    broken: Mutex<Option<Broken>>,
    pub(super) down: CancellationToken,
    /// Nothing is begun any more.
    pub(super) quit: CancellationToken,
}

/// Why a session ended by itself.
#[derive(Debug)]
pub(super) enum Broken {
    /// The store failed for longer than a cycle by hand waits.
    Store(StoreError),
    /// A part panicked: a defect of the store or of this crate.
    Panicked(String),
}

/// An attempt whose handler ended, on its way to the store.
#[derive(Debug)]
pub(super) struct EndedAttempt {
    pub(super) about: About,
    pub(super) finish: Finish,
}

/// What is known of an ended attempt besides what is committed.
#[derive(Debug)]
pub(super) struct About {
    pub(super) op: Arc<ClaimedOp>,
    pub(super) run_time: Option<Duration>,
}

impl Session {
    pub(super) fn new(settings: Arc<Settings>, by_hand: bool) -> Arc<Self> {
        let session = Arc::new(Self {
            held: HeldLeases::default(),
            slots: Slots::new(settings.workers_max),
            outbox: Outbox::new(by_hand.then_some(settings.patience)),
            tally: Mutex::new(Tally::new(by_hand)),
            broken: Mutex::default(),
            down: CancellationToken::new(),
            quit: CancellationToken::new(),
            settings,
        });
        let bell: Arc<dyn Bell> = Arc::clone(&session) as Arc<dyn Bell>;
        session.settings.hub.add_bell(&bell);
        session
    }

    /// From now on this session hears of other processes' changes.
    pub(super) fn listen_to_others(self: &Arc<Self>) {
        let listener: Arc<dyn Listener> = Arc::clone(self) as Arc<dyn Listener>;
        self.settings.hub.listen_to_others(&listener);
    }

    pub(super) fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands the end of an attempt to the batcher. Its place among the running handlers must have been given up.
    pub(super) fn hand_in(&self, op: Arc<ClaimedOp>, end: End, run_time: Option<Duration>) {
        let finish = finish_of(&op, end);
        self.outbox.push(EndedAttempt { about: About { op, run_time }, finish });
    }

    /// Ends the attempt of `op` and hands it in, unless its lease was lost or somebody ended it before.
    pub(super) fn end(&self, op: &Arc<ClaimedOp>, stop: &StopSwitch, end: impl FnOnce() -> End, run_time: Duration) {
        if self.held.ended(&op.lease.key) {
            self.leave(stop);
            self.hand_in(Arc::clone(op), end(), Some(run_time));
        } else if stop.leave() {
            self.slots.gone();
        }
    }

    /// Gives back every op whose handler still runs, whatever that does.
    pub(super) fn give_back_running(&self) {
        for (op, stop) in self.held.end_running() {
            stop.turn(StopReason::Shutdown);
            self.leave(&stop);
            self.hand_in(op, End::Release, None);
        }
    }

    /// Gives up the place of an attempt whose end was taken in hand: a race for the two has one winner each.
    fn leave(&self, stop: &StopSwitch) {
        if stop.leave() {
            self.slots.ended();
        } else {
            self.slots.ended_elsewhere();
        }
    }

    /// Counts leases that were lost under their handlers, and stops these.
    pub(super) fn lost(&self, lost: &[Lost], why: &'static str) {
        for Lost { op, stop } in lost {
            tracing::warn!(
                workflow = op.workflow_id.as_str(),
                op = op.op_id.as_str(),
                attempt = op.lease.key.fence.0,
                why,
                "lease lost; its handler is told to stop and nothing of it is recorded"
            );
            self.tally().lost(op);
            let notices = self.settings.hub.notices();
            notices.tell(|| Notice { code: Some(why.to_owned()), ..Notice::of_claimed(NoticeKind::OpLeaseLost, op) });
            // Last, so that whoever sees the handler end finds it counted.
            stop.turn(StopReason::LeaseLost);
        }
    }

    /// Notes that the store's clock cannot be relied on, and that the session waits for it.
    pub(super) fn clock_behind(&self, behind: ClockBehind) -> Result<(), StoreError> {
        self.settings.clock.behind(&self.settings, behind)?;
        self.tally().held(behind);
        Ok(())
    }

    /// Ends the session because a part of it cannot go on.
    pub(super) fn break_down(&self, why: Broken) {
        match &why {
            Broken::Store(error) => tracing::error!(error = with_causes(error), "the store failed; the cycle ends"),
            Broken::Panicked(message) => tracing::error!(panic = message, "a part of the engine panicked; the engine stops"),
        }
        // The first reason is the cause of the others.
        self.broken.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        self.down.cancel();
        // Behind the mark, so that whoever waits there sees it.
        self.slots.stop();
        self.outbox.claiming(false);
    }

    pub(super) fn is_broken(&self) -> bool {
        self.down.is_cancelled()
    }

    pub(super) fn take_broken(&self) -> Option<Broken> {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// What ends the attempt of `op` so.
pub(super) fn finish_of(op: &ClaimedOp, end: End) -> Finish {
    Finish { lease: op.lease.key, workflow: op.lease.workflow, op_id: op.op_id.clone(), site: op.site.clone(), end }
}

impl Bell for Session {
    fn ring(&self) {
        self.slots.hint();
    }
    fn canceled(&self) {
        self.held.nudge();
    }
}

impl Listener for Session {
    fn hear(&self, hint: Hint) {
        if hint == Hint::Canceled {
            self.canceled();
        }
        self.ring();
    }
}
