//! How many handlers run, and what the claim loop waits for.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The places for running handlers of one session.
#[derive(Debug)]
pub(super) struct Slots {
    workers_max: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Handlers that run.
    running: usize,
    /// Ends that are not committed yet.
    uncommitted: usize,
    /// There may be work.
    hinted: bool,
    /// When work is known to become due.
    due_at: Option<Instant>,
    /// When a limited queue is known to admit more.
    token_at: Option<Instant>,
    stopping: bool,
}

/// Ends that may wait for their commit before claiming pauses: a commit takes as many, so one more batch can gather.
const UNCOMMITTED_MAX: usize = 2_000;

/// How long a claim waits for more than a few free places. Handlers that are done in no time end one after another: a claim
/// for the first of them would cost as much as one for all, and keep the rest waiting.
const LINGER: Duration = Duration::from_micros(500);

impl Slots {
    pub(super) fn new(workers_max: usize) -> Self {
        Self { workers_max, state: Mutex::default(), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The counts are consistent between any two statements that hold them.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A handler begins.
    pub(super) fn begin(&self) {
        self.lock().running += 1;
    }

    /// A handler ended; its end waits to be committed.
    pub(super) fn ended(&self) {
        let mut state = self.lock();
        state.running -= 1;
        state.uncommitted += 1;
        // One free place is news only to a claim loop that had none, and half of them to one that waits for more.
        let first = state.running + 1 == self.workers_max;
        let half = state.running == self.workers_max / 2;
        state.hinted |= first;
        drop(state);
        if first || half {
            self.changed.notify_all();
        }
    }

    /// An end waits to be committed whose handler has no place: it never began, or its place was given up already.
    pub(super) fn ended_elsewhere(&self) {
        self.lock().uncommitted += 1;
    }

    /// A handler ended whose lease was lost: nothing of it is committed.
    pub(super) fn gone(&self) {
        self.change(|state| state.running -= 1);
    }

    /// `ends` are committed, refused or given up.
    pub(super) fn settled(&self, ends: usize) {
        self.change(|state| state.uncommitted -= ends);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        state.hinted = true;
        drop(state);
        self.changed.notify_all();
    }

    /// There may be work.
    pub(super) fn hint(&self) {
        self.lock().hinted = true;
        self.changed.notify_all();
    }

    /// There will be work after `delay`.
    pub(super) fn hint_after(&self, delay: Duration) {
        let due_at = Instant::now() + delay;
        let mut state = self.lock();
        if state.due_at.is_none_or(|known| due_at < known) {
            state.due_at = Some(due_at);
            drop(state);
            self.changed.notify_all();
        }
    }

    /// A limited queue admits more after `delay`, and not before.
    pub(super) fn hint_token(&self, delay: Duration) {
        self.lock().token_at = Some(Instant::now() + delay);
    }

    /// No more claims from now on.
    pub(super) fn stop(&self) {
        self.lock().stopping = true;
        self.changed.notify_all();
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.lock().stopping
    }

    /// Attempts that have begun and are not settled.
    pub(super) fn open(&self) -> usize {
        let state = self.lock();
        state.running + state.uncommitted
    }

    /// Waits for a free place, and a moment for half of all; how many there are. `None` when stopping. Hints up to here are
    /// used up by the claim that follows.
    pub(super) fn wait_for_room(&self) -> Option<u32> {
        let mut state = self.lock();
        let mut until = None;
        loop {
            if state.stopping {
                return None;
            }
            let room = self.workers_max.saturating_sub(state.running);
            if room > 0 && state.uncommitted < UNCOMMITTED_MAX {
                let now = Instant::now();
                let left = until.get_or_insert(now + LINGER).saturating_duration_since(now);
                if room < self.workers_max.div_ceil(2) && !left.is_zero() {
                    state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
                    continue;
                }
                state.hinted = false;
                state.token_at = None;
                return Some(u32::try_from(room).unwrap_or(u32::MAX));
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for a hint, for known work to become due, or until `deadline`. Whether known work became due.
    pub(super) fn wait_for_work(&self, deadline: Instant) -> bool {
        let mut state = self.lock();
        loop {
            if state.stopping || state.hinted {
                return false;
            }
            let now = Instant::now();
            if state.due_at.is_some_and(|due_at| due_at <= now) {
                state.due_at = None;
                return true;
            }
            if deadline <= now || state.token_at.is_some_and(|token_at| token_at <= now) {
                return false;
            }
            let wake_at = [state.due_at, state.token_at].into_iter().flatten().fold(deadline, Instant::min);
            state = self.changed.wait_timeout(state, wake_at - now).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits `pause`, or until stopping; `false` then.
    pub(super) fn pause(&self, pause: Duration) -> bool {
        let deadline = Instant::now() + pause;
        let mut state = self.lock();
        while !state.stopping {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }

    /// Waits until nothing is open, or until the deadline or `given_up`; whether nothing is.
    pub(super) fn wait_until_drained(&self, deadline: Option<Instant>, given_up: impl Fn() -> bool) -> bool {
        let mut state = self.lock();
        while state.running + state.uncommitted > 0 {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if given_up() || left.is_some_and(|left| left.is_zero()) {
                return false;
            }
            state = match left {
                Some(left) => self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_what_is_not_running_and_stopping_ends_every_wait() {
        let slots = Slots::new(2);
        assert_eq!(slots.wait_for_room(), Some(2));
        slots.begin();
        assert_eq!(slots.wait_for_room(), Some(1));
        slots.begin();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| slots.wait_for_room());
            slots.ended();
            assert_eq!(waiting.join().unwrap(), Some(1));
        });
        assert_eq!(slots.open(), 2);
        slots.stop();
        assert_eq!(slots.wait_for_room(), None);
        assert!(!slots.pause(Duration::from_hours(1)));
        assert!(!slots.wait_for_work(Instant::now() + Duration::from_hours(1)));
    }

    #[test]
    fn a_few_places_are_enough_when_no_more_become_free() {
        let slots = Slots::new(10);
        (0..10).for_each(|_| slots.begin());
        slots.ended();
        assert_eq!(slots.wait_for_room(), Some(1));
        (0..4).for_each(|_| slots.ended());
        assert_eq!(slots.wait_for_room(), Some(5));
    }

    #[test]
    fn known_work_wakes_before_the_poll() {
        let slots = Slots::new(1);
        slots.hint_after(Duration::ZERO);
        assert!(slots.wait_for_work(Instant::now() + Duration::from_hours(1)));
        slots.hint();
        assert!(!slots.wait_for_work(Instant::now() + Duration::from_hours(1)));
    }
}
