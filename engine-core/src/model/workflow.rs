//! What an application says of a workflow.

use super::{Digest, Json, OpSpec, SiteName, SubjectId, WorkflowId, WorkflowName};

/// A workflow to create, with its first graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowSpec {
    /// Its id.
    pub id: WorkflowId,
    /// What it does.
    pub name: WorkflowName,
    /// The digest of its identity; `None` for one that is only itself.
    pub digest: Option<Digest>,
    /// What it was started with.
    pub input: Json,
    /// What people and tools attach to it.
    pub metadata: Json,
    /// The site of ops that name none.
    pub site: SiteName,
    /// Whom its data is about.
    pub subject: Option<SubjectId>,
    /// Its ops.
    pub ops: Vec<OpSpec>,
}
