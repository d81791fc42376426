//! Steps on what waits to be leased.

use crate::lease::after;
use crate::set::{self, cells};
use crate::tx::SqliteTx;
use diesel::sql_types::{BigInt, Nullable, Text};
use leasehold_core::model::{AgentName, Bucket, Fence, GateKey, KindName, LaneKey, LeaseToken};
use leasehold_core::store::StoreResult;
use leasehold_core::store::rows::{Claim, ClaimedOp, LaneScan, LockedGate, OpenLanes};
use leasehold_sql::{policy_columns, rows, statement};
use std::collections::BTreeMap;

// Of a bare parameter after LIMIT, SQLite wants to know the value when it plans, and so prepares the statement anew at
// every run; hence the `+ 0` in all statements.

// Oldest first; both statements choose the same rows, because nothing changes `delayed` between them.
pub(crate) const PROMOTE: &str = "
    INSERT INTO ready (op, lane, priority, due_at_us, fence, failures)
    SELECT op, lane, priority, due_at_us, fence, failures
      FROM delayed
     WHERE due_at_us <= ?1
     ORDER BY due_at_us, op
     LIMIT ?2 + 0";
pub(crate) const FORGET_PROMOTED: &str = "
    DELETE FROM delayed
     WHERE op IN (SELECT op FROM delayed WHERE due_at_us <= ?1 ORDER BY due_at_us, op LIMIT ?2 + 0)";

// The most specific policy is a whole one: the site's own, else that for any site, whose '' sorts before every name.
macro_rules! join_policy {
    ($of:literal) => {
        concat!(
            " LEFT JOIN policies AS p ON p.queue = ",
            $of,
            ".queue AND p.site = (SELECT max(site) FROM policies WHERE queue = ",
            $of,
            ".queue AND site IN (",
            $of,
            ".site, '')) "
        )
    };
}
pub(crate) use join_policy;

// A loose index scan: each step of the recursion seeks the next lane that has rows, so the rows themselves are passed
// over. It runs as far as the LIMIT outside asks, in key order, because CROSS JOIN keeps it the outer loop.
pub(crate) const OPEN_LANES: &str = concat!(
    "WITH RECURSIVE open (lane) AS (
         SELECT (SELECT lane FROM ready WHERE lane > ?1 ORDER BY lane LIMIT 1)
         UNION ALL
         SELECT (SELECT ready.lane FROM ready WHERE ready.lane > open.lane ORDER BY ready.lane LIMIT 1)
           FROM open
          WHERE open.lane IS NOT NULL)
     SELECT l.key, l.gate, l.site, l.queue, l.kind, l.agent, ",
    policy_columns!(),
    ", CASE WHEN p.max_in_flight IS NULL THEN 0 ELSE (SELECT count(*) FROM leases WHERE gate = l.gate) END AS in_flight,
            (SELECT mark_us FROM clock WHERE id = 1) AS mark_us,
            (SELECT anomaly_since_us FROM clock WHERE id = 1) AS anomaly_since_us
       FROM open
      CROSS JOIN lanes AS l ON l.key = open.lane",
    join_policy!("l"),
    "WHERE (?2 IS NULL OR l.kind IN (SELECT value FROM json_each(?2)))
       AND (l.agent IS NULL OR l.agent IN (SELECT value FROM json_each(?3)))
     LIMIT ?4 + 0"
);

pub(crate) const LOCK_GATES: &str = concat!(
    "SELECT g.key, g.micro_tokens, g.counted_at_us, ",
    policy_columns!(),
    ", (SELECT count(*) FROM leases WHERE gate = g.key) AS in_flight
       FROM gates AS g",
    join_policy!("g"),
    "WHERE g.key IN (SELECT value FROM json_each(?1))
     ORDER BY g.key"
);

pub(crate) const SET_BUCKETS: &str = "
    UPDATE gates
       SET micro_tokens = b.value ->> 1, counted_at_us = b.value ->> 2
      FROM jsonb_each(?1) AS b
     WHERE gates.key = b.value ->> 0";

// SQLite has no lateral join and lets no LIMIT name a column. So each lane offers as many as the largest limit asks,
// in the index's order, and the best of each gate are kept by their place. Nothing past these rows is read.
pub(crate) const TAKE_READY: &str = "
    DELETE FROM ready
     WHERE op IN (
           SELECT op
             FROM (SELECT r.op, t.value ->> 2 AS most,
                          row_number() OVER (PARTITION BY t.value ->> 1 ORDER BY r.priority DESC, r.due_at_us, r.op) AS place
                     FROM jsonb_each(?1) AS t
                    CROSS JOIN ready AS r
                    WHERE r.op IN (SELECT op
                                     FROM ready
                                    WHERE lane = t.value ->> 0 AND due_at_us <= ?2
                                    ORDER BY priority DESC, due_at_us, op
                                    LIMIT ?3 + 0))
            WHERE place <= most)
    RETURNING op, lane, priority, due_at_us, fence, failures";

// The workflow of an op never changes; all else comes from the row that was deleted.
pub(crate) const INSERT_LEASES: &str = "
    INSERT INTO leases (op, workflow, gate, token, fence, worker, acquired_at_us, expires_at_us)
    SELECT o.seq, o.workflow, c.value ->> 1, ?1, c.value ->> 2, ?2, ?3, ?4
      FROM jsonb_each(?5) AS c
     CROSS JOIN ops AS o ON o.seq = c.value ->> 0";

macro_rules! claimed {
    ($failures:literal, $due_at_us:literal, $from:literal) => {
        concat!(
            "SELECT le.op, le.workflow, le.gate, le.token, le.fence, le.worker, le.acquired_at_us, le.expires_at_us,
                    le.dispatched_at_us, w.id AS workflow_id, o.id AS op_id, parent.id AS parent_id, l.kind, l.queue, l.site, o.input, o.metadata,
                    o.time_limit_us, o.retry, ",
            $failures,
            " AS failures, ",
            $due_at_us,
            " AS due_at_us FROM ",
            $from,
            " CROSS JOIN ops AS o ON o.seq = le.op
              CROSS JOIN workflows AS w ON w.seq = le.workflow
              CROSS JOIN lanes AS l ON l.key = o.lane
               LEFT JOIN ops AS parent ON parent.seq = o.parent "
        )
    };
}

pub(crate) const CLAIMED: &str =
    claimed!("c.value ->> 3", "c.value ->> 4", "jsonb_each(?1) AS c CROSS JOIN leases AS le ON le.op = c.value ->> 0");

// Leases are as many as workers can hold, so they have no index of tokens: this runs only after a lost reply.
pub(crate) const CLAIMED_BY: &str =
    concat!(claimed!("o.failures", "le.acquired_at_us", "leases AS le"), "WHERE le.token = ?1 ORDER BY le.op");

pub(crate) fn promote(tx: &mut SqliteTx<'_>, limit: u32) -> StoreResult<u32> {
    let (now, most) = (tx.now_us(), i64::from(limit));
    let promoted = tx.execute(statement(PROMOTE).bind::<BigInt, _>(now).bind::<BigInt, _>(most))?;
    if promoted > 0 {
        tx.execute(statement(FORGET_PROMOTED).bind::<BigInt, _>(now).bind::<BigInt, _>(most))?;
    }
    Ok(u32::try_from(promoted).unwrap_or(u32::MAX))
}

pub(crate) fn open_lanes(tx: &mut SqliteTx<'_>, scan: &LaneScan) -> StoreResult<OpenLanes> {
    // Keys are hashes of 63 bits, so none is below zero.
    let after = scan.after.map_or(-1, |lane| lane.0);
    let kinds = scan.kinds.as_ref().map(|kinds| set::whole(&set::values(kinds.iter().map(KindName::as_str))));
    let agents = set::whole(&set::values(scan.agents.iter().map(AgentName::as_str)));
    let query = statement(OPEN_LANES)
        .bind::<BigInt, _>(after)
        .bind::<Nullable<Text>, _>(kinds)
        .bind::<Text, _>(agents)
        .bind::<BigInt, _>(i64::from(scan.limit));
    rows::SeenLane::read_all_at(tx.load_rows(query)?, tx.time())
}

// The transaction has the file's only write lock, so every gate is locked and what is counted now stays so.
pub(crate) fn lock_gates(tx: &mut SqliteTx<'_>, gates: &[GateKey]) -> StoreResult<Vec<LockedGate>> {
    let mut locked = Vec::new();
    for part in set::values(gates.iter().map(|gate| gate.0)) {
        locked.extend(tx.load_rows::<rows::LockedGate, _>(statement(LOCK_GATES).bind::<Text, _>(part))?);
    }
    locked.into_iter().map(|gate| gate.read_at(tx.time())).collect()
}

pub(crate) fn set_buckets(tx: &mut SqliteTx<'_>, buckets: &[(GateKey, Bucket)]) -> StoreResult<()> {
    let set = set::rows(buckets, |(gate, bucket)| cells![gate.0, bucket.micro_tokens, bucket.counted_at.as_micros()]);
    tx.execute_set(SET_BUCKETS, set).map(|_| ())
}

pub(crate) fn claim_ready(tx: &mut SqliteTx<'_>, claim: &Claim) -> StoreResult<Vec<ClaimedOp>> {
    let expires_at = after(tx.time(), claim.lease)?;
    let takes: BTreeMap<LaneKey, (GateKey, u32)> = claim.takes.iter().map(|take| (take.lane, (take.gate, take.limit))).collect();
    let Some(most) = takes.values().map(|(_, limit)| *limit).max().filter(|most| *most > 0) else {
        return Ok(Vec::new());
    };
    // A gate's lanes are chosen from together, so they travel in one parameter.
    let part = set::whole(&set::rows(&takes, |(lane, (gate, limit))| cells![lane.0, gate.0, *limit]));
    let query = statement(TAKE_READY).bind::<Text, _>(part).bind::<BigInt, _>(tx.now_us()).bind::<BigInt, _>(i64::from(most));
    let taken = tx.load::<rows::Ready, _>(query)?;
    tx.wrote(taken.len());

    let mut claimed = Vec::new();
    for part in set::rows(&taken, |row| {
        let gate = takes.get(&row.lane).map(|(gate, _)| gate.0);
        cells![row.op.0, gate, Fence::next(row.fence).0, row.failures, row.due_at.as_micros()]
    }) {
        tx.execute(
            statement(INSERT_LEASES)
                .bind::<Text, _>(claim.token.to_string())
                .bind::<Text, _>(claim.worker.as_str())
                .bind::<BigInt, _>(tx.now_us())
                .bind::<BigInt, _>(expires_at.as_micros())
                .bind::<Text, _>(&part),
        )?;
        claimed.extend(tx.load::<rows::Claimed, _>(statement(CLAIMED).bind::<Text, _>(&part))?);
    }
    Ok(claimed)
}

pub(crate) fn claimed_by(tx: &mut SqliteTx<'_>, token: LeaseToken) -> StoreResult<Vec<ClaimedOp>> {
    tx.load::<rows::Claimed, _>(statement(CLAIMED_BY).bind::<Text, _>(token.to_string()))
}
