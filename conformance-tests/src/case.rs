//! What a case is.

use crate::World;
use leasehold_core::store::BoxError;
use std::fmt;

/// How a case ends: what went wrong, where nothing was expected to.
pub type Outcome = Result<(), BoxError>;

/// One promise, and how to see that it is kept.
#[derive(Clone, Copy)]
pub struct Case {
    /// The sentence of the invariant; also the test's name.
    pub name: &'static str,
    /// The requirements it proves, by their numbers in the contract.
    pub proves: &'static [&'static str],
    /// What the harness must be able to do for it.
    pub needs: &'static [Need],
    /// Whether it is about single steps or whole verbs.
    pub level: Level,
    /// The steps. Every case has a world, and so a store, of its own.
    pub run: fn(&mut World) -> Outcome,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("name", &self.name).field("proves", &self.proves).finish_non_exhaustive()
    }
}

/// What a case is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Level {
    /// A step of the storage contract. Rows may end as no verb leaves them.
    Step,
    /// The engine's verbs on the store: at the end every derived fact is recounted.
    Verb,
}

/// What a case may need of a harness beyond an empty store and a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Need {
    /// To close the store and open it again on the same data.
    Restart,
    /// A second store on the same data at the same time, as another process has it.
    SecondHandle,
    /// To count the statements that reach the database.
    Statements,
    /// How long a call may take.
    LatencyBudget,
    /// To run steps in a transaction that the application began, beside rows of its own.
    OwnTransactions,
    /// Two transactions that write at the same time: a store with one writer shows nothing about locks.
    OverlappingWriters,
    /// To hear of what another handle changes.
    Hints,
}

impl Need {
    /// Every need.
    pub const ALL: [Self; 7] = [
        Self::Restart,
        Self::SecondHandle,
        Self::Statements,
        Self::LatencyBudget,
        Self::OwnTransactions,
        Self::OverlappingWriters,
        Self::Hints,
    ];
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Restart => "restart",
            Self::SecondHandle => "second handle",
            Self::Statements => "statement counter",
            Self::LatencyBudget => "latency budget",
            Self::OwnTransactions => "own transactions",
            Self::OverlappingWriters => "overlapping writers",
            Self::Hints => "hints",
        })
    }
}

/// The table of cases of one file, about verbs unless it says `steps`: the function's name is the case's.
macro_rules! cases {
    (steps: $($rest:tt)*) => { $crate::case::cases!(@ Step $($rest)*); };
    (@ $level:ident $($name:ident proves [$($proves:literal),* $(,)?] $(needs [$($need:ident),*])?;)*) => {
        pub(crate) const CASES: &[$crate::Case] = &[$($crate::Case {
            name: stringify!($name),
            proves: &[$($proves),*],
            needs: &[$($($crate::Need::$need),*)?],
            level: $crate::Level::$level,
            run: $name,
        }),*];
    };
    ($($rest:tt)*) => { $crate::case::cases!(@ Verb $($rest)*); };
}
pub(crate) use cases;
