//! What operators do: retry, settle, cancel, limit.

use super::{Actor, Client, ClientError, InvalidSpec};
use crate::model::{Fence, OpId, QueuePolicy, RequestId, WorkflowId, check_size, storable_text};
use crate::state::OpStatus;
use crate::store::{StoreExt, TxKind};
use crate::transitions::{self, CancelWorkflow, Canceled, OpVerdict, RetryOps, RetryTarget, SettleOp};

impl Client {
    /// Makes the op `op`, which is failed or waits for a verdict, ready with a new budget, and reopens what it blocked. Answers which ops are ready again.
    ///
    /// # Errors
    /// [`ClientError::NotFound`]; [`ClientError::Conflict`] when the op is neither.
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

    /// Says what became of the attempt numbered `attempt` of `op`, which gave no answer and must not be repeated blindly.
    /// Answers where the op stands then.
    ///
    /// # Errors
    /// [`ClientError::NotFound`]; [`ClientError::Conflict`] when the op waits for no verdict, or for one on another attempt;
    /// [`ClientError::TooLarge`] when the result is over its limit.
    pub async fn settle_op(
        &self,
        id: &WorkflowId,
        op: &OpId,
        attempt: Fence,
        verdict: OpVerdict,
        actor: &Actor,
    ) -> Result<OpStatus, ClientError> {
        let verdict = match verdict {
            OpVerdict::Retry => verdict,
            OpVerdict::Succeed { ref result } => {
                check_size("the result", result.as_str().len(), self.limits().result_bytes)?;
                verdict
            }
            OpVerdict::Fail { message } => OpVerdict::Fail { message: storable_text(&message, self.limits().error_bytes) },
        };
        let (workflow, op) = (id.clone(), op.clone());
        let call = SettleOp { request: RequestId::random(), actor: actor.clone(), workflow, op, attempt, verdict };
        let settled = self.change(move |tx| transitions::settle(tx, &call), |settled| std::mem::take(&mut settled.notices)).await?;
        Ok(settled.status)
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
