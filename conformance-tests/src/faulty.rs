//! A store that fails where it is told to.

use crate::passing::pass_on;
use leasehold_core::model::{
    ArtifactName, Bucket, CollectionName, DedupKey, Epoch, EventSeq, Fence, GateKey, Json, LeaseToken, Micros, OpId, OpSeq, QueuePolicy,
    RecordKey, RequestId, Timestamp, WorkflowId, WorkflowSeq,
};
use leasehold_core::state::{Counters, StoredStatus};
use leasehold_core::store::rows::{
    Act, ArtifactRow, Attempt, Claim, ClaimedOp, DownstreamEdge, Edge, EventRow, LaneScan, Lease, LeaseKey, LockedGate, LockedWorkflow,
    NewRecord, NewWorkflow, OpPage, OpState, OpView, OpWait, OpWake, OpenLanes, QueueStatus, Reach, Take, TakeWait, Taken, TakenWaits,
    Totals, UpdateCursor, UpstreamEdge, WaitKey, WaitReason, WorkflowPage, WorkflowRow, WriteSet,
};
use leasehold_core::store::{
    Candidate, ClockReading, FactsOf, GraphTx, Hints, InspectTx, Leadership, LeaseTx, OpFacts, Place, PulledBack, ReadTx, Spare, Store,
    StoreError, StoreInfo, StoreResult, TimeTx, Tx, TxKind, Wait, WaitTx,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What goes wrong, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The step with this number, from 1, fails before it reaches the store.
    BeforeStep(usize),
    /// The step with this number is done and its answer is lost.
    AfterStep(usize),
    /// The transaction commits and its answer is lost.
    CommitReplyLost,
}

/// Passes everything to another store, but for one fault that it is told of.
#[derive(Debug)]
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    fault: Mutex<Option<Fault>>,
    steps: AtomicUsize,
}

impl FaultyStore {
    /// Around `inner`, without a fault.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, fault: Mutex::new(None), steps: AtomicUsize::new(0) }
    }

    /// The next transaction meets `fault`.
    pub fn plan(&self, fault: Fault) {
        *self.lock() = Some(fault);
    }

    /// Forgets a fault that nothing met; tells whether there was one.
    pub fn forget(&self) -> bool {
        self.lock().take().is_some()
    }

    /// How many steps the last transaction took.
    pub fn steps(&self) -> usize {
        self.steps.load(Ordering::SeqCst)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Fault>> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lost(what: &str) -> StoreError {
    StoreError::Unavailable(what.to_owned().into())
}

#[deny(clippy::missing_trait_methods)]
impl Store for FaultyStore {
    fn transact(&self, kind: TxKind, body: &mut dyn FnMut(&mut dyn Tx) -> StoreResult<()>) -> StoreResult<()> {
        let fault = *self.lock();
        self.inner.transact(kind, &mut |inner| {
            let mut tx = FaultyTx { inner, fault, steps: 0, failed: false };
            let result = body(&mut tx);
            self.steps.store(tx.steps, Ordering::SeqCst);
            if tx.failed {
                self.forget();
                // Whatever the body made of it: a transaction whose step failed cannot commit.
                return Err(result.err().unwrap_or_else(|| lost("a step failed and the body went on")));
            }
            result
        })?;
        if fault == Some(Fault::CommitReplyLost) {
            self.forget();
            return Err(lost("the reply to the commit was lost"));
        }
        Ok(())
    }

    fn describe(&self) -> StoreResult<StoreInfo> {
        self.inner.describe()
    }

    fn try_write(&self) -> StoreResult<()> {
        self.inner.try_write()
    }

    fn hints(&self) -> Option<Arc<dyn Hints>> {
        self.inner.hints()
    }
}

struct FaultyTx<'t> {
    inner: &'t mut dyn Tx,
    fault: Option<Fault>,
    steps: usize,
    failed: bool,
}

impl FaultyTx<'_> {
    fn step<T>(&mut self, step: impl FnOnce(&mut dyn Tx) -> StoreResult<T>) -> StoreResult<T> {
        self.steps += 1;
        if self.failed {
            return Err(lost("an earlier step of this transaction failed"));
        }
        if self.fault == Some(Fault::BeforeStep(self.steps)) {
            self.failed = true;
            return Err(lost("the connection was lost"));
        }
        let answer = step(self.inner)?;
        if self.fault == Some(Fault::AfterStep(self.steps)) {
            self.failed = true;
            return Err(lost("the reply was lost"));
        }
        Ok(answer)
    }
}

pass_on!(Tx for FaultyTx<'_> {
    fn now(&mut self) -> Timestamp;
});

pass_on!(GraphTx for FaultyTx<'_> {
    fn insert_workflows(&mut self, workflows: &[NewWorkflow]) -> Vec<(WorkflowId, WorkflowSeq)>;
    fn workflows(&mut self, ids: &[WorkflowId]) -> Vec<WorkflowRow>;
    fn lock_workflows(&mut self, seqs: &[WorkflowSeq], wait: Wait) -> Vec<LockedWorkflow>;
    fn reserve_ops(&mut self, count: usize) -> Vec<OpSeq>;
    fn ops(&mut self, seqs: &[OpSeq]) -> Vec<OpState>;
    fn ops_by_id(&mut self, ids: &[(WorkflowSeq, OpId)]) -> Vec<OpState>;
    fn ops_by_dedup_key(&mut self, keys: &[(WorkflowSeq, DedupKey)]) -> Vec<OpState>;
    fn ops_with_status(&mut self, workflow: WorkflowSeq, statuses: &[StoredStatus]) -> Vec<OpState>;
    fn downstream(&mut self, from: &[OpSeq], reach: Reach) -> Vec<DownstreamEdge>;
    fn upstream(&mut self, children: &[OpSeq]) -> Vec<UpstreamEdge>;
    fn write(&mut self, set: &WriteSet) -> Vec<OpSeq>;
    fn unqueue(&mut self, ops: &[OpSeq]) -> ();
    fn act(&mut self, request: RequestId) -> Option<Act>;
    fn set_policies(&mut self, policies: &[QueuePolicy]) -> ();
});

pass_on!(InspectTx for FaultyTx<'_> {
    fn op_facts(&mut self, of: &FactsOf<'_>) -> Vec<OpFacts>;
    fn hot_keys(&mut self, after: Option<OpSeq>, limit: u32) -> Vec<OpSeq>;
    fn places(&mut self, ops: &[OpSeq]) -> Vec<Place>;
    fn loose_edges(&mut self, children: &[OpSeq]) -> Vec<Edge>;
    fn count_ops(&mut self, workflows: &[WorkflowSeq]) -> Vec<(WorkflowSeq, Counters)>;
    fn upstream_through(&mut self, from: &[OpSeq], through: &[StoredStatus]) -> Vec<UpstreamEdge>;
});

pass_on!(LeaseTx for FaultyTx<'_> {
    fn promote(&mut self, limit: u32) -> u32;
    fn open_lanes(&mut self, scan: &LaneScan) -> OpenLanes;
    fn lock_gates(&mut self, gates: &[GateKey]) -> Vec<LockedGate>;
    fn set_buckets(&mut self, buckets: &[(GateKey, Bucket)]) -> ();
    fn claim_ready(&mut self, claim: &Claim) -> Vec<ClaimedOp>;
    fn claimed_by(&mut self, token: LeaseToken) -> Vec<ClaimedOp>;
    fn extend_leases(&mut self, leases: &[LeaseKey], by: Micros) -> Vec<Lease>;
    fn dispatch_leases(&mut self, leases: &[LeaseKey]) -> Vec<Lease>;
    fn take_leases(&mut self, leases: &[LeaseKey], take: Take) -> Taken;
    fn clear_hot(&mut self, workflows: &[WorkflowSeq]) -> Vec<Lease>;
    fn expired_leases(&mut self, limit: u32) -> Vec<Lease>;
    fn leases_of(&mut self, ops: &[OpSeq]) -> Vec<Lease>;
    fn attempts_by_lease(&mut self, leases: &[LeaseKey]) -> Vec<Attempt>;
});

pass_on!(WaitTx for FaultyTx<'_> {
    fn due_waits(&mut self, limit: u32) -> Vec<OpWait>;
    fn waits_for(&mut self, reason: WaitReason, after: Option<OpSeq>, limit: u32) -> Vec<OpWait>;
    fn take_waits(&mut self, waits: &[WaitKey], take: TakeWait) -> TakenWaits;
    fn waits_of(&mut self, ops: &[OpSeq]) -> Vec<OpWait>;
    fn wakes_of(&mut self, ops: &[OpSeq]) -> Vec<OpWake>;
});

pass_on!(ReadTx for FaultyTx<'_> {
    fn list_workflows(&mut self, page: &WorkflowPage) -> Vec<WorkflowRow>;
    fn workflows_since(&mut self, after: Option<UpdateCursor>, limit: u32) -> Vec<WorkflowRow>;
    fn running_counts(&mut self, workflows: &[WorkflowSeq]) -> Vec<(WorkflowSeq, i64)>;
    fn list_ops(&mut self, workflow: WorkflowSeq, page: &OpPage) -> Vec<OpView>;
    fn op_views(&mut self, ops: &[OpSeq]) -> Vec<OpView>;
    fn results(&mut self, ops: &[OpSeq]) -> Vec<(OpSeq, Json)>;
    fn attempts(&mut self, op: OpSeq, after: Fence, limit: u32) -> Vec<Attempt>;
    fn artifacts(
        &mut self,
        workflow: WorkflowSeq,
        op: Option<OpSeq>,
        after: Option<(OpSeq, ArtifactName)>,
        limit: u32
    ) -> Vec<ArtifactRow>;
    fn artifact_content(&mut self, op: OpSeq, name: &ArtifactName) -> Option<Vec<u8>>;
    fn records(
        &mut self,
        workflow: WorkflowSeq,
        collection: &CollectionName,
        after: Option<&RecordKey>,
        limit: u32
    ) -> Vec<NewRecord>;
    fn events_since(&mut self, after: Option<EventSeq>, workflow: Option<WorkflowSeq>, limit: u32) -> Vec<EventRow>;
    fn policies(&mut self) -> Vec<QueuePolicy>;
    fn queue_statuses(&mut self) -> Vec<QueueStatus>;
    fn totals(&mut self) -> Totals;
});

pass_on!(TimeTx for FaultyTx<'_> {
    fn clock(&mut self) -> ClockReading;
    fn raise_mark(&mut self, step: Micros) -> ();
    fn lock_clock(&mut self) -> ClockReading;
    fn set_clock(&mut self, clock: &ClockReading) -> ();
    fn pull_back(&mut self, within: Micros) -> PulledBack;
    fn spare_leases(&mut self, spare: &Spare) -> u32;
    fn elect(&mut self, candidate: &Candidate) -> Leadership;
    fn resign(&mut self, token: LeaseToken, epoch: Epoch) -> ();
    fn hold_epoch(&mut self, epoch: Epoch) -> bool;
});
