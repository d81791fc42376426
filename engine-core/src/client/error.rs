//! Why a call of an application or an operator failed. Every message names what it is about and says what to do.

use super::problem::InvalidSpec;
use crate::model::{JsonError, OpError, OpId, TimeError, TooLarge, WorkflowId};
use crate::state::OpStatus;
use crate::store::StoreError;
use crate::transitions::{GraphError, TransitionError};

/// Why a call failed, sorted by what the caller can do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// There is no such workflow, op, artifact or definition.
    #[error("{what}")]
    NotFound {
        /// What was looked for.
        what: String,
    },
    /// The description is not valid; nothing was stored.
    #[error(transparent)]
    Invalid(#[from] InvalidSpec),
    /// The graph is not valid; nothing was stored.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// Something is over its limit; nothing was stored.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// A deadline lies past year 9999; nothing was stored.
    #[error(transparent)]
    Time(#[from] TimeError),
    /// The id belongs to a workflow of another name or identity; nothing was merged.
    #[error(transparent)]
    IdentityConflict(TransitionError),
    /// What is there does not allow it; nothing was changed.
    #[error(transparent)]
    Conflict(TransitionError),
    /// The attempt does not own its op any more; nothing was written. Roll the transaction back.
    #[error("the lease of op {op:?} of workflow {workflow:?} is lost: roll back, another attempt has taken over")]
    LeaseLost {
        /// The workflow.
        workflow: WorkflowId,
        /// The op.
        op: OpId,
    },
    /// What an attempt was to leave cannot be kept. Roll the transaction back and return this from the handler.
    #[error("op {op:?} cannot end so: {}: {}", .error.code, .error.message)]
    Refused {
        /// The op.
        op: OpId,
        /// Why.
        error: Box<OpError>,
    },
    /// A result was asked of an op that has none.
    #[error("op {op:?} of workflow {workflow:?} is {status} and has no result{}", because(.error.as_deref()))]
    NoResult {
        /// The workflow.
        workflow: WorkflowId,
        /// The op.
        op: OpId,
        /// Where it stands.
        status: OpStatus,
        /// Why its last attempt failed, if it did.
        error: Option<Box<OpError>>,
    },
    /// A stored value has another shape than asked for.
    #[error("{what}")]
    Shape {
        /// Which value.
        what: String,
        /// What did not fit.
        #[source]
        source: JsonError,
    },
    /// The store failed.
    #[error("the store failed")]
    Store(#[from] StoreError),
    /// The async runtime shuts down and took the call with it: whether it happened is unknown.
    #[error("the runtime shut down during the call; repeat it to know whether it happened")]
    ShuttingDown,
}

fn because(error: Option<&OpError>) -> String {
    error.map_or_else(String::new, |error| format!(": {}: {}", error.code, error.message))
}

impl ClientError {
    pub(super) fn no_workflow(id: &WorkflowId) -> Self {
        TransitionError::NoWorkflow(id.clone()).into()
    }
    pub(super) fn no_op(workflow: &WorkflowId, op: &OpId) -> Self {
        TransitionError::NoOp { workflow: workflow.clone(), op: op.clone() }.into()
    }
    pub(super) fn shape(what: impl Into<String>) -> impl FnOnce(JsonError) -> Self {
        let what = what.into();
        |source| Self::Shape { what, source }
    }
}

impl From<TransitionError> for ClientError {
    fn from(error: TransitionError) -> Self {
        match error {
            TransitionError::Store(error) => Self::Store(error),
            TransitionError::Graph(error) => Self::Graph(error),
            TransitionError::TooLarge(error) => Self::TooLarge(error),
            TransitionError::Time(error) => Self::Time(error),
            TransitionError::NoWorkflow(_) | TransitionError::NoOp { .. } => Self::NotFound { what: error.to_string() },
            TransitionError::IdentityConflict { .. } => Self::IdentityConflict(error),
            TransitionError::WorkflowExists(_)
            | TransitionError::WorkflowStatus { .. }
            | TransitionError::OpStatus { .. }
            | TransitionError::OtherAttempt { .. }
            | TransitionError::RequestReused(_) => Self::Conflict(error),
        }
    }
}
