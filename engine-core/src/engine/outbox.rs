//! Ended attempts that wait to be committed.

use super::session::EndedAttempt;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most ends of one commit: past a thousand a batch gains nothing and only holds its locks longer.
const COMMIT_MAX: usize = 1_000;

/// Ended attempts, in two lines: each has a committer of its own, so that who waits in one stops nobody in the other.
#[derive(Debug)]
pub(super) struct Outbox {
    /// How long a failing store is tried before what waits is given up; `None` is for ever.
    patience: Option<Duration>,
    state: Mutex<State>,
    changed: Condvar,
}

/// Which line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    /// Ends in the order in which they came.
    Fresh,
    /// Ends whose workflow another transaction held.
    Apart,
}

#[derive(Debug, Default)]
struct State {
    fresh: Waiting,
    apart: Waiting,
    /// The claim loop runs, and may hand in what it got while it was told to stop.
    claiming: bool,
    /// No handler's end comes any more, and what waits is given up at this instant.
    closed: Option<Instant>,
}

#[derive(Debug, Default)]
struct Waiting {
    ends: VecDeque<EndedAttempt>,
    /// Since when every commit of this line has failed.
    failing_since: Option<Instant>,
    /// Its committer has ended.
    over: bool,
}

/// What to commit next.
#[derive(Debug)]
pub(super) enum Batch {
    /// These.
    Commit(Vec<EndedAttempt>),
    /// Nothing any more; these are given up.
    Over(Vec<EndedAttempt>),
}

impl Outbox {
    pub(super) fn new(patience: Option<Duration>) -> Self {
        Self { patience, state: Mutex::default(), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every statement that holds the state leaves it consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, ended: EndedAttempt) {
        self.lock().fresh.ends.push_back(ended);
        self.changed.notify_all();
    }

    /// Puts back what could not be committed: before what ended later, or behind the others that are held.
    pub(super) fn put_back(&self, line: Line, ended: Vec<EndedAttempt>) {
        match line {
            Line::Fresh => {
                let mut state = self.lock();
                ended.into_iter().rev().for_each(|ended| state.fresh.ends.push_front(ended));
            }
            Line::Apart => self.put_apart(ended),
        }
    }

    /// Puts what another transaction held into the line apart.
    pub(super) fn put_apart(&self, ended: Vec<EndedAttempt>) {
        self.lock().apart.ends.extend(ended);
        self.changed.notify_all();
    }

    /// Waits for something to commit.
    pub(super) fn next(&self, line: Line) -> Batch {
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            if state.closed.is_some_and(|deadline| deadline <= now) {
                return Batch::Over(state.line(line).ends.drain(..).collect());
            }
            let ends = &mut state.line(line).ends;
            if !ends.is_empty() {
                let count = ends.len().min(COMMIT_MAX);
                return Batch::Commit(ends.drain(..count).collect());
            }
            let over = match line {
                Line::Fresh => !state.claiming,
                Line::Apart => state.fresh.over,
            };
            state = match state.closed {
                Some(_) if over => return Batch::Over(Vec::new()),
                Some(deadline) => self.changed.wait_timeout(state, deadline - now).unwrap_or_else(PoisonError::into_inner).0,
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Notes that a commit went through.
    pub(super) fn works(&self, line: Line) {
        self.lock().line(line).failing_since = None;
    }

    /// Notes that a commit failed for the moment, and waits `pause`; `false` when it is time to give up.
    pub(super) fn fails(&self, line: Line, pause: Duration) -> bool {
        let mut state = self.lock();
        let since = *state.line(line).failing_since.get_or_insert_with(Instant::now);
        if self.patience.is_some_and(|patience| since.elapsed() >= patience) {
            return false;
        }
        let until = Instant::now() + pause;
        loop {
            let until = state.closed.map_or(until, |deadline| deadline.min(until));
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Notes whether the claim loop runs.
    pub(super) fn claiming(&self, claiming: bool) {
        self.lock().claiming = claiming;
        self.changed.notify_all();
    }

    /// Waits until the claim loop has ended, or until the deadline or `given_up`; whether it has.
    pub(super) fn wait_for_claimer(&self, deadline: Option<Instant>, given_up: impl Fn() -> bool) -> bool {
        self.wait(deadline, |state| !state.claiming || given_up())
    }

    /// No handler's end comes any more; what is not committed `within` is given up. Only the first call counts.
    pub(super) fn close(&self, within: Duration) {
        self.lock().closed.get_or_insert_with(|| Instant::now() + within);
        self.changed.notify_all();
    }

    /// The committer of this line has ended; whether it was the last.
    pub(super) fn ended(&self, line: Line) -> bool {
        let mut state = self.lock();
        state.line(line).over = true;
        let last = state.is_over();
        drop(state);
        self.changed.notify_all();
        last
    }

    /// Nobody commits any more: the session cannot go on.
    pub(super) fn abandon(&self) {
        let mut state = self.lock();
        (state.fresh.over, state.apart.over, state.claiming) = (true, true, false);
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until both committers have ended; `false` when that takes longer than `within`.
    pub(super) fn wait_until_over(&self, within: Duration) -> bool {
        self.wait(Some(Instant::now() + within), State::is_over)
    }

    fn wait(&self, deadline: Option<Instant>, done: impl Fn(&State) -> bool) -> bool {
        let mut state = self.lock();
        while !done(&state) {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            state = match left {
                Some(left) if left.is_zero() => return false,
                Some(left) => self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
        true
    }
}

impl State {
    fn line(&mut self, line: Line) -> &mut Waiting {
        match line {
            Line::Fresh => &mut self.fresh,
            Line::Apart => &mut self.apart,
        }
    }

    fn is_over(&self) -> bool {
        self.fresh.over && self.apart.over
    }
}
