//! Statements that look for work and take it. None of them ever waits for a row.

use crate::tx::PgTx;
use diesel::QueryableByName;
use diesel::sql_types::{Array, BigInt, Nullable, Text};
use leasehold_core::model::{AgentName, GateKey, KindName, LaneKey, Timestamp};
use leasehold_core::store::rows::{Claim, ClaimedOp, LaneScan, LaneTake, LockedGate, OpenLanes};
use leasehold_core::store::{StoreError, StoreResult};
use leasehold_sql::{policy_columns, rows, statement};
use std::collections::BTreeMap;

// Nobody waits here, so time is read in the statement itself, once.
pub(crate) const PROMOTE: &str = "
    WITH clock AS MATERIALIZED (SELECT now_us() AS us),
    due AS MATERIALIZED (
        SELECT op FROM delayed WHERE due_at_us <= (SELECT us FROM clock)
         ORDER BY due_at_us, op LIMIT $1 FOR UPDATE SKIP LOCKED),
    moved AS (
        DELETE FROM delayed WHERE op = ANY(ARRAY(SELECT op FROM due))
        RETURNING op, lane, priority, due_at_us, fence, failures)
    INSERT INTO ready (op, lane, priority, due_at_us, fence, failures)
    SELECT op, lane, priority, due_at_us, fence, failures FROM moved";

/// The most specific policy of a lane or gate `l`, as a join.
macro_rules! policy_join {
    () => {
        " LEFT JOIN LATERAL (
              SELECT queue, site, max_in_flight, rate_per_second, rate_burst
                FROM policies WHERE queue = l.queue AND site IN (l.site, '')
               ORDER BY site DESC LIMIT 1) AS p ON TRUE "
    };
}
pub(crate) use policy_join;

// A loose index scan: each turn of the recursion probes the index for the next lane, so the cost is one probe a lane
// that has work. Whether a lane is served is asked by a scalar sub-select, which the planner leaves where it stands: the
// walk ends as soon as enough lanes are found. As a join it would be planned around a walk over all lanes.
pub(crate) const OPEN_LANES: &str = concat!(
    "WITH RECURSIVE walk AS (
         (SELECT lane FROM ready WHERE lane > $1 ORDER BY lane LIMIT 1)
         UNION ALL
         SELECT (SELECT r.lane FROM ready AS r WHERE r.lane > walk.lane ORDER BY r.lane LIMIT 1)
           FROM walk WHERE walk.lane IS NOT NULL),
     served AS MATERIALIZED (
         SELECT walk.lane FROM walk
          WHERE (SELECT ($2::text[] IS NULL OR k.kind = ANY($2)) AND (k.agent IS NULL OR k.agent = ANY($3))
                   FROM lanes AS k WHERE k.key = walk.lane)
          LIMIT $4)
     SELECT l.key, l.gate, l.site, l.queue, l.kind, l.agent, ",
    policy_columns!(),
    ", CASE WHEN p.max_in_flight IS NULL THEN 0
            ELSE (SELECT count(*) FROM leases AS le WHERE le.gate = l.gate) END AS in_flight,
            (SELECT now_us()) AS now_us, (SELECT mark_us FROM clock WHERE id = 1) AS mark_us,
            (SELECT anomaly_since_us FROM clock WHERE id = 1) AS anomaly_since_us
      FROM served AS s
      JOIN lanes AS l ON l.key = s.lane",
    policy_join!(),
    "ORDER BY l.key"
);

pub(crate) const LOCK_GATES: &str = "SELECT key AS seq FROM gates WHERE key = ANY($1) ORDER BY key FOR NO KEY UPDATE SKIP LOCKED";

// A statement of its own: what the locking one sees of the leases is older than its locks.
pub(crate) const COUNT_GATES: &str = concat!(
    "SELECT l.key, ",
    policy_columns!(),
    ", (SELECT count(*) FROM leases AS le WHERE le.gate = l.key) AS in_flight, l.micro_tokens, l.counted_at_us,
        now_us() AS now_us
      FROM gates AS l",
    policy_join!(),
    "WHERE l.key = ANY($1) ORDER BY l.key"
);

// The rows are held locked.
const SET_BUCKETS: &str = "
    UPDATE gates AS g SET micro_tokens = b.micro_tokens, counted_at_us = b.counted_at_us
      FROM unnest($1, $2, $3) AS b (key, micro_tokens, counted_at_us) WHERE g.key = b.key";

// How many of a gate's best ops wait in which of its lanes. Nothing is locked: it only shares the gate's limit out.
pub(crate) const SHARE_GATES: &str = "
    WITH clock AS MATERIALIZED (SELECT now_us() AS us)
    SELECT lane, count(*) AS share
      FROM (SELECT t.lane, t.most, row_number() OVER (PARTITION BY t.gate ORDER BY r.priority DESC, r.due_at_us, r.op) AS place
              FROM unnest($1, $2, $3) AS t (lane, gate, most)
             CROSS JOIN clock
             CROSS JOIN LATERAL (
                 SELECT op, priority, due_at_us FROM ready WHERE lane = t.lane AND due_at_us <= clock.us
                  ORDER BY priority DESC, due_at_us, op LIMIT t.most) AS r) AS ranked
     WHERE place <= most
     GROUP BY lane";

// The materialised CTEs are fences: inlined, the planner may run a LIMIT more than once and claim too much. The ops are
// handed on as an array, and what is told of each is looked up by a key (OFFSET 0 keeps each look as it stands), so that
// the cost grows with their number alone: the planner knows no sizes here, and joined two CTEs row by row. What a lease
// says comes from the deleted row; of ops, workflows and lanes only what never changes is read, as this statement's
// snapshot may be older than their last change.
pub(crate) const CLAIM: &str = "
    WITH clock AS MATERIALIZED (SELECT now_us() AS us),
    picked AS MATERIALIZED (
        SELECT r.op
          FROM unnest($1, $2) AS t (lane, most)
         CROSS JOIN clock
         CROSS JOIN LATERAL (
             SELECT op FROM ready WHERE lane = t.lane AND due_at_us <= clock.us
              ORDER BY priority DESC, due_at_us, op LIMIT t.most FOR UPDATE SKIP LOCKED) AS r),
    taken AS (
        DELETE FROM ready WHERE op = ANY(ARRAY(SELECT op FROM picked))
        RETURNING op, priority, due_at_us, fence, failures),
    told AS MATERIALIZED (
        SELECT t.op, o.workflow, l.gate, $3 AS token, t.fence + 1 AS fence, $4 AS worker, clock.us AS acquired_at_us,
               clock.us + $5 AS expires_at_us, w.id AS workflow_id, o.id AS op_id, p.id AS parent_id, l.kind, l.queue, l.site,
               o.input, o.metadata, o.time_limit_us, o.retry, t.failures, t.due_at_us, t.priority
          FROM taken AS t
         CROSS JOIN clock
         CROSS JOIN LATERAL (
             SELECT workflow, id, parent, lane, input, metadata, time_limit_us, retry FROM ops
              WHERE seq = t.op OFFSET 0) AS o
         CROSS JOIN LATERAL (SELECT id FROM workflows WHERE seq = o.workflow OFFSET 0) AS w
         CROSS JOIN LATERAL (SELECT gate, kind, queue, site FROM lanes WHERE key = o.lane OFFSET 0) AS l
          LEFT JOIN LATERAL (SELECT id FROM ops WHERE seq = o.parent OFFSET 0) AS p ON TRUE),
    leased AS (
        INSERT INTO leases (op, workflow, gate, token, fence, worker, acquired_at_us, expires_at_us)
        SELECT op, workflow, gate, token, fence, worker, acquired_at_us, expires_at_us FROM told)
    SELECT op, workflow, gate, token, fence, worker, acquired_at_us, expires_at_us, NULL::bigint AS dispatched_at_us, workflow_id,
           op_id, parent_id, kind, queue, site, input, metadata, time_limit_us, retry, failures, due_at_us
      FROM told
     ORDER BY gate, priority DESC, due_at_us, op";

#[derive(QueryableByName)]
struct CountedGate {
    #[diesel(embed)]
    gate: rows::LockedGate,
    #[diesel(sql_type = BigInt)]
    now_us: i64,
}

#[derive(QueryableByName)]
struct ClockedLane {
    #[diesel(embed)]
    seen: rows::SeenLane,
    #[diesel(sql_type = BigInt)]
    now_us: i64,
}

#[derive(QueryableByName)]
struct Share {
    #[diesel(sql_type = BigInt)]
    lane: i64,
    #[diesel(sql_type = BigInt)]
    share: i64,
}

impl PgTx<'_> {
    pub(crate) fn promote_due(&mut self, limit: u32) -> StoreResult<u32> {
        if limit == 0 {
            return Ok(0);
        }
        let moved = self.execute(statement(PROMOTE).bind::<BigInt, _>(i64::from(limit)))?;
        Ok(u32::try_from(moved).unwrap_or(limit))
    }

    pub(crate) fn walk_lanes(&mut self, scan: &LaneScan) -> StoreResult<OpenLanes> {
        if scan.limit == 0 || scan.kinds.as_ref().is_some_and(Vec::is_empty) {
            return Ok(OpenLanes::default());
        }
        let kinds = scan.kinds.as_ref().map(|kinds| kinds.iter().map(KindName::as_str).collect::<Vec<_>>());
        let query = statement(OPEN_LANES)
            .bind::<BigInt, _>(scan.after.map_or(i64::MIN, |lane| lane.0))
            .bind::<Nullable<Array<Text>>, _>(kinds)
            .bind::<Array<Text>, _>(scan.agents.iter().map(AgentName::as_str).collect::<Vec<_>>())
            .bind::<BigInt, _>(i64::from(scan.limit));
        let seen: Vec<ClockedLane> = self.rows(query)?;
        let Some(now_us) = seen.first().map(|first| first.now_us) else { return Ok(OpenLanes::default()) };
        let now = Timestamp::from_micros(now_us).map_err(|error| StoreError::Rejected(error.into()));
        let lanes = seen.into_iter().map(|clocked| clocked.seen).collect();
        now.and_then(|now| rows::SeenLane::read_all_at(lanes, now)).map_err(|error| self.fail(error))
    }

    pub(crate) fn lock_and_count_gates(&mut self, gates: &[GateKey]) -> StoreResult<Vec<LockedGate>> {
        if gates.is_empty() {
            return Ok(Vec::new());
        }
        let keys: Vec<i64> = gates.iter().map(|gate| gate.0).collect();
        let locked: Vec<rows::Seq> = self.rows(statement(self.sql(LOCK_GATES)).bind::<Array<BigInt>, _>(keys))?;
        let locked: Vec<i64> = locked.into_iter().map(|row| row.seq).collect();
        if locked.is_empty() {
            return Ok(Vec::new());
        }
        self.gates.extend(&locked);
        let counted: Vec<CountedGate> = self.rows(statement(self.sql(COUNT_GATES)).bind::<Array<BigInt>, _>(locked))?;
        let gates = counted.into_iter().map(|counted| {
            let now = Timestamp::from_micros(counted.now_us).map_err(|error| StoreError::Rejected(error.into()))?;
            counted.gate.read_at(now)
        });
        gates.collect::<StoreResult<_>>().map_err(|error| self.fail(error))
    }

    pub(crate) fn store_buckets(&mut self, buckets: &[(GateKey, leasehold_core::model::Bucket)]) -> StoreResult<()> {
        if buckets.is_empty() {
            return Ok(());
        }
        for (gate, _) in buckets {
            self.require("gate", self.gates.contains(&gate.0), &gate.0)?;
        }
        let query = statement(SET_BUCKETS)
            .bind::<Array<BigInt>, _>(buckets.iter().map(|(gate, _)| gate.0).collect::<Vec<_>>())
            .bind::<Array<BigInt>, _>(buckets.iter().map(|(_, bucket)| bucket.micro_tokens).collect::<Vec<_>>())
            .bind::<Array<BigInt>, _>(buckets.iter().map(|(_, bucket)| bucket.counted_at.as_micros()).collect::<Vec<_>>());
        self.execute(query).map(drop)
    }

    pub(crate) fn claim(&mut self, claim: &Claim) -> StoreResult<Vec<ClaimedOp>> {
        let takes = self.share_out(&claim.takes)?;
        if takes.is_empty() {
            return Ok(Vec::new());
        }
        let query = statement(self.sql(CLAIM))
            .bind::<Array<BigInt>, _>(takes.iter().map(|take| take.lane.0).collect::<Vec<_>>())
            .bind::<Array<BigInt>, _>(takes.iter().map(|take| i64::from(take.limit)).collect::<Vec<_>>())
            .bind::<Text, _>(claim.token.to_string())
            .bind::<Text, _>(claim.worker.as_str())
            .bind::<BigInt, _>(claim.lease.get());
        self.load::<rows::Claimed, _>(query)
    }

    /// Each lane's own limit. A gate with one lane gives it all; the limit of one with several goes to where its best
    /// ops wait. A claim that runs beside this one may take some of them first: then this one takes the next of the same
    /// lane, or fewer, but never more than the gate's limit.
    fn share_out(&mut self, takes: &[LaneTake]) -> StoreResult<Vec<LaneTake>> {
        let mut gates: BTreeMap<GateKey, BTreeMap<LaneKey, u32>> = BTreeMap::new();
        for take in takes.iter().filter(|take| take.limit > 0) {
            gates.entry(take.gate).or_default().insert(take.lane, take.limit);
        }
        let of = |gates: &BTreeMap<GateKey, BTreeMap<LaneKey, u32>>, several: bool| -> Vec<LaneTake> {
            let chosen = gates.iter().filter(|(_, lanes)| (lanes.len() > 1) == several);
            chosen
                .flat_map(|(gate, lanes)| lanes.iter().map(|(lane, limit)| LaneTake { lane: *lane, gate: *gate, limit: *limit }))
                .collect()
        };
        let (mut alone, shared) = (of(&gates, false), of(&gates, true));
        if shared.is_empty() {
            return Ok(alone);
        }
        let query = statement(SHARE_GATES)
            .bind::<Array<BigInt>, _>(shared.iter().map(|take| take.lane.0).collect::<Vec<_>>())
            .bind::<Array<BigInt>, _>(shared.iter().map(|take| take.gate.0).collect::<Vec<_>>())
            .bind::<Array<BigInt>, _>(shared.iter().map(|take| i64::from(take.limit)).collect::<Vec<_>>());
        let shares: Vec<Share> = self.rows(query)?;
        let shares: BTreeMap<i64, i64> = shares.into_iter().map(|row| (row.lane, row.share)).collect();
        alone.extend(shared.into_iter().filter_map(|take| {
            let share = u32::try_from(*shares.get(&take.lane.0)?).unwrap_or(take.limit);
            Some(LaneTake { limit: share.min(take.limit), ..take })
        }));
        Ok(alone)
    }
}
