//! Rows of `workflows`.

use super::{Row, instant, name, parsed, word};
use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Nullable, Text};
use leasehold_core::model::{Json, WorkflowId, WorkflowSeq};
use leasehold_core::state::{Counters, WorkflowStatus};
use leasehold_core::store::StoreResult;
use leasehold_core::store::rows::{LockedWorkflow, WorkflowRow};

/// A whole row; see [`crate::workflow_columns`].
#[derive(Debug, QueryableByName)]
#[expect(missing_docs, reason = "the columns of the migrations")]
pub struct Workflow {
    #[diesel(sql_type = BigInt)]
    pub seq: i64,
    #[diesel(sql_type = Text)]
    pub id: String,
    #[diesel(sql_type = Text)]
    pub request: String,
    #[diesel(sql_type = Text)]
    pub name: String,
    #[diesel(sql_type = Nullable<Text>)]
    pub digest: Option<String>,
    #[diesel(sql_type = Text)]
    pub input: String,
    #[diesel(sql_type = Text)]
    pub metadata: String,
    #[diesel(sql_type = Text)]
    pub site: String,
    #[diesel(sql_type = Nullable<Text>)]
    pub subject: Option<String>,
    #[diesel(sql_type = Text)]
    pub status: String,
    #[diesel(sql_type = BigInt)]
    pub cancel_requested: i64,
    #[diesel(embed)]
    pub counts: Counts,
    #[diesel(sql_type = BigInt)]
    pub created_at_us: i64,
    #[diesel(sql_type = BigInt)]
    pub updated_at_us: i64,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub finished_at_us: Option<i64>,
}

impl Row for Workflow {
    type Value = WorkflowRow;
    fn read(self) -> StoreResult<WorkflowRow> {
        Ok(WorkflowRow {
            seq: WorkflowSeq(self.seq),
            id: name("workflows.id", self.id)?,
            request: parsed("workflows.request", &self.request)?,
            name: name("workflows.name", self.name)?,
            digest: self.digest.as_deref().map(|digest| parsed("workflows.digest", digest)).transpose()?,
            input: Json::from_stored(self.input),
            metadata: Json::from_stored(self.metadata),
            site: name("workflows.site", self.site)?,
            subject: self.subject.map(|subject| name("workflows.subject", subject)).transpose()?,
            status: status(&self.status)?,
            cancel_requested: self.cancel_requested != 0,
            counters: self.counts.into(),
            created_at: instant("workflows.created_at_us", self.created_at_us)?,
            updated_at: instant("workflows.updated_at_us", self.updated_at_us)?,
            finished_at: self.finished_at_us.map(|at| instant("workflows.finished_at_us", at)).transpose()?,
        })
    }
}

/// What is read behind a workflow's lock; see [`crate::workflow_lock_columns`].
#[derive(Debug, QueryableByName)]
#[expect(missing_docs, reason = "the columns of the migrations")]
pub struct WorkflowLock {
    #[diesel(sql_type = BigInt)]
    pub seq: i64,
    #[diesel(sql_type = Text)]
    pub id: String,
    #[diesel(sql_type = Text)]
    pub site: String,
    #[diesel(sql_type = Text)]
    pub status: String,
    #[diesel(sql_type = BigInt)]
    pub cancel_requested: i64,
    #[diesel(embed)]
    pub counts: Counts,
}

impl Row for WorkflowLock {
    type Value = LockedWorkflow;
    fn read(self) -> StoreResult<LockedWorkflow> {
        Ok(LockedWorkflow {
            seq: WorkflowSeq(self.seq),
            id: name("workflows.id", self.id)?,
            site: name("workflows.site", self.site)?,
            status: status(&self.status)?,
            cancel_requested: self.cancel_requested != 0,
            counters: self.counts.into(),
        })
    }
}

/// How many ops of a workflow stand where.
#[derive(Debug, Clone, Copy, QueryableByName)]
#[expect(missing_docs, reason = "the columns of the migrations")]
pub struct Counts {
    #[diesel(sql_type = BigInt)]
    pub pending: i64,
    #[diesel(sql_type = BigInt)]
    pub blocked: i64,
    #[diesel(sql_type = BigInt)]
    pub open: i64,
    #[diesel(sql_type = BigInt)]
    pub waiting: i64,
    #[diesel(sql_type = BigInt)]
    pub succeeded: i64,
    #[diesel(sql_type = BigInt)]
    pub failed: i64,
    #[diesel(sql_type = BigInt)]
    pub canceled: i64,
}

impl From<Counts> for Counters {
    fn from(counts: Counts) -> Self {
        let Counts { pending, blocked, open, waiting, succeeded, failed, canceled } = counts;
        Self { pending, blocked, open, waiting, succeeded, failed, canceled }
    }
}

/// The two keys of a workflow.
#[derive(Debug, QueryableByName)]
#[expect(missing_docs, reason = "the columns of the migrations")]
pub struct WorkflowKey {
    #[diesel(sql_type = Text)]
    pub id: String,
    #[diesel(sql_type = BigInt)]
    pub seq: i64,
}

impl Row for WorkflowKey {
    type Value = (WorkflowId, WorkflowSeq);
    fn read(self) -> StoreResult<Self::Value> {
        Ok((name("workflows.id", self.id)?, WorkflowSeq(self.seq)))
    }
}

/// How many ops of a workflow are leased.
#[derive(Debug, QueryableByName)]
#[expect(missing_docs, reason = "what the names say")]
pub struct RunningCount {
    #[diesel(sql_type = BigInt)]
    pub workflow: i64,
    #[diesel(sql_type = BigInt)]
    pub running: i64,
}

impl Row for RunningCount {
    type Value = (WorkflowSeq, i64);
    fn read(self) -> StoreResult<Self::Value> {
        Ok((WorkflowSeq(self.workflow), self.running))
    }
}

pub(super) fn status(stored: &str) -> StoreResult<WorkflowStatus> {
    word("workflows.status", stored, WorkflowStatus::from_stored)
}
