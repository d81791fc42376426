//! Has a store examined and repaired, and asks why an op does not go on (P3, S10).

use super::{Actor, Client, ClientError};
use crate::doctor::{self, Diagnosis, Why};
use crate::model::{OpId, WorkflowId};
use crate::store::{StoreExt, TxKind};

impl Client {
    /// Recomputes everything that follows from the graph and the leases, reports what differs, and tries a write. Workers
    /// may go on meanwhile.
    ///
    /// # Errors
    /// [`ClientError::Store`] when the store cannot be read.
    pub async fn examine(&self) -> Result<Diagnosis, ClientError> {
        let patience = self.core.patience;
        self.blocking(move |store| doctor::examine(store.as_ref(), patience)).await
    }

    /// [`Client::examine`], and puts right what can be, in bounded batches, in the name of `actor`. What was not repaired
    /// stays among the findings.
    ///
    /// # Errors
    /// [`ClientError::Store`]; what was repaired before stays so.
    pub async fn repair(&self, actor: &Actor) -> Result<Diagnosis, ClientError> {
        let (actor, patience) = (actor.clone(), self.core.patience);
        let (diagnosis, told) = self.blocking(move |store| doctor::repair(store.as_ref(), &actor, patience)).await?;
        self.hub().tell_committed(told);
        Ok(diagnosis)
    }

    /// Why `op` does not go on: which ops it comes down to, through any depth, each with its error and since when.
    ///
    /// # Errors
    /// [`ClientError::NotFound`] when there is no such workflow or op.
    pub async fn why(&self, id: &WorkflowId, op: &OpId) -> Result<Why, ClientError> {
        let (id, op) = (id.clone(), op.clone());
        self.blocking(move |store| store.with(TxKind::Read, |tx| doctor::why(tx, &id, &op))).await
    }

    /// Why the workflow `id` stands where it does: its failed ops, and those that still have to go on by themselves.
    ///
    /// # Errors
    /// [`ClientError::NotFound`] when there is no such workflow.
    pub async fn why_workflow(&self, id: &WorkflowId) -> Result<Why, ClientError> {
        let id = id.clone();
        self.blocking(move |store| store.with(TxKind::Read, |tx| doctor::why_workflow(tx, &id))).await
    }
}
