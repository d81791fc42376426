//! Rows of `ops` and `op_dependencies`.

use super::lease::{lease, op_error};
use super::wait::OuterWait;
use super::{Row, instant, name, number, parsed, word};
use crate::Unreadable;
use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Nullable, Text};
use leasehold_core::model::{Fence, Json, LaneKey, Micros, OpSeq, RetryPolicy, WorkflowSeq};
use leasehold_core::state::StoredStatus;
use leasehold_core::store::rows::{self, DownstreamEdge, OpState, UpstreamEdge};
use leasehold_core::store::{StoreError, StoreResult};

/// What transitions read of an op; see [`crate::op_columns`].
#[derive(Debug, QueryableByName)]
#[expect(missing_docs, reason = "the columns of the migrations")]
pub struct Op {
    #[diesel(sql_type = BigInt)]
    pub seq: i64,
    #[diesel(sql_type = BigInt)]
    pub workflow: i64,
    #[diesel(sql_type = Text)]
    pub id: String,
    #[diesel(sql_type = Text)]
    pub status: String,
    #[diesel(sql_type = BigInt)]
    pub unmet: i64,
    #[diesel(sql_type = BigInt)]
    pub broken: i64,
    #[diesel(sql_type = BigInt)]
    pub fence: i64,
    #[diesel(sql_type = BigInt)]
    pub failures: i64,
    #[diesel(sql_type = BigInt)]
    pub losses: i64,
    #[diesel(sql_type = BigInt)]
    pub lane: i64,
    #[diesel(sql_type = BigInt)]
    pub priority: i64,
    #[diesel(sql_type = Text)]
    pub retry: String,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub parent: Option<i64>,
    #[diesel(sql_type = Nullable<Text>)]
    pub dedup_key: Option<String>,
    #[diesel(sql_type = Text)]
    pub spec: String,
}

impl Row for Op {
    type Value = OpState;
    fn read(self) -> StoreResult<OpState> {
        Ok(OpState {
            seq: OpSeq(self.seq),
            workflow: WorkflowSeq(self.workflow),
            id: name("ops.id", self.id)?,
            status: status(&self.status)?,
            unmet: number("ops.unmet", self.unmet)?,
            broken: number("ops.broken", self.broken)?,
            fence: Fence(self.fence),
            failures: number("ops.failures", self.failures)?,
            losses: number("ops.losses", self.losses)?,
            lane: LaneKey(self.lane),
            priority: number("ops.priority", self.priority)?,
            retry: retry_policy(self.retry)?,
            parent: self.parent.map(OpSeq),
            dedup_key: self.dedup_key.map(|key| name("ops.dedup_key", key)).transpose()?,
            spec: parsed("ops.spec", &self.spec)?,
        })
    }
}

/// An edge with its child: the op's columns, and the edge's as `edge_parent` and `edge_required`.
#[derive(Debug, QueryableByName)]
#[expect(missing_docs, reason = "what the names say")]
pub struct Downstream {
    #[diesel(sql_type = BigInt)]
    pub edge_parent: i64,
    #[diesel(sql_type = BigInt)]
    pub edge_required: i64,
    #[diesel(embed)]
    pub child: Op,
}

impl Row for Downstream {
    type Value = DownstreamEdge;
    fn read(self) -> StoreResult<DownstreamEdge> {
        Ok(DownstreamEdge { parent: OpSeq(self.edge_parent), required: self.edge_required != 0, child: self.child.read()? })
    }
}

/// An edge with its parent.
#[derive(Debug, QueryableByName)]
#[expect(missing_docs, reason = "what the names say")]
pub struct Upstream {
    #[diesel(sql_type = BigInt)]
    pub child: i64,
    #[diesel(sql_type = BigInt)]
    pub required: i64,
    #[diesel(sql_type = BigInt)]
    pub parent: i64,
    #[diesel(sql_type = Text)]
    pub parent_id: String,
    #[diesel(sql_type = Text)]
    pub parent_status: String,
}

impl Row for Upstream {
    type Value = UpstreamEdge;
    fn read(self) -> StoreResult<UpstreamEdge> {
        Ok(UpstreamEdge {
            child: OpSeq(self.child),
            required: self.required != 0,
            parent: OpSeq(self.parent),
            parent_id: name("ops.id", self.parent_id)?,
            parent_status: status(&self.parent_status)?,
        })
    }
}

/// An op with everything a person asks of it; see [`crate::op_view_columns`]. Besides: `due_at_us` of `ready` or
/// `delayed`; `result` of the last success, null unless the op is succeeded; the error of the last line of the ledger.
#[derive(Debug, QueryableByName)]
#[expect(missing_docs, reason = "what the names say")]
pub struct OpView {
    #[diesel(embed)]
    pub op: Op,
    #[diesel(sql_type = Text)]
    pub kind: String,
    #[diesel(sql_type = Text)]
    pub queue: String,
    #[diesel(sql_type = Text)]
    pub site: String,
    #[diesel(sql_type = Nullable<Text>)]
    pub agent: Option<String>,
    #[diesel(sql_type = Text)]
    pub input: String,
    #[diesel(sql_type = Text)]
    pub metadata: String,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub time_limit_us: Option<i64>,
    #[diesel(sql_type = BigInt)]
    pub created_at_us: i64,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub finished_at_us: Option<i64>,
    #[diesel(embed)]
    pub lease: OuterLease,
    #[diesel(embed)]
    pub wait: OuterWait,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub due_at_us: Option<i64>,
    #[diesel(sql_type = Nullable<Text>)]
    pub result: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub error_code: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub error_message: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub error_details: Option<String>,
}

impl Row for OpView {
    type Value = rows::OpView;
    fn read(self) -> StoreResult<rows::OpView> {
        let state = self.op.read()?;
        let lease = self.lease.of(state.seq, state.workflow)?;
        let wait = self.wait.of(state.seq, state.workflow)?;
        Ok(rows::OpView {
            status: state.status.status(lease.is_some()),
            state,
            kind: name("lanes.kind", self.kind)?,
            queue: name("lanes.queue", self.queue)?,
            site: name("lanes.site", self.site)?,
            agent: self.agent.map(|agent| name("lanes.agent", agent)).transpose()?,
            input: Json::from_stored(self.input),
            metadata: Json::from_stored(self.metadata),
            time_limit: time_limit(self.time_limit_us)?,
            created_at: instant("ops.created_at_us", self.created_at_us)?,
            finished_at: self.finished_at_us.map(|at| instant("ops.finished_at_us", at)).transpose()?,
            lease,
            due_at: self.due_at_us.map(|at| instant("ready.due_at_us", at)).transpose()?,
            wait,
            result: self.result.map(Json::from_stored),
            error: op_error(self.error_code, self.error_message, self.error_details),
        })
    }
}

/// The lease of an op, of an outer join: null throughout when there is none.
#[derive(Debug, QueryableByName)]
#[expect(missing_docs, reason = "the columns of the migrations")]
pub struct OuterLease {
    #[diesel(sql_type = Nullable<BigInt>)]
    pub lease_gate: Option<i64>,
    #[diesel(sql_type = Nullable<Text>)]
    pub lease_token: Option<String>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub lease_fence: Option<i64>,
    #[diesel(sql_type = Nullable<Text>)]
    pub lease_worker: Option<String>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub lease_acquired_at_us: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub lease_expires_at_us: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub lease_dispatched_at_us: Option<i64>,
}

impl OuterLease {
    fn of(self, op: OpSeq, workflow: WorkflowSeq) -> StoreResult<Option<rows::Lease>> {
        let columns =
            (self.lease_gate, self.lease_token, self.lease_fence, self.lease_worker, self.lease_acquired_at_us, self.lease_expires_at_us);
        let (Some(gate), Some(token), Some(fence), Some(worker), Some(acquired_at_us), Some(expires_at_us)) = columns else {
            return Ok(None);
        };
        let (op, workflow, dispatched_at_us) = (op.0, workflow.0, self.lease_dispatched_at_us);
        lease(super::Lease { op, workflow, gate, token, fence, worker, acquired_at_us, expires_at_us, dispatched_at_us }).map(Some)
    }
}

/// The result of a succeeded op.
#[derive(Debug, QueryableByName)]
#[expect(missing_docs, reason = "what the names say")]
pub struct OpResult {
    #[diesel(sql_type = BigInt)]
    pub op: i64,
    #[diesel(sql_type = Text)]
    pub result: String,
}

impl Row for OpResult {
    type Value = (OpSeq, Json);
    fn read(self) -> StoreResult<Self::Value> {
        Ok((OpSeq(self.op), Json::from_stored(self.result)))
    }
}

pub(super) fn retry_policy(stored: String) -> StoreResult<RetryPolicy> {
    serde_json::from_str(&stored).map_err(|_| Unreadable { column: "ops.retry", value: stored }.into())
}

pub(super) fn time_limit(stored: Option<i64>) -> StoreResult<Option<Micros>> {
    stored
        .map(|micros| Micros::new(micros).map_err(|_| Unreadable { column: "ops.time_limit_us", value: micros.to_string() }))
        .transpose()
        .map_err(StoreError::from)
}

fn status(stored: &str) -> StoreResult<StoredStatus> {
    word("ops.status", stored, StoredStatus::from_stored)
}
