//! Wakes ops whose instant has come (W2, L13).

use super::session::Settings;
use super::sweep::{Due, SetAside};
use crate::model::{OpSeq, WorkflowSeq};
use crate::store::rows::{OpWait, WaitKey};
use crate::store::{StoreResult, Tx};
use crate::transitions::{self, Notice, WokenOp};

/// Waits that are due, to be ended.
#[derive(Debug)]
pub(super) struct DueWaits;

impl Due for DueWaits {
    type Row = OpWait;
    type Key = WaitKey;
    type Done = WokenOp;

    const NAME: &'static str = "wake";

    fn list(tx: &mut dyn Tx, limit: u32) -> StoreResult<Vec<OpWait>> {
        tx.due_waits(limit)
    }
    fn handle(tx: &mut dyn Tx, rows: &[OpWait]) -> StoreResult<(Vec<WokenOp>, Vec<Notice>)> {
        transitions::wake_waits(tx, rows).map(|woken| (woken.ops, woken.notices))
    }
    fn key(row: &OpWait) -> WaitKey {
        row.key
    }
    fn op(key: WaitKey) -> OpSeq {
        key.op
    }
    fn workflow(row: &OpWait) -> WorkflowSeq {
        row.workflow
    }
    fn done(done: &WokenOp) -> WaitKey {
        done.wait
    }
    fn aside(settings: &Settings) -> &SetAside<WaitKey> {
        &settings.waits_aside
    }
}
