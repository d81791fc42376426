//! One workflow, as whoever started it sees it.

use super::{Client, ClientError, InvalidSpec, WorkflowSnapshot, with_causes};
use crate::model::{Json, OpId, WorkflowId};
use crate::state::WorkflowStatus;
use crate::transitions::CreateOutcome;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// How often a wait looks by itself: what other processes do is not told, and this is soon enough for a person.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// One workflow. Cheap to clone; dropping it changes nothing.
#[derive(Debug, Clone)]
pub struct WorkflowHandle {
    client: Client,
    id: WorkflowId,
    outcome: Option<CreateOutcome>,
}

impl WorkflowHandle {
    pub(super) const fn new(client: Client, id: WorkflowId, outcome: Option<CreateOutcome>) -> Self {
        Self { client, id, outcome }
    }

    /// Its id.
    pub const fn id(&self) -> &WorkflowId {
        &self.id
    }

    /// Whether the call that gave this handle made the workflow.
    pub const fn created(&self) -> bool {
        matches!(self.outcome, Some(CreateOutcome::Created))
    }

    /// Where the workflow stood when the call attached to it; `None` when it was made, or not looked at.
    pub const fn attached_status(&self) -> Option<WorkflowStatus> {
        match self.outcome {
            Some(CreateOutcome::Attached { status, .. }) => Some(status),
            Some(CreateOutcome::Created) | None => None,
        }
    }

    /// Whether the workflow was made with another input than the call brought.
    pub const fn input_differs(&self) -> bool {
        matches!(self.outcome, Some(CreateOutcome::Attached { input_differs: true, .. }))
    }

    /// The workflow as it stands.
    ///
    /// # Errors
    /// [`ClientError::NotFound`] when it is not there.
    pub async fn snapshot(&self) -> Result<WorkflowSnapshot, ClientError> {
        self.client.snapshot(&self.id).await
    }

    /// Waits until the workflow has ended, however that is. What ends in this process is seen at once, else within 250 ms.
    /// A database that is away is waited for.
    ///
    /// # Errors
    /// [`ClientError::NotFound`] when it is not there; [`ClientError::Store`] when the store fails for good.
    pub async fn wait(&self) -> Result<WorkflowSnapshot, ClientError> {
        let waiter = self.client.hub().waiter(&self.id);
        loop {
            let changed = waiter.notified();
            tokio::pin!(changed);
            // Enlisted before the look, so that no change falls between the two.
            changed.as_mut().enable();
            match self.snapshot().await {
                Ok(snapshot) if snapshot.status.is_ended() => return Ok(snapshot),
                Ok(_) => {}
                Err(ClientError::Store(error)) if error.is_transient() => {
                    tracing::warn!(workflow = self.id.as_str(), error = with_causes(&error), "waiting for the store");
                }
                Err(error) => return Err(error),
            }
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    /// The result of the op `op`.
    ///
    /// # Errors
    /// [`ClientError::NotFound`] when there is no such op, [`ClientError::NoResult`] while it has not succeeded,
    /// [`ClientError::Shape`] when the result is no `T`.
    pub async fn result<T: DeserializeOwned>(&self, op: &str) -> Result<T, ClientError> {
        let shape = ClientError::shape(format!("the result of op {op:?} of workflow {:?}", self.id));
        self.result_json(op).await?.decode().map_err(shape)
    }

    /// [`WorkflowHandle::result`] as JSON.
    ///
    /// # Errors
    /// As [`WorkflowHandle::result`].
    pub async fn result_json(&self, op: &str) -> Result<Json, ClientError> {
        let op = OpId::new(op).map_err(|error| InvalidSpec::of_op(op, error.to_string()))?;
        self.client.op_result(&self.id, &op).await
    }

    /// The client that it calls.
    pub const fn client(&self) -> &Client {
        &self.client
    }
}
