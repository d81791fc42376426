//! Rows as they are, for whoever examines them.

use super::workflow::Counts;
use super::{Op, Ready, Row, instant};
use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Nullable};
use leasehold_core::model::{OpSeq, WorkflowSeq};
use leasehold_core::state::Counters;
use leasehold_core::store::{OpFacts, Place, StoreResult, rows};

/// An op's row; `lane_known` counts its lane if that and its gate are there.
#[derive(Debug, QueryableByName)]
#[expect(missing_docs, reason = "what the names say")]
pub struct Facts {
    #[diesel(embed)]
    pub op: Op,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub finished_at_us: Option<i64>,
    #[diesel(sql_type = BigInt)]
    pub lane_known: i64,
}

impl Row for Facts {
    type Value = OpFacts;
    fn read(self) -> StoreResult<OpFacts> {
        Ok(OpFacts {
            state: self.op.read()?,
            finished_at: self.finished_at_us.map(|at| instant("ops.finished_at_us", at)).transpose()?,
            lane_known: self.lane_known > 0,
        })
    }
}

/// A row of `ready`, or of `delayed` where `delayed` is 1.
#[derive(Debug, QueryableByName)]
#[expect(missing_docs, reason = "what the names say")]
pub struct Placed {
    #[diesel(embed)]
    pub queued: Ready,
    #[diesel(sql_type = BigInt)]
    pub delayed: i64,
}

impl Row for Placed {
    type Value = Place;
    fn read(self) -> StoreResult<Place> {
        Ok(Place { delayed: self.delayed != 0, queued: self.queued.read()? })
    }
}

/// An edge.
#[derive(Debug, QueryableByName)]
#[expect(missing_docs, reason = "the columns of the migrations")]
pub struct Edge {
    #[diesel(sql_type = BigInt)]
    pub child: i64,
    #[diesel(sql_type = BigInt)]
    pub parent: i64,
    #[diesel(sql_type = BigInt)]
    pub required: i64,
}

impl Row for Edge {
    type Value = rows::Edge;
    fn read(self) -> StoreResult<rows::Edge> {
        Ok(rows::Edge { child: OpSeq(self.child), parent: OpSeq(self.parent), required: self.required != 0 })
    }
}

/// How many ops of a workflow stand where, counted from the ops.
#[derive(Debug, QueryableByName)]
#[expect(missing_docs, reason = "what the names say")]
pub struct OpCounts {
    #[diesel(sql_type = BigInt)]
    pub workflow: i64,
    #[diesel(embed)]
    pub counts: Counts,
}

impl Row for OpCounts {
    type Value = (WorkflowSeq, Counters);
    fn read(self) -> StoreResult<Self::Value> {
        Ok((WorkflowSeq(self.workflow), self.counts.into()))
    }
}
