//! Walks over a store, a page a snapshot.

use super::{Chart, Drift, Finding};
use crate::engine::retry;
use crate::model::{OpSeq, WorkflowSeq};
use crate::state::{Counters, WorkflowStatus};
use crate::store::rows::{WorkflowPage, WorkflowRow};
use crate::store::{FactsOf, Store, StoreError, StoreExt, StoreResult, Tx, TxKind};
use std::collections::HashMap;
use std::time::Duration;

/// Workflows whose ops are counted in one statement.
const WORKFLOWS_PER_PAGE: u32 = 100;
/// Ops looked at in one transaction.
const OPS_PER_PAGE: u32 = 1_000;

/// Findings that are kept; more are counted. A store in which more is wrong has one cause, not ten thousand.
pub const FINDINGS_MAX: usize = 10_000;

/// What an examination found.
#[derive(Debug, Default)]
pub struct Diagnosis {
    /// Workflows looked at.
    pub workflows: u64,
    /// Ops looked at.
    pub ops: u64,
    /// What differs, at most [`FINDINGS_MAX`].
    pub findings: Vec<Finding>,
    /// Findings beyond those.
    pub unlisted: u64,
    /// What was found before and is right now, after a repair.
    pub repaired: Vec<Finding>,
    /// Why the store takes no write, if it does not: busy, read-only, full or away.
    pub write_fault: Option<StoreError>,
}

impl Diagnosis {
    /// Whether everything follows from the graph and the store can be written to.
    pub const fn is_sound(&self) -> bool {
        self.findings.is_empty() && self.unlisted == 0 && self.write_fault.is_none()
    }

    fn note(&mut self, finding: Finding) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        } else {
            self.unlisted += 1;
        }
    }
}

/// Recomputes everything that follows from the graph and the leases, and tries a write. Each page is read in one
/// transaction that locks nothing, so that workers go on; what they change meanwhile shows as before or after, never as
/// half done. `patience` is for each transaction: how long what may succeed soon is tried again.
///
/// # Errors
/// Why the store cannot be read. Why it cannot be written to is part of the diagnosis.
pub fn examine(store: &dyn Store, patience: Duration) -> StoreResult<Diagnosis> {
    let mut diagnosis = Diagnosis::default();
    let mut before: Option<WorkflowSeq> = None;
    loop {
        let page = WorkflowPage { before, limit: WORKFLOWS_PER_PAGE, ..WorkflowPage::default() };
        let (rows, counted) = read(store, patience, |tx| {
            let rows = tx.list_workflows(&page)?;
            let seqs: Vec<WorkflowSeq> = rows.iter().map(|row| row.seq).collect();
            Ok((rows, tx.count_ops(&seqs)?))
        })?;
        let Some(last) = rows.last() else { break };
        before = Some(last.seq);
        let counted: HashMap<WorkflowSeq, Counters> = counted.into_iter().collect();
        for row in &rows {
            diagnosis.workflows += 1;
            workflow_differences(row, counted.get(&row.seq).copied().unwrap_or_default(), &mut diagnosis);
            examine_ops(store, patience, row, &mut diagnosis)?;
        }
    }
    examine_hot(store, patience, &mut diagnosis)?;
    diagnosis.write_fault = try_write(store, patience).err();
    Ok(diagnosis)
}

fn read<T>(store: &dyn Store, patience: Duration, mut body: impl FnMut(&mut dyn Tx) -> StoreResult<T>) -> StoreResult<T> {
    retry(patience, || store.with(TxKind::Read, &mut body))
}

/// The keys that this uses up are no loss, and nothing else is changed.
fn try_write(store: &dyn Store, patience: Duration) -> StoreResult<()> {
    retry(patience, || store.with(TxKind::Client, |tx| tx.reserve_ops(1))).map(drop)
}

fn workflow_differences(row: &WorkflowRow, counted: Counters, diagnosis: &mut Diagnosis) {
    let mut note = |drift, detail| {
        diagnosis.note(Finding { workflow: Some(row.id.clone()), op: None, key: None, drift, detail });
    };
    if counted != row.counters {
        note(Drift::Counters, format!("its counters are {:?}, its ops are {counted:?}", row.counters));
    }
    let status = derived_status(row.cancel_requested, &counted);
    if status != row.status {
        note(Drift::WorkflowStatus, format!("it is {}, its ops make it {status}", row.status));
    }
    if row.finished_at.is_some() != status.is_ended() {
        note(Drift::WorkflowFinishedAt, format!("it is {status} and finished at {:?}", row.finished_at));
    }
}

/// The status of a workflow with these ops.
pub(crate) fn derived_status(cancel_requested: bool, counted: &Counters) -> WorkflowStatus {
    if cancel_requested { WorkflowStatus::Canceled } else { counted.derived() }
}

fn examine_ops(store: &dyn Store, patience: Duration, row: &WorkflowRow, diagnosis: &mut Diagnosis) -> StoreResult<()> {
    let mut after: Option<OpSeq> = None;
    loop {
        let of = FactsOf::Workflow { workflow: row.seq, after, limit: OPS_PER_PAGE };
        // Whether the workflow was canceled is read beside its ops: another answer may be older than they are.
        let (canceled, chart) = read(store, patience, |tx| {
            let now = tx.workflows(std::slice::from_ref(&row.id))?.pop();
            Ok((now.is_some_and(|row| row.cancel_requested), Chart::read(tx, &of)?))
        })?;
        let Some((last, _)) = chart.facts.last_key_value() else { return Ok(()) };
        after = Some(*last);
        for facts in chart.facts.values() {
            diagnosis.ops += 1;
            for (drift, detail) in chart.differences(facts, canceled) {
                let (workflow, op) = (Some(row.id.clone()), Some(facts.state.id.clone()));
                diagnosis.note(Finding { workflow, op, key: Some(facts.state.seq), drift, detail });
            }
        }
    }
}

/// Rows of the hot tables whose op is not there; all others were seen beside their op.
fn examine_hot(store: &dyn Store, patience: Duration, diagnosis: &mut Diagnosis) -> StoreResult<()> {
    let mut after: Option<OpSeq> = None;
    loop {
        let (keys, facts) = read(store, patience, |tx| {
            let keys = tx.hot_keys(after, OPS_PER_PAGE)?;
            let facts = tx.op_facts(&FactsOf::Ops(&keys))?;
            Ok((keys, facts))
        })?;
        let Some(last) = keys.last() else { return Ok(()) };
        after = Some(*last);
        let there: std::collections::HashSet<OpSeq> = facts.into_iter().map(|facts| facts.state.seq).collect();
        for key in keys.into_iter().filter(|key| !there.contains(key)) {
            let detail = format!("op {} is queued, leased or said to wait, and there is no such op", key.0);
            diagnosis.note(Finding { workflow: None, op: None, key: Some(key), drift: Drift::Orphan, detail });
        }
    }
}
