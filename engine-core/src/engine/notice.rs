//! What observers hear (O2).

use crate::model::{Fence, KindName, OpId, QueueName, SiteName, Timestamp, WorkerName, WorkflowId};
use crate::store::rows::{ClaimedOp, EventKind};
use crate::transitions;
use serde::{Serialize, Serializer};
use std::fmt;
use std::time::Duration;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum NoticeKind {
    /// What the history also tells.
    Event(EventKind),
    /// A worker took an op.
    OpLeased,
    /// A handler that still runs has lost its lease; whatever it does is not recorded.
    OpLeaseLost,
    /// Nothing could be claimed, and nothing runs.
    Idle,
    /// A queue has ops that its policy holds back.
    QueueRateLimited,
}

impl NoticeKind {
    /// As it is spelled everywhere.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Event(kind) => kind.as_str(),
            Self::OpLeased => "op_leased",
            Self::OpLeaseLost => "op_lease_lost",
            Self::Idle => "idle",
            Self::QueueRateLimited => "queue_rate_limited",
        }
    }
}
impl fmt::Display for NoticeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
impl Serialize for NoticeKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// One thing that happened, told after its commit.
///
/// Only the process that made the change hears of it; [the history](crate::client::Client::events) has what others did.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Notice {
    /// When, by the store's clock; `None` for what is not in the store.
    pub at: Option<Timestamp>,
    /// What happened.
    pub kind: NoticeKind,
    /// In which workflow.
    pub workflow_id: Option<WorkflowId>,
    /// To which op.
    pub op_id: Option<OpId>,
    /// The op that emitted it.
    pub parent: Option<OpId>,
    /// Its queue.
    pub queue: Option<QueueName>,
    /// Its site.
    pub site: Option<SiteName>,
    /// Its kind.
    pub op_kind: Option<KindName>,
    /// The worker that has or had it.
    pub worker: Option<WorkerName>,
    /// Who did it: a worker or an operator.
    pub actor: Option<String>,
    /// In which attempt.
    pub attempt: Option<Fence>,
    /// The error's code, the workflow's new status, or the operator's reason.
    pub code: Option<String>,
    /// How long the op could have been claimed before it was.
    pub queue_wait: Option<Duration>,
    /// How long its handler ran.
    pub run_time: Option<Duration>,
}

impl Notice {
    /// That `kind` happened, with nothing else said.
    pub(crate) const fn new(kind: NoticeKind) -> Self {
        Self {
            at: None,
            kind,
            workflow_id: None,
            op_id: None,
            parent: None,
            queue: None,
            site: None,
            op_kind: None,
            worker: None,
            actor: None,
            attempt: None,
            code: None,
            queue_wait: None,
            run_time: None,
        }
    }

    /// That `kind` happened to `op`, which this process holds or held.
    pub(crate) fn of_claimed(kind: NoticeKind, op: &ClaimedOp) -> Self {
        Self { workflow_id: Some(op.workflow_id.clone()), op_id: Some(op.op_id.clone()), ..Self::new(kind) }.with_claimed(op)
    }

    /// Adds what the claim of `op` tells.
    pub(crate) fn with_claimed(self, op: &ClaimedOp) -> Self {
        Self {
            parent: op.parent.clone(),
            queue: Some(op.queue.clone()),
            site: Some(op.site.clone()),
            op_kind: Some(op.kind.clone()),
            worker: Some(op.lease.worker.clone()),
            attempt: Some(op.lease.key.fence),
            queue_wait: Some(op.lease.acquired_at.since(op.due_at)),
            ..self
        }
    }
}

impl From<transitions::Notice> for Notice {
    fn from(told: transitions::Notice) -> Self {
        let transitions::Notice { at, kind, workflow, op, fence, actor, detail } = told;
        Self { at: Some(at), workflow_id: workflow, op_id: op, actor, attempt: fence, code: detail, ..Self::new(NoticeKind::Event(kind)) }
    }
}
