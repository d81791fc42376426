//! Telling observers, after the commit, in commit order, one at a time (O1).
//!
//! A transaction takes a [`Ticket`] as its last act before its commit. Whatever depends on that commit takes a later
//! one, so delivery in ticket order is commit order; a ticket that is dropped (the transaction rolled back, or ran again
//! and took a new one) holds nothing up.

use super::notice::Notice;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Hears what happened, after its commit, one notice at a time.
///
/// # Contract
/// It runs on a thread of its own. One that is slow does not slow the engine: when [`NOTICES_MAX`] wait, further ones are
/// dropped and [counted](super::Engine::notices_dropped). A panic is logged, and the next notice comes as usual.
pub trait Observer: Send + Sync + 'static {
    /// Hears `notice`.
    fn notice(&self, notice: &Notice);
}
impl<F: Fn(&Notice) + Send + Sync + 'static> Observer for F {
    fn notice(&self, notice: &Notice) {
        self(notice);
    }
}

/// The most notices that wait for their observers: a burst of claims and completions fits, and memory stays small.
pub const NOTICES_MAX: usize = 10_000;

/// The line that notices wait in. Without observers it holds nothing and costs nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notices(Option<Arc<Line>>);

#[derive(Debug, Default)]
struct Line {
    state: Mutex<State>,
    changed: Condvar,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// The next ticket to give out.
    next: u64,
    /// The ticket whose notices are told next.
    turn: u64,
    /// What returned tickets brought, until it is their turn.
    told: BTreeMap<u64, Vec<Notice>>,
    /// How many notices wait or are being told.
    waiting: usize,
    closed: bool,
}

/// A place in the order of commits.
#[derive(Debug)]
#[must_use = "a ticket that is dropped tells nothing"]
pub(crate) struct Ticket {
    line: Option<Arc<Line>>,
    number: u64,
}

/// Ends the observers' thread, once everything was told, when the last engine and client of it are gone.
#[derive(Debug)]
pub(crate) struct Closing(Arc<Line>);

impl Notices {
    /// A line that `observers` hear, on a thread of its own; `None` in place of the guard when there are none.
    pub(crate) fn to(observers: Vec<Arc<dyn Observer>>) -> std::io::Result<(Self, Option<Closing>)> {
        if observers.is_empty() {
            return Ok((Self(None), None));
        }
        let line = Arc::new(Line::default());
        let told = Arc::clone(&line);
        thread::Builder::new().name("leasehold-observe".to_owned()).spawn(move || told.deliver(&observers))?;
        Ok((Self(Some(Arc::clone(&line))), Some(Closing(line))))
    }

    /// Whether anybody listens.
    pub(crate) const fn heard(&self) -> bool {
        self.0.is_some()
    }

    /// The next place in the order of commits. Taken inside the transaction, as its last act.
    pub(crate) fn ticket(&self) -> Ticket {
        let line = self.0.clone();
        let number = line.as_ref().map_or(0, |line| {
            let mut state = line.lock();
            let number = state.next;
            state.next += 1;
            number
        });
        Ticket { line, number }
    }

    /// Tells what belongs to no transaction.
    pub(crate) fn tell(&self, notice: impl FnOnce() -> Notice) {
        if self.heard() {
            self.ticket().tell(vec![notice()]);
        }
    }

    /// How many notices were dropped because observers were too slow.
    pub(crate) fn dropped(&self) -> u64 {
        self.0.as_ref().map_or(0, |line| line.dropped.load(Ordering::Relaxed))
    }

    /// Waits until everything told so far was heard; `false` when that takes longer than `within`. Blocks.
    pub(crate) fn flush(&self, within: Duration) -> bool {
        let Some(line) = &self.0 else {
            return true;
        };
        let deadline = Instant::now() + within;
        let mut state = line.lock();
        let target = state.next;
        while state.turn < target {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = line.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl Ticket {
    /// Tells `notices`, which are committed, when it is their turn.
    pub(crate) fn tell(mut self, notices: Vec<Notice>) {
        if let Some(line) = self.line.take() {
            line.hand_in(self.number, notices);
        }
    }
}
impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(line) = self.line.take() {
            line.hand_in(self.number, Vec::new());
        }
    }
}

impl Line {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // The state is consistent between any two statements that hold it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hand_in(&self, ticket: u64, mut notices: Vec<Notice>) {
        let mut state = self.lock();
        let room = NOTICES_MAX.saturating_sub(state.waiting);
        if notices.len() > room {
            self.dropped.fetch_add((notices.len() - room) as u64, Ordering::Relaxed);
            notices.truncate(room);
        }
        state.waiting += notices.len();
        state.told.insert(ticket, notices);
        if state.told.contains_key(&state.turn) {
            self.changed.notify_all();
        }
    }

    /// Tells one ticket's notices after the other, until the line is closed and empty.
    fn deliver(&self, observers: &[Arc<dyn Observer>]) {
        let mut state = self.lock();
        loop {
            let turn = state.turn;
            if let Some(notices) = state.told.remove(&turn) {
                drop(state);
                for notice in &notices {
                    for observer in observers {
                        tell(observer.as_ref(), notice);
                    }
                }
                state = self.lock();
                state.turn += 1;
                state.waiting -= notices.len();
                self.changed.notify_all();
            } else if state.closed && state.turn == state.next {
                return;
            } else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

fn tell(observer: &dyn Observer, notice: &Notice) {
    // An observer that panics may be in a state of its own making; the engine keeps none that could break.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| observer.notice(notice))) {
        let message = super::attempt::panic_message(panic.as_ref());
        tracing::error!(notice = notice.kind.as_str(), panic = message, "an observer panicked; it hears the next notice as usual");
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::super::notice::NoticeKind;
    use super::*;
    use std::sync::mpsc;

    fn notice(code: u32) -> Notice {
        Notice { code: Some(code.to_string()), ..Notice::new(NoticeKind::Idle) }
    }
    fn line(observer: impl Observer) -> (Notices, Option<Closing>) {
        Notices::to(vec![Arc::new(observer)]).unwrap()
    }

    #[test]
    fn notices_come_in_the_order_of_tickets_and_a_dropped_one_holds_nothing_up() {
        let (heard, hears) = mpsc::channel();
        let (notices, _closing) = line(move |notice: &Notice| heard.send(notice.code.clone().unwrap()).unwrap());
        let (first, rolled_back, third) = (notices.ticket(), notices.ticket(), notices.ticket());
        third.tell(vec![notice(3), notice(4)]);
        drop(rolled_back);
        first.tell(vec![notice(1)]);
        assert!(notices.flush(Duration::from_mins(1)));
        assert_eq!(hears.try_iter().collect::<Vec<_>>(), ["1", "3", "4"]);
    }

    #[test]
    fn a_panic_does_not_stop_the_next_notice() {
        let (heard, hears) = mpsc::channel();
        let (notices, _closing) = line(move |notice: &Notice| {
            let code = notice.code.clone().unwrap();
            assert_ne!(code, "1", "the first one is more than this observer can bear");
            heard.send(code).unwrap();
        });
        notices.tell(|| notice(1));
        notices.tell(|| notice(2));
        assert!(notices.flush(Duration::from_mins(1)));
        assert_eq!(hears.try_iter().collect::<Vec<_>>(), ["2"]);
    }

    #[test]
    fn a_slow_observer_loses_notices_and_they_are_counted() {
        let (open, gate) = mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        let (notices, _closing) = line(move |_: &Notice| {
            let _ = gate.lock().unwrap().recv();
        });
        for code in 0..=NOTICES_MAX {
            notices.tell(|| notice(u32::try_from(code).unwrap()));
        }
        assert_eq!(notices.dropped(), 1);
        assert!(!notices.flush(Duration::ZERO));
        drop(open);
        assert!(notices.flush(Duration::from_mins(1)));
    }

    #[test]
    fn everything_told_is_heard_after_the_line_is_closed() {
        let (heard, hears) = mpsc::channel();
        let (notices, closing) = line(move |_: &Notice| heard.send(()).unwrap());
        notices.tell(|| notice(1));
        drop((closing, notices));
        assert_eq!(hears.iter().count(), 1);
    }
}
