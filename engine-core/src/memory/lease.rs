//! Steps on leases and on what waits to be leased.

use super::tables::{ClaimOrder, Tables};
use super::{MemoryTx, count, reject};
use crate::model::{Bucket, GateKey, Lane, LaneKey, LeaseToken, Micros, OpSeq, Timestamp, WorkflowSeq};
use crate::store::rows::{Attempt, Claim, ClaimedOp, LaneScan, Lease, LeaseKey, LockedGate, OpenLane, OpenLanes, QueuedOp, Take, Taken};
use crate::store::{LeaseTx, StoreError, StoreResult};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

impl LeaseTx for MemoryTx<'_> {
    fn promote(&mut self, limit: u32) -> StoreResult<u32> {
        self.change(|tx| {
            let due = tx.tables.delayed_by_due.range(..=(tx.now, OpSeq(i64::MAX)));
            let due: Vec<OpSeq> = due.take(limit as usize).map(|((_, op), ())| *op).collect();
            for op in &due {
                if let Some(queued) = tx.tables.remove_delayed(*op) {
                    tx.tables.insert_ready(queued)?;
                }
            }
            Ok(count(due.len()))
        })
    }

    fn open_lanes(&mut self, scan: &LaneScan) -> StoreResult<OpenLanes> {
        self.read(|tables, now| {
            let mut open = Vec::new();
            let mut after = scan.after;
            while open.len() < scan.limit as usize {
                let Some(key) = next_lane(tables, after) else { break };
                after = Some(key);
                if let Some(lane) = tables.lanes.get(&key).filter(|lane| serves(scan, lane)) {
                    let policy = tables.policy(&lane.site, &lane.queue);
                    let limited = policy.as_ref().is_some_and(|policy| policy.max_in_flight.is_some());
                    let in_flight = if limited { count(tables.in_flight(lane.gate)) } else { 0 };
                    open.push(OpenLane { lane: lane.clone(), policy, in_flight });
                }
            }
            let clock = (!open.is_empty()).then(|| tables.clock_reading(now));
            Ok(OpenLanes { clock, lanes: open })
        })
    }

    fn lock_gates(&mut self, gates: &[GateKey]) -> StoreResult<Vec<LockedGate>> {
        self.change(|tx| {
            let in_order: BTreeSet<GateKey> = gates.iter().copied().collect();
            let known = in_order.iter().filter_map(|gate| Some((*gate, tx.tables.gates.get(gate)?)));
            let locked: Vec<LockedGate> = known
                .map(|(gate, row)| LockedGate {
                    gate,
                    policy: tx.tables.policy(&row.site, &row.queue),
                    in_flight: count(tx.tables.in_flight(gate)),
                    bucket: row.bucket,
                    now: tx.now,
                })
                .collect();
            tx.locked_gates.extend(locked.iter().map(|gate| gate.gate));
            Ok(locked)
        })
    }

    fn set_buckets(&mut self, buckets: &[(GateKey, Bucket)]) -> StoreResult<()> {
        self.change(|tx| {
            for (gate, bucket) in buckets {
                let Some(row) = tx.tables.gates.get(gate).filter(|_| tx.locked_gates.contains(gate)) else {
                    return Err(reject(format!("the bucket of gate {} is set without holding the gate locked", gate.0)));
                };
                let row = super::tables::GateRow { bucket: Some(*bucket), ..row.clone() };
                tx.tables.gates.set(*gate, row);
            }
            Ok(())
        })
    }

    fn claim_ready(&mut self, claim: &Claim) -> StoreResult<Vec<ClaimedOp>> {
        self.change(|tx| {
            let now = tx.now;
            let expires_at = after(now, claim.lease)?;
            let mut claimed = Vec::new();
            for (gate, ops) in choose(&tx.tables, claim, now) {
                for op in ops {
                    let Some(queued) = tx.tables.remove_ready(op) else { continue };
                    let Some(workflow) = tx.tables.ops.get(&op).map(|row| row.new.workflow) else {
                        return Err(reject(format!("op {} is ready and does not exist", op.0)));
                    };
                    let lease = Lease {
                        key: LeaseKey { op, token: claim.token, fence: queued.fence.next() },
                        workflow,
                        gate,
                        worker: claim.worker.clone(),
                        acquired_at: now,
                        expires_at,
                        dispatched_at: None,
                    };
                    claimed.extend(claimed_op(&tx.tables, &lease, Some(queued)));
                    tx.tables.insert_lease(lease)?;
                }
            }
            Ok(claimed)
        })
    }

    fn claimed_by(&mut self, token: LeaseToken) -> StoreResult<Vec<ClaimedOp>> {
        self.read(|tables, _| {
            let leases = tables.leases.iter().map(|(_, lease)| lease).filter(|lease| lease.key.token == token);
            Ok(leases.filter_map(|lease| claimed_op(tables, lease, None)).collect())
        })
    }

    fn extend_leases(&mut self, leases: &[LeaseKey], by: Micros) -> StoreResult<Vec<Lease>> {
        self.change(|tx| {
            let until = after(tx.now, by)?;
            let mut extended = Vec::new();
            for op in exact(&tx.tables, leases) {
                let Some(lease) = tx.tables.leases.get(&op).filter(|lease| is_live(lease, tx.now)).cloned() else { continue };
                tx.tables.remove_lease(op);
                let lease = Lease { expires_at: lease.expires_at.max(until), ..lease };
                tx.tables.insert_lease(lease.clone())?;
                extended.push(lease);
            }
            Ok(extended)
        })
    }

    fn dispatch_leases(&mut self, leases: &[LeaseKey]) -> StoreResult<Vec<Lease>> {
        self.change(|tx| {
            let mut dispatched = Vec::new();
            for op in exact(&tx.tables, leases) {
                let Some(lease) = tx.tables.leases.get(&op).filter(|lease| is_live(lease, tx.now)).cloned() else { continue };
                let lease = Lease { dispatched_at: lease.dispatched_at.or(Some(tx.now)), ..lease };
                tx.tables.leases.set(op, lease.clone());
                dispatched.push(lease);
            }
            Ok(dispatched)
        })
    }

    fn take_leases(&mut self, leases: &[LeaseKey], take: Take) -> StoreResult<Taken> {
        self.change(|tx| {
            let now = tx.now;
            let mut taken = Vec::new();
            for op in exact(&tx.tables, leases) {
                let stands = |lease: &Lease| match take {
                    Take::Live => is_live(lease, now),
                    Take::Expired => lease.expires_at <= now,
                };
                if tx.tables.leases.get(&op).is_some_and(stands) {
                    taken.extend(tx.tables.remove_lease(op));
                }
            }
            Ok(Taken { now, leases: taken })
        })
    }

    fn clear_hot(&mut self, workflows: &[WorkflowSeq]) -> StoreResult<Vec<Lease>> {
        self.change(|tx| {
            let mut leases = Vec::new();
            for workflow in workflows {
                tx.require_lock(*workflow)?;
                let ops: Vec<OpSeq> = tx.tables.ops_of(*workflow).map(|op| op.new.seq).collect();
                for op in ops {
                    tx.tables.remove_delayed(op);
                    tx.tables.remove_ready(op);
                    leases.extend(tx.tables.remove_lease(op));
                }
            }
            Ok(leases)
        })
    }

    fn expired_leases(&mut self, limit: u32) -> StoreResult<Vec<Lease>> {
        self.read(|tables, now| {
            let expired = tables.leases_by_expiry.range(..=(now, OpSeq(i64::MAX))).take(limit as usize);
            Ok(expired.filter_map(|((_, op), ())| tables.leases.get(op)).cloned().collect())
        })
    }

    fn leases_of(&mut self, ops: &[OpSeq]) -> StoreResult<Vec<Lease>> {
        self.read(|tables, _| {
            let distinct: BTreeSet<OpSeq> = ops.iter().copied().collect();
            Ok(distinct.iter().filter_map(|op| tables.leases.get(op)).cloned().collect())
        })
    }

    fn attempts_by_lease(&mut self, leases: &[LeaseKey]) -> StoreResult<Vec<Attempt>> {
        self.read(|tables, _| {
            let distinct: BTreeSet<LeaseKey> = leases.iter().copied().collect();
            let lines = distinct.iter().filter_map(|key| tables.attempts.get(&(key.op, key.fence)).filter(|line| line.key == *key));
            Ok(lines.cloned().collect())
        })
    }
}

/// Whether a lease holds at `now`. At its expiry it does not (T5), and before it was acquired neither (T8).
fn is_live(lease: &Lease, now: Timestamp) -> bool {
    lease.expires_at > now && lease.acquired_at <= now
}

/// The ops of those `keys` whose exact lease is there, in order, each once.
fn exact(tables: &Tables, keys: &[LeaseKey]) -> BTreeSet<OpSeq> {
    keys.iter().filter(|key| tables.leases.get(&key.op).is_some_and(|lease| lease.key == **key)).map(|key| key.op).collect()
}

fn after(now: Timestamp, by: Micros) -> StoreResult<Timestamp> {
    now.after(by).map_err(|overflow| StoreError::Rejected(overflow.into()))
}

/// Of each gate the best due ops of its lanes together, at most as many as its limit says.
fn choose(tables: &Tables, claim: &Claim, now: Timestamp) -> BTreeMap<GateKey, Vec<OpSeq>> {
    let mut gates: BTreeMap<GateKey, (BTreeSet<LaneKey>, usize)> = BTreeMap::new();
    for take in &claim.takes {
        let (lanes, limit) = gates.entry(take.gate).or_default();
        lanes.insert(take.lane);
        *limit = take.limit as usize;
    }
    let best = gates.into_iter().map(|(gate, (lanes, limit))| {
        let mut due: Vec<(Reverse<i32>, Timestamp, OpSeq)> = Vec::new();
        for lane in lanes {
            let in_order = tables.ready_by_lane.range(first_of(lane)..=last_of(lane));
            let of_lane = in_order.map(|((_, priority, due_at, op), ())| (*priority, *due_at, *op));
            due.extend(of_lane.filter(|(_, due_at, _)| *due_at <= now).take(limit));
        }
        due.sort_unstable();
        due.truncate(limit);
        (gate, due.into_iter().map(|(_, _, op)| op).collect())
    });
    best.collect()
}

fn first_of(lane: LaneKey) -> ClaimOrder {
    (lane, Reverse(i32::MAX), Timestamp::MIN, OpSeq(i64::MIN))
}
fn last_of(lane: LaneKey) -> ClaimOrder {
    (lane, Reverse(i32::MIN), Timestamp::MAX, OpSeq(i64::MAX))
}

/// The first lane behind `after` that has an op in `ready`.
fn next_lane(tables: &Tables, after: Option<LaneKey>) -> Option<LaneKey> {
    let from = match after {
        Some(lane) => std::ops::Bound::Excluded(last_of(lane)),
        None => std::ops::Bound::Unbounded,
    };
    tables.ready_by_lane.range((from, std::ops::Bound::Unbounded)).next().map(|((lane, ..), ())| *lane)
}

fn serves(scan: &LaneScan, lane: &Lane) -> bool {
    scan.kinds.as_ref().is_none_or(|kinds| kinds.contains(&lane.kind))
        && lane.agent.as_ref().is_none_or(|agent| scan.agents.contains(agent))
}

/// All a handler needs. `queued` is the `ready` row that was deleted; of a lease found again it is gone.
fn claimed_op(tables: &Tables, lease: &Lease, queued: Option<QueuedOp>) -> Option<ClaimedOp> {
    let row = tables.ops.get(&lease.key.op)?;
    let new = &row.new;
    Some(ClaimedOp {
        lease: lease.clone(),
        workflow_id: tables.workflows.get(&lease.workflow)?.id.clone(),
        op_id: new.id.clone(),
        parent: new.parent.and_then(|parent| Some(tables.ops.get(&parent)?.new.id.clone())),
        kind: new.lane.kind.clone(),
        queue: new.lane.queue.clone(),
        site: new.lane.site.clone(),
        input: new.input.clone(),
        metadata: new.metadata.clone(),
        time_limit: new.time_limit,
        effect: new.retry.effect,
        failures: queued.map_or(row.failures, |queued| queued.failures),
        due_at: queued.map_or(lease.acquired_at, |queued| queued.due_at),
    })
}
