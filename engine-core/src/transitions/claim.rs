//! Leases ready ops to a worker (Q1, Q2, Q10).

use crate::model::{AgentName, Bucket, GateKey, KindName, LaneKey, LeaseToken, MICRO_TOKENS, Micros, QueueName, SiteName, WorkerName};
use crate::store::rows::{Claim, ClaimedOp, LaneScan, LaneTake, LockedGate, OpenLane};
use crate::store::{StoreError, Tx};
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

/// Lanes looked at in one read: enough to fill a batch, few enough to stay within a millisecond.
const LANES_PER_WALK: u32 = 64;
/// Walks of one claim: past a thousand full lanes the next claim goes on from its cursor.
const WALKS_MAX: u32 = 16;
/// Fruitless claims in a row that ask for another at once: past sixteen thousand full lanes a worker waits for its poll
/// instead of walking without rest.
const FRUITLESS_MAX: u32 = 16;

/// What a worker asks for.
#[derive(Debug, Clone)]
pub struct ClaimRequest {
    /// The token of every lease it gets, made before the first try.
    pub token: LeaseToken,
    /// Who asks.
    pub worker: WorkerName,
    /// How long the leases last.
    pub lease: Micros,
    /// At most this many ops.
    pub capacity: u32,
    /// Only ops of these kinds; `None` is every kind.
    pub kinds: Option<Vec<KindName>>,
    /// Only ops that name no agent or one of these.
    pub agents: Vec<AgentName>,
    /// Where the last claim of this process ended.
    pub cursor: ClaimCursor,
    /// Whether an earlier try with this token may have committed: then its leases are taken back first.
    pub repeated: bool,
}

/// Where a process's next claim begins, so that every lane and gate gets its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClaimCursor {
    /// The last lane looked at; `None` begins from the first.
    lane: Option<LaneKey>,
    /// The last gate that got a slot.
    gate: Option<GateKey>,
    /// Claims in a row that left lanes unseen and found nothing.
    fruitless: u32,
}

/// What a claim got.
#[derive(Debug, Clone, Default)]
pub struct ClaimReport {
    /// The leased ops.
    pub ops: Vec<ClaimedOp>,
    /// Where the next claim begins.
    pub cursor: ClaimCursor,
    /// Whether another claim at once may get more: a gate gave all that was asked of it, or lanes are still unseen.
    pub more: bool,
    /// Queues that had work but no token in their bucket.
    pub rate_limited: Vec<(SiteName, QueueName)>,
    /// How long until the first of those buckets holds a token: a claim then gets more.
    pub next_token_in: Option<Duration>,
}

/// Claims ready ops by round robin over (site, queue), within the limits of their policies.
///
/// # Locks
/// The gates of limited lanes, then `ready` rows, all skipping what others hold: it never waits.
///
/// # Errors
/// [`StoreError`]; nothing was leased, unless it is [`StoreError::Unavailable`]: then repeat with the same token and
/// [`repeated`](ClaimRequest::repeated) set.
pub fn claim(tx: &mut dyn Tx, request: &ClaimRequest) -> Result<ClaimReport, StoreError> {
    if request.repeated {
        let ops = tx.claimed_by(request.token)?;
        if !ops.is_empty() {
            return Ok(ClaimReport { ops, cursor: request.cursor, more: true, ..ClaimReport::default() });
        }
    }
    let Walk { gates, cursor, all_seen } = walk(tx, request)?;
    let mut cursor = ClaimCursor { lane: cursor, gate: request.cursor.gate, fruitless: 0 };
    let mut slots = allot(&gates, request.capacity, &mut cursor);

    let limited: Vec<GateKey> = slots.keys().copied().filter(|gate| gates.get(gate).is_some_and(|gate| gate.limited)).collect();
    let locked: BTreeMap<GateKey, LockedGate> = tx.lock_gates(&limited)?.into_iter().map(|held| (held.gate, held)).collect();
    let (mut rate_limited, mut next_token_in) = (Vec::new(), None);
    let mut buckets: BTreeMap<GateKey, Bucket> = BTreeMap::new();
    for gate in &limited {
        // A gate that another claim holds is passed over: that claim serves it.
        let held = locked.get(gate);
        let free = held.map_or(0, |held| free_slots(held, &mut buckets));
        if let (Some(held), 0) = (held, free)
            && in_flight_left(held) > 0
        {
            rate_limited.extend(gates.get(gate).map(|gate| (gate.site.clone(), gate.queue.clone())));
            let wait = held.policy.as_ref().and_then(|policy| policy.rate).map(|rate| rate.next_token_in(buckets.get(gate)));
            next_token_in = [next_token_in, wait].into_iter().flatten().min();
        }
        if let Some(slot) = slots.get_mut(gate) {
            *slot = (*slot).min(free);
        }
    }
    let takes: Vec<LaneTake> = slots
        .iter()
        .filter(|(_, limit)| **limit > 0)
        .flat_map(|(gate, limit)| {
            let lanes = gates.get(gate).map(|gate| gate.lanes.as_slice()).unwrap_or_default();
            lanes.iter().map(|lane| LaneTake { lane: *lane, gate: *gate, limit: *limit })
        })
        .collect();
    let ops = if takes.is_empty() {
        Vec::new()
    } else {
        tx.claim_ready(&Claim { token: request.token, worker: request.worker.clone(), lease: request.lease, takes })?
    };

    let mut taken: BTreeMap<GateKey, u32> = BTreeMap::new();
    for op in &ops {
        *taken.entry(op.lease.gate).or_default() += 1;
    }
    // A bucket that was counted later than now is stored although nothing was taken: else no token would flow until the
    // clock, which went back, has come past that instant again.
    let ahead = |gate: &GateKey| {
        let held = locked.get(gate);
        held.is_some_and(|held| held.bucket.is_some_and(|bucket| bucket.counted_at > held.now))
    };
    let spent: Vec<(GateKey, Bucket)> = buckets
        .into_iter()
        .filter(|(gate, _)| taken.contains_key(gate) || ahead(gate))
        .map(|(gate, bucket)| {
            let ops = taken.get(&gate).copied().map_or(0, i64::from);
            (gate, Bucket { micro_tokens: bucket.micro_tokens - ops * MICRO_TOKENS, ..bucket })
        })
        .collect();
    tx.set_buckets(&spent)?;
    let drained = |(gate, limit): (&GateKey, &u32)| *limit > 0 && taken.get(gate) == Some(limit);
    if ops.is_empty() && !all_seen {
        cursor.fruitless = (request.cursor.fruitless + 1) % FRUITLESS_MAX;
    }
    let walks_on = !all_seen && (!ops.is_empty() || cursor.fruitless > 0);
    let more = walks_on || slots.iter().any(drained);
    Ok(ClaimReport { ops, cursor, more, rate_limited, next_token_in })
}

/// The lanes of one gate that have work.
#[derive(Debug)]
struct OpenGate {
    site: SiteName,
    queue: QueueName,
    lanes: Vec<LaneKey>,
    limited: bool,
}

struct Walk {
    gates: BTreeMap<GateKey, OpenGate>,
    cursor: Option<LaneKey>,
    all_seen: bool,
}

/// Looks at lanes from the cursor on, once around at most, until there are enough gates with room to fill the batch.
fn walk(tx: &mut dyn Tx, request: &ClaimRequest) -> Result<Walk, StoreError> {
    let mut gates: BTreeMap<GateKey, OpenGate> = BTreeMap::new();
    let mut seen: HashSet<LaneKey> = HashSet::new();
    let start = request.cursor.lane;
    let (mut after, mut wrapped) = (start, start.is_none());
    for _ in 0..WALKS_MAX {
        let scan = LaneScan { after, kinds: request.kinds.clone(), agents: request.agents.clone(), limit: LANES_PER_WALK };
        let lanes = tx.open_lanes(&scan)?;
        let end_reached = u32::try_from(lanes.len()).is_ok_and(|found| found < LANES_PER_WALK);
        after = lanes.last().map(|open| open.lane.key);
        let mut around = false;
        for open in lanes {
            around |= !seen.insert(open.lane.key);
            if !around {
                remember(&mut gates, open);
            }
        }
        if end_reached && wrapped || around {
            return Ok(Walk { gates, cursor: None, all_seen: true });
        }
        if end_reached {
            (after, wrapped) = (None, true);
        } else if gates.len() >= request.capacity as usize {
            break;
        }
    }
    Ok(Walk { gates, cursor: after, all_seen: false })
}

/// Keeps a lane whose gate has room, as far as can be told without a lock.
fn remember(gates: &mut BTreeMap<GateKey, OpenGate>, open: OpenLane) {
    let most = open.policy.as_ref().and_then(|policy| policy.max_in_flight);
    if most.is_some_and(|most| open.in_flight >= most) {
        return;
    }
    let limited = open.policy.is_some_and(|policy| policy.max_in_flight.is_some() || policy.rate.is_some());
    let lane = open.lane;
    let gate = gates.entry(lane.gate).or_insert_with(|| OpenGate { site: lane.site, queue: lane.queue, lanes: Vec::new(), limited });
    gate.lanes.push(lane.key);
}

/// Deals `capacity` slots out to the gates in turn, beginning behind the gate that got the last one.
fn allot(gates: &BTreeMap<GateKey, OpenGate>, capacity: u32, cursor: &mut ClaimCursor) -> BTreeMap<GateKey, u32> {
    let mut order: Vec<GateKey> = gates.keys().copied().collect();
    let first = cursor.gate.map_or(0, |last| order.partition_point(|gate| *gate <= last));
    let turn = if first == order.len() { 0 } else { first };
    order.rotate_left(turn);
    let Ok(count) = u32::try_from(order.len()) else { return BTreeMap::new() };
    if count == 0 {
        return BTreeMap::new();
    }
    let (each, rest) = (capacity / count, capacity % count);
    if rest > 0 {
        cursor.gate = order.get(rest as usize - 1).copied();
    }
    let dealt = order.into_iter().zip(0_u32..).map(|(gate, turn)| (gate, each + u32::from(turn < rest)));
    dealt.filter(|(_, slots)| *slots > 0).collect()
}

fn in_flight_left(gate: &LockedGate) -> u32 {
    gate.policy.as_ref().and_then(|policy| policy.max_in_flight).map_or(u32::MAX, |most| most.saturating_sub(gate.in_flight))
}

/// How many ops a locked gate admits now; remembers its refilled bucket.
fn free_slots(gate: &LockedGate, buckets: &mut BTreeMap<GateKey, Bucket>) -> u32 {
    let left = in_flight_left(gate);
    let Some(rate) = gate.policy.as_ref().and_then(|policy| policy.rate) else {
        return left;
    };
    let bucket = rate.refilled(gate.bucket, gate.now);
    buckets.insert(gate.gate, bucket);
    left.min(u32::try_from(bucket.micro_tokens / MICRO_TOKENS).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gates(n: i64) -> BTreeMap<GateKey, OpenGate> {
        let gate = |key| {
            (GateKey(key), OpenGate { site: SiteName::default(), queue: QueueName::default(), lanes: vec![LaneKey(key)], limited: false })
        };
        (1..=n).map(gate).collect()
    }

    #[test]
    fn slots_are_dealt_in_turn_and_the_turn_goes_on() {
        let mut cursor = ClaimCursor::default();
        let mut got: BTreeMap<GateKey, u32> = BTreeMap::new();
        for _ in 0..6 {
            for (gate, slots) in allot(&gates(3), 2, &mut cursor) {
                *got.entry(gate).or_default() += slots;
            }
        }
        assert_eq!(got.into_values().collect::<Vec<_>>(), [4, 4, 4]);
    }

    #[test]
    fn a_batch_is_shared_and_its_rest_dealt_from_the_turn() {
        let mut cursor = ClaimCursor { gate: Some(GateKey(2)), ..ClaimCursor::default() };
        assert_eq!(allot(&gates(3), 7, &mut cursor), BTreeMap::from([(GateKey(1), 2), (GateKey(2), 2), (GateKey(3), 3)]));
        assert_eq!(allot(&gates(0), 7, &mut cursor), BTreeMap::new());
    }
}
