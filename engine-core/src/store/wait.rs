//! Steps on ops that wait.

use super::StoreResult;
use super::rows::{OpWait, OpWake, TakeWait, TakenWaits, WaitKey, WaitReason};
use crate::model::OpSeq;

/// Steps on waits. A wait is written by [`write`](super::GraphTx::write) and changes under its workflow's lock only, so
/// its row needs none of its own.
pub trait WaitTx {
    /// Lists up to `limit` waits that are due now, longest due first, without locking anything.
    ///
    /// # Contract
    /// Due is: `due_at` at now or before. A wait without `due_at` is never due.
    /// # Errors
    /// As every step.
    fn due_waits(&mut self, limit: u32) -> StoreResult<Vec<OpWait>>;

    /// Lists up to `limit` waits for `reason`, in op order behind `after`, without locking anything.
    ///
    /// # Errors
    /// As every step.
    fn waits_for(&mut self, reason: WaitReason, after: Option<OpSeq>, limit: u32) -> StoreResult<Vec<OpWait>>;

    /// Deletes those of `waits` that stand as `take` says; returns them with the time at which that was judged.
    ///
    /// # Contract
    /// A row is deleted only by its exact op and fence. The caller holds their workflows locked; time is read behind
    /// those locks. An empty set still reads time.
    /// # Atomicity
    /// A bounded number of statements.
    /// # Errors
    /// As every step.
    fn take_waits(&mut self, waits: &[WaitKey], take: TakeWait) -> StoreResult<TakenWaits>;

    /// Reads the waits of these ops.
    ///
    /// # Errors
    /// As every step.
    fn waits_of(&mut self, ops: &[OpSeq]) -> StoreResult<Vec<OpWait>>;

    /// Reads how the last waits of these ops ended; an op that was never woken is left out.
    ///
    /// # Errors
    /// As every step.
    fn wakes_of(&mut self, ops: &[OpSeq]) -> StoreResult<Vec<OpWake>>;
}
