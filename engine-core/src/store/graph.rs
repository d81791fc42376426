//! Steps on workflows and their graphs.

use super::rows::{Act, DownstreamEdge, LockedWorkflow, NewWorkflow, OpState, Reach, UpstreamEdge, WorkflowRow, WriteSet};
use super::{StoreResult, Wait};
use crate::model::{DedupKey, OpId, OpSeq, QueuePolicy, RequestId, WorkflowId, WorkflowSeq};
use crate::state::StoredStatus;

/// Steps on workflows and their graphs. The row of a workflow is the mutex of its graph: whoever changes one of its
/// ops, edges or counters holds it locked, and reads the graph only in later statements.
pub trait GraphTx {
    /// Inserts the workflows whose ids are free, with status running and all counters zero; returns the keys of those
    /// inserted, which this transaction holds locked.
    ///
    /// # Contract
    /// An id that another open transaction has inserted is waited for: the answer is only about committed rows (S35).
    /// Ids are distinct in one call. Rows are inserted in id order. `updated_at` is `created_at` until this
    /// transaction's [`write`](Self::write) changes the workflow, which it always does.
    /// # Errors
    /// As every step.
    fn insert_workflows(&mut self, workflows: &[NewWorkflow]) -> StoreResult<Vec<(WorkflowId, WorkflowSeq)>>;

    /// Reads the workflows with these ids, without locking them; absent ones are left out.
    ///
    /// # Errors
    /// As every step.
    fn workflows(&mut self, ids: &[WorkflowId]) -> StoreResult<Vec<WorkflowRow>>;

    /// Locks the rows of these workflows, in key order, and reads them behind the lock.
    ///
    /// # Contract
    /// With [`Wait::Skip`] those that another transaction holds are left out; with [`Wait::Block`] and
    /// [`Wait::Briefly`] they are waited for.
    /// What it returns was read after the lock was held. Absent workflows are left out.
    /// # Errors
    /// As every step.
    fn lock_workflows(&mut self, seqs: &[WorkflowSeq], wait: Wait) -> StoreResult<Vec<LockedWorkflow>>;

    /// Gives out `count` keys for ops that this transaction will insert, ascending. No two ops ever get the same; a key
    /// whose transaction rolled back may stay unused or be given out again.
    ///
    /// # Errors
    /// As every step.
    fn reserve_ops(&mut self, count: usize) -> StoreResult<Vec<OpSeq>>;

    /// Reads these ops; absent ones are left out.
    ///
    /// # Errors
    /// As every step.
    fn ops(&mut self, seqs: &[OpSeq]) -> StoreResult<Vec<OpState>>;

    /// Reads the ops with these ids in these workflows; absent ones are left out.
    ///
    /// # Errors
    /// As every step.
    fn ops_by_id(&mut self, ids: &[(WorkflowSeq, OpId)]) -> StoreResult<Vec<OpState>>;

    /// Reads the ops that carry these dedup keys in these workflows.
    ///
    /// # Errors
    /// As every step.
    fn ops_by_dedup_key(&mut self, keys: &[(WorkflowSeq, DedupKey)]) -> StoreResult<Vec<OpState>>;

    /// Reads all ops of `workflow` whose rows say one of `statuses`, in key order.
    ///
    /// # Errors
    /// As every step.
    fn ops_with_status(&mut self, workflow: WorkflowSeq, statuses: &[StoredStatus]) -> StoreResult<Vec<OpState>>;

    /// Reads the edges out of `from` whose child is pending or blocked, with those children.
    ///
    /// # Contract
    /// [`Reach::Descendants`] goes on from each pending or blocked child that a *required* edge reaches, and returns
    /// the edges out of those as well; each edge once. Work is proportional to the edges returned.
    /// # Atomicity
    /// One statement, whatever the depth.
    /// # Errors
    /// As every step.
    fn downstream(&mut self, from: &[OpSeq], reach: Reach) -> StoreResult<Vec<DownstreamEdge>>;

    /// Reads the edges into `children`, with their parents' statuses. An edge whose parent has no row is left out.
    ///
    /// # Errors
    /// As every step.
    fn upstream(&mut self, children: &[OpSeq]) -> StoreResult<Vec<UpstreamEdge>>;

    /// Writes `set`; returns the ops whose guarded change applied.
    ///
    /// # Contract
    /// A change applies only while the op's row says its `from`. An artifact or record that exists is replaced (an
    /// artifact keeps its row's key). A lane that exists stays. `updated_at` of a changed workflow becomes the later of
    /// its change's `at` and one microsecond past every committed `updated_at` of the store.
    ///
    /// Unique are: an op's key; its id, and its dedup key, in its workflow; an edge's (child, parent); an op in `ready`
    /// and in `delayed`; an op in `waits`; an attempt's (op, fence); an act's request.
    /// # Atomicity
    /// A bounded number of statements for each non-empty part, whatever its size. Rows are written in key order. An
    /// empty part sends nothing.
    /// # Errors
    /// As every step; [`super::StoreError::Rejected`] when a unique key is taken.
    fn write(&mut self, set: &WriteSet) -> StoreResult<Vec<OpSeq>>;

    /// Takes these ops out of `delayed` and `ready`.
    ///
    /// # Atomicity
    /// One statement a table, `delayed` first.
    /// # Errors
    /// As every step.
    fn unqueue(&mut self, ops: &[OpSeq]) -> StoreResult<()>;

    /// What was answered to this request, if it was made before.
    ///
    /// # Errors
    /// As every step.
    fn act(&mut self, request: RequestId) -> StoreResult<Option<Act>>;

    /// Stores these policies, each in place of the one for the same (site or any, queue).
    ///
    /// # Errors
    /// As every step.
    fn set_policies(&mut self, policies: &[QueuePolicy]) -> StoreResult<()>;
}
