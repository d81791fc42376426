//! Why a verb was refused. Every message names what it is about and says what to do.

use crate::model::{Fence, OpId, RequestId, TimeError, TooLarge, WorkflowId, WorkflowName};
use crate::state::{OpStatus, WorkflowStatus};
use crate::store::StoreError;

/// Why a verb did nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransitionError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The graph cannot be stored.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// Something is over its limit.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// A deadline lies past year 9999.
    #[error(transparent)]
    Time(#[from] TimeError),
    /// There is no such workflow.
    #[error("there is no workflow {0:?}; `list` shows those there are")]
    NoWorkflow(WorkflowId),
    /// There is no such op.
    #[error("workflow {workflow:?} has no op {op:?}")]
    NoOp {
        /// The workflow.
        workflow: WorkflowId,
        /// The op.
        op: OpId,
    },
    /// The id is taken by a workflow of another name or identity.
    #[error(
        "workflow id {id:?} belongs to {found_name:?} with identity {found_digest}, not to {given_name:?} with identity {given_digest}: use another id or identity"
    )]
    IdentityConflict {
        /// The id.
        id: WorkflowId,
        /// The stored workflow's name.
        found_name: WorkflowName,
        /// Its digest, or `none`.
        found_digest: String,
        /// The name given.
        given_name: WorkflowName,
        /// The digest given, or `none`.
        given_digest: String,
    },
    /// `start` with an id that is taken.
    #[error("workflow {0:?} exists already: attach to it with `ensure`, or start under another id")]
    WorkflowExists(WorkflowId),
    /// The workflow's status does not allow it.
    #[error("workflow {id:?} is {status}: {advice}")]
    WorkflowStatus {
        /// The workflow.
        id: WorkflowId,
        /// Where it stands.
        status: WorkflowStatus,
        /// What can be done.
        advice: &'static str,
    },
    /// The op's status does not allow it.
    #[error("op {op:?} of workflow {workflow:?} is {status}: {advice}")]
    OpStatus {
        /// The workflow.
        workflow: WorkflowId,
        /// The op.
        op: OpId,
        /// Where it stands.
        status: OpStatus,
        /// What can be done.
        advice: &'static str,
    },
    /// The op waits for a verdict on another attempt.
    #[error("op {op:?} of workflow {workflow:?} waits for a verdict on attempt {}, not on {}: look at it again", .wanted.0, .given.0)]
    OtherAttempt {
        /// The workflow.
        workflow: WorkflowId,
        /// The op.
        op: OpId,
        /// The attempt that was judged.
        given: Fence,
        /// The attempt that is to be.
        wanted: Fence,
    },
    /// A request id that was used for another call.
    #[error("request {0} was used for another call already: use a new request id for a new call")]
    RequestReused(RequestId),
}

/// Why a graph cannot be stored. Nothing of it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// No ops at all.
    #[error("workflow {0:?} has no ops: give it at least one")]
    Empty(WorkflowId),
    /// Two ops with one id.
    #[error("op {0:?} is there twice: give each op an id of its own")]
    DuplicateOp(OpId),
    /// An op that waits for itself.
    #[error("op {0:?} depends on itself: remove that dependency")]
    SelfDependency(OpId),
    /// A dependency on an op that is not there.
    #[error("op {op:?} depends on {missing:?}, which is not an op of this workflow: add that op, or correct the name")]
    UnknownDependency {
        /// The op that waits.
        op: OpId,
        /// The op that is not there.
        missing: OpId,
    },
    /// A `before` that names an op that is not there.
    #[error("op {op:?} is to run before {missing:?}, which is not an op of this workflow: add that op, or correct the name")]
    UnknownBefore {
        /// The op.
        op: OpId,
        /// The op that is not there.
        missing: OpId,
    },
    /// Ops that wait for each other.
    #[error("ops depend on each other in a circle: {}; remove one of these dependencies", circle(.0))]
    Cycle(Vec<OpId>),
    /// A `before` that names an op that does not wait any more.
    #[error("op {op:?} is to run before {target:?}, which is {status} and waits no more: only pending or blocked ops can be made to wait")]
    BeforeTooLate {
        /// The op.
        op: OpId,
        /// The op that was to wait.
        target: OpId,
        /// Where it stands.
        status: OpStatus,
    },
    /// An added op with `before` and a dependency on an op that is there already: a cycle could hide in it.
    #[error(
        "op {op:?} is added before an op that is there and depends on {on:?}, which is there too: an added op with `before` may only depend on ops added with it"
    )]
    BeforeAndAfter {
        /// The op.
        op: OpId,
        /// What it depends on.
        on: OpId,
    },
    /// An added op whose id is taken by another.
    #[error("op {0:?} is there already with another spec: use another id")]
    OpExists(OpId),
    /// More ops than a call may bring.
    #[error("{given} ops in one call; the most is {limit}: split the call")]
    TooManyOps {
        /// How many were given.
        given: usize,
        /// How many may be.
        limit: usize,
    },
}

fn circle(ops: &[OpId]) -> String {
    let names: Vec<String> = ops.iter().chain(ops.first()).map(|op| format!("{op:?}")).collect();
    names.join(" → ")
}
