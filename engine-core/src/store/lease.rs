//! Steps on leases and on what waits to be leased.

use super::StoreResult;
use super::rows::{Attempt, Claim, ClaimedOp, LaneScan, Lease, LeaseKey, LockedGate, OpenLanes, Take, Taken};
use crate::model::{Bucket, GateKey, LeaseToken, Micros, OpSeq, WorkflowSeq};

/// Steps on leases. An op is running exactly when its lease row exists.
pub trait LeaseTx {
    /// Moves up to `limit` ops that are due from `delayed` to `ready`, oldest first; returns how many.
    ///
    /// # Contract
    /// Due is: `due_at` at now or before. Rows that another transaction holds are skipped, never waited for.
    /// # Atomicity
    /// A bounded number of statements. Time is read in the statement itself.
    /// # Errors
    /// As every step.
    fn promote(&mut self, limit: u32) -> StoreResult<u32>;

    /// Lists lanes that have an op in `ready`, due or not, with their policies, in key order, without locking anything;
    /// and reads the clock on the way, so that a claim need not ask for it.
    ///
    /// # Contract
    /// Costs a walk over lanes, never over the ops in them.
    /// # Atomicity
    /// One statement.
    /// # Errors
    /// As every step.
    fn open_lanes(&mut self, scan: &LaneScan) -> StoreResult<OpenLanes>;

    /// Locks these gates in key order and counts their leases *in a later statement*; those that another transaction
    /// holds are left out.
    ///
    /// # Errors
    /// As every step.
    fn lock_gates(&mut self, gates: &[GateKey]) -> StoreResult<Vec<LockedGate>>;

    /// Stores the buckets of gates that this transaction holds locked.
    ///
    /// # Errors
    /// As every step.
    fn set_buckets(&mut self, buckets: &[(GateKey, Bucket)]) -> StoreResult<()>;

    /// Leases up to each gate's limit from the lanes named: takes the ops out of `ready`, of each gate the highest
    /// priority first, then oldest due, then lowest key, and gives each a lease whose fence is one more than the `ready` row's.
    ///
    /// # Contract
    /// All takes of one gate carry the same limit, and it bounds their sum: the order holds across the lanes of a gate.
    /// Only rows that are due (`due_at` at now or before). Rows that another transaction holds are skipped, never
    /// waited for. What a lease says comes from the `ready` row that was deleted, never from an op's row. What is
    /// returned is in no order.
    /// # Atomicity
    /// A bounded number of statements, whatever the number of takes. Time is read in the statement itself.
    /// # Errors
    /// As every step; [`super::StoreError::Rejected`] when the leases would end past year 9999.
    fn claim_ready(&mut self, claim: &Claim) -> StoreResult<Vec<ClaimedOp>>;

    /// The ops that are leased under `token`: what a claim whose reply was lost has taken.
    ///
    /// # Contract
    /// Told as by [`claim_ready`](Self::claim_ready); but with the `ready` rows gone, `failures` may be those of the op's
    /// row, and `due_at` the instant at which the lease was given. Expired leases count: their rows stand.
    /// # Errors
    /// As every step.
    fn claimed_by(&mut self, token: LeaseToken) -> StoreResult<Vec<ClaimedOp>>;

    /// Extends the leases that hold to now + `by`; returns those, as they are then.
    ///
    /// # Contract
    /// A lease holds when its exact token and fence exist, it expires later than now, and it was not acquired later
    /// than now. An expiry never moves back.
    /// # Atomicity
    /// One statement, whatever the size. Rows are locked in op order; time is read behind the locks.
    /// # Errors
    /// As every step; [`super::StoreError::Rejected`] when now + `by` lies past year 9999.
    fn extend_leases(&mut self, leases: &[LeaseKey], by: Micros) -> StoreResult<Vec<Lease>>;

    /// Marks the leases that hold as dispatched, those that are so already at the instant that they have; returns them, as
    /// they are then.
    ///
    /// # Contract
    /// A lease holds as for [`extend_leases`](Self::extend_leases).
    /// # Atomicity
    /// One statement, whatever the size. Rows are locked in op order; time is read behind the locks.
    /// # Errors
    /// As every step.
    fn dispatch_leases(&mut self, leases: &[LeaseKey]) -> StoreResult<Vec<Lease>>;

    /// Deletes those of `leases` that stand as `take` says, at the transition's own time; returns them with that time.
    ///
    /// # Contract
    /// A row is deleted only by its exact op, token and fence. Live is: expires later than now and not acquired later
    /// than now. Expired is: expires at now or before. Time is read behind the rows' locks. An empty set still reads time.
    /// # Atomicity
    /// A bounded number of statements. Rows are locked in op order.
    /// # Errors
    /// As every step.
    fn take_leases(&mut self, leases: &[LeaseKey], take: Take) -> StoreResult<Taken>;

    /// Takes everything hot of `workflows` away: deletes their rows in `delayed`, then in `ready`, then in `leases`, a
    /// statement each in this order, and returns the leases. Holding the workflows locked, nothing can come back.
    ///
    /// # Errors
    /// As every step.
    fn clear_hot(&mut self, workflows: &[WorkflowSeq]) -> StoreResult<Vec<Lease>>;

    /// Lists up to `limit` leases that are expired now, longest expired first, without locking them.
    ///
    /// # Errors
    /// As every step.
    fn expired_leases(&mut self, limit: u32) -> StoreResult<Vec<Lease>>;

    /// Reads the leases of these ops, whoever holds them.
    ///
    /// # Errors
    /// As every step.
    fn leases_of(&mut self, ops: &[OpSeq]) -> StoreResult<Vec<Lease>>;

    /// Reads the ledger's lines for exactly these op, token and fence.
    ///
    /// # Errors
    /// As every step.
    fn attempts_by_lease(&mut self, leases: &[LeaseKey]) -> StoreResult<Vec<Attempt>>;
}
