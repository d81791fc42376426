//! Rows about ops that wait.

use crate::model::{Fence, OpSeq, Timestamp, WorkflowSeq};

/// What an op waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WaitReason {
    /// An instant.
    Timer,
    /// A verdict of a person or a probe on its last attempt, of which nobody knows what it did.
    Verdict,
}

impl WaitReason {
    /// Every reason.
    pub const ALL: [Self; 2] = [Self::Timer, Self::Verdict];

    /// As stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Timer => "timer",
            Self::Verdict => "verdict",
        }
    }
    /// Reads the stored form.
    pub fn from_stored(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }
}

/// What names one wait: the attempt whose end began it. A later wait of the same op has a later fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaitKey {
    /// The op.
    pub op: OpSeq,
    /// The attempt whose end began the wait.
    pub fence: Fence,
}

/// That an op waits. The row is there exactly while the op's row says `waiting`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpWait {
    /// What names it.
    pub key: WaitKey,
    /// The op's workflow.
    pub workflow: WorkflowSeq,
    /// What it waits for.
    pub reason: WaitReason,
    /// When it began.
    pub since: Timestamp,
    /// The wake-up is due from this instant on; `None` is never by itself.
    pub due_at: Option<Timestamp>,
}

/// Which waits a transaction takes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeWait {
    /// Those that are due: at now or before.
    Due,
    /// Those that are there.
    There,
}

/// Waits that were taken away, and the instant at which they were judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenWaits {
    /// The transition's own time, read behind the locks.
    pub now: Timestamp,
    /// The waits, in no order.
    pub waits: Vec<OpWait>,
}

/// How the last wait of an op ended: it was woken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpWake {
    /// The wait.
    pub wait: OpWait,
    /// When it ended.
    pub woken_at: Timestamp,
}
