//! What an examination can find.

use crate::model::{OpId, OpSeq, WorkflowId};
use serde::Serialize;
use std::fmt;

/// In what way something stored differs from what it follows from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Drift {
    /// The counts of unmet and broken parents are not those of the edges.
    Counts,
    /// An op is pending, blocked or open, and its edges make it another of these.
    Status,
    /// An op is open although a required parent has not succeeded. Whether it may go on is for an operator to say.
    Ahead,
    /// An op is open and neither queued nor leased: nobody would ever claim it.
    Nowhere,
    /// An op that is not open stands in a queue.
    QueuedNotOpen,
    /// An op is both leased and queued, or queued twice.
    InTwoPlaces,
    /// An op's place in a queue has another lane, priority, fence or count of failures than its row.
    PlaceWrong,
    /// An op that is not open is leased.
    LeasedNotOpen,
    /// A lease repeats a fence, or names another workflow.
    LeaseWrong,
    /// An op waits, and nothing says for what: nobody would ever wake it.
    WaitGone,
    /// An op that does not wait is said to wait for something.
    WaitsNotWaiting,
    /// An op that ended has no instant of its end, or one that did not has one.
    FinishedAt,
    /// An op of a canceled workflow still moves.
    SurvivedCancel,
    /// An op's lane is not there: its kind and queue are lost.
    LaneGone,
    /// An op waits for an op that is not there.
    ParentGone,
    /// A workflow's counters are not those of its ops.
    Counters,
    /// A workflow's status does not follow from its ops.
    WorkflowStatus,
    /// A workflow that ended has no instant of its end, or one that did not has one.
    WorkflowFinishedAt,
    /// A row of a queue, a lease or a wait is of an op that is not there.
    Orphan,
}

impl Drift {
    /// As it is spelled in JSON and in the history.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counts => "counts",
            Self::Status => "status",
            Self::Ahead => "ahead",
            Self::Nowhere => "nowhere",
            Self::QueuedNotOpen => "queued_not_open",
            Self::InTwoPlaces => "in_two_places",
            Self::PlaceWrong => "place_wrong",
            Self::LeasedNotOpen => "leased_not_open",
            Self::LeaseWrong => "lease_wrong",
            Self::WaitGone => "wait_gone",
            Self::WaitsNotWaiting => "waits_not_waiting",
            Self::FinishedAt => "finished_at",
            Self::SurvivedCancel => "survived_cancel",
            Self::LaneGone => "lane_gone",
            Self::ParentGone => "parent_gone",
            Self::Counters => "counters",
            Self::WorkflowStatus => "workflow_status",
            Self::WorkflowFinishedAt => "workflow_finished_at",
            Self::Orphan => "orphan",
        }
    }

    /// Whether what is right follows from the rest of what is stored. The others have lost something.
    pub const fn is_repairable(self) -> bool {
        !matches!(self, Self::Ahead | Self::LaneGone | Self::ParentGone | Self::WaitGone)
    }
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One difference, with the ids it is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// In which workflow.
    pub workflow: Option<WorkflowId>,
    /// At which op.
    pub op: Option<OpId>,
    /// The key of the op, also where there is no such op.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<OpSeq>,
    /// In what way.
    pub drift: Drift,
    /// What is stored and what it should be.
    pub detail: String,
}
