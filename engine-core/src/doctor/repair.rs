//! Repairs what an examination found, in bounded batches.

use super::{Diagnosis, Drift, Finding, examine};
use crate::engine::retry;
use crate::model::{OpSeq, WorkflowId};
use crate::store::{Store, StoreExt, TxKind};
use crate::transitions::{self, Actor, Mend, Notice, TransitionError};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Findings mended in one transaction: what follows from them below is mended with them.
pub const MEND_MAX: usize = 100;

/// Examines the store, repairs what can be repaired in the name of `actor`, and examines it again. Each batch is a
/// transaction of its own under its workflow's lock, in which everything is judged anew. What was told of it comes with
/// the diagnosis.
///
/// # Errors
/// [`TransitionError::Store`] when the store cannot be read or written; what was repaired before stays so.
pub fn repair(store: &dyn Store, actor: &Actor, patience: Duration) -> Result<(Diagnosis, Vec<Notice>), TransitionError> {
    let mut before = examine(store, patience)?;
    let mut notices = Vec::new();
    let mut repaired: BTreeSet<Finding> = BTreeSet::new();
    loop {
        let mendable = before.findings.iter().filter(|finding| finding.drift.is_repairable());
        if before.write_fault.is_some() || mendable.clone().next().is_none() {
            break;
        }
        let mut workflows: BTreeMap<WorkflowId, BTreeSet<OpSeq>> = BTreeMap::new();
        let mut orphans = Vec::new();
        for finding in mendable {
            match &finding.workflow {
                Some(workflow) => workflows.entry(workflow.clone()).or_default().extend(finding.key),
                None if finding.drift == Drift::Orphan => orphans.extend(finding.key),
                None => {}
            }
        }
        for (workflow, ops) in workflows {
            let ops: Vec<OpSeq> = ops.into_iter().collect();
            // A workflow whose own row is wrong and none of its ops is a batch without ops.
            let batches: Vec<&[OpSeq]> = if ops.is_empty() { vec![&[]] } else { ops.chunks(MEND_MAX).collect() };
            for batch in batches {
                let call = Mend { actor: actor.clone(), workflow: workflow.clone(), ops: batch.to_vec() };
                notices.extend(retry(patience, || store.with(TxKind::Client, |tx| transitions::mend(tx, &call)))?.notices);
            }
        }
        for batch in orphans.chunks(MEND_MAX) {
            retry(patience, || store.with(TxKind::Client, |tx| transitions::mend_orphans(tx, batch)))?;
        }
        let after = examine(store, patience)?;
        let still: BTreeSet<&Finding> = after.findings.iter().collect();
        let mended = before.findings.iter().filter(|finding| !still.contains(finding)).cloned().collect::<Vec<_>>();
        let stuck = mended.is_empty();
        repaired.extend(mended);
        before = after;
        if stuck {
            break;
        }
    }
    before.repaired = repaired.into_iter().collect();
    Ok((before, notices))
}
