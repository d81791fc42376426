//! Steps that look at rows as they are, sound or not: what `doctor` and `why` are made of.

use super::StoreResult;
use super::rows::{Edge, OpState, QueuedOp, UpstreamEdge};
use crate::model::{OpSeq, Timestamp, WorkflowSeq};
use crate::state::{Counters, StoredStatus};

/// Looks at rows as they are. Nothing here takes it for granted that rows fit each other: an op whose lane is gone is
/// still told, and a row of a hot table whose op is gone as well.
pub trait InspectTx {
    /// Reads ops, in key order; absent ones are left out.
    ///
    /// # Contract
    /// An op is told whether or not its lane is there.
    /// # Atomicity
    /// One statement, whatever the size of the set.
    /// # Errors
    /// As every step.
    fn op_facts(&mut self, of: &FactsOf<'_>) -> StoreResult<Vec<OpFacts>>;

    /// The keys that have a row in `ready`, `delayed`, `leases` or `waits`, in order, each once; at most `limit` behind `after`.
    ///
    /// # Contract
    /// Told whether or not there is such an op. Costs a walk over `limit` rows of each table.
    /// # Errors
    /// As every step.
    fn hot_keys(&mut self, after: Option<OpSeq>, limit: u32) -> StoreResult<Vec<OpSeq>>;

    /// Reads the rows of these ops in `ready` and `delayed`; an op may have both.
    ///
    /// # Errors
    /// As every step.
    fn places(&mut self, ops: &[OpSeq]) -> StoreResult<Vec<Place>>;

    /// Reads the edges into `children` whose parent has no row.
    ///
    /// # Errors
    /// As every step.
    fn loose_edges(&mut self, children: &[OpSeq]) -> StoreResult<Vec<Edge>>;

    /// Counts the ops of these workflows by what their rows say; a workflow without ops may be left out.
    ///
    /// # Contract
    /// Counted from the ops, not read from the workflows' counters.
    /// # Atomicity
    /// One statement: the count is of one instant.
    /// # Errors
    /// As every step.
    fn count_ops(&mut self, workflows: &[WorkflowSeq]) -> StoreResult<Vec<(WorkflowSeq, Counters)>>;

    /// Reads the edges into `from`, and on into each parent whose row says one of `through`, to the end; each edge once.
    ///
    /// # Atomicity
    /// One statement, whatever the depth. Work is proportional to the edges returned.
    /// # Errors
    /// As every step.
    fn upstream_through(&mut self, from: &[OpSeq], through: &[StoredStatus]) -> StoreResult<Vec<UpstreamEdge>>;
}

/// Which ops to look at.
#[derive(Debug, Clone, Copy)]
pub enum FactsOf<'a> {
    /// A page of one workflow's.
    Workflow {
        /// The workflow.
        workflow: WorkflowSeq,
        /// Behind this key.
        after: Option<OpSeq>,
        /// At most this many.
        limit: u32,
    },
    /// These.
    Ops(&'a [OpSeq]),
}

/// An op's row as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpFacts {
    /// What transitions read of it.
    pub state: OpState,
    /// When it ended, if its row says so.
    pub finished_at: Option<Timestamp>,
    /// Whether its lane is there.
    pub lane_known: bool,
}

/// A row of `ready` or `delayed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// In which of the two.
    pub delayed: bool,
    /// What it says.
    pub queued: QueuedOp,
}
