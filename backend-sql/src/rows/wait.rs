//! Rows of `waits` and `wakes`.

use super::{Row, instant, word};
use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Nullable, Text};
use leasehold_core::model::{Fence, OpSeq, WorkflowSeq};
use leasehold_core::store::StoreResult;
use leasehold_core::store::rows::{OpWait, OpWake, WaitKey, WaitReason};

/// A row of `waits`; see [`crate::wait_columns`].
#[derive(Debug, QueryableByName)]
#[expect(missing_docs, reason = "the columns of the migrations")]
pub struct Wait {
    #[diesel(sql_type = BigInt)]
    pub op: i64,
    #[diesel(sql_type = BigInt)]
    pub workflow: i64,
    #[diesel(sql_type = BigInt)]
    pub fence: i64,
    #[diesel(sql_type = Text)]
    pub reason: String,
    #[diesel(sql_type = BigInt)]
    pub since_us: i64,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub due_at_us: Option<i64>,
}

impl Row for Wait {
    type Value = OpWait;
    fn read(self) -> StoreResult<OpWait> {
        Ok(OpWait {
            key: WaitKey { op: OpSeq(self.op), fence: Fence(self.fence) },
            workflow: WorkflowSeq(self.workflow),
            reason: word("waits.reason", &self.reason, WaitReason::from_stored)?,
            since: instant("waits.since_us", self.since_us)?,
            due_at: self.due_at_us.map(|at| instant("waits.due_at_us", at)).transpose()?,
        })
    }
}

/// A row of `wakes`.
#[derive(Debug, QueryableByName)]
#[expect(missing_docs, reason = "the columns of the migrations")]
pub struct Wake {
    #[diesel(embed)]
    pub wait: Wait,
    #[diesel(sql_type = BigInt)]
    pub woken_at_us: i64,
}

impl Row for Wake {
    type Value = OpWake;
    fn read(self) -> StoreResult<OpWake> {
        Ok(OpWake { wait: self.wait.read()?, woken_at: instant("wakes.woken_at_us", self.woken_at_us)? })
    }
}

/// The wait of an op, of an outer join: null throughout when there is none; see [`crate::op_view_columns`].
#[derive(Debug, QueryableByName)]
#[expect(missing_docs, reason = "the columns of the migrations")]
pub struct OuterWait {
    #[diesel(sql_type = Nullable<BigInt>)]
    pub wait_fence: Option<i64>,
    #[diesel(sql_type = Nullable<Text>)]
    pub wait_reason: Option<String>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub wait_since_us: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub wait_due_at_us: Option<i64>,
}

impl OuterWait {
    pub(super) fn of(self, op: OpSeq, workflow: WorkflowSeq) -> StoreResult<Option<OpWait>> {
        let (Some(fence), Some(reason), Some(since_us)) = (self.wait_fence, self.wait_reason, self.wait_since_us) else {
            return Ok(None);
        };
        let due_at_us = self.wait_due_at_us;
        Wait { op: op.0, workflow: workflow.0, fence, reason, since_us, due_at_us }.read().map(Some)
    }
}
