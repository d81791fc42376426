//! Steps on the store's clock and on its maintenance.

use crate::tx::PgTx;
use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Nullable, Text};
use leasehold_core::model::{Epoch, LeaseToken, Micros, Timestamp};
use leasehold_core::store::{Candidate, ClockReading, Leadership, PulledBack, Spare, StoreError, StoreResult, TimeTx};
use leasehold_sql::{rejected, rows, statement};

pub(crate) const CLOCK: &str = "SELECT now_us() AS now_us, mark_us, anomaly_since_us FROM clock WHERE id = 1";

// The time is read behind the lock: the count must be done before its one row exists.
pub(crate) const LOCK_CLOCK: &str = "
    WITH held AS MATERIALIZED (
        SELECT mark_us, anomaly_since_us FROM clock WHERE id = 1 FOR NO KEY UPDATE),
    present AS MATERIALIZED (
        SELECT now_us() AS us FROM (SELECT count(*) AS locked FROM held) AS counted WHERE counted.locked >= 0)
    SELECT present.us AS now_us, held.mark_us, held.anomaly_since_us FROM held, present";

// Heartbeats run it with lease rows in their hands, so it waits for nobody.
pub(crate) const RAISE_MARK: &str = "
    WITH present AS MATERIALIZED (SELECT now_us() AS us),
    behind AS MATERIALIZED (
        SELECT c.id FROM clock AS c, present
         WHERE c.id = 1 AND (c.mark_us IS NULL OR c.mark_us <= present.us - $1)
           FOR NO KEY UPDATE OF c SKIP LOCKED)
    UPDATE clock AS c SET mark_us = present.us, anomaly_since_us = NULL
      FROM present, behind
     WHERE c.id = behind.id AND (c.mark_us IS NULL OR c.mark_us < present.us)";

pub(crate) const SET_CLOCK: &str = "UPDATE clock SET mark_us = $1, anomaly_since_us = $2 WHERE id = 1";

pub(crate) const END_TERM: &str = "
    WITH present AS MATERIALIZED (SELECT now_us() AS us)
    UPDATE maintenance AS m SET ends_at_us = present.us FROM present WHERE m.id = 1 AND m.ends_at_us > present.us";

// An operator's act, after the clock went wrong: it may read whole tables.
pub(crate) const PULL_BACK_READY: &str = "
    WITH present AS MATERIALIZED (SELECT now_us() AS us),
    held AS MATERIALIZED (
        SELECT r.op FROM ready AS r, present WHERE r.due_at_us > present.us ORDER BY r.op FOR UPDATE OF r)
    UPDATE ready AS r SET due_at_us = present.us FROM present WHERE r.op = ANY(ARRAY(SELECT op FROM held))";
pub(crate) const PULL_BACK_LEASES: &str = "
    WITH present AS MATERIALIZED (SELECT now_us() AS us),
    held AS MATERIALIZED (
        SELECT l.op FROM leases AS l, present
         WHERE l.acquired_at_us > present.us OR l.expires_at_us > present.us + $1
         ORDER BY l.op FOR UPDATE OF l)
    UPDATE leases AS l
       SET acquired_at_us = least(l.acquired_at_us, present.us), expires_at_us = least(l.expires_at_us, present.us + $1)
      FROM present
     WHERE l.op = ANY(ARRAY(SELECT op FROM held))";

pub(crate) const SPARE_LEASES: &str = "
    WITH chosen AS MATERIALIZED (
        SELECT op FROM leases WHERE expires_at_us > $1 AND expires_at_us < $2 ORDER BY expires_at_us, op LIMIT $3),
    held AS MATERIALIZED (
        SELECT l.op FROM leases AS l
         WHERE l.op = ANY(ARRAY(SELECT op FROM chosen)) AND l.expires_at_us > $1 AND l.expires_at_us < $2
         ORDER BY l.op FOR UPDATE OF l SKIP LOCKED)
    UPDATE leases SET expires_at_us = $2 WHERE op = ANY(ARRAY(SELECT op FROM held)) AND expires_at_us < $2";

// Only who may lead afterwards locks the row, and judges again behind the lock, by the time read there.
pub(crate) const ELECT: &str = "
    WITH held AS MATERIALIZED (
        SELECT id, epoch, token, ends_at_us FROM maintenance
         WHERE id = 1 AND (token = $1 OR ends_at_us <= (SELECT now_us()))
           FOR NO KEY UPDATE),
    present AS MATERIALIZED (
        SELECT now_us() AS us FROM (SELECT count(*) AS locked FROM held) AS counted WHERE counted.locked >= 0)
    UPDATE maintenance AS m
       SET epoch = CASE WHEN held.ends_at_us > present.us THEN held.epoch ELSE held.epoch + 1 END,
           token = $1, leader = $2, ends_at_us = present.us + $3
      FROM held, present
     WHERE m.id = held.id AND (held.token = $1 OR held.ends_at_us <= present.us)
    RETURNING m.epoch, m.leader, m.ends_at_us, present.us AS now_us";

pub(crate) const LEADER: &str = "SELECT epoch, leader, ends_at_us, now_us() AS now_us FROM maintenance WHERE id = 1";

pub(crate) const RESIGN: &str = "
    WITH present AS MATERIALIZED (SELECT now_us() AS us)
    UPDATE maintenance AS m SET ends_at_us = present.us
      FROM present
     WHERE m.id = 1 AND m.token = $1 AND m.epoch = $2 AND m.ends_at_us > present.us";

pub(crate) const HOLD_EPOCH: &str = "SELECT epoch AS number FROM maintenance WHERE id = 1 AND epoch = $1 FOR SHARE";

#[derive(QueryableByName)]
struct Clock {
    #[diesel(sql_type = BigInt)]
    now_us: i64,
    #[diesel(embed)]
    mark: rows::Mark,
}

impl TimeTx for PgTx<'_> {
    fn clock(&mut self) -> StoreResult<ClockReading> {
        self.clock_by(CLOCK)
    }

    fn raise_mark(&mut self, step: Micros) -> StoreResult<()> {
        self.execute(statement(RAISE_MARK).bind::<BigInt, _>(step.get())).map(drop)
    }

    fn lock_clock(&mut self) -> StoreResult<ClockReading> {
        self.clock_by(LOCK_CLOCK)
    }

    fn set_clock(&mut self, clock: &ClockReading) -> StoreResult<()> {
        let (mark, since) = (clock.mark.map(Timestamp::as_micros), clock.anomaly_since.map(Timestamp::as_micros));
        self.execute(statement(SET_CLOCK).bind::<Nullable<BigInt>, _>(mark).bind::<Nullable<BigInt>, _>(since)).map(drop)
    }

    fn pull_back(&mut self, within: Micros) -> StoreResult<PulledBack> {
        self.execute(statement(END_TERM))?;
        let ready = self.execute(statement(PULL_BACK_READY))?;
        let leases = self.execute(statement(PULL_BACK_LEASES).bind::<BigInt, _>(within.get()))?;
        Ok(PulledBack { ready: ready as u64, leases: leases as u64 })
    }

    fn spare_leases(&mut self, spare: &Spare) -> StoreResult<u32> {
        let query = statement(SPARE_LEASES)
            .bind::<BigInt, _>(spare.live_at.as_micros())
            .bind::<BigInt, _>(spare.until.as_micros())
            .bind::<BigInt, _>(i64::from(spare.limit));
        Ok(u32::try_from(self.execute(query)?).unwrap_or(spare.limit))
    }

    fn elect(&mut self, candidate: &Candidate) -> StoreResult<Leadership> {
        let query = statement(ELECT)
            .bind::<Text, _>(candidate.token.to_string())
            .bind::<Text, _>(candidate.name.as_str())
            .bind::<BigInt, _>(candidate.term.get());
        let mut rows: Vec<rows::Leader> = self.rows(query)?;
        let mine = !rows.is_empty();
        if !mine {
            rows = self.rows(statement(LEADER))?;
        }
        let leader = rows.pop().ok_or_else(|| rejected("the row of `maintenance` is not there"));
        leader.and_then(|leader| leader.read(mine)).map_err(|error| self.fail(error))
    }

    fn resign(&mut self, token: LeaseToken, epoch: Epoch) -> StoreResult<()> {
        self.execute(statement(RESIGN).bind::<Text, _>(token.to_string()).bind::<BigInt, _>(epoch.0)).map(drop)
    }

    fn hold_epoch(&mut self, epoch: Epoch) -> StoreResult<bool> {
        let held: Vec<rows::Number> = self.rows(statement(HOLD_EPOCH).bind::<BigInt, _>(epoch.0))?;
        Ok(!held.is_empty())
    }
}

impl PgTx<'_> {
    fn clock_by(&mut self, sql: &'static str) -> StoreResult<ClockReading> {
        let row: Option<Clock> = self.rows(statement(sql))?.pop();
        let read = match row {
            Some(Clock { now_us, mark }) => {
                Timestamp::from_micros(now_us).map_err(|error| StoreError::Rejected(error.into())).and_then(|now| mark.read_at(now))
            }
            None => Err(rejected("the row of `clock` is not there")),
        };
        read.map_err(|error| self.fail(error))
    }
}
