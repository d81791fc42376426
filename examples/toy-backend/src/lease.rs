//! Steps on leases and on what waits to be leased.

use crate::store::ToyTx;
use crate::tables::{Tables, insert_new, rejected};
use leasehold_core::model::{Bucket, GateKey, Lane, LaneKey, LeaseToken, Micros, OpSeq, Timestamp, WorkflowSeq};
use leasehold_core::store::rows::{
    Attempt, Claim, ClaimedOp, LaneScan, Lease, LeaseKey, LockedGate, OpenLane, OpenLanes, QueuedOp, Take, Taken,
};
use leasehold_core::store::{LeaseTx, StoreResult};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

impl LeaseTx for ToyTx {
    fn promote(&mut self, limit: u32) -> StoreResult<u32> {
        self.change(|tables, now| {
            let mut due: Vec<QueuedOp> = tables.delayed.values().filter(|queued| queued.due_at <= now).copied().collect();
            due.sort_by_key(|queued| (queued.due_at, queued.op));
            due.truncate(size(limit));
            for queued in &due {
                tables.delayed.remove(&queued.op);
                insert_new(&mut tables.ready, queued.op, *queued, "a ready op")?;
            }
            count(due.len())
        })
    }

    fn open_lanes(&mut self, scan: &LaneScan) -> StoreResult<OpenLanes> {
        self.read(|tables, now| {
            let with_work: BTreeSet<LaneKey> = tables.ready.values().map(|queued| queued.lane).collect();
            let lanes = with_work.iter().filter(|lane| scan.after.is_none_or(|after| **lane > after));
            let lanes = lanes.filter_map(|lane| tables.lanes.get(lane)).filter(|lane| serves(scan, lane));
            let lanes = lanes.take(size(scan.limit)).map(|lane| open_lane(tables, lane)).collect::<StoreResult<Vec<OpenLane>>>()?;
            Ok(OpenLanes { clock: (!lanes.is_empty()).then(|| tables.clock.at(now)), lanes })
        })
    }

    fn lock_gates(&mut self, gates: &[GateKey]) -> StoreResult<Vec<LockedGate>> {
        let wanted: BTreeSet<GateKey> = gates.iter().copied().collect();
        self.read(|tables, now| {
            // Lanes make their gates known; several share one.
            let of_gate: BTreeMap<GateKey, &Lane> = tables.lanes.values().map(|lane| (lane.gate, lane)).collect();
            let known = wanted.iter().filter_map(|gate| of_gate.get(gate));
            known
                .map(|lane| {
                    Ok(LockedGate {
                        gate: lane.gate,
                        policy: tables.policy(&lane.site, &lane.queue).cloned(),
                        in_flight: count(tables.in_flight(lane.gate))?,
                        bucket: tables.buckets.get(&lane.gate).copied(),
                        now,
                    })
                })
                .collect()
        })
    }

    fn set_buckets(&mut self, buckets: &[(GateKey, Bucket)]) -> StoreResult<()> {
        self.change(|tables, _| {
            tables.buckets.extend(buckets.iter().copied());
            Ok(())
        })
    }

    fn claim_ready(&mut self, claim: &Claim) -> StoreResult<Vec<ClaimedOp>> {
        self.change(|tables, now| {
            let expires_at = now.after(claim.lease).map_err(|error| rejected(error.to_string()))?;
            let mut gates: BTreeMap<GateKey, (usize, BTreeSet<LaneKey>)> = BTreeMap::new();
            for take in &claim.takes {
                gates.entry(take.gate).or_insert_with(|| (size(take.limit), BTreeSet::new())).1.insert(take.lane);
            }
            let mut claimed = Vec::new();
            for (gate, (limit, lanes)) in gates {
                for queued in best(tables, &lanes, now, limit) {
                    tables.ready.remove(&queued.op);
                    let lease = Lease {
                        key: LeaseKey { op: queued.op, token: claim.token, fence: queued.fence.next() },
                        workflow: tables.op(queued.op)?.row.workflow,
                        gate,
                        worker: claim.worker.clone(),
                        acquired_at: now,
                        expires_at,
                        dispatched_at: None,
                    };
                    // The handler hears what the `ready` row said; an op's row may be older.
                    claimed.push(ClaimedOp { failures: queued.failures, due_at: queued.due_at, ..tables.claimed(&lease)? });
                    insert_new(&mut tables.leases, queued.op, lease, "a lease")?;
                }
            }
            Ok(claimed)
        })
    }

    fn claimed_by(&mut self, token: LeaseToken) -> StoreResult<Vec<ClaimedOp>> {
        self.read(|tables, _| {
            let mine = tables.leases.values().filter(|lease| lease.key.token == token);
            mine.map(|lease| tables.claimed(lease)).collect()
        })
    }

    fn extend_leases(&mut self, leases: &[LeaseKey], by: Micros) -> StoreResult<Vec<Lease>> {
        self.change(|tables, now| {
            let until = now.after(by).map_err(|error| rejected(error.to_string()))?;
            let mut extended = Vec::new();
            for op in named(tables, leases, |lease| holds(lease, now)) {
                if let Some(lease) = tables.leases.get_mut(&op) {
                    lease.expires_at = lease.expires_at.max(until);
                    extended.push(lease.clone());
                }
            }
            Ok(extended)
        })
    }

    fn dispatch_leases(&mut self, leases: &[LeaseKey]) -> StoreResult<Vec<Lease>> {
        self.change(|tables, now| {
            let mut dispatched = Vec::new();
            for op in named(tables, leases, |lease| holds(lease, now)) {
                if let Some(lease) = tables.leases.get_mut(&op) {
                    lease.dispatched_at.get_or_insert(now);
                    dispatched.push(lease.clone());
                }
            }
            Ok(dispatched)
        })
    }

    fn take_leases(&mut self, leases: &[LeaseKey], take: Take) -> StoreResult<Taken> {
        self.change(|tables, now| {
            let stands = |lease: &Lease| match take {
                Take::Live => holds(lease, now),
                Take::Expired => lease.expires_at <= now,
            };
            let ops = named(tables, leases, stands);
            Ok(Taken { now, leases: ops.iter().filter_map(|op| tables.leases.remove(op)).collect() })
        })
    }

    fn clear_hot(&mut self, workflows: &[WorkflowSeq]) -> StoreResult<Vec<Lease>> {
        self.change(|tables, _| {
            let of_workflows = tables.ops.values().filter(|op| workflows.contains(&op.row.workflow));
            let ops: Vec<OpSeq> = of_workflows.map(|op| op.row.seq).collect();
            for op in &ops {
                tables.delayed.remove(op);
                tables.ready.remove(op);
            }
            Ok(ops.iter().filter_map(|op| tables.leases.remove(op)).collect())
        })
    }

    fn expired_leases(&mut self, limit: u32) -> StoreResult<Vec<Lease>> {
        self.read(|tables, now| {
            let mut expired: Vec<Lease> = tables.leases.values().filter(|lease| lease.expires_at <= now).cloned().collect();
            expired.sort_by_key(|lease| (lease.expires_at, lease.key.op));
            expired.truncate(size(limit));
            Ok(expired)
        })
    }

    fn leases_of(&mut self, ops: &[OpSeq]) -> StoreResult<Vec<Lease>> {
        let ops: BTreeSet<&OpSeq> = ops.iter().collect();
        self.read(|tables, _| Ok(ops.into_iter().filter_map(|op| tables.leases.get(op)).cloned().collect()))
    }

    fn attempts_by_lease(&mut self, leases: &[LeaseKey]) -> StoreResult<Vec<Attempt>> {
        let leases: BTreeSet<&LeaseKey> = leases.iter().collect();
        self.read(|tables, _| {
            let lines = leases.into_iter().filter_map(|key| tables.attempts.get(&(key.op, key.fence)).filter(|line| line.key == *key));
            Ok(lines.cloned().collect())
        })
    }
}

/// A lease holds at an instant before its expiry, unless the clock went back behind its beginning.
fn holds(lease: &Lease, now: Timestamp) -> bool {
    lease.expires_at > now && lease.acquired_at <= now
}

/// The ops whose lease is exactly one of `leases` and stands as wanted.
fn named(tables: &Tables, leases: &[LeaseKey], stands: impl Fn(&Lease) -> bool) -> BTreeSet<OpSeq> {
    let lease_of = |key: &&LeaseKey| tables.leases.get(&key.op).is_some_and(|lease| lease.key == **key && stands(lease));
    leases.iter().filter(lease_of).map(|key| key.op).collect()
}

/// Whether a worker that scans so may run this lane's ops.
fn serves(scan: &LaneScan, lane: &Lane) -> bool {
    scan.kinds.as_ref().is_none_or(|kinds| kinds.contains(&lane.kind))
        && lane.agent.as_ref().is_none_or(|agent| scan.agents.contains(agent))
}

fn open_lane(tables: &Tables, lane: &Lane) -> StoreResult<OpenLane> {
    let policy = tables.policy(&lane.site, &lane.queue).cloned();
    let limited = policy.as_ref().is_some_and(|policy| policy.max_in_flight.is_some());
    let in_flight = if limited { count(tables.in_flight(lane.gate))? } else { 0 };
    Ok(OpenLane { lane: lane.clone(), policy, in_flight })
}

/// What is claimed first of these lanes of one gate.
fn best(tables: &Tables, lanes: &BTreeSet<LaneKey>, now: Timestamp, limit: usize) -> Vec<QueuedOp> {
    let due = tables.ready.values().filter(|queued| lanes.contains(&queued.lane) && queued.due_at <= now);
    let mut due: Vec<QueuedOp> = due.copied().collect();
    due.sort_by_key(|queued| (Reverse(queued.priority), queued.due_at, queued.op));
    due.truncate(limit);
    due
}

pub(crate) fn size(limit: u32) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

fn count(rows: usize) -> StoreResult<u32> {
    u32::try_from(rows).map_err(|_| rejected("more rows than a count holds"))
}
