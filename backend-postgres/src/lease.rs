//! Steps on leases.

use crate::graph::{ops, workflows};
use crate::tx::PgTx;
use diesel::QueryableByName;
use diesel::sql_types::{Array, BigInt, Text};
use leasehold_core::model::{Bucket, GateKey, LeaseToken, Micros, OpSeq, Timestamp, WorkflowSeq};
use leasehold_core::store::rows::{Attempt, Claim, ClaimedOp, LaneScan, Lease, LeaseKey, LockedGate, OpenLanes, Take, Taken};
use leasehold_core::store::{LeaseTx, StoreError, StoreResult, Tx};
use leasehold_sql::rows::Row;
use leasehold_sql::{attempt_columns, lease_columns, rows, statement};

/// The leases named, locked in op order; the time, read behind those locks (beside FOR UPDATE, a clock is asked before the
/// wait: the count must be done before its one row exists, and the clock is asked for that row); and those of them for
/// which `$stands` is true then. They are handed on as an array: joined, the planner, which knows no sizes here, may
/// compare each with each.
macro_rules! standing {
    ($stands:literal) => {
        concat!(
            "WITH held AS MATERIALIZED (
                 SELECT l.op, l.acquired_at_us, l.expires_at_us
                   FROM unnest($1, $2, $3) AS k (op, token, fence)
                   JOIN leases AS l ON l.op = k.op AND l.token = k.token AND l.fence = k.fence
                  ORDER BY l.op FOR UPDATE OF l),
             clock AS MATERIALIZED (
                 SELECT now_us() AS us FROM (SELECT count(*) AS locked FROM held) AS counted WHERE counted.locked >= 0),
             standing AS MATERIALIZED (SELECT held.op FROM held CROSS JOIN clock WHERE ",
            $stands,
            ")"
        )
    };
    (live) => {
        standing!("held.expires_at_us > clock.us AND held.acquired_at_us <= clock.us")
    };
    (expired) => {
        standing!("held.expires_at_us <= clock.us")
    };
}

pub(crate) const EXTEND_LEASES: &str = concat!(
    standing!(live),
    " UPDATE leases AS l SET expires_at_us = greatest(l.expires_at_us, clock.us + $4)
        FROM clock
       WHERE l.op = ANY(ARRAY(SELECT op FROM standing))
      RETURNING l.op, l.workflow, l.gate, l.token, l.fence, l.worker, l.acquired_at_us, l.expires_at_us,
                l.dispatched_at_us"
);

pub(crate) const DISPATCH_LEASES: &str = concat!(
    standing!(live),
    " UPDATE leases AS l SET dispatched_at_us = coalesce(l.dispatched_at_us, clock.us)
        FROM clock
       WHERE l.op = ANY(ARRAY(SELECT op FROM standing))
      RETURNING l.op, l.workflow, l.gate, l.token, l.fence, l.worker, l.acquired_at_us, l.expires_at_us,
                l.dispatched_at_us"
);

/// What deletes the leases that stand and tells when that was judged.
macro_rules! delete_standing {
    () => {
        " DELETE FROM leases AS l USING clock
           WHERE l.op = ANY(ARRAY(SELECT op FROM standing))
          RETURNING l.op, l.workflow, l.gate, l.token, l.fence, l.worker, l.acquired_at_us, l.expires_at_us,
                    l.dispatched_at_us, clock.us AS judged_at_us"
    };
}
pub(crate) const TAKE_LIVE_LEASES: &str = concat!(standing!(live), delete_standing!());
pub(crate) const TAKE_EXPIRED_LEASES: &str = concat!(standing!(expired), delete_standing!());

pub(crate) const CLEAR_DELAYED: &str = "
    WITH held AS MATERIALIZED (
        SELECT op FROM delayed WHERE op = ANY(ARRAY(SELECT seq FROM ops WHERE workflow = ANY($1)))
         ORDER BY op FOR UPDATE)
    DELETE FROM delayed WHERE op = ANY(ARRAY(SELECT op FROM held))";
pub(crate) const CLEAR_READY: &str = "
    WITH held AS MATERIALIZED (
        SELECT op FROM ready WHERE op = ANY(ARRAY(SELECT seq FROM ops WHERE workflow = ANY($1)))
         ORDER BY op FOR UPDATE)
    DELETE FROM ready WHERE op = ANY(ARRAY(SELECT op FROM held))";
pub(crate) const CLEAR_LEASES: &str = concat!(
    "WITH held AS MATERIALIZED (
         SELECT op FROM leases WHERE workflow = ANY($1) ORDER BY op FOR UPDATE)
     DELETE FROM leases WHERE op = ANY(ARRAY(SELECT op FROM held)) RETURNING ",
    lease_columns!()
);

pub(crate) const EXPIRED_LEASES: &str =
    concat!("SELECT ", lease_columns!(), " FROM leases WHERE expires_at_us <= (SELECT now_us()) ORDER BY expires_at_us, op LIMIT $1");

pub(crate) const LEASES_OF: &str = concat!("SELECT ", lease_columns!(), " FROM leases WHERE op = ANY($1) ORDER BY op");

pub(crate) const ATTEMPTS_BY_LEASE: &str = concat!(
    "SELECT ",
    attempt_columns!(),
    " FROM (SELECT DISTINCT op, token, fence FROM unnest($1, $2, $3) AS k (op, token, fence)) AS k
      JOIN attempts AS a ON a.op = k.op AND a.fence = k.fence AND a.token = k.token
     ORDER BY a.op, a.fence"
);

// The `ready` rows are gone: failures and due time are what the lease's beginning left behind.
const CLAIMED_BY: &str = "
    SELECT le.op, le.workflow, le.gate, le.token, le.fence, le.worker, le.acquired_at_us, le.expires_at_us,
           le.dispatched_at_us, w.id AS workflow_id, o.id AS op_id, p.id AS parent_id, l.kind, l.queue, l.site, o.input, o.metadata,
           o.time_limit_us, o.retry, o.failures, le.acquired_at_us AS due_at_us
      FROM leases AS le
      JOIN ops AS o ON o.seq = le.op
      JOIN workflows AS w ON w.seq = le.workflow
      JOIN lanes AS l ON l.key = o.lane
      LEFT JOIN ops AS p ON p.seq = o.parent
     WHERE le.token = $1
     ORDER BY le.op";

/// A lease that was taken away, and when it was judged.
#[derive(QueryableByName)]
struct TakenLease {
    #[diesel(embed)]
    lease: rows::Lease,
    #[diesel(sql_type = BigInt)]
    judged_at_us: i64,
}

/// The three parts of lease keys, as parameters.
type Keys = (Vec<i64>, Vec<String>, Vec<i64>);

fn keys(leases: &[LeaseKey]) -> Keys {
    (
        leases.iter().map(|key| key.op.0).collect(),
        leases.iter().map(|key| key.token.to_string()).collect(),
        leases.iter().map(|key| key.fence.0).collect(),
    )
}

impl LeaseTx for PgTx<'_> {
    fn promote(&mut self, limit: u32) -> StoreResult<u32> {
        self.promote_due(limit)
    }

    fn open_lanes(&mut self, scan: &LaneScan) -> StoreResult<OpenLanes> {
        self.walk_lanes(scan)
    }

    fn lock_gates(&mut self, gates: &[GateKey]) -> StoreResult<Vec<LockedGate>> {
        self.lock_and_count_gates(gates)
    }

    fn set_buckets(&mut self, buckets: &[(GateKey, Bucket)]) -> StoreResult<()> {
        self.store_buckets(buckets)
    }

    fn claim_ready(&mut self, claim: &Claim) -> StoreResult<Vec<ClaimedOp>> {
        self.claim(claim)
    }

    fn claimed_by(&mut self, token: LeaseToken) -> StoreResult<Vec<ClaimedOp>> {
        self.load::<rows::Claimed, _>(statement(CLAIMED_BY).bind::<Text, _>(token.to_string()))
    }

    fn extend_leases(&mut self, leases: &[LeaseKey], by: Micros) -> StoreResult<Vec<Lease>> {
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        let (ops, tokens, fences) = keys(leases);
        let query = statement(self.sql(EXTEND_LEASES))
            .bind::<Array<BigInt>, _>(ops)
            .bind::<Array<Text>, _>(tokens)
            .bind::<Array<BigInt>, _>(fences)
            .bind::<BigInt, _>(by.get());
        let mut extended = self.load::<rows::Lease, _>(query)?;
        extended.sort_unstable_by_key(|lease| lease.key.op);
        Ok(extended)
    }

    fn dispatch_leases(&mut self, leases: &[LeaseKey]) -> StoreResult<Vec<Lease>> {
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        let (ops, tokens, fences) = keys(leases);
        let query =
            statement(DISPATCH_LEASES).bind::<Array<BigInt>, _>(ops).bind::<Array<Text>, _>(tokens).bind::<Array<BigInt>, _>(fences);
        self.load::<rows::Lease, _>(query)
    }

    fn take_leases(&mut self, leases: &[LeaseKey], take: Take) -> StoreResult<Taken> {
        let mut taken = Taken { now: Timestamp::MIN, leases: Vec::new() };
        if !leases.is_empty() {
            let sql = match take {
                Take::Live => TAKE_LIVE_LEASES,
                Take::Expired => TAKE_EXPIRED_LEASES,
            };
            let (ops, tokens, fences) = keys(leases);
            let query =
                statement(self.sql(sql)).bind::<Array<BigInt>, _>(ops).bind::<Array<Text>, _>(tokens).bind::<Array<BigInt>, _>(fences);
            let rows: Vec<TakenLease> = self.rows(query)?;
            for row in rows {
                let read = row.lease.read().and_then(|lease| Ok((lease, instant(row.judged_at_us)?)));
                let (lease, now) = read.map_err(|error| self.fail(error))?;
                taken.now = now;
                taken.leases.push(lease);
            }
        }
        if taken.leases.is_empty() {
            // Nothing stood as asked, so no row tells when that was judged; now is behind the locks as well.
            taken.now = self.now()?;
        }
        taken.leases.sort_unstable_by_key(|lease| lease.key.op);
        Ok(taken)
    }

    fn clear_hot(&mut self, seqs: &[WorkflowSeq]) -> StoreResult<Vec<Lease>> {
        if seqs.is_empty() {
            return Ok(Vec::new());
        }
        for workflow in seqs {
            self.require("workflow", self.workflows.contains(&workflow.0), &workflow.0)?;
        }
        // Work flows from `delayed` to `ready` to `leases`: what slips forward is seen by the next statement.
        for sql in [CLEAR_DELAYED, CLEAR_READY] {
            self.execute(statement(self.sql(sql)).bind::<Array<BigInt>, _>(workflows(seqs)))?;
        }
        let mut cleared = self.load::<rows::Lease, _>(statement(self.sql(CLEAR_LEASES)).bind::<Array<BigInt>, _>(workflows(seqs)))?;
        cleared.sort_unstable_by_key(|lease| lease.key.op);
        Ok(cleared)
    }

    fn expired_leases(&mut self, limit: u32) -> StoreResult<Vec<Lease>> {
        self.load::<rows::Lease, _>(statement(EXPIRED_LEASES).bind::<BigInt, _>(i64::from(limit)))
    }

    fn leases_of(&mut self, seqs: &[OpSeq]) -> StoreResult<Vec<Lease>> {
        if seqs.is_empty() {
            return Ok(Vec::new());
        }
        self.load::<rows::Lease, _>(statement(LEASES_OF).bind::<Array<BigInt>, _>(ops(seqs)))
    }

    fn attempts_by_lease(&mut self, leases: &[LeaseKey]) -> StoreResult<Vec<Attempt>> {
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        let (ops, tokens, fences) = keys(leases);
        let query =
            statement(ATTEMPTS_BY_LEASE).bind::<Array<BigInt>, _>(ops).bind::<Array<Text>, _>(tokens).bind::<Array<BigInt>, _>(fences);
        self.load::<rows::Attempt, _>(query)
    }
}

fn instant(micros: i64) -> StoreResult<Timestamp> {
    Timestamp::from_micros(micros).map_err(|error| StoreError::Rejected(error.into()))
}
