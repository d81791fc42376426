//! What a client reads: workflows, ops, attempts, artifacts, records, events, the store as a whole.

use super::call::{ReadError, workflow};
use super::{Client, ClientError, PAGE_MAX, SnapshotCursor, SnapshotPage, WorkflowSnapshot};
use crate::model::{ArtifactName, CollectionName, EventSeq, Fence, Json, OpId, OpSeq, QueuePolicy, RecordKey, WorkflowId, WorkflowSeq};
use crate::store::rows::{
    ArtifactRow, Attempt, EventRow, NewRecord, OpPage, OpState, OpView, OpWait, OpWake, QueueStatus, Totals, WaitReason, WorkflowPage,
    WorkflowRow,
};
use crate::store::{Store, StoreInfo, StoreResult, Tx};
use std::collections::HashMap;
use std::time::Duration;

/// The store as a whole (P2).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct StoreStatus {
    /// What the store is, and its schema.
    pub info: StoreInfo,
    /// How many of everything.
    pub totals: Totals,
    /// Every queue of every site.
    pub queues: Vec<QueueStatus>,
}

/// `limit` with its default, the cap, in place of zero.
fn capped(limit: u32) -> u32 {
    if limit == 0 { PAGE_MAX } else { limit.min(PAGE_MAX) }
}

/// An op that waits for a verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownOutcome {
    /// Its workflow.
    pub workflow: WorkflowId,
    /// The op.
    pub op: OpView,
    /// Since when it waits, and on which attempt.
    pub wait: OpWait,
}

impl Client {
    /// The workflow `id` as it stands.
    ///
    /// # Errors
    /// [`ClientError::NotFound`] when there is none.
    pub async fn snapshot(&self, id: &WorkflowId) -> Result<WorkflowSnapshot, ClientError> {
        let id = id.clone();
        self.read(move |tx| {
            let row = workflow(tx, &id)?;
            let running = tx.running_counts(&[row.seq])?.first().map_or(0, |(_, running)| *running);
            Ok(WorkflowSnapshot::new(row, running))
        })
        .await
    }

    /// A page of workflows, newest first; a limit of 0 is [`PAGE_MAX`]. The next page is `before` the last one's `seq`.
    ///
    /// # Errors
    /// [`ClientError::Store`].
    pub async fn list(&self, page: WorkflowPage) -> Result<Vec<WorkflowSnapshot>, ClientError> {
        let page = WorkflowPage { limit: capped(page.limit), ..page };
        self.read(move |tx| {
            let rows = tx.list_workflows(&page)?;
            Ok(with_running(tx, rows)?)
        })
        .await
    }

    /// Workflows in the order of their updates, behind `cursor`. Nothing is skipped, and none is told before its place
    /// in that order is final.
    ///
    /// # Errors
    /// [`ClientError::Store`].
    pub async fn snapshots_since(&self, cursor: Option<SnapshotCursor>, limit: u32) -> Result<SnapshotPage, ClientError> {
        self.read(move |tx| {
            let rows = tx.workflows_since(cursor.map(|cursor| cursor.0), capped(limit))?;
            let snapshots = with_running(tx, rows)?;
            let cursor = snapshots.last().map(WorkflowSnapshot::cursor).or(cursor);
            Ok(SnapshotPage { snapshots, cursor })
        })
        .await
    }

    /// A page of a workflow's ops, in the order of their making; a limit of 0 is [`PAGE_MAX`].
    ///
    /// # Errors
    /// [`ClientError::NotFound`] when there is no such workflow.
    pub async fn ops(&self, id: &WorkflowId, page: OpPage) -> Result<Vec<OpView>, ClientError> {
        let (id, page) = (id.clone(), OpPage { limit: capped(page.limit), ..page });
        self.read(move |tx| {
            let workflow = workflow(tx, &id)?;
            Ok(tx.list_ops(workflow.seq, &page)?)
        })
        .await
    }

    /// One op, with its lease while it runs and its result or error once it ended.
    ///
    /// # Errors
    /// [`ClientError::NotFound`] when there is no such workflow or op.
    pub async fn op(&self, id: &WorkflowId, op: &OpId) -> Result<OpView, ClientError> {
        let (id, op) = (id.clone(), op.clone());
        self.read(move |tx| {
            let (_, state) = op_state(tx, &id, &op)?;
            Ok(tx.op_views(&[state.seq])?.pop().ok_or_else(|| ClientError::no_op(&id, &op))?)
        })
        .await
    }

    /// The result of an op.
    ///
    /// # Errors
    /// [`ClientError::NotFound`] when there is no such workflow or op, [`ClientError::NoResult`] while it has not succeeded.
    pub async fn op_result(&self, id: &WorkflowId, op: &OpId) -> Result<Json, ClientError> {
        let view = self.op(id, op).await?;
        let no_result =
            || ClientError::NoResult { workflow: id.clone(), op: op.clone(), status: view.status, error: view.error.clone().map(Box::new) };
        view.result.clone().ok_or_else(no_result)
    }

    /// The results of those ops that `op` waits for and that have succeeded, by id.
    pub(crate) async fn dependency_results(&self, op: OpSeq) -> Result<Vec<(OpId, Json)>, ClientError> {
        self.read(move |tx| {
            let ids: HashMap<OpSeq, OpId> = tx.upstream(&[op])?.into_iter().map(|edge| (edge.parent, edge.parent_id)).collect();
            let mut parents: Vec<OpSeq> = ids.keys().copied().collect();
            parents.sort_unstable();
            let results = tx.results(&parents)?;
            Ok(results.into_iter().filter_map(|(op, result)| Some((ids.get(&op)?.clone(), result))).collect())
        })
        .await
    }

    /// Ops that wait for a verdict on an attempt of which nobody knows what it did, in the order of their keys, behind the op
    /// `after`; at most `limit`, or [`PAGE_MAX`].
    ///
    /// # Errors
    /// [`ClientError::Store`].
    pub async fn unknown_outcomes(&self, after: Option<OpSeq>, limit: u32) -> Result<Vec<UnknownOutcome>, ClientError> {
        let limit = capped(limit);
        self.read(move |tx| {
            let ops: Vec<OpSeq> = tx.waits_for(WaitReason::Verdict, after, limit)?.iter().map(|wait| wait.key.op).collect();
            let mut ids: HashMap<WorkflowSeq, WorkflowId> = HashMap::new();
            let mut outcomes = Vec::with_capacity(ops.len());
            for op in tx.op_views(&ops)? {
                // Read in one snapshot; but a store that reads each statement anew may have settled it since.
                let Some(wait) = op.wait.clone() else { continue };
                if !ids.contains_key(&wait.workflow) {
                    let page = WorkflowPage { before: Some(WorkflowSeq(wait.workflow.0 + 1)), limit: 1, ..WorkflowPage::default() };
                    ids.extend(tx.list_workflows(&page)?.into_iter().map(|row| (row.seq, row.id)));
                }
                let workflow = ids.get(&wait.workflow).cloned();
                outcomes.extend(workflow.map(|workflow| UnknownOutcome { workflow, op, wait }));
            }
            outcomes.sort_unstable_by_key(|outcome| outcome.wait.key);
            Ok(outcomes)
        })
        .await
    }

    /// How the last wait of `op` ended.
    pub(crate) async fn last_wake(&self, op: OpSeq) -> Result<Option<OpWake>, ClientError> {
        self.read(move |tx| Ok(tx.wakes_of(&[op])?.pop())).await
    }

    /// The ended attempts of an op, oldest first.
    ///
    /// # Errors
    /// [`ClientError::NotFound`] when there is no such workflow or op.
    pub async fn attempts(&self, id: &WorkflowId, op: &OpId) -> Result<Vec<Attempt>, ClientError> {
        let (id, op) = (id.clone(), op.clone());
        self.read(move |tx| {
            let (_, state) = op_state(tx, &id, &op)?;
            pages(Fence::NONE, |after| tx.attempts(state.seq, after, PAGE_MAX), |attempt| attempt.key.fence)
        })
        .await
    }

    /// The artifacts of a workflow without their content, by op and name.
    ///
    /// # Errors
    /// [`ClientError::NotFound`] when there is no such workflow.
    pub async fn artifacts(&self, id: &WorkflowId) -> Result<Vec<ArtifactRow>, ClientError> {
        let id = id.clone();
        self.read(move |tx| {
            let workflow = workflow(tx, &id)?;
            pages(None, |after| tx.artifacts(workflow.seq, None, after, PAGE_MAX), |row| Some((row.op, row.name.clone())))
        })
        .await
    }

    /// The content of one artifact.
    ///
    /// # Errors
    /// [`ClientError::NotFound`] when there is no such workflow, op or artifact.
    pub async fn artifact(&self, id: &WorkflowId, op: &OpId, name: &ArtifactName) -> Result<Vec<u8>, ClientError> {
        let (id, op, name) = (id.clone(), op.clone(), name.clone());
        self.read(move |tx| {
            let (_, state) = op_state(tx, &id, &op)?;
            let missing = || ClientError::NotFound { what: format!("op {op:?} of workflow {id:?} has no artifact {name:?}") };
            Ok(tx.artifact_content(state.seq, &name)?.ok_or_else(missing)?)
        })
        .await
    }

    /// Records of a workflow in one collection, by key, behind `after`; a limit of 0 is [`PAGE_MAX`].
    ///
    /// # Errors
    /// [`ClientError::NotFound`] when there is no such workflow.
    pub async fn records(
        &self,
        id: &WorkflowId,
        collection: &CollectionName,
        after: Option<&RecordKey>,
        limit: u32,
    ) -> Result<Vec<NewRecord>, ClientError> {
        let (id, collection, after) = (id.clone(), collection.clone(), after.cloned());
        self.read(move |tx| {
            let workflow = workflow(tx, &id)?;
            Ok(tx.records(workflow.seq, &collection, after.as_ref(), capped(limit))?)
        })
        .await
    }

    /// The history behind `after`, without a gap; a limit of 0 is [`PAGE_MAX`]. Go on behind the last one's `seq`.
    ///
    /// # Errors
    /// [`ClientError::Store`].
    pub async fn events(&self, after: Option<EventSeq>, limit: u32) -> Result<Vec<EventRow>, ClientError> {
        self.read(move |tx| Ok(tx.events_since(after, None, capped(limit))?)).await
    }

    /// [`Client::events`] of one workflow.
    ///
    /// # Errors
    /// [`ClientError::NotFound`] when there is no such workflow.
    pub async fn workflow_events(&self, id: &WorkflowId, after: Option<EventSeq>, limit: u32) -> Result<Vec<EventRow>, ClientError> {
        let id = id.clone();
        self.read(move |tx| {
            let workflow = workflow(tx, &id)?;
            Ok(tx.events_since(after, Some(workflow.seq), capped(limit))?)
        })
        .await
    }

    /// All policies, by queue and site.
    ///
    /// # Errors
    /// [`ClientError::Store`].
    pub async fn policies(&self) -> Result<Vec<QueuePolicy>, ClientError> {
        self.read(|tx| Ok(tx.policies()?)).await
    }

    /// Whether the store can be worked with now: it commits a write that changes nothing, and tells what it is. One try,
    /// so that whoever asks learns of a store that is away, full or read-only at once.
    ///
    /// # Errors
    /// [`ClientError::Store`], whose [`StoreError`](crate::store::StoreError) says what is wrong.
    pub async fn health(&self) -> Result<StoreInfo, ClientError> {
        self.with_patience(Duration::ZERO)
            .blocking(|store| {
                store.try_write()?;
                store.describe()
            })
            .await
    }

    /// The store as a whole.
    ///
    /// # Errors
    /// [`ClientError::Store`].
    pub async fn status(&self) -> Result<StoreStatus, ClientError> {
        let info = self.blocking(|store| -> StoreResult<StoreInfo> { Store::describe(store.as_ref()) }).await?;
        self.read(move |tx| Ok(StoreStatus { info: info.clone(), totals: tx.totals()?, queues: tx.queue_statuses()? })).await
    }
}

/// The op `op` of the workflow `id`, with the key of the latter.
fn op_state(tx: &mut dyn Tx, id: &WorkflowId, op: &OpId) -> Result<(WorkflowSeq, OpState), ReadError> {
    let workflow = workflow(tx, id)?;
    let state = tx.ops_by_id(&[(workflow.seq, op.clone())])?.pop().ok_or_else(|| ClientError::no_op(id, op))?;
    Ok((workflow.seq, state))
}

fn with_running(tx: &mut dyn Tx, rows: Vec<WorkflowRow>) -> StoreResult<Vec<WorkflowSnapshot>> {
    let seqs: Vec<WorkflowSeq> = rows.iter().map(|row| row.seq).collect();
    let running: HashMap<WorkflowSeq, i64> = tx.running_counts(&seqs)?.into_iter().collect();
    Ok(rows
        .into_iter()
        .map(|row| {
            let running = running.get(&row.seq).copied().unwrap_or_default();
            WorkflowSnapshot::new(row, running)
        })
        .collect())
}

/// All pages, one after the other, of what is known to be small.
fn pages<T, K>(start: K, mut page: impl FnMut(K) -> StoreResult<Vec<T>>, key: impl Fn(&T) -> K) -> Result<Vec<T>, ReadError> {
    let mut all = page(start)?;
    let mut more = all.len() == PAGE_MAX as usize;
    while let (true, Some(last)) = (more, all.last()) {
        let next = page(key(last))?;
        more = next.len() == PAGE_MAX as usize;
        all.extend(next);
    }
    Ok(all)
}
