//! Leases ready ops to a worker (Q1, Q2, Q10).

use super::ripple::is_suspect;
use crate::model::{
    AgentName, Bucket, GateKey, KindName, LaneKey, LeaseToken, MICRO_TOKENS, Micros, OpSeq, QueueName, SiteName, WorkerName,
};
use crate::store::rows::{Claim, ClaimedOp, LaneScan, LaneTake, LockedGate, OpenLane, OpenLanes};
use crate::store::{ClockBehind, ClockReading, StoreError, Tx};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Bound;
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
    /// Whether it may get an op that is suspected of killing its workers: it runs none, and gets at most one.
    pub suspects: bool,
    /// Whether an earlier try with this token may have committed: then its leases are taken back first.
    pub repeated: bool,
    /// How far the clock may be behind the latest time that it has shown, before the claim holds.
    pub tolerance: Duration,
}

/// Where a process's next claim begins, so that every lane and gate gets its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClaimCursor {
    /// The last lane looked at; `None` begins from the first.
    lane: Option<LaneKey>,
    /// The last gate that got a slot.
    gate: Option<GateKey>,
    /// The last lane of suspects that was served.
    suspect: Option<LaneKey>,
    /// Claims in a row that left lanes unseen and found nothing.
    fruitless: u32,
}

/// What a claim got.
#[derive(Debug, Clone, Default)]
pub struct ClaimReport {
    /// The leased ops.
    pub ops: Vec<ClaimedOp>,
    /// Those of them that are suspected of killing their workers: at most one.
    pub suspects: Vec<OpSeq>,
    /// Where the next claim begins.
    pub cursor: ClaimCursor,
    /// Whether another claim at once may get more: a gate gave all that was asked of it, or lanes are still unseen.
    pub more: bool,
    /// Queues that had work but no token in their bucket.
    pub rate_limited: Vec<(SiteName, QueueName)>,
    /// How long until the first of those buckets holds a token: a claim then gets more.
    pub next_token_in: Option<Duration>,
    /// The clock cannot be relied on: there was something to claim, and nothing was (T7).
    pub held: Option<ClockBehind>,
}

/// Claims ready ops by round robin over (site, queue), within the limits of their policies; of ops that are suspected of
/// killing their workers at most one, and that only if the worker runs no other (L8).
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
            return taken_back(tx, request, ops);
        }
    }
    let Walk { gates, suspects, cursor, all_seen, clock } = walk(tx, request)?;
    if let Some(Err(behind)) = clock.map(|clock| clock.trusted(request.tolerance)) {
        return Ok(ClaimReport { cursor: request.cursor, held: Some(behind), ..ClaimReport::default() });
    }
    let mut cursor = ClaimCursor { lane: cursor, fruitless: 0, ..request.cursor };
    let suspect = request.suspects.then(|| cursor.next_suspect(&suspects)).flatten();
    let mut slots = allot(&gates, request.capacity.saturating_sub(u32::from(suspect.is_some())), &mut cursor);

    let mut limited: BTreeSet<GateKey> = slots.keys().copied().filter(|gate| gates.get(gate).is_some_and(|gate| gate.limited)).collect();
    limited.extend(suspect.filter(|suspect| suspect.limited).map(|suspect| suspect.gate));
    let limited: Vec<GateKey> = limited.into_iter().collect();
    let mut admission = Admission::of(tx, &limited)?;

    let mut ops = Vec::new();
    if let Some(suspect) = suspect.filter(|suspect| admission.free(suspect.gate) > 0) {
        ops = tx.claim_ready(&request.of(vec![LaneTake { lane: suspect.lane, gate: suspect.gate, limit: 1 }]))?;
        admission.took(&ops);
    }
    let suspects = ops.iter().map(|op| op.lease.key.op).collect();
    for (gate, slot) in &mut slots {
        *slot = (*slot).min(admission.free(*gate));
    }
    let takes: Vec<LaneTake> = slots
        .iter()
        .filter(|(_, limit)| **limit > 0)
        .flat_map(|(gate, limit)| {
            let lanes = gates.get(gate).map(|gate| gate.lanes.as_slice()).unwrap_or_default();
            lanes.iter().map(|lane| LaneTake { lane: *lane, gate: *gate, limit: *limit })
        })
        .collect();
    let mut drained = !ops.is_empty();
    if !takes.is_empty() {
        let together = tx.claim_ready(&request.of(takes))?;
        admission.took(&together);
        let taken = counts(&together);
        drained |= slots.iter().any(|(gate, limit)| *limit > 0 && taken.get(gate) == Some(limit));
        ops.extend(together);
    }
    let (rate_limited, next_token_in) = admission.out_of_tokens();
    let rate_limited = rate_limited.filter_map(|gate| gates.get(&gate)).map(|gate| (gate.site.clone(), gate.queue.clone())).collect();
    tx.set_buckets(&admission.spent())?;

    if ops.is_empty() && !all_seen {
        cursor.fruitless = (request.cursor.fruitless + 1) % FRUITLESS_MAX;
    }
    let walks_on = !all_seen && (!ops.is_empty() || cursor.fruitless > 0);
    Ok(ClaimReport { ops, suspects, cursor, more: walks_on || drained, rate_limited, next_token_in, held: None })
}

/// The leases of a claim whose reply was lost.
fn taken_back(tx: &mut dyn Tx, request: &ClaimRequest, ops: Vec<ClaimedOp>) -> Result<ClaimReport, StoreError> {
    // The rows that told which of them was taken from a lane apart are gone; the ops' own rows tell it as well.
    let seqs: Vec<OpSeq> = ops.iter().map(|op| op.lease.key.op).collect();
    let suspects = tx.ops(&seqs)?.iter().filter(|state| is_suspect(state.losses)).map(|state| state.seq).collect();
    Ok(ClaimReport { ops, suspects, cursor: request.cursor, more: true, ..ClaimReport::default() })
}

impl ClaimRequest {
    fn of(&self, takes: Vec<LaneTake>) -> Claim {
        Claim { token: self.token, worker: self.worker.clone(), lease: self.lease, takes }
    }
}

impl ClaimCursor {
    /// The lane of suspects whose turn it is: the first behind the one that was served last.
    fn next_suspect<'s>(&mut self, suspects: &'s BTreeMap<LaneKey, SuspectLane>) -> Option<&'s SuspectLane> {
        let behind = self.suspect.and_then(|last| suspects.range((Bound::Excluded(last), Bound::Unbounded)).next());
        let (key, lane) = behind.or_else(|| suspects.iter().next())?;
        self.suspect = Some(*key);
        Some(lane)
    }
}

fn counts(ops: &[ClaimedOp]) -> BTreeMap<GateKey, u32> {
    let mut counts = BTreeMap::new();
    for op in ops {
        *counts.entry(op.lease.gate).or_default() += 1;
    }
    counts
}

/// What the limited gates of one claim admit: counted behind their locks, less what the claim has taken since.
struct Admission {
    gates: BTreeMap<GateKey, Admitted>,
}

/// A limited gate; one that another claim holds admits nothing, for that claim serves it.
struct Admitted {
    held: Option<LockedGate>,
    /// Its refilled bucket, if it has a rate.
    bucket: Option<Bucket>,
    taken: u32,
}

impl Admission {
    fn of(tx: &mut dyn Tx, limited: &[GateKey]) -> Result<Self, StoreError> {
        let mut locked: BTreeMap<GateKey, LockedGate> = tx.lock_gates(limited)?.into_iter().map(|held| (held.gate, held)).collect();
        let admitted = limited.iter().map(|gate| {
            let held = locked.remove(gate);
            let rate = held.as_ref().and_then(|held| held.policy.as_ref()).and_then(|policy| policy.rate);
            let bucket = held.as_ref().and_then(|held| rate.map(|rate| rate.refilled(held.bucket, held.now)));
            (*gate, Admitted { held, bucket, taken: 0 })
        });
        Ok(Self { gates: admitted.collect() })
    }

    /// How many ops of `gate` may still be taken.
    fn free(&self, gate: GateKey) -> u32 {
        self.gates.get(&gate).map_or(u32::MAX, Admitted::free)
    }

    fn took(&mut self, ops: &[ClaimedOp]) {
        for (gate, count) in counts(ops) {
            if let Some(admitted) = self.gates.get_mut(&gate) {
                admitted.taken += count;
            }
        }
    }

    /// Gates that had a slot but no token, and how long until the first of them has one.
    fn out_of_tokens(&self) -> (impl Iterator<Item = GateKey>, Option<Duration>) {
        let dry: Vec<(&GateKey, &Admitted)> = self.gates.iter().filter(|(_, gate)| gate.is_dry()).collect();
        let wait = |gate: &Admitted| {
            let rate = gate.held.as_ref().and_then(|held| held.policy.as_ref()).and_then(|policy| policy.rate);
            rate.map(|rate| rate.next_token_in(gate.bucket.as_ref()))
        };
        let next_token_in = dry.iter().filter_map(|(_, gate)| wait(gate)).min();
        let gates: Vec<GateKey> = dry.into_iter().map(|(gate, _)| *gate).collect();
        (gates.into_iter(), next_token_in)
    }

    /// The buckets to store.
    fn spent(&self) -> Vec<(GateKey, Bucket)> {
        let spent = |(gate, admitted): (&GateKey, &Admitted)| {
            let bucket = admitted.bucket?;
            // A bucket that was counted later than now is stored although nothing was taken: else no token would flow
            // until the clock, which went back, has come past that instant again.
            let stored = admitted.held.as_ref().and_then(|held| held.bucket.map(|before| before.counted_at > held.now));
            let changed = admitted.taken > 0 || stored == Some(true);
            let micro_tokens = bucket.micro_tokens - i64::from(admitted.taken) * MICRO_TOKENS;
            changed.then_some((*gate, Bucket { micro_tokens, ..bucket }))
        };
        self.gates.iter().filter_map(spent).collect()
    }
}

impl Admitted {
    fn slots_left(&self) -> u32 {
        let Some(held) = &self.held else { return 0 };
        let most = held.policy.as_ref().and_then(|policy| policy.max_in_flight);
        most.map_or(u32::MAX, |most| most.saturating_sub(held.in_flight))
    }
    fn tokens(&self) -> u32 {
        self.bucket.map_or(u32::MAX, |bucket| u32::try_from(bucket.micro_tokens / MICRO_TOKENS).unwrap_or(u32::MAX))
    }
    fn free(&self) -> u32 {
        self.slots_left().min(self.tokens()).saturating_sub(self.taken)
    }
    /// Whether its bucket alone kept it from giving anything.
    fn is_dry(&self) -> bool {
        self.slots_left() > 0 && self.tokens() == 0
    }
}

/// The lanes of one gate that have work.
#[derive(Debug)]
struct OpenGate {
    site: SiteName,
    queue: QueueName,
    lanes: Vec<LaneKey>,
    limited: bool,
}

/// A lane whose ops are to run apart from each other.
#[derive(Debug, Clone, Copy)]
struct SuspectLane {
    lane: LaneKey,
    gate: GateKey,
    limited: bool,
}

/// What a claim saw.
#[derive(Default)]
struct Walk {
    gates: BTreeMap<GateKey, OpenGate>,
    suspects: BTreeMap<LaneKey, SuspectLane>,
    cursor: Option<LaneKey>,
    all_seen: bool,
    /// As the first look found it; none without lanes.
    clock: Option<ClockReading>,
}

/// Looks at lanes from the cursor on, once around at most, until there are enough gates with room to fill the batch.
fn walk(tx: &mut dyn Tx, request: &ClaimRequest) -> Result<Walk, StoreError> {
    let mut found = Walk::default();
    let mut seen: HashSet<LaneKey> = HashSet::new();
    let start = request.cursor.lane;
    let (mut after, mut wrapped) = (start, start.is_none());
    for _ in 0..WALKS_MAX {
        let scan = LaneScan { after, kinds: request.kinds.clone(), agents: request.agents.clone(), limit: LANES_PER_WALK };
        let OpenLanes { clock, lanes } = tx.open_lanes(&scan)?;
        found.clock = found.clock.or(clock);
        let end_reached = u32::try_from(lanes.len()).is_ok_and(|found| found < LANES_PER_WALK);
        after = lanes.last().map(|open| open.lane.key);
        let mut around = false;
        for open in lanes {
            around |= !seen.insert(open.lane.key);
            if !around {
                found.remember(open);
            }
        }
        if end_reached && wrapped || around {
            return Ok(Walk { all_seen: true, ..found });
        }
        if end_reached {
            (after, wrapped) = (None, true);
        } else if found.gates.len() >= request.capacity as usize {
            break;
        }
    }
    Ok(Walk { cursor: after, ..found })
}

impl Walk {
    /// Keeps a lane whose gate has room, as far as can be told without a lock.
    fn remember(&mut self, open: OpenLane) {
        let most = open.policy.as_ref().and_then(|policy| policy.max_in_flight);
        if most.is_some_and(|most| open.in_flight >= most) {
            return;
        }
        let limited = open.policy.is_some_and(|policy| policy.max_in_flight.is_some() || policy.rate.is_some());
        let lane = open.lane;
        if lane.key.is_apart() {
            self.suspects.insert(lane.key, SuspectLane { lane: lane.key, gate: lane.gate, limited });
            return;
        }
        let gate = OpenGate { site: lane.site, queue: lane.queue, lanes: Vec::new(), limited };
        self.gates.entry(lane.gate).or_insert(gate).lanes.push(lane.key);
    }
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
