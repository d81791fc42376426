//! What is stored, as the invariants look at it.

use crate::{Planted, World};
use leasehold_core::model::{Fence, OpSeq, Timestamp};
use leasehold_core::state::{OpStatus, WorkflowStatus};
use leasehold_core::store::rows::{Attempt, AttemptOutcome, EventKind, LeaseKey, OpView, UpstreamEdge};
use leasehold_core::store::{BoxError, FactsOf};
use leasehold_core::transitions::CLOCK_TOLERANCE;
use std::hash::{Hash, Hasher};

/// A whole workflow as it stands.
#[derive(Debug, Clone)]
pub(super) struct Picture {
    pub(super) workflow: WorkflowStatus,
    pub(super) canceled: bool,
    pub(super) ops: Vec<OpPicture>,
    /// Successes that the history tells of.
    pub(super) successes_told: usize,
    /// How far the clock is behind the latest time that it has shown, in microseconds.
    pub(super) behind_us: i64,
    /// Whether that is too far to rely on it.
    pub(super) distrusted: bool,
}

/// One op as it stands.
#[derive(Debug, Clone)]
pub(super) struct OpPicture {
    pub(super) view: OpView,
    pub(super) parents: Vec<UpstreamEdge>,
    pub(super) attempts: Vec<Attempt>,
}

impl Picture {
    pub(super) fn of(world: &World, planted: &Planted) -> Result<Self, BoxError> {
        let row = world.workflow(&planted.id)?;
        let picture = world.read(|tx| {
            let facts = tx.op_facts(&FactsOf::Workflow { workflow: row.seq, after: None, limit: 100 })?;
            let seqs: Vec<OpSeq> = facts.iter().map(|facts| facts.state.seq).collect();
            let edges = tx.upstream(&seqs)?;
            let mut ops = Vec::new();
            for view in tx.op_views(&seqs)? {
                let seq = view.state.seq;
                let parents = edges.iter().filter(|edge| edge.child == seq).cloned().collect();
                ops.push(OpPicture { view, parents, attempts: tx.attempts(seq, Fence::NONE, 100)? });
            }
            ops.sort_by_key(|op| op.view.state.seq);
            let events = tx.events_since(None, Some(row.seq), 1_000)?;
            let successes_told = events.iter().filter(|row| row.event.kind == EventKind::OpSucceeded).count();
            let clock = tx.clock()?;
            let behind_us = clock.mark.map_or(0, |mark| (mark.as_micros() - clock.now.as_micros()).max(0));
            let distrusted = clock.trusted(CLOCK_TOLERANCE).is_err();
            Ok(Self { workflow: row.status, canceled: row.cancel_requested, ops, successes_told, behind_us, distrusted })
        });
        Ok(picture?)
    }

    /// The op with this key.
    pub(super) fn op(&self, seq: OpSeq) -> Option<&OpPicture> {
        self.ops.iter().find(|op| op.view.state.seq == seq)
    }

    /// Whether this lease holds at `now`, to the letter of the contract.
    pub(super) fn holds(&self, key: LeaseKey, now: Timestamp) -> bool {
        let lease = self.op(key.op).and_then(|op| op.view.lease.as_ref());
        lease.is_some_and(|lease| lease.key == key && lease.expires_at > now && lease.acquired_at <= now)
    }

    /// How this lease ended, if the ledger tells.
    pub(super) fn ended(&self, key: LeaseKey) -> Option<AttemptOutcome> {
        let attempts = self.op(key.op).map(|op| op.attempts.as_slice()).unwrap_or_default();
        attempts.iter().find(|attempt| attempt.key == key).map(|attempt| attempt.outcome)
    }

    /// Hashes what later steps can depend on: no tokens, and times as seen from `now`.
    pub(super) fn fingerprint(&self, now: Timestamp, hasher: &mut impl Hasher) {
        let from_now = |at: Timestamp| at.as_micros() - now.as_micros();
        (self.workflow.as_str(), self.canceled, self.behind_us).hash(hasher);
        for op in &self.ops {
            let state = &op.view.state;
            (state.id.as_str(), state.status.as_str(), state.unmet, state.broken, state.fence.0, state.failures, state.losses).hash(hasher);
            // What is due is due, since whenever.
            op.view.due_at.map(|due| from_now(due).max(0)).hash(hasher);
            let lease = op.view.lease.as_ref();
            lease.map(|lease| (lease.key.fence.0, from_now(lease.acquired_at).max(0), from_now(lease.expires_at).max(0))).hash(hasher);
            op.view.wait.as_ref().map(|wait| (wait.key.fence.0, wait.due_at.map(|due| from_now(due).max(0)))).hash(hasher);
            for attempt in &op.attempts {
                (attempt.key.fence.0, attempt.outcome.as_str()).hash(hasher);
            }
            op.parents.len().hash(hasher);
        }
    }
}

impl OpPicture {
    pub(super) fn seq(&self) -> OpSeq {
        self.view.state.seq
    }
    pub(super) fn is(&self, status: OpStatus) -> bool {
        self.view.status == status
    }
    pub(super) fn count(&self, of: &[AttemptOutcome]) -> usize {
        self.attempts.iter().filter(|attempt| of.contains(&attempt.outcome)).count()
    }
}
