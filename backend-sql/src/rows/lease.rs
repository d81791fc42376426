//! Rows of the hot tables, of lanes and gates, and of the ledger.

use super::op::{retry_policy, time_limit};
use super::read::OuterPolicy;
use super::{Row, instant, name, number, parsed, word};
use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Nullable, Text};
use leasehold_core::model::{Bucket, Fence, GateKey, Json, Lane, LaneKey, OpError, OpSeq, Timestamp, WorkflowSeq};
use leasehold_core::store::StoreResult;
use leasehold_core::store::rows::{self, AttemptOutcome, ClaimedOp, LeaseKey, QueuedOp};

/// A whole row; see [`crate::lease_columns`].
#[derive(Debug, QueryableByName)]
#[expect(missing_docs, reason = "the columns of the migrations")]
pub struct Lease {
    #[diesel(sql_type = BigInt)]
    pub op: i64,
    #[diesel(sql_type = BigInt)]
    pub workflow: i64,
    #[diesel(sql_type = BigInt)]
    pub gate: i64,
    #[diesel(sql_type = Text)]
    pub token: String,
    #[diesel(sql_type = BigInt)]
    pub fence: i64,
    #[diesel(sql_type = Text)]
    pub worker: String,
    #[diesel(sql_type = BigInt)]
    pub acquired_at_us: i64,
    #[diesel(sql_type = BigInt)]
    pub expires_at_us: i64,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub dispatched_at_us: Option<i64>,
}

impl Row for Lease {
    type Value = rows::Lease;
    fn read(self) -> StoreResult<rows::Lease> {
        lease(self)
    }
}

pub(super) fn lease(row: Lease) -> StoreResult<rows::Lease> {
    Ok(rows::Lease {
        key: LeaseKey { op: OpSeq(row.op), token: parsed("leases.token", &row.token)?, fence: Fence(row.fence) },
        workflow: WorkflowSeq(row.workflow),
        gate: GateKey(row.gate),
        worker: name("leases.worker", row.worker)?,
        acquired_at: instant("leases.acquired_at_us", row.acquired_at_us)?,
        expires_at: instant("leases.expires_at_us", row.expires_at_us)?,
        dispatched_at: row.dispatched_at_us.map(|at| instant("leases.dispatched_at_us", at)).transpose()?,
    })
}

/// A row of `ready` or `delayed`.
#[derive(Debug, QueryableByName)]
#[expect(missing_docs, reason = "the columns of the migrations")]
pub struct Ready {
    #[diesel(sql_type = BigInt)]
    pub op: i64,
    #[diesel(sql_type = BigInt)]
    pub lane: i64,
    #[diesel(sql_type = BigInt)]
    pub priority: i64,
    #[diesel(sql_type = BigInt)]
    pub due_at_us: i64,
    #[diesel(sql_type = BigInt)]
    pub fence: i64,
    #[diesel(sql_type = BigInt)]
    pub failures: i64,
}

impl Row for Ready {
    type Value = QueuedOp;
    fn read(self) -> StoreResult<QueuedOp> {
        Ok(QueuedOp {
            op: OpSeq(self.op),
            lane: LaneKey(self.lane),
            priority: number("ready.priority", self.priority)?,
            due_at: instant("ready.due_at_us", self.due_at_us)?,
            fence: Fence(self.fence),
            failures: number("ready.failures", self.failures)?,
        })
    }
}

/// A lease with all its handler needs. `failures` and `due_at_us` are those of the `ready` row that was deleted; where
/// it is gone, the op's failures and the lease's `acquired_at_us`.
#[derive(Debug, QueryableByName)]
#[expect(missing_docs, reason = "the columns of the migrations")]
pub struct Claimed {
    #[diesel(embed)]
    pub lease: Lease,
    #[diesel(sql_type = Text)]
    pub workflow_id: String,
    #[diesel(sql_type = Text)]
    pub op_id: String,
    #[diesel(sql_type = Nullable<Text>)]
    pub parent_id: Option<String>,
    #[diesel(sql_type = Text)]
    pub kind: String,
    #[diesel(sql_type = Text)]
    pub queue: String,
    #[diesel(sql_type = Text)]
    pub site: String,
    #[diesel(sql_type = Text)]
    pub input: String,
    #[diesel(sql_type = Text)]
    pub metadata: String,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub time_limit_us: Option<i64>,
    #[diesel(sql_type = Text)]
    pub retry: String,
    #[diesel(sql_type = BigInt)]
    pub failures: i64,
    #[diesel(sql_type = BigInt)]
    pub due_at_us: i64,
}

impl Row for Claimed {
    type Value = ClaimedOp;
    fn read(self) -> StoreResult<ClaimedOp> {
        Ok(ClaimedOp {
            lease: self.lease.read()?,
            workflow_id: name("workflows.id", self.workflow_id)?,
            op_id: name("ops.id", self.op_id)?,
            parent: self.parent_id.map(|parent| name("ops.id", parent)).transpose()?,
            kind: name("lanes.kind", self.kind)?,
            queue: name("lanes.queue", self.queue)?,
            site: name("lanes.site", self.site)?,
            input: Json::from_stored(self.input),
            metadata: Json::from_stored(self.metadata),
            time_limit: time_limit(self.time_limit_us)?,
            effect: retry_policy(self.retry)?.effect,
            failures: number("ready.failures", self.failures)?,
            due_at: instant("ready.due_at_us", self.due_at_us)?,
        })
    }
}

/// A lane with what limits it; the policy as [`crate::policy_columns`].
#[derive(Debug, QueryableByName)]
#[expect(missing_docs, reason = "the columns of the migrations")]
pub struct OpenLane {
    #[diesel(sql_type = BigInt)]
    pub key: i64,
    #[diesel(sql_type = BigInt)]
    pub gate: i64,
    #[diesel(sql_type = Text)]
    pub site: String,
    #[diesel(sql_type = Text)]
    pub queue: String,
    #[diesel(sql_type = Text)]
    pub kind: String,
    #[diesel(sql_type = Nullable<Text>)]
    pub agent: Option<String>,
    #[diesel(embed)]
    pub policy: OuterPolicy,
    #[diesel(sql_type = BigInt)]
    pub in_flight: i64,
}

impl Row for OpenLane {
    type Value = rows::OpenLane;
    fn read(self) -> StoreResult<rows::OpenLane> {
        Ok(rows::OpenLane {
            lane: Lane {
                key: LaneKey(self.key),
                gate: GateKey(self.gate),
                site: name("lanes.site", self.site)?,
                queue: name("lanes.queue", self.queue)?,
                kind: name("lanes.kind", self.kind)?,
                agent: self.agent.map(|agent| name("lanes.agent", agent)).transpose()?,
            },
            policy: self.policy.read()?,
            in_flight: number("count of leases", self.in_flight)?,
        })
    }
}

/// A gate that is held locked; the policy as [`crate::policy_columns`].
#[derive(Debug, QueryableByName)]
#[expect(missing_docs, reason = "the columns of the migrations")]
pub struct LockedGate {
    #[diesel(sql_type = BigInt)]
    pub key: i64,
    #[diesel(embed)]
    pub policy: OuterPolicy,
    #[diesel(sql_type = BigInt)]
    pub in_flight: i64,
    #[diesel(embed)]
    pub bucket: OuterBucket,
}

impl LockedGate {
    /// The gate, judged at `now`.
    ///
    /// # Errors
    /// As [`Row::read`].
    pub fn read_at(self, now: Timestamp) -> StoreResult<rows::LockedGate> {
        Ok(rows::LockedGate {
            gate: GateKey(self.key),
            policy: self.policy.read()?,
            in_flight: number("count of leases", self.in_flight)?,
            bucket: self.bucket.read()?,
            now,
        })
    }
}

/// A gate's token bucket, null before its first use.
#[derive(Debug, QueryableByName)]
#[expect(missing_docs, reason = "the columns of the migrations")]
pub struct OuterBucket {
    #[diesel(sql_type = Nullable<BigInt>)]
    pub micro_tokens: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub counted_at_us: Option<i64>,
}

impl Row for OuterBucket {
    type Value = Option<Bucket>;
    fn read(self) -> StoreResult<Option<Bucket>> {
        let (Some(micro_tokens), Some(counted_at_us)) = (self.micro_tokens, self.counted_at_us) else {
            return Ok(None);
        };
        Ok(Some(Bucket { micro_tokens, counted_at: instant("gates.counted_at_us", counted_at_us)? }))
    }
}

/// A line of the ledger; see [`crate::attempt_columns`].
#[derive(Debug, QueryableByName)]
#[expect(missing_docs, reason = "the columns of the migrations")]
pub struct Attempt {
    #[diesel(sql_type = BigInt)]
    pub op: i64,
    #[diesel(sql_type = BigInt)]
    pub fence: i64,
    #[diesel(sql_type = BigInt)]
    pub workflow: i64,
    #[diesel(sql_type = Text)]
    pub token: String,
    #[diesel(sql_type = Text)]
    pub worker: String,
    #[diesel(sql_type = BigInt)]
    pub acquired_at_us: i64,
    #[diesel(sql_type = BigInt)]
    pub ended_at_us: i64,
    #[diesel(sql_type = Text)]
    pub outcome: String,
    #[diesel(sql_type = Nullable<Text>)]
    pub result: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub error_code: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub error_message: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub error_details: Option<String>,
}

impl Row for Attempt {
    type Value = rows::Attempt;
    fn read(self) -> StoreResult<rows::Attempt> {
        Ok(rows::Attempt {
            key: LeaseKey { op: OpSeq(self.op), token: parsed("attempts.token", &self.token)?, fence: Fence(self.fence) },
            workflow: WorkflowSeq(self.workflow),
            worker: name("attempts.worker", self.worker)?,
            acquired_at: instant("attempts.acquired_at_us", self.acquired_at_us)?,
            ended_at: instant("attempts.ended_at_us", self.ended_at_us)?,
            outcome: word("attempts.outcome", &self.outcome, AttemptOutcome::from_stored)?,
            result: self.result.map(Json::from_stored),
            error: op_error(self.error_code, self.error_message, self.error_details),
        })
    }
}

/// An error exists exactly when it has a code.
pub(super) fn op_error(code: Option<String>, message: Option<String>, details: Option<String>) -> Option<OpError> {
    code.map(|code| OpError { code, message: message.unwrap_or_default(), details: details.map(Json::from_stored).unwrap_or_default() })
}
