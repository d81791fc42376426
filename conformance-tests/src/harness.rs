//! What the author of a backend brings.

use crate::{Need, OwnTransactions};
use leasehold_core::model::{Micros, Timestamp};
use leasehold_core::store::{BoxError, Clock, ManualClock, Store};
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Makes stores to be tested.
pub trait Harness: Send + Sync + 'static {
    /// Makes a new, empty, migrated store whose clock stands at [`start`] until the case moves it. Stores made by one
    /// harness live side by side and share nothing.
    ///
    /// # Errors
    /// Why it cannot; every case then fails with it.
    fn open(&self) -> Result<Opened, BoxError>;
}

/// Where every case's clock stands at first: 2026-01-31T09:30:00Z.
pub fn start() -> Timestamp {
    match Timestamp::from_micros(1_769_851_800_000_000) {
        Ok(instant) => instant,
        Err(_) => unreachable!("the instant is in 2026"),
    }
}

/// A clock that cases move. It is the *store's* clock: the host's for an embedded store, the database's for another.
pub trait TestClock: Send + Sync {
    /// Where it stands.
    fn now(&self) -> Timestamp;
    /// Moves it, also backward.
    ///
    /// # Errors
    /// Why the store's clock cannot be moved.
    fn set(&self, to: Timestamp) -> Result<(), BoxError>;
}

impl TestClock for ManualClock {
    fn now(&self) -> Timestamp {
        Clock::now(self)
    }
    fn set(&self, to: Timestamp) -> Result<(), BoxError> {
        Self::set(self, to);
        Ok(())
    }
}

impl dyn TestClock + '_ {
    /// Moves it forward.
    ///
    /// # Errors
    /// As [`TestClock::set`].
    pub fn advance(&self, by: Micros) -> Result<(), BoxError> {
        self.set(self.now().after(by)?)
    }
    /// Moves it backward.
    ///
    /// # Errors
    /// As [`TestClock::set`].
    pub fn go_back(&self, by: Micros) -> Result<(), BoxError> {
        self.set(Timestamp::from_micros(self.now().as_micros() - by.get())?)
    }
}

/// Counts what reaches the database.
pub trait StatementCounter: Send + Sync {
    /// Statements so far, those that begin and end transactions not counted.
    fn statements(&self) -> u64;
}

type OpenAgain = Box<dyn Fn() -> Result<Arc<dyn Store>, BoxError> + Send + Sync>;

/// An open store, with what its harness can do to it.
pub struct Opened {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn TestClock>,
    pub(crate) restart: Option<OpenAgain>,
    pub(crate) second_handle: Option<OpenAgain>,
    pub(crate) statements: Option<Arc<dyn StatementCounter>>,
    pub(crate) latency_budget: Option<Duration>,
    pub(crate) own: Option<Box<dyn OwnTransactions>>,
    writers_overlap: bool,
    kept: Vec<Box<dyn Any + Send + Sync>>,
}

impl Opened {
    /// A store and its clock; nothing else.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn TestClock>) -> Self {
        Self {
            store,
            clock,
            restart: None,
            second_handle: None,
            statements: None,
            latency_budget: None,
            own: None,
            writers_overlap: false,
            kept: Vec::new(),
        }
    }
    /// Its data outlive it: `open` makes a store on them after every earlier one was dropped.
    #[must_use]
    pub fn with_restart(mut self, open: impl Fn() -> Result<Arc<dyn Store>, BoxError> + Send + Sync + 'static) -> Self {
        self.restart = Some(Box::new(open));
        self
    }
    /// `open` makes a further store on the same data and clock, as another process would.
    #[must_use]
    pub fn with_second_handle(mut self, open: impl Fn() -> Result<Arc<dyn Store>, BoxError> + Send + Sync + 'static) -> Self {
        self.second_handle = Some(Box::new(open));
        self
    }
    /// Its statements are counted.
    #[must_use]
    pub fn with_statements(mut self, counter: Arc<dyn StatementCounter>) -> Self {
        self.statements = Some(counter);
        self
    }
    /// One verb over 100 ops takes at most `budget`, with 20,000 ops in the store.
    #[must_use]
    pub fn with_latency_budget(mut self, budget: Duration) -> Self {
        self.latency_budget = Some(budget);
        self
    }
    /// An application's own transactions can enclose its steps.
    #[must_use]
    pub fn with_own_transactions(mut self, own: impl OwnTransactions + 'static) -> Self {
        self.own = Some(Box::new(own));
        self
    }
    /// Two transactions that write are open at the same time, and wait for each other only where they meet in a row.
    #[must_use]
    pub fn with_overlapping_writers(mut self) -> Self {
        self.writers_overlap = true;
        self
    }
    /// Keeps `thing`, such as a temporary folder, until the case has ended.
    #[must_use]
    pub fn keeping(mut self, thing: impl Any + Send + Sync) -> Self {
        self.kept.push(Box::new(thing));
        self
    }

    pub(crate) fn offers(&self, need: Need) -> bool {
        match need {
            Need::Restart => self.restart.is_some(),
            Need::SecondHandle => self.second_handle.is_some(),
            Need::Statements => self.statements.is_some(),
            Need::LatencyBudget => self.latency_budget.is_some(),
            Need::OwnTransactions => self.own.is_some(),
            Need::OverlappingWriters => self.writers_overlap,
            Need::Hints => self.store.hints().is_some(),
        }
    }
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").field("store", &self.store).finish_non_exhaustive()
    }
}
