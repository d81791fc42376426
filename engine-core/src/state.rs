//! The state machine, as data (S1 to S4, S8).

use serde::{Deserialize, Serialize};
use std::fmt;

/// Where an op stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OpStatus {
    /// Waits for dependencies.
    Pending,
    /// A required dependency is failed, blocked or canceled. Derived, and recoverable.
    Blocked,
    /// May be claimed, now or once it is due.
    Ready,
    /// A worker holds its lease.
    Running,
    /// Waits for an instant, a signal, a person or a verdict.
    Waiting,
    /// Done.
    Succeeded,
    /// Given up, until somebody retries it.
    Failed,
    /// Stopped for ever.
    Canceled,
}

/// What an op's row says. A ready or running op is `Open` there: the hot tables tell the rest, so that the hot path
/// writes the row once, at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoredStatus {
    /// [`OpStatus::Pending`]
    Pending,
    /// [`OpStatus::Blocked`]
    Blocked,
    /// [`OpStatus::Running`] exactly when its lease row exists, else [`OpStatus::Ready`].
    Open,
    /// [`OpStatus::Waiting`]
    Waiting,
    /// [`OpStatus::Succeeded`]
    Succeeded,
    /// [`OpStatus::Failed`]
    Failed,
    /// [`OpStatus::Canceled`]
    Canceled,
}

/// Where a workflow stands; derived from its ops, but for an explicit cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkflowStatus {
    /// Some op can still move.
    Running,
    /// Every op succeeded.
    Succeeded,
    /// Some op failed or is blocked, and none can move.
    Failed,
    /// Canceled as a whole, or ended with some ops canceled and none failed.
    Canceled,
}

/// What can happen to an op.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// Its last unmet dependency was met.
    Satisfied,
    /// A required dependency failed, was blocked or canceled.
    Broken,
    /// No required dependency is failed, blocked or canceled any more.
    Reopened,
    /// A worker takes it.
    Claimed,
    /// Its worker finished it.
    Completed,
    /// Its attempt failed and will be tried again.
    AttemptFailed,
    /// Its attempt failed, and that was the last.
    GaveUp,
    /// Its worker gave it back.
    Released,
    /// Its lease ran out.
    LeaseExpired,
    /// Its handler asked to wait.
    Suspended,
    /// Its attempt ended, nobody knows how, and its effect must not be repeated.
    OutcomeUnknown,
    /// What it waited for came.
    Woken,
    /// An operator tries it again.
    Retried,
    /// An operator settles it with a result.
    Settled,
    /// An operator has it done again although it had succeeded.
    Redone,
    /// Somebody cancels it.
    Canceled,
}

use Event as E;
use OpStatus::{Blocked, Canceled, Failed, Pending, Ready, Running, Succeeded, Waiting};

/// Every transition there is. A pair that is not here does not happen.
pub const TABLE: &[(OpStatus, Event, OpStatus)] = &[
    (Pending, E::Satisfied, Ready),
    (Pending, E::Broken, Blocked),
    (Blocked, E::Reopened, Pending),
    (Ready, E::Claimed, Running),
    (Running, E::Completed, Succeeded),
    (Running, E::AttemptFailed, Ready),
    (Running, E::GaveUp, Failed),
    (Running, E::Released, Ready),
    (Running, E::LeaseExpired, Ready),
    (Running, E::Suspended, Waiting),
    (Running, E::OutcomeUnknown, Waiting),
    (Waiting, E::Woken, Ready),
    (Waiting, E::GaveUp, Failed),
    (Failed, E::Retried, Ready),
    (Waiting, E::Retried, Ready),
    (Pending, E::Settled, Succeeded),
    (Blocked, E::Settled, Succeeded),
    (Ready, E::Settled, Succeeded),
    (Waiting, E::Settled, Succeeded),
    (Failed, E::Settled, Succeeded),
    (Succeeded, E::Redone, Pending),
    (Pending, E::Canceled, Canceled),
    (Blocked, E::Canceled, Canceled),
    (Ready, E::Canceled, Canceled),
    (Running, E::Canceled, Canceled),
    (Waiting, E::Canceled, Canceled),
];

/// The status that `event` leads to from `from`, if it may happen there.
pub fn next(from: OpStatus, event: Event) -> Option<OpStatus> {
    TABLE.iter().find(|row| row.0 == from && row.1 == event).map(|row| row.2)
}

impl OpStatus {
    /// Every status, in the order of a life.
    pub const ALL: [Self; 8] = [Pending, Blocked, Ready, Running, Waiting, Succeeded, Failed, Canceled];

    /// As it is spelled everywhere.
    pub const fn as_str(self) -> &'static str {
        match self {
            Pending => "pending",
            Blocked => "blocked",
            Ready => "ready",
            Running => "running",
            Waiting => "waiting",
            Succeeded => "succeeded",
            Failed => "failed",
            Canceled => "canceled",
        }
    }
    /// What the op's row says.
    pub const fn stored(self) -> StoredStatus {
        match self {
            Pending => StoredStatus::Pending,
            Blocked => StoredStatus::Blocked,
            Ready | Running => StoredStatus::Open,
            Waiting => StoredStatus::Waiting,
            Succeeded => StoredStatus::Succeeded,
            Failed => StoredStatus::Failed,
            Canceled => StoredStatus::Canceled,
        }
    }
    /// Whether soft dependents go on: it has ended or cannot go on by itself.
    pub const fn is_settled(self) -> bool {
        matches!(self, Succeeded | Failed | Blocked | Canceled)
    }
}

impl StoredStatus {
    /// Every stored status.
    pub const ALL: [Self; 7] = [Self::Pending, Self::Blocked, Self::Open, Self::Waiting, Self::Succeeded, Self::Failed, Self::Canceled];

    /// As the row spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Blocked => "blocked",
            Self::Open => "open",
            Self::Waiting => "waiting",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
        }
    }
    /// Reads what the row spells.
    pub fn from_stored(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
    /// The op's status, given whether its lease row exists.
    pub const fn status(self, leased: bool) -> OpStatus {
        match self {
            Self::Pending => Pending,
            Self::Blocked => Blocked,
            Self::Open if leased => Running,
            Self::Open => Ready,
            Self::Waiting => Waiting,
            Self::Succeeded => Succeeded,
            Self::Failed => Failed,
            Self::Canceled => Canceled,
        }
    }
}

impl WorkflowStatus {
    /// Every status.
    pub const ALL: [Self; 4] = [Self::Running, Self::Succeeded, Self::Failed, Self::Canceled];

    /// As it is spelled everywhere.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
        }
    }
    /// Reads the stored form.
    pub fn from_stored(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
    /// Whether nothing moves any more.
    pub const fn is_ended(self) -> bool {
        !matches!(self, Self::Running)
    }
}

impl fmt::Display for OpStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
impl fmt::Display for WorkflowStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What one edge adds to its child's counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// 1 while the child must wait for this parent.
    pub unmet: i32,
    /// 1 while this parent blocks the child.
    pub broken: i32,
}

/// The share of an edge whose parent stands at `parent`.
///
/// A child with `broken` above zero is blocked; one with `unmet` zero is ready. Because a broken edge is also unmet, the
/// two never hold together.
pub const fn share(required: bool, parent: OpStatus) -> Share {
    if required {
        Share {
            unmet: if matches!(parent, Succeeded) { 0 } else { 1 },
            broken: if matches!(parent, Failed | Blocked | Canceled) { 1 } else { 0 },
        }
    } else {
        Share { unmet: if parent.is_settled() { 0 } else { 1 }, broken: 0 }
    }
}

/// How many ops of a workflow stand where; ready and running ones count as `open`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counters {
    /// Pending ops.
    pub pending: i64,
    /// Blocked ops.
    pub blocked: i64,
    /// Ready and running ops.
    pub open: i64,
    /// Waiting ops.
    pub waiting: i64,
    /// Succeeded ops.
    pub succeeded: i64,
    /// Failed ops.
    pub failed: i64,
    /// Canceled ops.
    pub canceled: i64,
}

impl Counters {
    /// Adds `by` to the count of `status`.
    pub fn add(&mut self, status: StoredStatus, by: i64) {
        *match status {
            StoredStatus::Pending => &mut self.pending,
            StoredStatus::Blocked => &mut self.blocked,
            StoredStatus::Open => &mut self.open,
            StoredStatus::Waiting => &mut self.waiting,
            StoredStatus::Succeeded => &mut self.succeeded,
            StoredStatus::Failed => &mut self.failed,
            StoredStatus::Canceled => &mut self.canceled,
        } += by;
    }
    /// All ops.
    pub const fn total(&self) -> i64 {
        self.pending + self.blocked + self.open + self.waiting + self.succeeded + self.failed + self.canceled
    }
    /// The workflow's status by S8, for one that was not canceled as a whole.
    pub const fn derived(&self) -> WorkflowStatus {
        if self.pending + self.open + self.waiting > 0 {
            WorkflowStatus::Running
        } else if self.failed + self.blocked > 0 {
            WorkflowStatus::Failed
        } else if self.canceled > 0 {
            WorkflowStatus::Canceled
        } else {
            WorkflowStatus::Succeeded
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [Event; 16] = [
        E::Satisfied,
        E::Broken,
        E::Reopened,
        E::Claimed,
        E::Completed,
        E::AttemptFailed,
        E::GaveUp,
        E::Released,
        E::LeaseExpired,
        E::Suspended,
        E::OutcomeUnknown,
        E::Woken,
        E::Retried,
        E::Settled,
        E::Redone,
        E::Canceled,
    ];

    #[test]
    fn every_pair_has_at_most_one_target_and_canceled_none() {
        for from in OpStatus::ALL {
            for event in EVENTS {
                let targets = TABLE.iter().filter(|row| row.0 == from && row.1 == event).count();
                assert!(targets <= 1, "{from} {event:?}");
                assert_eq!(next(from, event).is_some(), targets == 1);
            }
        }
        assert!(EVENTS.iter().all(|event| next(Canceled, *event).is_none()), "canceled is absorbing");
        assert!(EVENTS.iter().all(|event| next(Succeeded, *event).is_none() || *event == E::Redone));
    }

    #[test]
    fn a_broken_edge_is_also_unmet() {
        for parent in OpStatus::ALL {
            for required in [true, false] {
                let share = share(required, parent);
                assert!(share.broken <= share.unmet, "{parent} {required}");
            }
        }
    }

    #[test]
    fn stored_forms_read_back() {
        for status in OpStatus::ALL {
            assert_eq!(StoredStatus::from_stored(status.stored().as_str()), Some(status.stored()));
            assert_eq!(status.stored().status(status == Running), status);
        }
    }
}
