//! What operators do: retry, cancel, limit.

use super::{Actor, Client, ClientError, InvalidSpec};
use crate::model::{OpId, QueuePolicy, RequestId, WorkflowId};
use crate::store::{StoreExt, TxKind};
use crate::transitions::{self, CancelWorkflow, Canceled, RetryOps, RetryTarget};

impl Client {
    /// Makes the failed op `op` ready with a new budget, and reopens what it blocked. Answers which ops are ready again.
    ///
    /// # Errors
    /// [`ClientError::NotFound`]; [`ClientError::Conflict`] when the op is not failed.
    pub async fn retry_op(&self, id: &WorkflowId, op: &OpId, actor: &Actor) -> Result<Vec<OpId>, ClientError> {
        self.retry(id, RetryTarget::Op(op.clone()), actor).await
    }

    /// [`Client::retry_op`] of every failed op.
    ///
    /// # Errors
    /// [`ClientError::NotFound`]; [`ClientError::Conflict`] when none is failed.
    pub async fn retry_workflow(&self, id: &WorkflowId, actor: &Actor) -> Result<Vec<OpId>, ClientError> {
        self.retry(id, RetryTarget::AllFailed, actor).await
    }

    async fn retry(&self, id: &WorkflowId, target: RetryTarget, actor: &Actor) -> Result<Vec<OpId>, ClientError> {
        let call = RetryOps { request: RequestId::random(), actor: actor.clone(), workflow: id.clone(), target };
        let retried = self.change(move |tx| transitions::retry(tx, &call), |retried| std::mem::take(&mut retried.notices)).await?;
        Ok(retried.ops)
    }

    /// Cancels a workflow and every op of it that has not ended: final. Running handlers are told to stop on their next
    /// heartbeat, in this process at once; nothing they do is recorded.
    ///
    /// # Errors
    /// [`ClientError::NotFound`]; [`ClientError::Conflict`] when it has succeeded.
    pub async fn cancel_workflow(&self, id: &WorkflowId, actor: &Actor) -> Result<Canceled, ClientError> {
        let call = CancelWorkflow { request: RequestId::random(), actor: actor.clone(), workflow: id.clone() };
        // What observers were told is not the caller's: the answer keeps the counts.
        self.change(move |tx| transitions::cancel_workflow(tx, &call), |canceled| std::mem::take(&mut canceled.notices)).await
    }

    /// Stores `policy` in place of the one for the same site (or any) and queue. Every claim that begins
    /// later obeys it; where it admits more, workers are told, and those that cannot be told find out by their next poll.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] when its numbers cannot work.
    pub async fn set_policy(&self, policy: QueuePolicy) -> Result<(), ClientError> {
        policy.check().map_err(|error| InvalidSpec::of_workflow(error.to_string()))?;
        let policies = [policy];
        self.blocking(move |store| store.with(TxKind::Client, |tx| tx.set_policies(&policies))).await?;
        self.core.hub.ring_everywhere();
        Ok(())
    }
}
