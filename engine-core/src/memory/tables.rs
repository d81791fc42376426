//! The tables: ordered maps that remember how to undo what the open transaction did.

use super::reject;
use crate::model::{
    ArtifactName, Bucket, CollectionName, DedupKey, Epoch, EventSeq, Fence, GateKey, Lane, LaneKey, LeaseToken, OpId, OpSeq, QueueName,
    QueuePolicy, RecordKey, SiteName, Timestamp, WorkerName, WorkflowId, WorkflowSeq,
};
use crate::state::StoredStatus;
use crate::store::rows::{Act, Attempt, Lease, NewArtifact, NewEvent, NewOp, NewRecord, OpState, OpWait, OpWake, QueuedOp, WorkflowRow};
use crate::store::{ClockReading, StoreError, StoreResult};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::RangeBounds;
use std::sync::Arc;

/// A map with a journal of the rows that the open transaction replaced, so that a transaction costs what it touches.
#[derive(Debug, Clone)]
pub(super) struct Table<K, V> {
    rows: BTreeMap<K, V>,
    journal: Vec<(K, Option<V>)>,
}

impl<K: Ord + Clone, V> Table<K, V> {
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.rows.get(key)
    }
    pub(super) fn contains(&self, key: &K) -> bool {
        self.rows.contains_key(key)
    }
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.rows.iter()
    }
    pub(super) fn range(&self, range: impl RangeBounds<K>) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.rows.range(range)
    }
    /// Inserts or replaces.
    pub(super) fn set(&mut self, key: K, row: V) {
        let old = self.rows.insert(key.clone(), row);
        self.journal.push((key, old));
    }
    /// Inserts; a key that is taken is an error, as every unique constraint.
    pub(super) fn insert(&mut self, key: K, row: V) -> StoreResult<()>
    where
        K: std::fmt::Debug,
    {
        if self.contains(&key) {
            return Err(reject(format!("the key {key:?} is taken")));
        }
        self.set(key, row);
        Ok(())
    }
    pub(super) fn remove(&mut self, key: &K) -> Option<V>
    where
        V: Clone,
    {
        let old = self.rows.remove(key)?;
        self.journal.push((key.clone(), Some(old.clone())));
        Some(old)
    }
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self { rows: BTreeMap::new(), journal: Vec::new() }
    }
}

/// What every table does at the end of a transaction.
trait Journal {
    fn forget(&mut self);
    fn undo(&mut self);
}
impl<K: Ord, V> Journal for Table<K, V> {
    fn forget(&mut self) {
        self.journal.clear();
    }
    fn undo(&mut self) {
        while let Some((key, old)) = self.journal.pop() {
            match old {
                Some(row) => self.rows.insert(key, row),
                None => self.rows.remove(&key),
            };
        }
    }
}

/// An op: what it was inserted as, and what has changed since.
#[derive(Debug, Clone)]
pub(super) struct OpRow {
    pub(super) new: Arc<NewOp>,
    pub(super) status: StoredStatus,
    pub(super) unmet: i32,
    pub(super) broken: i32,
    pub(super) fence: Fence,
    pub(super) failures: u32,
    pub(super) losses: u32,
    pub(super) finished_at: Option<Timestamp>,
}

impl OpRow {
    pub(super) fn state(&self) -> OpState {
        OpState {
            seq: self.new.seq,
            workflow: self.new.workflow,
            id: self.new.id.clone(),
            status: self.status,
            unmet: self.unmet,
            broken: self.broken,
            fence: self.fence,
            failures: self.failures,
            losses: self.losses,
            lane: self.new.lane.key,
            priority: self.new.priority,
            retry: self.new.retry,
            parent: self.new.parent,
            dedup_key: self.new.dedup_key.clone(),
            spec: self.new.spec,
        }
    }
}

/// What a limit is serialised on.
#[derive(Debug, Clone)]
pub(super) struct GateRow {
    pub(super) site: SiteName,
    pub(super) queue: QueueName,
    pub(super) bucket: Option<Bucket>,
}

/// What is remembered of the clock.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ClockRow {
    pub(super) mark: Option<Timestamp>,
    pub(super) anomaly_since: Option<Timestamp>,
}

/// Who keeps the store up.
#[derive(Debug, Clone)]
pub(super) struct LeaderRow {
    pub(super) epoch: Epoch,
    pub(super) token: LeaseToken,
    pub(super) name: WorkerName,
    pub(super) ends_at: Timestamp,
}

/// The order in which a lane is claimed: highest priority, then oldest due, then lowest key.
pub(super) type ClaimOrder = (LaneKey, Reverse<i32>, Timestamp, OpSeq);

pub(super) fn claim_order(queued: &QueuedOp) -> ClaimOrder {
    (queued.lane, Reverse(queued.priority), queued.due_at, queued.op)
}

/// An artifact's place; its key stays when a later attempt replaces it.
pub(super) type ArtifactKey = (WorkflowSeq, OpSeq, ArtifactName);

macro_rules! tables {
    ($($(#[$meta:meta])* $table:ident: $key:ty => $row:ty,)*) => {
        /// All tables, keyed like the migrations; a name with `_by_` is an index.
        #[derive(Debug, Clone, Default)]
        pub(super) struct Tables {
            $($(#[$meta])* pub(super) $table: Table<$key, $row>,)*
            /// The last keys given out. A rolled back transaction leaves a gap.
            pub(super) workflow_last: i64,
            pub(super) op_last: i64,
            event_last: i64,
            /// The latest `updated_at` of any committed workflow.
            updated_last: Option<Timestamp>,
        }
        impl Tables {
            fn journals(&mut self) -> Vec<&mut dyn Journal> {
                vec![$(&mut self.$table,)*]
            }
        }
    };
}

tables! {
    workflows: WorkflowSeq => WorkflowRow,
    workflows_by_id: WorkflowId => WorkflowSeq,
    workflows_by_update: (Timestamp, WorkflowSeq) => (),
    lanes: LaneKey => Lane,
    gates: GateKey => GateRow,
    /// No site is every site without a policy of its own.
    policies: (QueueName, Option<SiteName>) => QueuePolicy,
    ops: OpSeq => OpRow,
    ops_by_workflow: (WorkflowSeq, OpSeq) => (),
    ops_by_id: (WorkflowSeq, OpId) => OpSeq,
    ops_by_dedup_key: (WorkflowSeq, DedupKey) => OpSeq,
    /// (child, parent): whether it is required.
    edges: (OpSeq, OpSeq) => bool,
    /// (parent, child): whether it is required.
    edges_by_parent: (OpSeq, OpSeq) => bool,
    ready: OpSeq => QueuedOp,
    ready_by_lane: ClaimOrder => (),
    delayed: OpSeq => QueuedOp,
    delayed_by_due: (Timestamp, OpSeq) => (),
    leases: OpSeq => Lease,
    leases_by_expiry: (Timestamp, OpSeq) => (),
    leases_by_gate: (GateKey, OpSeq) => (),
    waits: OpSeq => OpWait,
    waits_by_due: (Timestamp, OpSeq) => (),
    wakes: OpSeq => OpWake,
    attempts: (OpSeq, Fence) => Attempt,
    artifacts: ArtifactKey => Arc<NewArtifact>,
    records: (WorkflowSeq, CollectionName, RecordKey) => NewRecord,
    events: EventSeq => NewEvent,
    events_by_workflow: (WorkflowSeq, EventSeq) => (),
    acts: String => Act,
    /// One row.
    clock: () => ClockRow,
    /// One row, once somebody was elected.
    leader: () => LeaderRow,
}

impl Tables {
    pub(super) fn commit(&mut self) {
        self.updated_last = self.workflows_by_update.iter().next_back().map(|((updated_at, _), ())| *updated_at);
        self.journals().into_iter().for_each(Journal::forget);
    }
    pub(super) fn roll_back(&mut self) {
        self.journals().into_iter().for_each(Journal::undo);
    }

    /// The least `updated_at` that is past every committed one.
    pub(super) fn updated_past_all(&self) -> StoreResult<Option<Timestamp>> {
        self.updated_last.map(|last| Timestamp::from_micros(last.as_micros() + 1)).transpose().map_err(|e| StoreError::Rejected(e.into()))
    }

    // ---- tables that have an index: the two change together ----

    pub(super) fn set_workflow(&mut self, row: WorkflowRow) {
        if let Some(old) = self.workflows.get(&row.seq) {
            let old = (old.updated_at, old.seq);
            self.workflows_by_update.remove(&old);
        }
        self.workflows_by_update.set((row.updated_at, row.seq), ());
        self.workflows.set(row.seq, row);
    }

    pub(super) fn insert_ready(&mut self, queued: QueuedOp) -> StoreResult<()> {
        self.ready.insert(queued.op, queued)?;
        self.ready_by_lane.insert(claim_order(&queued), ())
    }
    pub(super) fn remove_ready(&mut self, op: OpSeq) -> Option<QueuedOp> {
        let queued = self.ready.remove(&op)?;
        self.ready_by_lane.remove(&claim_order(&queued));
        Some(queued)
    }

    pub(super) fn insert_delayed(&mut self, queued: QueuedOp) -> StoreResult<()> {
        self.delayed.insert(queued.op, queued)?;
        self.delayed_by_due.insert((queued.due_at, queued.op), ())
    }
    pub(super) fn remove_delayed(&mut self, op: OpSeq) -> Option<QueuedOp> {
        let queued = self.delayed.remove(&op)?;
        self.delayed_by_due.remove(&(queued.due_at, queued.op));
        Some(queued)
    }

    pub(super) fn insert_lease(&mut self, lease: Lease) -> StoreResult<()> {
        self.leases_by_expiry.set((lease.expires_at, lease.key.op), ());
        self.leases_by_gate.set((lease.gate, lease.key.op), ());
        self.leases.insert(lease.key.op, lease)
    }
    pub(super) fn remove_lease(&mut self, op: OpSeq) -> Option<Lease> {
        let lease = self.leases.remove(&op)?;
        self.leases_by_expiry.remove(&(lease.expires_at, op));
        self.leases_by_gate.remove(&(lease.gate, op));
        Some(lease)
    }

    pub(super) fn insert_wait(&mut self, wait: OpWait) -> StoreResult<()> {
        if let Some(due_at) = wait.due_at {
            self.waits_by_due.set((due_at, wait.key.op), ());
        }
        self.waits.insert(wait.key.op, wait)
    }
    pub(super) fn remove_wait(&mut self, op: OpSeq) -> Option<OpWait> {
        let wait = self.waits.remove(&op)?;
        if let Some(due_at) = wait.due_at {
            self.waits_by_due.remove(&(due_at, op));
        }
        Some(wait)
    }

    pub(super) fn append_event(&mut self, event: NewEvent) -> StoreResult<()> {
        self.event_last += 1;
        let seq = EventSeq(self.event_last);
        if let Some(workflow) = event.workflow {
            self.events_by_workflow.set((workflow, seq), ());
        }
        self.events.insert(seq, event)
    }

    // ---- what several steps read ----

    pub(super) fn ops_of(&self, workflow: WorkflowSeq) -> impl Iterator<Item = &OpRow> {
        let all = (workflow, OpSeq(i64::MIN))..=(workflow, OpSeq(i64::MAX));
        self.ops_by_workflow.range(all).filter_map(|((_, op), ())| self.ops.get(op))
    }

    /// How many leases count against `gate`.
    pub(super) fn in_flight(&self, gate: GateKey) -> usize {
        self.leases_by_gate.range((gate, OpSeq(i64::MIN))..=(gate, OpSeq(i64::MAX))).count()
    }

    pub(super) fn clock_row(&self) -> ClockRow {
        self.clock.get(&()).copied().unwrap_or_default()
    }

    pub(super) fn clock_reading(&self, now: Timestamp) -> ClockReading {
        let ClockRow { mark, anomaly_since } = self.clock_row();
        ClockReading { now, mark, anomaly_since }
    }

    /// The most specific policy of (site, queue).
    pub(super) fn policy(&self, site: &SiteName, queue: &QueueName) -> Option<QueuePolicy> {
        let own = self.policies.get(&(queue.clone(), Some(site.clone())));
        own.or_else(|| self.policies.get(&(queue.clone(), None))).cloned()
    }
}
