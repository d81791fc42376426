//! The broken steps.

use super::Mutant;
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
    Candidate, ClockReading, FactsOf, GraphTx, InspectTx, Leadership, LeaseTx, OpFacts, Place, PulledBack, ReadTx, Spare, StoreError,
    StoreResult, TimeTx, Tx, Wait, WaitTx,
};

/// A transaction with one fault.
pub(super) struct MutantTx<'t> {
    pub(super) inner: &'t mut dyn Tx,
    pub(super) mutant: Mutant,
}

impl MutantTx<'_> {
    fn step<T>(&mut self, step: impl FnOnce(&mut dyn Tx) -> StoreResult<T>) -> StoreResult<T> {
        step(self.inner)
    }

    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == mutant
    }
}

pass_on!(Tx for MutantTx<'_> {
    fn now(&mut self) -> Timestamp;
});

pass_on!(GraphTx for MutantTx<'_> {
    fn insert_workflows(&mut self, workflows: &[NewWorkflow]) -> Vec<(WorkflowId, WorkflowSeq)>;
    fn workflows(&mut self, ids: &[WorkflowId]) -> Vec<WorkflowRow>;
    fn lock_workflows(&mut self, seqs: &[WorkflowSeq], wait: Wait) -> Vec<LockedWorkflow>;
    fn reserve_ops(&mut self, count: usize) -> Vec<OpSeq>;
    fn ops(&mut self, seqs: &[OpSeq]) -> Vec<OpState>;
    fn ops_by_id(&mut self, ids: &[(WorkflowSeq, OpId)]) -> Vec<OpState>;
    fn ops_by_dedup_key(&mut self, keys: &[(WorkflowSeq, DedupKey)]) -> Vec<OpState>;
    fn ops_with_status(&mut self, workflow: WorkflowSeq, statuses: &[StoredStatus]) -> Vec<OpState>;
    fn upstream(&mut self, children: &[OpSeq]) -> Vec<UpstreamEdge>;
    fn unqueue(&mut self, ops: &[OpSeq]) -> ();
    fn act(&mut self, request: RequestId) -> Option<Act>;
    fn set_policies(&mut self, policies: &[QueuePolicy]) -> ();
} and {
    fn downstream(&mut self, from: &[OpSeq], reach: Reach) -> StoreResult<Vec<DownstreamEdge>> {
        let reach = if self.is(Mutant::PropagationStopsAtChildren) { Reach::Children } else { reach };
        self.inner.downstream(from, reach)
    }

    fn write(&mut self, set: &WriteSet) -> StoreResult<Vec<OpSeq>> {
        let set = self.broken(set.clone())?;
        self.inner.write(&set)
    }
});

impl MutantTx<'_> {
    fn broken(&mut self, mut set: WriteSet) -> StoreResult<WriteSet> {
        match self.mutant {
            Mutant::FenceNotRaised => {
                for place in set.ready.iter_mut().chain(&mut set.delayed) {
                    place.fence = Fence(place.fence.0.saturating_sub(1).max(0));
                }
            }
            Mutant::CounterNotSubtracted => {
                for change in &mut set.workflows {
                    change.counters.open += i64::from(change.counters.open == 0);
                    change.status = change.counters.derived();
                }
            }
            Mutant::DependentsOutsideTheTransaction if !set.attempts.is_empty() => {
                let ended: Vec<OpSeq> = set.attempts.iter().map(|attempt| attempt.key.op).collect();
                set.changes.retain(|change| ended.contains(&change.op));
                set.ready.retain(|place| ended.contains(&place.op));
            }
            Mutant::LossNotCounted => set.changes.iter_mut().for_each(|change| change.losses = None),
            Mutant::FailureNotCounted => {
                set.changes.iter_mut().for_each(|change| change.failures = None);
            }
            Mutant::TextCutAtUnicode => {
                for attempt in &mut set.attempts {
                    if let Some(error) = &mut attempt.error {
                        error.message = error.message.chars().take_while(char::is_ascii).collect();
                    }
                    if let Some(result) = attempt.result.as_ref().filter(|result| !result.as_str().is_ascii()) {
                        attempt.result = Json::encode(&result.as_str().chars().take_while(char::is_ascii).collect::<String>()).ok();
                    }
                }
            }
            Mutant::GuardIgnored => {
                let ops: Vec<OpSeq> = set.changes.iter().map(|change| change.op).collect();
                for state in self.inner.ops(&ops)? {
                    set.changes.iter_mut().filter(|change| change.op == state.seq).for_each(|change| change.from = state.status);
                }
            }
            Mutant::PromotesTooEarly => {
                let now = self.inner.now()?;
                set.ready.extend(set.delayed.drain(..).map(|place| leasehold_core::store::rows::QueuedOp { due_at: now, ..place }));
            }
            Mutant::LedgerNotWritten => set.attempts.clear(),
            Mutant::ActNotKept => set.act = None,
            Mutant::EventsDropped => set.events.clear(),
            // Nothing of the workflow's row is written, so its place in the order of updates stays.
            Mutant::UpdateOrderStands if !set.attempts.is_empty() => set.workflows.clear(),
            _ => {}
        }
        Ok(set)
    }
}

pass_on!(InspectTx for MutantTx<'_> {
    fn op_facts(&mut self, of: &FactsOf<'_>) -> Vec<OpFacts>;
    fn hot_keys(&mut self, after: Option<OpSeq>, limit: u32) -> Vec<OpSeq>;
    fn places(&mut self, ops: &[OpSeq]) -> Vec<Place>;
    fn count_ops(&mut self, workflows: &[WorkflowSeq]) -> Vec<(WorkflowSeq, Counters)>;
} and {
    fn loose_edges(&mut self, children: &[OpSeq]) -> StoreResult<Vec<Edge>> {
        if self.is(Mutant::LooseEdgesUnseen) { Ok(Vec::new()) } else { self.inner.loose_edges(children) }
    }

    fn upstream_through(&mut self, from: &[OpSeq], through: &[StoredStatus]) -> StoreResult<Vec<UpstreamEdge>> {
        let through = if self.is(Mutant::UpstreamStopsAtParents) { &[] } else { through };
        self.inner.upstream_through(from, through)
    }
});

pass_on!(LeaseTx for MutantTx<'_> {
    fn promote(&mut self, limit: u32) -> u32;
    fn leases_of(&mut self, ops: &[OpSeq]) -> Vec<Lease>;
    fn attempts_by_lease(&mut self, leases: &[LeaseKey]) -> Vec<Attempt>;
} and {
    fn open_lanes(&mut self, scan: &LaneScan) -> StoreResult<OpenLanes> {
        let mut open = self.inner.open_lanes(scan)?;
        if let Some(clock) = open.clock.as_mut().filter(|_| self.mutant == Mutant::MarkNotCompared) {
            clock.mark = None;
        }
        Ok(open)
    }

    fn lock_gates(&mut self, gates: &[GateKey]) -> StoreResult<Vec<LockedGate>> {
        let mut locked = self.inner.lock_gates(gates)?;
        if self.is(Mutant::LimitIgnored) {
            for gate in &mut locked {
                gate.in_flight = 0;
            }
        }
        Ok(locked)
    }

    fn set_buckets(&mut self, buckets: &[(GateKey, Bucket)]) -> StoreResult<()> {
        if self.is(Mutant::BucketNotStored) { Ok(()) } else { self.inner.set_buckets(buckets) }
    }

    fn claim_ready(&mut self, claim: &Claim) -> StoreResult<Vec<ClaimedOp>> {
        let mut claim = claim.clone();
        if self.is(Mutant::ClaimTakesTooMany) {
            claim.takes.iter_mut().for_each(|take| take.limit += 1);
        }
        self.inner.claim_ready(&claim)
    }

    fn claimed_by(&mut self, token: LeaseToken) -> StoreResult<Vec<ClaimedOp>> {
        if self.is(Mutant::LostClaimForgotten) { Ok(Vec::new()) } else { self.inner.claimed_by(token) }
    }

    fn extend_leases(&mut self, leases: &[LeaseKey], by: Micros) -> StoreResult<Vec<Lease>> {
        let mut held = self.inner.extend_leases(leases, by)?;
        if self.is(Mutant::RenewalShortens) {
            // What the worker is told is what it goes by.
            let until = self.inner.now()?.after(by).map_err(|error| StoreError::Rejected(Box::new(error)))?;
            for lease in &mut held {
                lease.expires_at = until;
            }
        }
        Ok(held)
    }

    fn dispatch_leases(&mut self, leases: &[LeaseKey]) -> StoreResult<Vec<Lease>> {
        match self.mutant {
            Mutant::DispatchNotStored => {
                let ops: Vec<OpSeq> = leases.iter().map(|key| key.op).collect();
                Ok(self.inner.leases_of(&ops)?.into_iter().filter(|lease| leases.contains(&lease.key)).collect())
            }
            Mutant::DispatchUnguarded => {
                let ops: Vec<OpSeq> = leases.iter().map(|key| key.op).collect();
                self.inner.dispatch_leases(leases)?;
                let there = self.inner.leases_of(&ops)?;
                let named = |lease: Lease| leases.iter().find(|key| key.op == lease.key.op).map(|key| Lease { key: *key, ..lease });
                Ok(there.into_iter().filter_map(named).collect())
            }
            _ => self.inner.dispatch_leases(leases),
        }
    }

    fn take_leases(&mut self, leases: &[LeaseKey], take: Take) -> StoreResult<Taken> {
        let mut keys = leases.to_vec();
        if self.is(Mutant::TokenNotCompared) {
            let ops: Vec<OpSeq> = leases.iter().map(|key| key.op).collect();
            keys = self.inner.leases_of(&ops)?.into_iter().map(|lease| lease.key).collect();
        }
        let mut taken = self.inner.take_leases(&keys, take)?;
        let other = match (self.mutant, take) {
            (Mutant::ExpiryNotCompared | Mutant::EqualityIsAlive, Take::Live) => Take::Expired,
            (Mutant::RecoversTheLiving, Take::Expired) => Take::Live,
            _ => return Ok(taken),
        };
        let ops: Vec<OpSeq> = keys.iter().map(|key| key.op).collect();
        let wrongly = |lease: &Lease| keys.contains(&lease.key) && (self.mutant != Mutant::EqualityIsAlive || lease.expires_at == taken.now);
        let wrong: Vec<LeaseKey> = self.inner.leases_of(&ops)?.iter().filter(|lease| wrongly(lease)).map(|lease| lease.key).collect();
        taken.leases.extend(self.inner.take_leases(&wrong, other)?.leases);
        Ok(taken)
    }

    fn clear_hot(&mut self, workflows: &[WorkflowSeq]) -> StoreResult<Vec<Lease>> {
        if !self.is(Mutant::CancelLeavesLeases) {
            return self.inner.clear_hot(workflows);
        }
        let mut queued = Vec::new();
        for workflow in workflows {
            queued.extend(self.inner.ops_with_status(*workflow, &[StoredStatus::Open])?.into_iter().map(|state| state.seq));
        }
        self.inner.unqueue(&queued)?;
        Ok(Vec::new())
    }

    fn expired_leases(&mut self, limit: u32) -> StoreResult<Vec<Lease>> {
        self.inner.expired_leases(if self.is(Mutant::RecoveryUnbounded) { u32::MAX } else { limit })
    }
});

pass_on!(WaitTx for MutantTx<'_> {
    fn waits_for(&mut self, reason: WaitReason, after: Option<OpSeq>, limit: u32) -> Vec<OpWait>;
    fn waits_of(&mut self, ops: &[OpSeq]) -> Vec<OpWait>;
} and {
    fn due_waits(&mut self, limit: u32) -> StoreResult<Vec<OpWait>> {
        self.inner.due_waits(if self.is(Mutant::WakingUnbounded) { u32::MAX } else { limit })
    }

    fn take_waits(&mut self, waits: &[WaitKey], take: TakeWait) -> StoreResult<TakenWaits> {
        match (self.mutant, take) {
            (Mutant::WaitRowStays, _) => {
                let ops: Vec<OpSeq> = waits.iter().map(|key| key.op).collect();
                let there = self.inner.waits_of(&ops)?;
                let now = self.inner.now()?;
                Ok(TakenWaits { now, waits: there.into_iter().filter(|wait| waits.contains(&wait.key)).collect() })
            }
            (Mutant::DueNotCompared, TakeWait::Due) => self.inner.take_waits(waits, TakeWait::There),
            (Mutant::WaitNotCompared, _) => {
                let ops: Vec<OpSeq> = waits.iter().map(|key| key.op).collect();
                let keys: Vec<WaitKey> = self.inner.waits_of(&ops)?.into_iter().map(|wait| wait.key).collect();
                self.inner.take_waits(&keys, take)
            }
            (Mutant::EqualityIsNotDue, TakeWait::Due) => {
                let now = self.inner.now()?;
                let ops: Vec<OpSeq> = waits.iter().map(|key| key.op).collect();
                let there = self.inner.waits_of(&ops)?;
                let keys: Vec<WaitKey> = there.into_iter().filter(|wait| wait.due_at != Some(now)).map(|wait| wait.key).collect();
                self.inner.take_waits(&keys, take)
            }
            _ => self.inner.take_waits(waits, take),
        }
    }

    fn wakes_of(&mut self, ops: &[OpSeq]) -> StoreResult<Vec<OpWake>> {
        if self.is(Mutant::WakeForgotten) { Ok(Vec::new()) } else { self.inner.wakes_of(ops) }
    }
});

pass_on!(ReadTx for MutantTx<'_> {
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

pass_on!(TimeTx for MutantTx<'_> {
    fn lock_clock(&mut self) -> ClockReading;
    fn set_clock(&mut self, clock: &ClockReading) -> ();
    fn pull_back(&mut self, within: Micros) -> PulledBack;
    fn spare_leases(&mut self, spare: &Spare) -> u32;
    fn resign(&mut self, token: LeaseToken, epoch: Epoch) -> ();
} and {
    fn clock(&mut self) -> StoreResult<ClockReading> {
        let clock = self.inner.clock()?;
        Ok(if self.is(Mutant::MarkNotCompared) { ClockReading { mark: None, ..clock } } else { clock })
    }

    fn raise_mark(&mut self, step: Micros) -> StoreResult<()> {
        if !self.is(Mutant::MarkMovesBack) {
            return self.inner.raise_mark(step);
        }
        let clock = self.inner.lock_clock()?;
        self.inner.set_clock(&ClockReading { mark: Some(clock.now), anomaly_since: None, ..clock })
    }

    fn elect(&mut self, candidate: &Candidate) -> StoreResult<Leadership> {
        let elected = self.inner.elect(candidate)?;
        if self.is(Mutant::EveryoneIsElected) && !elected.mine {
            return Ok(Leadership { mine: true, ..elected });
        }
        Ok(elected)
    }

    fn hold_epoch(&mut self, epoch: Epoch) -> StoreResult<bool> {
        Ok(self.inner.hold_epoch(epoch)? || self.is(Mutant::EpochNotCompared))
    }
});
