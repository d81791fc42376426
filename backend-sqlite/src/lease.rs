//! Steps on leases.

use crate::claim;
use crate::graph::of_ops;
use crate::set::{self, Set, cells};
use crate::tx::SqliteTx;
use diesel::sql_types::{BigInt, Text};
use leasehold_core::model::{Bucket, GateKey, LeaseToken, Micros, OpSeq, Timestamp, WorkflowSeq};
use leasehold_core::store::rows::{Attempt, Claim, ClaimedOp, LaneScan, Lease, LeaseKey, LockedGate, OpenLanes, Take, Taken};
use leasehold_core::store::{LeaseTx, StoreError, StoreResult};
use leasehold_sql::{attempt_columns, lease_columns, rows, statement};

// At its expiry a lease does not hold any more (T5), and before it was acquired not either (T8).
pub(crate) const EXTEND_LEASES: &str = concat!(
    "UPDATE leases
        SET expires_at_us = max(expires_at_us, ?1)
       FROM jsonb_each(?2) AS k
      WHERE leases.op = k.value ->> 0 AND leases.token = k.value ->> 1 AND leases.fence = k.value ->> 2
        AND leases.expires_at_us > ?3 AND leases.acquired_at_us <= ?3
     RETURNING ",
    lease_columns!()
);

pub(crate) const DISPATCH_LEASES: &str = concat!(
    "UPDATE leases
        SET dispatched_at_us = coalesce(dispatched_at_us, ?1)
       FROM jsonb_each(?2) AS k
      WHERE leases.op = k.value ->> 0 AND leases.token = k.value ->> 1 AND leases.fence = k.value ->> 2
        AND leases.expires_at_us > ?1 AND leases.acquired_at_us <= ?1
     RETURNING ",
    lease_columns!()
);

pub(crate) const TAKE_LIVE: &str = concat!(
    "DELETE FROM leases
      WHERE op IN (SELECT le.op
                     FROM jsonb_each(?1) AS k
                    CROSS JOIN leases AS le ON le.op = k.value ->> 0
                    WHERE le.token = k.value ->> 1 AND le.fence = k.value ->> 2
                      AND le.expires_at_us > ?2 AND le.acquired_at_us <= ?2)
     RETURNING ",
    lease_columns!()
);

pub(crate) const TAKE_EXPIRED: &str = concat!(
    "DELETE FROM leases
      WHERE op IN (SELECT le.op
                     FROM jsonb_each(?1) AS k
                    CROSS JOIN leases AS le ON le.op = k.value ->> 0
                    WHERE le.token = k.value ->> 1 AND le.fence = k.value ->> 2
                      AND le.expires_at_us <= ?2)
     RETURNING ",
    lease_columns!()
);

// The index of (workflow, id) holds the keys, so the wide rows are not read.
pub(crate) const CLEAR_DELAYED: &str =
    "DELETE FROM delayed WHERE op IN (SELECT seq FROM ops WHERE workflow IN (SELECT value FROM json_each(?1)))";
pub(crate) const CLEAR_READY: &str =
    "DELETE FROM ready WHERE op IN (SELECT seq FROM ops WHERE workflow IN (SELECT value FROM json_each(?1)))";
pub(crate) const CLEAR_LEASES: &str = concat!(
    "DELETE FROM leases WHERE op IN (SELECT seq FROM ops WHERE workflow IN (SELECT value FROM json_each(?1))) RETURNING ",
    lease_columns!()
);

pub(crate) const EXPIRED_LEASES: &str =
    concat!("SELECT ", lease_columns!(), " FROM leases WHERE expires_at_us <= ?1 ORDER BY expires_at_us, op LIMIT ?2 + 0");

pub(crate) const LEASES_OF: &str =
    concat!("SELECT ", lease_columns!(), " FROM leases WHERE op IN (SELECT value FROM json_each(?1)) ORDER BY op");

pub(crate) const ATTEMPTS_BY_LEASE: &str = concat!(
    "SELECT ",
    attempt_columns!(),
    " FROM jsonb_each(?1) AS k
     CROSS JOIN attempts AS a ON a.op = k.value ->> 0 AND a.fence = k.value ->> 2
     WHERE a.token = k.value ->> 1"
);

impl LeaseTx for SqliteTx<'_> {
    fn promote(&mut self, limit: u32) -> StoreResult<u32> {
        self.change(|tx| claim::promote(tx, limit))
    }

    fn open_lanes(&mut self, scan: &LaneScan) -> StoreResult<OpenLanes> {
        self.read(|tx| claim::open_lanes(tx, scan))
    }

    fn lock_gates(&mut self, gates: &[GateKey]) -> StoreResult<Vec<LockedGate>> {
        self.change(|tx| claim::lock_gates(tx, gates))
    }

    fn set_buckets(&mut self, buckets: &[(GateKey, Bucket)]) -> StoreResult<()> {
        self.change(|tx| claim::set_buckets(tx, buckets))
    }

    fn claim_ready(&mut self, claim: &Claim) -> StoreResult<Vec<ClaimedOp>> {
        self.change(|tx| claim::claim_ready(tx, claim))
    }

    fn claimed_by(&mut self, token: LeaseToken) -> StoreResult<Vec<ClaimedOp>> {
        self.read(|tx| claim::claimed_by(tx, token))
    }

    fn extend_leases(&mut self, leases: &[LeaseKey], by: Micros) -> StoreResult<Vec<Lease>> {
        self.change(|tx| {
            let until = after(tx.time(), by)?;
            let mut extended = Vec::new();
            for part in of_leases(leases) {
                let query =
                    statement(EXTEND_LEASES).bind::<BigInt, _>(until.as_micros()).bind::<Text, _>(part).bind::<BigInt, _>(tx.now_us());
                extended.extend(tx.load::<rows::Lease, _>(query)?);
            }
            tx.wrote(extended.len());
            Ok(extended)
        })
    }

    fn dispatch_leases(&mut self, leases: &[LeaseKey]) -> StoreResult<Vec<Lease>> {
        self.change(|tx| {
            let mut dispatched = Vec::new();
            for part in of_leases(leases) {
                let query = statement(DISPATCH_LEASES).bind::<BigInt, _>(tx.now_us()).bind::<Text, _>(part);
                dispatched.extend(tx.load::<rows::Lease, _>(query)?);
            }
            tx.wrote(dispatched.len());
            Ok(dispatched)
        })
    }

    fn take_leases(&mut self, leases: &[LeaseKey], take: Take) -> StoreResult<Taken> {
        let sql = match take {
            Take::Live => TAKE_LIVE,
            Take::Expired => TAKE_EXPIRED,
        };
        self.change(|tx| {
            let mut taken = Vec::new();
            for part in of_leases(leases) {
                let query = statement(sql).bind::<Text, _>(part).bind::<BigInt, _>(tx.now_us());
                taken.extend(tx.load::<rows::Lease, _>(query)?);
            }
            tx.wrote(taken.len());
            Ok(Taken { now: tx.time(), leases: taken })
        })
    }

    fn clear_hot(&mut self, workflows: &[WorkflowSeq]) -> StoreResult<Vec<Lease>> {
        let set = || set::values(workflows.iter().map(|workflow| workflow.0));
        self.change(|tx| {
            tx.execute_set(CLEAR_DELAYED, set())?;
            tx.execute_set(CLEAR_READY, set())?;
            let leases = tx.load_set::<rows::Lease>(CLEAR_LEASES, set())?;
            tx.wrote(leases.len());
            Ok(leases)
        })
    }

    fn expired_leases(&mut self, limit: u32) -> StoreResult<Vec<Lease>> {
        self.read(|tx| {
            let query = statement(EXPIRED_LEASES).bind::<BigInt, _>(tx.now_us()).bind::<BigInt, _>(i64::from(limit));
            tx.load::<rows::Lease, _>(query)
        })
    }

    fn leases_of(&mut self, ops: &[OpSeq]) -> StoreResult<Vec<Lease>> {
        self.read(|tx| tx.load_set::<rows::Lease>(LEASES_OF, of_ops(ops)))
    }

    fn attempts_by_lease(&mut self, leases: &[LeaseKey]) -> StoreResult<Vec<Attempt>> {
        self.read(|tx| tx.load_set::<rows::Attempt>(ATTEMPTS_BY_LEASE, of_leases(leases)))
    }
}

/// `value ->> 0` is the op, 1 the token, 2 the fence. In op order and each once.
fn of_leases(leases: &[LeaseKey]) -> Set {
    let mut keys = leases.to_vec();
    keys.sort_unstable();
    keys.dedup();
    set::rows(keys, |key| cells![key.op.0, key.token.to_string(), key.fence.0])
}

/// The instant at which what begins at `now` ends.
pub(crate) fn after(now: Timestamp, by: Micros) -> StoreResult<Timestamp> {
    now.after(by).map_err(|overflow| StoreError::Rejected(Box::new(overflow)))
}
