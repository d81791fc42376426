//! Writes what follows from the graph where something else is stored: an operator's act after a defect (P3).
//!
//! This is no transition of the [table](crate::state::TABLE): it puts rows where the table's transitions would have left
//! them.

use super::act::Actor;
use super::add::{lock_by_id, write_guarded};
use super::journal::{About, Journal};
use super::ripple::{Tally, queued};
use super::{Notice, TransitionError};
use crate::doctor::Chart;
use crate::doctor::{is_ended, is_sound, standing};
use crate::model::{OpId, OpSeq, Timestamp, WorkflowId};
use crate::state::{Counters, Share, StoredStatus, WorkflowStatus};
use crate::store::rows::{
    Attempt, AttemptOutcome, EventKind, Lease, LeaseKey, LockedWorkflow, OpChange, OpWait, Reach, Take, TakeWait, WaitKey, WorkflowChange,
    WriteSet,
};
use crate::store::{FactsOf, OpFacts, StoreError, Tx};
use std::collections::{BTreeSet, HashMap};

/// A call to mend ops of one workflow, and its counters and status.
#[derive(Debug, Clone)]
pub struct Mend {
    /// Who, and why.
    pub actor: Actor,
    /// The workflow.
    pub workflow: WorkflowId,
    /// The ops to look at. What waits for them is looked at as well.
    pub ops: Vec<OpSeq>,
}

/// What became of it.
#[derive(Debug, Default)]
pub struct Mended {
    /// The ops that were changed.
    pub ops: Vec<OpId>,
    /// What observers hear.
    pub notices: Vec<Notice>,
}

/// Recomputes what follows from the graph for these ops and those below them, and writes what differs, with the
/// workflow's counters and status. What cannot be known is left as it is. Doing it again changes nothing.
///
/// # Locks
/// The workflow → `delayed` → `ready` → `leases` → waits, a statement each: a claim in between is seen by the next one.
///
/// # Errors
/// [`TransitionError`]; nothing was written.
pub fn mend(tx: &mut dyn Tx, call: &Mend) -> Result<Mended, TransitionError> {
    let workflow = lock_by_id(tx, &call.workflow)?;
    let mut ops: BTreeSet<OpSeq> = call.ops.iter().copied().collect();
    ops.extend(tx.downstream(&call.ops, Reach::Descendants)?.into_iter().map(|edge| edge.child.seq));
    let ops: Vec<OpSeq> = ops.into_iter().collect();
    let mut chart = Chart::read(tx, &FactsOf::Ops(&ops))?;
    chart.facts.retain(|_, facts| facts.state.workflow == workflow.seq);
    let standing = settled(&chart, workflow.cancel_requested);

    let unplaced = misplaced(&chart, &standing);
    tx.unqueue(&unplaced)?;
    chart.leases = tx.leases_of(&ops)?.into_iter().map(|lease| (lease.key.op, lease)).collect();
    let void: Vec<LeaseKey> = chart.leases.values().filter(|lease| is_void(&chart, &standing, lease)).map(|lease| lease.key).collect();
    let taken = take(tx, &void)?;
    let over: Vec<WaitKey> = chart.waits.values().filter(|wait| is_over(&chart, &standing, wait)).map(|wait| wait.key).collect();
    let over: BTreeSet<OpSeq> = tx.take_waits(&over, TakeWait::There)?.waits.into_iter().map(|wait| wait.key.op).collect();
    let now = tx.now()?;

    let mut mending =
        Mending { now, set: WriteSet::default(), tally: Tally::default(), journal: Journal::new(now, Some(call.actor.name.clone())) };
    let mut mended = Vec::new();
    for facts in chart.facts.values() {
        let differences = chart.differences(facts, workflow.cancel_requested);
        let to = standing.get(&facts.state.seq).copied().unwrap_or(facts.state.status);
        let changed = mending.put_right(&chart, facts, to, &standing, taken.get(&facts.state.seq));
        let emptied = unplaced.contains(&facts.state.seq);
        let nowhere = emptied || !chart.places.contains_key(&facts.state.seq);
        let queue = nowhere && to == StoredStatus::Open && facts.lane_known && !holds(&chart, &taken, facts.state.seq);
        if queue {
            mending.queue(&chart, facts);
        }
        if changed || emptied || queue || taken.contains_key(&facts.state.seq) || over.contains(&facts.state.seq) {
            let what: Vec<&str> = differences.iter().map(|(drift, _)| drift.as_str()).collect();
            let about = About { workflow: (workflow.seq, &workflow.id), op: Some((facts.state.seq, &facts.state.id)), fence: None };
            let what = if what.is_empty() { "status".to_owned() } else { what.join(" ") };
            mending.journal.tell(EventKind::Repaired, about, Some(what));
            mended.push(facts.state.id.clone());
        }
    }
    mending.workflow(tx, &workflow)?;
    write_guarded(tx, mending.set, &mut mending.journal)?;
    Ok(Mended { ops: mended, notices: mending.journal.notices })
}

/// Takes rows of ops that are not there out of the queues, the leases and the waits; returns how many leases that were.
///
/// # Locks
/// `delayed` → `ready` → `leases`.
///
/// # Errors
/// [`StoreError`]; nothing was written.
pub fn mend_orphans(tx: &mut dyn Tx, keys: &[OpSeq]) -> Result<usize, StoreError> {
    let there: BTreeSet<OpSeq> = tx.op_facts(&FactsOf::Ops(keys))?.into_iter().map(|facts| facts.state.seq).collect();
    let orphans: Vec<OpSeq> = keys.iter().copied().filter(|key| !there.contains(key)).collect();
    tx.unqueue(&orphans)?;
    let leases: Vec<LeaseKey> = tx.leases_of(&orphans)?.into_iter().map(|lease| lease.key).collect();
    let waits: Vec<WaitKey> = tx.waits_of(&orphans)?.into_iter().map(|wait| wait.key).collect();
    tx.take_waits(&waits, TakeWait::There)?;
    Ok(take(tx, &leases)?.len())
}

/// Where each op that waits for others stands, at the fixed point; an op whose parent is gone stays as it is.
fn settled(chart: &Chart, canceled: bool) -> HashMap<OpSeq, StoredStatus> {
    let known = chart.facts.values().filter(|facts| !chart.loose.contains(&facts.state.seq));
    if canceled {
        let live = known.filter(|facts| !is_ended(facts.state.status));
        return live.map(|facts| (facts.state.seq, StoredStatus::Canceled)).collect();
    }
    let waits = |facts: &&OpFacts| matches!(facts.state.status, StoredStatus::Pending | StoredStatus::Blocked);
    let waiting: Vec<&OpFacts> = known.filter(waits).collect();
    let mut stands: HashMap<OpSeq, StoredStatus> = waiting.iter().map(|facts| (facts.state.seq, facts.state.status)).collect();
    // A graph has no cycles, so this ends. Parents mostly have lower keys than their children, so it ends soon.
    let mut moved = true;
    while std::mem::take(&mut moved) {
        for facts in &waiting {
            let stand = standing(chart.derived(facts.state.seq, &stands));
            moved |= stands.insert(facts.state.seq, stand) != Some(stand);
        }
    }
    stands
}

/// Ops whose places are to go: they have no business there, have two, or one that says something else than their row.
fn misplaced(chart: &Chart, standing: &HashMap<OpSeq, StoredStatus>) -> Vec<OpSeq> {
    let wrong = |facts: &&OpFacts| {
        let state = &facts.state;
        let places = chart.places.get(&state.seq).map(Vec::as_slice).unwrap_or_default();
        let open = standing.get(&state.seq).copied().unwrap_or(state.status) == StoredStatus::Open;
        match places {
            [] => false,
            [place] => !open || chart.leases.contains_key(&state.seq) || !crate::doctor::fits(state, &place.queued),
            _ => true,
        }
    };
    chart.facts.values().filter(wrong).map(|facts| facts.state.seq).collect()
}

/// Whether an op is leased and stays so.
fn holds(chart: &Chart, taken: &HashMap<OpSeq, Lease>, op: OpSeq) -> bool {
    chart.leases.contains_key(&op) && !taken.contains_key(&op)
}

/// Whether a lease is of an op that is not open, or cannot be of its next attempt.
fn is_void(chart: &Chart, standing: &HashMap<OpSeq, StoredStatus>, lease: &Lease) -> bool {
    let Some(facts) = chart.facts.get(&lease.key.op) else { return false };
    let stands = standing.get(&lease.key.op).copied().unwrap_or(facts.state.status);
    stands != StoredStatus::Open || !is_sound(&facts.state, lease)
}

/// Whether a wait is of an op that does not wait.
fn is_over(chart: &Chart, standing: &HashMap<OpSeq, StoredStatus>, wait: &OpWait) -> bool {
    let Some(facts) = chart.facts.get(&wait.key.op) else { return false };
    standing.get(&wait.key.op).copied().unwrap_or(facts.state.status) != StoredStatus::Waiting
}

/// Deletes these leases, alive or not. One that was acquired later than now is neither, and stays for another time.
fn take(tx: &mut dyn Tx, leases: &[LeaseKey]) -> Result<HashMap<OpSeq, Lease>, StoreError> {
    if leases.is_empty() {
        return Ok(HashMap::new());
    }
    let mut taken = tx.take_leases(leases, Take::Live)?.leases;
    taken.extend(tx.take_leases(leases, Take::Expired)?.leases);
    Ok(taken.into_iter().map(|lease| (lease.key.op, lease)).collect())
}

/// What one transaction puts right.
struct Mending {
    now: Timestamp,
    set: WriteSet,
    tally: Tally,
    journal: Journal,
}

impl Mending {
    /// Writes an op's row as it should be; tells whether that differs from what it says.
    fn put_right(
        &mut self,
        chart: &Chart,
        facts: &OpFacts,
        to: StoredStatus,
        standing: &HashMap<OpSeq, StoredStatus>,
        taken: Option<&Lease>,
    ) -> bool {
        let state = &facts.state;
        let waits = matches!(to, StoredStatus::Pending | StoredStatus::Blocked) && !chart.loose.contains(&state.seq);
        let counts = if waits { chart.derived(state.seq, standing) } else { Share { unmet: state.unmet, broken: state.broken } };
        // A fence that was handed out is never handed out again, whatever became of its attempt.
        let fence = taken.map(|lease| lease.key.fence).filter(|fence| *fence > state.fence);
        if let (Some(lease), Some(_)) = (taken, fence) {
            self.set.attempts.push(Attempt {
                key: lease.key,
                workflow: state.workflow,
                worker: lease.worker.clone(),
                acquired_at: lease.acquired_at,
                ended_at: self.now,
                outcome: AttemptOutcome::Abandoned,
                result: None,
                error: None,
            });
        }
        let finished_at = is_ended(to).then(|| facts.finished_at.unwrap_or(self.now));
        let stored = (state.status, state.unmet, state.broken, facts.finished_at);
        if stored == (to, counts.unmet, counts.broken, finished_at) && fence.is_none() {
            return false;
        }
        self.set.changes.push(OpChange {
            op: state.seq,
            from: state.status,
            to,
            unmet: counts.unmet,
            broken: counts.broken,
            fence,
            failures: None,
            losses: None,
            finished_at,
        });
        self.tally.moves(state.workflow, state.status, to);
        true
    }

    /// Gives an open op its place, due when it was, or now.
    fn queue(&mut self, chart: &Chart, facts: &OpFacts) {
        let places = chart.places.get(&facts.state.seq).map(Vec::as_slice).unwrap_or_default();
        let due_at = places.iter().map(|place| place.queued.due_at).min().unwrap_or(self.now);
        let change = self.set.changes.iter().find(|change| change.op == facts.state.seq);
        let fence = change.and_then(|change| change.fence).unwrap_or(facts.state.fence);
        let mut place = queued(&facts.state, due_at);
        place.fence = fence;
        if due_at > self.now { self.set.delayed.push(place) } else { self.set.ready.push(place) }
    }

    /// Counts the ops anew, and writes the workflow's row if that differs from what it says.
    fn workflow(&mut self, tx: &mut dyn Tx, locked: &LockedWorkflow) -> Result<(), TransitionError> {
        let row = tx.workflows(std::slice::from_ref(&locked.id))?.pop().ok_or_else(|| TransitionError::NoWorkflow(locked.id.clone()))?;
        let counted = tx.count_ops(&[locked.seq])?.first().map_or(Counters::default(), |(_, counted)| *counted);
        let counters = self.tally.applied(locked.seq, &counted);
        let status = if row.cancel_requested { WorkflowStatus::Canceled } else { counters.derived() };
        let finished_at = status.is_ended().then(|| row.finished_at.unwrap_or(self.now));
        let right = (row.counters, row.status, row.finished_at) == (counters, status, finished_at);
        if right
            && self.set.changes.is_empty()
            && self.set.ready.is_empty()
            && self.set.delayed.is_empty()
            && self.journal.events.is_empty()
        {
            return Ok(());
        }
        if !right {
            let about = About { workflow: (locked.seq, &locked.id), op: None, fence: None };
            let detail = (status != row.status).then(|| status.to_string());
            let kind = if detail.is_some() { EventKind::WorkflowUpdated } else { EventKind::Repaired };
            self.journal.tell(kind, about, detail.or_else(|| Some("counters".to_owned())));
        }
        let (seq, cancel_requested, at) = (locked.seq, row.cancel_requested, self.now);
        self.set.workflows.push(WorkflowChange { seq, status, cancel_requested, counters, finished_at, at });
        Ok(())
    }
}
