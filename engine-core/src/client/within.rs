//! Verbs inside a transaction that the application began: its rows and the engine's commit or roll back together (B5).

use super::{Client, ClientError, InvalidSpec, Workflow, with_causes};
use crate::engine::OpContext;
use crate::model::{Json, OpError, RequestId};
use crate::store::{StoreError, Tx, Wait};
use crate::transitions::{self, CreateMode, CreateRequest, Created, Ended, Notice};
use serde::Serialize;
use std::fmt;

/// Verbs on an open transaction. A backend lends the `Tx`: see its `transaction` and `on`.
///
/// # Contract
/// Make these calls last and then commit: each locks rows that workers need. After any error roll back. Nothing is tried
/// again here, because what the application did before cannot be.
pub struct Within<'t> {
    client: Client,
    tx: &'t mut dyn Tx,
}

/// That a verb was done in a transaction which is not committed yet.
///
/// Call [`Receipt::committed`] after the commit: observers and waiting handles hear of it at once. Dropping it only
/// delays them until they look by themselves; after a rollback drop it.
#[must_use = "call `committed` once the transaction is committed, so that observers hear of it"]
#[derive(Debug)]
pub struct Receipt<T> {
    value: T,
    client: Client,
    notices: Vec<Notice>,
}

impl<T> Receipt<T> {
    /// What the verb answered.
    pub const fn value(&self) -> &T {
        &self.value
    }

    /// Tells observers; returns what the verb answered.
    pub fn committed(self) -> T {
        self.client.hub().tell_committed(self.notices);
        self.value
    }
}

impl Client {
    /// Verbs on the open transaction `tx`.
    pub fn within<'t>(&self, tx: &'t mut dyn Tx) -> Within<'t> {
        Within { client: self.clone(), tx }
    }
}

impl Within<'_> {
    /// [`Client::start`] in this transaction: the workflow appears with its commit and never otherwise.
    ///
    /// # Errors
    /// As [`Client::start`]; roll back.
    pub fn start(&mut self, workflow: Workflow) -> Result<Receipt<Created>, ClientError> {
        self.create(workflow, CreateMode::Start)
    }

    /// [`Client::ensure`] in this transaction.
    ///
    /// # Errors
    /// As [`Client::ensure`]; roll back.
    pub fn ensure(&mut self, workflow: Workflow) -> Result<Receipt<Created>, ClientError> {
        if !workflow.has_identity() {
            let advice = "`ensure` needs to know which workflows are the same: give it one with .identity(&value)";
            return Err(InvalidSpec::of_workflow(advice).into());
        }
        self.create(workflow, CreateMode::Ensure)
    }

    fn create(&mut self, workflow: Workflow, mode: CreateMode) -> Result<Receipt<Created>, ClientError> {
        let spec = workflow.build()?;
        self.client.check_kinds(&spec.ops)?;
        let request = [CreateRequest::new(spec, RequestId::random(), mode, self.client.limits())?];
        let report = transitions::create(self.tx, &request)?;
        match report.outcomes.into_iter().next() {
            Some(outcome) => Ok(self.receipt(outcome?, report.notices)),
            None => unreachable!("one request has one outcome"),
        }
    }

    /// Ends the attempt of `ctx` with `result`, and with what its handler emitted, attached and recorded, in this
    /// transaction. Ownership is judged now, and the lease's row stays locked until the commit. The handler then commits
    /// and returns; if it returns without having committed, its attempt has failed and is tried again.
    ///
    /// # Errors
    /// [`ClientError::LeaseLost`] when the attempt does not own its op any more, [`ClientError::Refused`] when its
    /// result or what it emitted cannot be kept, or [`ClientError::Store`]. Roll back and return the error.
    pub fn complete<T: Serialize + ?Sized>(&mut self, ctx: &OpContext, result: &T) -> Result<Receipt<()>, ClientError> {
        let refused = |error| ClientError::Refused { op: ctx.op_id().clone(), error: Box::new(error) };
        let result = Json::encode(result).map_err(|error| refused(OpError::new(OpError::BAD_RESULT, with_causes(&error))))?;
        let finish = [ctx.finish_elsewhere(result).map_err(|error| refused(error.error))?];
        let report = transitions::finish(self.tx, &finish, Wait::Block)?;
        match report.outcomes.into_iter().next() {
            Some(Ended::Succeeded) => Ok(self.receipt((), report.notices)),
            Some(Ended::Failed { error }) => Err(refused(error)),
            Some(Ended::LeaseLost) => Err(ClientError::LeaseLost { workflow: ctx.workflow_id().clone(), op: ctx.op_id().clone() }),
            Some(Ended::ClockBehind) => Err(StoreError::Busy("the store's clock is behind the lease".into()).into()),
            Some(Ended::Busy | Ended::Released | Ended::Retried { .. } | Ended::Suspended { .. } | Ended::Abandoned) | None => {
                unreachable!("a completion that waits for its workflow ends in none of these")
            }
        }
    }

    fn receipt<T>(&self, value: T, notices: Vec<Notice>) -> Receipt<T> {
        Receipt { value, client: self.client.clone(), notices }
    }
}

impl fmt::Debug for Within<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Within").finish_non_exhaustive()
    }
}
