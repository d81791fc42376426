//! What the store holds: one ordered map a table, of the contract's own row types.

use crate::codec::OpDef;
use crate::time::{Clock, Leader};
use leasehold_core::model::{
    ArtifactName, Bucket, CollectionName, EventSeq, Fence, GateKey, Lane, LaneKey, OpSeq, QueueName, QueuePolicy, RecordKey, SiteName,
    Timestamp, WorkflowSeq,
};
use leasehold_core::state::StoredStatus;
use leasehold_core::store::rows::{
    Act, Attempt, AttemptOutcome, ClaimedOp, Edge, Lease, NewArtifact, NewEvent, NewOp, NewRecord, OpState, OpWait, OpWake, QueuedOp,
    WorkflowRow,
};
use leasehold_core::store::{StoreError, StoreResult};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Every table. A transaction that writes works on a clone, and a rollback drops it: plain and hard to get wrong, but it
/// costs as much as there is data. That is what makes this store a toy.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tables {
    /// The key of the newest workflow ever inserted, and of the newest op ever reserved.
    pub(crate) last: LastKeys,
    pub(crate) workflows: BTreeMap<WorkflowSeq, WorkflowRow>,
    pub(crate) ops: BTreeMap<OpSeq, Op>,
    /// By parent first, so that a walk downstream reads only the edges it returns.
    pub(crate) edges: BTreeMap<(OpSeq, OpSeq), Edge>,
    pub(crate) lanes: BTreeMap<LaneKey, Lane>,
    pub(crate) buckets: BTreeMap<GateKey, Bucket>,
    pub(crate) ready: BTreeMap<OpSeq, QueuedOp>,
    pub(crate) delayed: BTreeMap<OpSeq, QueuedOp>,
    pub(crate) leases: BTreeMap<OpSeq, Lease>,
    pub(crate) waits: BTreeMap<OpSeq, OpWait>,
    pub(crate) wakes: BTreeMap<OpSeq, OpWake>,
    pub(crate) attempts: BTreeMap<(OpSeq, Fence), Attempt>,
    pub(crate) artifacts: BTreeMap<(OpSeq, ArtifactName), NewArtifact>,
    pub(crate) records: BTreeMap<(WorkflowSeq, CollectionName, RecordKey), NewRecord>,
    pub(crate) events: BTreeMap<EventSeq, NewEvent>,
    pub(crate) acts: Vec<Act>,
    pub(crate) policies: BTreeMap<(QueueName, Option<SiteName>), QueuePolicy>,
    pub(crate) clock: Clock,
    pub(crate) leader: Option<Leader>,
}

/// Keys only grow, also when the newest row is gone.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct LastKeys {
    pub(crate) workflow: i64,
    pub(crate) op: i64,
}

/// An op: its row as inserted, where changes overwrite status and counts, and what attempts leave behind.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Op {
    #[serde(with = "OpDef")]
    pub(crate) row: NewOp,
    pub(crate) fence: Fence,
    pub(crate) failures: u32,
    pub(crate) losses: u32,
    pub(crate) finished_at: Option<Timestamp>,
}

impl Op {
    pub(crate) fn new(row: NewOp) -> Self {
        Self { row, fence: Fence::NONE, failures: 0, losses: 0, finished_at: None }
    }

    /// What transitions read of it.
    pub(crate) fn state(&self) -> OpState {
        let row = &self.row;
        OpState {
            seq: row.seq,
            workflow: row.workflow,
            id: row.id.clone(),
            status: row.status,
            unmet: row.unmet,
            broken: row.broken,
            fence: self.fence,
            failures: self.failures,
            losses: self.losses,
            lane: row.lane.key,
            priority: row.priority,
            retry: row.retry,
            parent: row.parent,
            dedup_key: row.dedup_key.clone(),
            spec: row.spec,
        }
    }
}

impl Tables {
    /// The op that another row points at.
    pub(crate) fn op(&self, seq: OpSeq) -> StoreResult<&Op> {
        self.ops.get(&seq).ok_or_else(|| dangling("op", seq.0))
    }

    /// The workflow that another row points at.
    pub(crate) fn workflow(&self, seq: WorkflowSeq) -> StoreResult<&WorkflowRow> {
        self.workflows.get(&seq).ok_or_else(|| dangling("workflow", seq.0))
    }

    /// The policy of (site, queue): the site's own, else that of any site.
    pub(crate) fn policy(&self, site: &SiteName, queue: &QueueName) -> Option<&QueuePolicy> {
        let own = self.policies.get(&(queue.clone(), Some(site.clone())));
        own.or_else(|| self.policies.get(&(queue.clone(), None)))
    }

    /// The gate's leases, expired ones included: they hold their slots until they are recovered.
    pub(crate) fn in_flight(&self, gate: GateKey) -> usize {
        self.leases.values().filter(|lease| lease.gate == gate).count()
    }

    /// The ledger's lines of `op`, oldest first.
    pub(crate) fn attempts_of(&self, op: OpSeq) -> impl DoubleEndedIterator<Item = &Attempt> {
        self.attempts.range((op, Fence(i64::MIN))..=(op, Fence(i64::MAX))).map(|(_, attempt)| attempt)
    }

    /// The last success of `op`, while it is succeeded.
    pub(crate) fn success_of(&self, op: &Op) -> Option<&Attempt> {
        let succeeded = op.row.status == StoredStatus::Succeeded;
        self.attempts_of(op.row.seq).rev().find(|attempt| succeeded && attempt.outcome == AttemptOutcome::Succeeded)
    }

    /// A leased op with all its handler needs.
    pub(crate) fn claimed(&self, lease: &Lease) -> StoreResult<ClaimedOp> {
        let op = self.op(lease.key.op)?;
        let row = &op.row;
        Ok(ClaimedOp {
            lease: lease.clone(),
            workflow_id: self.workflow(row.workflow)?.id.clone(),
            op_id: row.id.clone(),
            parent: row.parent.map(|parent| self.op(parent).map(|op| op.row.id.clone())).transpose()?,
            kind: row.lane.kind.clone(),
            queue: row.lane.queue.clone(),
            site: row.lane.site.clone(),
            input: row.input.clone(),
            metadata: row.metadata.clone(),
            time_limit: row.time_limit,
            effect: row.retry.effect,
            failures: op.failures,
            due_at: lease.acquired_at,
        })
    }
}

/// The unique key of a table: refuses a second row.
pub(crate) fn insert_new<K: Ord, V>(table: &mut BTreeMap<K, V>, key: K, row: V, what: &str) -> StoreResult<()> {
    match table.insert(key, row) {
        None => Ok(()),
        // The table lost its row, but with an error the whole transaction is lost.
        Some(_) => Err(rejected(format!("{what} is there already"))),
    }
}

/// What the same call will meet again.
pub(crate) fn rejected(why: impl Into<String>) -> StoreError {
    StoreError::Rejected(why.into().into())
}

fn dangling(what: &str, seq: i64) -> StoreError {
    StoreError::Corrupt(format!("a row points at {what} {seq}, which is not there").into())
}
