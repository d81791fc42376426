//! Steps that only clients and operators need: reads that change and lock nothing.

use super::StoreResult;
use super::rows::{
    ArtifactRow, Attempt, EventRow, NewRecord, OpPage, OpView, QueueStatus, Totals, UpdateCursor, WorkflowPage, WorkflowRow,
};
use crate::model::{ArtifactName, CollectionName, EventSeq, Json, OpSeq, QueuePolicy, WorkflowSeq};

/// Reads for clients and operators. Every page has a cap, and none holds a cursor across the caller's code.
pub trait ReadTx {
    /// A page of workflows, newest first: by key, the highest first.
    ///
    /// # Errors
    /// As every step.
    fn list_workflows(&mut self, page: &WorkflowPage) -> StoreResult<Vec<WorkflowRow>>;

    /// Workflows updated behind `after`, in order of (`updated_at`, key); rows that an open transaction could still
    /// precede are not returned yet.
    ///
    /// # Errors
    /// As every step.
    fn workflows_since(&mut self, after: Option<UpdateCursor>, limit: u32) -> StoreResult<Vec<WorkflowRow>>;

    /// How many ops of each of `workflows` are leased; those with none are there with zero.
    ///
    /// # Errors
    /// As every step.
    fn running_counts(&mut self, workflows: &[WorkflowSeq]) -> StoreResult<Vec<(WorkflowSeq, i64)>>;

    /// A page of a workflow's ops, in key order.
    ///
    /// # Errors
    /// As every step.
    fn list_ops(&mut self, workflow: WorkflowSeq, page: &OpPage) -> StoreResult<Vec<OpView>>;

    /// These ops with everything a person asks of them; absent ones are left out.
    ///
    /// # Errors
    /// As every step.
    fn op_views(&mut self, ops: &[OpSeq]) -> StoreResult<Vec<OpView>>;

    /// The results of those of `ops` that are succeeded.
    ///
    /// # Errors
    /// As every step.
    fn results(&mut self, ops: &[OpSeq]) -> StoreResult<Vec<(OpSeq, Json)>>;

    /// The ended attempts of `op`, oldest first, behind the attempt numbered `after`.
    ///
    /// # Errors
    /// As every step.
    fn attempts(&mut self, op: OpSeq, after: crate::model::Fence, limit: u32) -> StoreResult<Vec<Attempt>>;

    /// The artifacts of a workflow (or of one op), by op and name, without their content; at most `limit` behind `after`.
    ///
    /// # Errors
    /// As every step.
    fn artifacts(
        &mut self,
        workflow: WorkflowSeq,
        op: Option<OpSeq>,
        after: Option<(OpSeq, ArtifactName)>,
        limit: u32,
    ) -> StoreResult<Vec<ArtifactRow>>;

    /// The content of one artifact.
    ///
    /// # Errors
    /// As every step.
    fn artifact_content(&mut self, op: OpSeq, name: &ArtifactName) -> StoreResult<Option<Vec<u8>>>;

    /// The records of a workflow in one collection, by key; at most `limit` behind `after`.
    ///
    /// # Errors
    /// As every step.
    fn records(
        &mut self,
        workflow: WorkflowSeq,
        collection: &CollectionName,
        after: Option<&crate::model::RecordKey>,
        limit: u32,
    ) -> StoreResult<Vec<NewRecord>>;

    /// Events behind `after`, in number order; an event that an open transaction could still precede is not returned yet.
    ///
    /// # Errors
    /// As every step.
    fn events_since(&mut self, after: Option<EventSeq>, workflow: Option<WorkflowSeq>, limit: u32) -> StoreResult<Vec<EventRow>>;

    /// All policies, by queue and site; a queue's policy for any site comes first.
    ///
    /// # Errors
    /// As every step.
    fn policies(&mut self) -> StoreResult<Vec<QueuePolicy>>;

    /// Every (site, queue) that has lanes, by site and then queue, so that people find one again.
    ///
    /// # Errors
    /// As every step.
    fn queue_statuses(&mut self) -> StoreResult<Vec<QueueStatus>>;

    /// The store as a whole.
    ///
    /// # Errors
    /// As every step.
    fn totals(&mut self) -> StoreResult<Totals>;
}
