//! The leases that this process holds: what heartbeats renew, and until when each can be relied on (L5, L11).

use super::stop::{StopReason, StopSwitch};
use crate::store::rows::{ClaimedOp, LeaseKey};
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Every lease from its claim until its attempt's end is committed, refused, or the lease is lost.
#[derive(Debug, Default)]
pub(super) struct HeldLeases {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    held: HashMap<LeaseKey, Held>,
    /// When the watch looks next; an earlier end than this must wake it.
    alarm: Option<Instant>,
    /// Somebody was canceled: the next renewal is to be now, of all leases.
    nudged: bool,
    /// Every running attempt was ended, and none begins any more.
    shut: bool,
    closed: bool,
}

/// A lease that is held.
#[derive(Debug)]
pub(super) struct Held {
    op: Arc<ClaimedOp>,
    stop: StopSwitch,
    phase: Phase,
    /// Whether its op is suspected of killing its workers.
    suspect: bool,
    /// The instant *before* the last call that confirmed the lease: it lasts at least from then.
    confirmed_at: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Its handler runs.
    Running,
    /// Its end is in a transaction that the application began, which may hold the lease's row for long: it is neither
    /// renewed nor watched until its handler ends.
    Elsewhere,
    /// Its end waits to be committed.
    Ended,
    /// Its end is in the commit that began then.
    Committing(Instant),
}

/// A lease that was lost while its handler ran, which is still to be told.
#[derive(Debug)]
#[must_use = "its handler is to be told to stop"]
pub(super) struct Lost {
    pub(super) op: Arc<ClaimedOp>,
    pub(super) stop: StopSwitch,
}

impl HeldLeases {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every statement that holds the state leaves it consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to hold a lease, which lasts `lease` from its confirmation at least; `false`, and not held, once the running
    /// ones were ended.
    pub(super) fn hold(&self, held: Held, lease: Duration) -> bool {
        let ends_at = held.confirmed_at + lease;
        let mut state = self.lock();
        if state.shut {
            return false;
        }
        state.held.insert(held.op.lease.key, held);
        if state.alarm.is_none_or(|alarm| ends_at < alarm) {
            self.changed.notify_all();
        }
        true
    }

    /// Whether the attempt of an op that is suspected of killing its workers has not ended.
    pub(super) fn has_suspect(&self) -> bool {
        self.lock().held.values().any(|held| held.suspect)
    }

    /// Notes that the handler ended and its end waits to be committed; `false` when the lease was lost before.
    pub(super) fn ended(&self, key: &LeaseKey) -> bool {
        self.lock().held.get_mut(key).is_some_and(Held::end)
    }

    /// Notes that the attempt ends in a transaction of the application's own.
    pub(super) fn ends_elsewhere(&self, key: &LeaseKey) {
        if let Some(held) = self.lock().held.get_mut(key).filter(|held| held.phase == Phase::Running) {
            held.phase = Phase::Elsewhere;
        }
    }

    /// Ends every attempt whose handler does not, and lets none begin any more; returns them, to be given back.
    pub(super) fn end_running(&self) -> Vec<(Arc<ClaimedOp>, StopSwitch)> {
        let mut state = self.lock();
        state.shut = true;
        let running = state.held.values_mut().filter_map(|held| held.end().then(|| (Arc::clone(&held.op), held.stop.clone())));
        running.collect()
    }

    /// Notes that a commit with the ends of `keys` begins: it, not a heartbeat, decides on them. Not for one that may wait
    /// for somebody's lock, again and again: the leases are to be renewed until that is let go.
    pub(super) fn committing(&self, keys: impl Iterator<Item = LeaseKey>) {
        let now = Instant::now();
        let mut state = self.lock();
        for key in keys {
            if let Some(held) = state.held.get_mut(&key) {
                held.phase = Phase::Committing(now);
            }
        }
    }

    /// Notes that the commit failed: the ends of `keys` wait again.
    pub(super) fn not_committed(&self, keys: impl Iterator<Item = LeaseKey>) {
        let mut state = self.lock();
        for key in keys {
            if let Some(held) = state.held.get_mut(&key) {
                held.phase = Phase::Ended;
            }
        }
    }

    /// Lets go of leases that are done with.
    pub(super) fn let_go(&self, keys: impl Iterator<Item = LeaseKey>) {
        let mut state = self.lock();
        for key in keys {
            state.held.remove(&key);
        }
    }

    /// The leases to renew now: those not confirmed within `recent`, but none whose commit is under way and young, as a
    /// renewal would only wait for that commit's locks.
    pub(super) fn to_renew(&self, recent: Duration, commit_max: Duration) -> Vec<LeaseKey> {
        let now = Instant::now();
        let mut state = self.lock();
        let recent = if std::mem::take(&mut state.nudged) { Duration::ZERO } else { recent };
        state
            .held
            .iter()
            .filter(|(_, held)| match held.phase {
                Phase::Running | Phase::Ended => true,
                Phase::Elsewhere => false,
                Phase::Committing(since) => now.duration_since(since) >= commit_max,
            })
            .filter(|(_, held)| now.duration_since(held.confirmed_at) >= recent)
            .map(|(key, _)| *key)
            .collect()
    }

    /// Notes that the call that began at `confirmed_at` renewed `renewed`.
    pub(super) fn confirmed(&self, renewed: impl Iterator<Item = LeaseKey>, confirmed_at: Instant) {
        let mut state = self.lock();
        for key in renewed {
            if let Some(held) = state.held.get_mut(&key) {
                held.confirmed_at = held.confirmed_at.max(confirmed_at);
            }
        }
    }

    /// Gives up those of `keys` whose handlers still run; returns them. An end that waits to be committed is left to
    /// its commit, which is refused if the lease is really gone, and may have happened already if the answer was lost.
    pub(super) fn lose(&self, keys: impl Iterator<Item = LeaseKey>) -> Vec<Lost> {
        let mut state = self.lock();
        let running: Vec<LeaseKey> = keys.filter(|key| state.held.get(key).is_some_and(|held| held.phase == Phase::Running)).collect();
        running.iter().filter_map(|key| state.held.remove(key)).map(Held::lose).collect()
    }

    /// Waits for the first lease to end by this process's own clock, and gives up all that have; `None` once closed.
    pub(super) fn next_outlived(&self, lease: Duration) -> Option<Vec<Lost>> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            let now = Instant::now();
            let running = || state.held.iter().filter(|(_, held)| held.phase == Phase::Running);
            let outlived: Vec<LeaseKey> = running().filter(|(_, held)| held.confirmed_at + lease <= now).map(|(key, _)| *key).collect();
            if !outlived.is_empty() {
                return Some(outlived.iter().filter_map(|key| state.held.remove(key)).map(Held::lose).collect());
            }
            let alarm = running().map(|(_, held)| held.confirmed_at + lease).min();
            state.alarm = alarm;
            state = match alarm {
                Some(alarm) => {
                    let wait = alarm.saturating_duration_since(now);
                    self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Tells every running handler to stop, for `reason`.
    pub(super) fn stop_all(&self, reason: StopReason) {
        for held in self.lock().held.values().filter(|held| held.phase == Phase::Running) {
            held.stop.turn(reason);
        }
    }

    /// Asks for a renewal of all leases now: some may have been revoked.
    pub(super) fn nudge(&self) {
        self.lock().nudged = true;
        self.changed.notify_all();
    }

    /// Waits `interval`, a nudge, or until closed; `false` then.
    pub(super) fn wait_for_beat(&self, interval: Duration) -> bool {
        let deadline = Instant::now() + interval;
        let mut state = self.lock();
        while !state.closed {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || state.nudged {
                return true;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }

    /// Ends the threads that wait here.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }
}

impl Held {
    /// The lease of an op that begins to run, told by a call that began at `confirmed_at`.
    pub(super) fn new(op: Arc<ClaimedOp>, stop: StopSwitch, confirmed_at: Instant, suspect: bool) -> Self {
        Self { op, stop, phase: Phase::Running, suspect, confirmed_at }
    }

    fn end(&mut self) -> bool {
        let running = matches!(self.phase, Phase::Running | Phase::Elsewhere);
        if running {
            self.phase = Phase::Ended;
        }
        running
    }
    fn lose(self) -> Lost {
        Lost { op: self.op, stop: self.stop }
    }
}
