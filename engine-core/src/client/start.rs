//! Making workflows (I1, I2, I5, S9).

use super::{Actor, AddedOp, Client, ClientError, InvalidSpec, Op, Problem, Workflow, WorkflowHandle};
use crate::model::{KindName, OpId, OpSpec, RequestId, WorkflowId};
use crate::store::TxKind;
use crate::transitions::{self, AddOps, CreateMode, CreateRequest, Plan};
use serde::Serialize;
use std::sync::Arc;

impl Client {
    /// Makes a new workflow. Its id is [the one given](Workflow::id), else new.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] or [`ClientError::Graph`], naming what is wrong; [`ClientError::Conflict`] when the given
    /// id is taken. Nothing was stored.
    pub async fn start(&self, workflow: Workflow) -> Result<WorkflowHandle, ClientError> {
        if workflow.has_identity() {
            let advice = "`start` makes a new workflow every time: start one with an identity by `ensure`, or leave the identity out";
            return Err(InvalidSpec::of_workflow(advice).into());
        }
        self.create(workflow, CreateMode::Start).await
    }

    /// Makes a workflow with an [identity](Workflow::identity), or attaches to the one that is there, in whatever status
    /// it is: the handle tells which.
    ///
    /// # Errors
    /// As [`Client::start`]; [`ClientError::IdentityConflict`] when the id belongs to another name or identity.
    pub async fn ensure(&self, workflow: Workflow) -> Result<WorkflowHandle, ClientError> {
        if !workflow.has_identity() {
            let advice = "`ensure` needs to know which workflows are the same: give it one with .identity(&value)";
            return Err(InvalidSpec::of_workflow(advice).into());
        }
        self.create(workflow, CreateMode::Ensure).await
    }

    async fn create(&self, workflow: Workflow, mode: CreateMode) -> Result<WorkflowHandle, ClientError> {
        let spec = workflow.build()?;
        self.check_kinds(&spec.ops)?;
        let request = [CreateRequest::new(spec, RequestId::random(), mode, &self.core.limits)?];
        let hub = Arc::clone(&self.core.hub);
        let judged = self
            .blocking(move |store| {
                let create = |tx: &mut dyn crate::store::Tx| transitions::create(tx, &request);
                let told = |report: &mut transitions::CreateReport| std::mem::take(&mut report.notices);
                let report = hub.transact(store.as_ref(), TxKind::Client, create, told, |_, notice| notice)?;
                match report.outcomes.into_iter().next() {
                    Some(outcome) => outcome,
                    None => unreachable!("one request has one outcome"),
                }
            })
            .await?;
        Ok(WorkflowHandle::new(self.clone(), judged.id, Some(judged.outcome)))
    }

    /// A handle of the workflow `id`, which need not be there yet.
    pub fn handle(&self, id: WorkflowId) -> WorkflowHandle {
        WorkflowHandle::new(self.clone(), id, None)
    }

    /// Adds ops to a running or failed workflow; they may depend on ops that are there, also on finished ones. Answers for
    /// each op which one now does it.
    ///
    /// # Errors
    /// As [`Client::start`]; [`ClientError::Conflict`] when the workflow takes no more ops.
    pub async fn add_ops(&self, id: &WorkflowId, ops: impl IntoIterator<Item = Op> + Send) -> Result<Vec<AddedOp>, ClientError> {
        let actor = self.core.actor.clone();
        self.add_ops_as(id, ops, &actor).await
    }

    /// [`Client::add_ops`] in the name of `actor`.
    ///
    /// # Errors
    /// As [`Client::add_ops`].
    pub async fn add_ops_as(
        &self,
        id: &WorkflowId,
        ops: impl IntoIterator<Item = Op> + Send,
        actor: &Actor,
    ) -> Result<Vec<AddedOp>, ClientError> {
        let mut problems = Vec::new();
        let specs: Vec<OpSpec> = ops.into_iter().filter_map(|op| op.build_into(&mut problems)).collect();
        InvalidSpec::unless_empty(problems)?;
        self.check_kinds(&specs)?;
        let plan = Plan::new(specs, &self.core.limits)?;
        let call = AddOps { request: RequestId::random(), actor: actor.clone(), workflow: id.clone(), plan };
        let added = self.change(move |tx| transitions::add_ops(tx, &call), |added| std::mem::take(&mut added.notices)).await?;
        Ok(added.ops)
    }

    /// Makes a new workflow by the definition `name`.
    ///
    /// # Errors
    /// [`ClientError::NotFound`] when no such definition is registered; [`ClientError::Invalid`] when it does not take
    /// `input`; else as [`Client::start`].
    pub async fn start_definition<T: Serialize + Sync + ?Sized>(&self, name: &str, input: &T) -> Result<WorkflowHandle, ClientError> {
        let workflow = self.core.definitions.describe(name, input)?;
        self.start(workflow).await
    }

    /// Makes a workflow by the definition `name`, or attaches to the one with the same input (or the identity that the
    /// definition gives).
    ///
    /// # Errors
    /// As [`Client::start_definition`] and [`Client::ensure`].
    pub async fn ensure_definition<T: Serialize + Sync + ?Sized>(&self, name: &str, input: &T) -> Result<WorkflowHandle, ClientError> {
        let workflow = self.core.definitions.describe(name, input)?;
        let workflow = if workflow.has_identity() { workflow } else { workflow.identity(input) };
        self.ensure(workflow).await
    }

    /// The definitions that can be started by name.
    pub fn definitions(&self) -> Vec<super::DefinitionInfo> {
        self.core.definitions.list()
    }

    pub(super) fn check_kinds(&self, ops: &[OpSpec]) -> Result<(), InvalidSpec> {
        let problem = |op: &OpSpec| self.problem_of(&op.id, &op.kind);
        InvalidSpec::unless_empty(ops.iter().filter_map(problem).collect())
    }

    fn problem_of(&self, op: &OpId, kind: &KindName) -> Option<Problem> {
        self.kind_problem(kind).map(|message| Problem { op: Some(op.to_string()), message })
    }
}
