//! Rows that only clients and operators ask for.

use super::lease::OuterBucket;
use super::{Row, instant, name, number, parsed, word, workflow};
use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Binary, Double, Nullable, Text};
use leasehold_core::model::{ArtifactKind, EventSeq, Fence, Json, OpSeq, QueuePolicy, RateLimit, WorkflowSeq};
use leasehold_core::state::{Counters, WorkflowStatus};
use leasehold_core::store::StoreResult;
use leasehold_core::store::rows::{self, ArtifactRow, EventKind, EventRow, NewEvent, NewRecord};

/// A policy, or the most specific one of an outer join: null throughout when there is none; see [`crate::policy_columns`].
#[derive(Debug, QueryableByName)]
#[expect(missing_docs, reason = "the columns of the migrations")]
pub struct OuterPolicy {
    #[diesel(sql_type = Nullable<Text>)]
    pub policy_queue: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub policy_site: Option<String>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub max_in_flight: Option<i64>,
    #[diesel(sql_type = Nullable<Double>)]
    pub rate_per_second: Option<f64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub rate_burst: Option<i64>,
}

impl Row for OuterPolicy {
    type Value = Option<QueuePolicy>;
    fn read(self) -> StoreResult<Option<QueuePolicy>> {
        let (Some(queue), Some(site)) = (self.policy_queue, self.policy_site) else {
            return Ok(None);
        };
        let rate = match (self.rate_per_second, self.rate_burst) {
            (Some(per_second), Some(burst)) => Some(RateLimit { per_second, burst: number("policies.rate_burst", burst)? }),
            _ => None,
        };
        Ok(Some(QueuePolicy {
            // Every site without a policy of its own is stored as the empty text, which is no site's name.
            site: if site.is_empty() { None } else { Some(name("policies.site", site)?) },
            queue: name("policies.queue", queue)?,
            max_in_flight: self.max_in_flight.map(|max| number("policies.max_in_flight", max)).transpose()?,
            rate,
        }))
    }
}

/// A row of `acts`.
#[derive(Debug, QueryableByName)]
#[expect(missing_docs, reason = "the columns of the migrations")]
pub struct Act {
    #[diesel(sql_type = Text)]
    pub request: String,
    #[diesel(sql_type = Text)]
    pub question: String,
    #[diesel(sql_type = Text)]
    pub answer: String,
    #[diesel(sql_type = Text)]
    pub actor: String,
    #[diesel(sql_type = BigInt)]
    pub at_us: i64,
}

impl Row for Act {
    type Value = rows::Act;
    fn read(self) -> StoreResult<rows::Act> {
        Ok(rows::Act {
            request: parsed("acts.request", &self.request)?,
            question: self.question,
            answer: Json::from_stored(self.answer),
            actor: self.actor,
            at: instant("acts.at_us", self.at_us)?,
        })
    }
}

/// A row of `artifacts` without its content.
#[derive(Debug, QueryableByName)]
#[expect(missing_docs, reason = "the columns of the migrations")]
pub struct Artifact {
    #[diesel(sql_type = BigInt)]
    pub op: i64,
    #[diesel(sql_type = Text)]
    pub op_id: String,
    #[diesel(sql_type = Text)]
    pub name: String,
    #[diesel(sql_type = Text)]
    pub kind: String,
    #[diesel(sql_type = Text)]
    pub content_type: String,
    #[diesel(sql_type = Text)]
    pub metadata: String,
    #[diesel(sql_type = BigInt)]
    pub size: i64,
    #[diesel(sql_type = Text)]
    pub sha256: String,
    #[diesel(sql_type = BigInt)]
    pub fence: i64,
    #[diesel(sql_type = BigInt)]
    pub at_us: i64,
}

impl Row for Artifact {
    type Value = ArtifactRow;
    fn read(self) -> StoreResult<ArtifactRow> {
        Ok(ArtifactRow {
            op: OpSeq(self.op),
            op_id: name("ops.id", self.op_id)?,
            name: name("artifacts.name", self.name)?,
            kind: word("artifacts.kind", &self.kind, ArtifactKind::from_stored)?,
            content_type: self.content_type,
            metadata: Json::from_stored(self.metadata),
            size: self.size,
            sha256: parsed("artifacts.sha256", &self.sha256)?,
            fence: Fence(self.fence),
            at: instant("artifacts.at_us", self.at_us)?,
        })
    }
}

/// The content of an artifact.
#[derive(Debug, QueryableByName)]
pub struct Content {
    /// The bytes.
    #[diesel(sql_type = Binary)]
    pub content: Vec<u8>,
}

/// A row of `records`.
#[derive(Debug, QueryableByName)]
#[expect(missing_docs, reason = "the columns of the migrations")]
pub struct Record {
    #[diesel(sql_type = BigInt)]
    pub workflow: i64,
    #[diesel(sql_type = Text)]
    pub collection: String,
    #[diesel(sql_type = Text)]
    pub key: String,
    #[diesel(sql_type = BigInt)]
    pub op: i64,
    #[diesel(sql_type = Text)]
    pub value: String,
    #[diesel(sql_type = BigInt)]
    pub at_us: i64,
}

impl Row for Record {
    type Value = NewRecord;
    fn read(self) -> StoreResult<NewRecord> {
        Ok(NewRecord {
            workflow: WorkflowSeq(self.workflow),
            op: OpSeq(self.op),
            record: leasehold_core::model::Record {
                collection: name("records.collection", self.collection)?,
                key: name("records.key", self.key)?,
                value: Json::from_stored(self.value),
            },
            at: instant("records.at_us", self.at_us)?,
        })
    }
}

/// A row of `events`, with the public ids.
#[derive(Debug, QueryableByName)]
#[expect(missing_docs, reason = "the columns of the migrations")]
pub struct Event {
    #[diesel(sql_type = BigInt)]
    pub seq: i64,
    #[diesel(sql_type = BigInt)]
    pub at_us: i64,
    #[diesel(sql_type = Text)]
    pub kind: String,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub workflow: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub op: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub fence: Option<i64>,
    #[diesel(sql_type = Nullable<Text>)]
    pub actor: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub detail: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub workflow_id: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub op_id: Option<String>,
}

impl Row for Event {
    type Value = EventRow;
    fn read(self) -> StoreResult<EventRow> {
        Ok(EventRow {
            seq: EventSeq(self.seq),
            event: NewEvent {
                at: instant("events.at_us", self.at_us)?,
                kind: word("events.kind", &self.kind, EventKind::from_stored)?,
                workflow: self.workflow.map(WorkflowSeq),
                op: self.op.map(OpSeq),
                fence: self.fence.map(Fence),
                actor: self.actor,
                detail: self.detail,
            },
            workflow_id: self.workflow_id.map(|id| name("workflows.id", id)).transpose()?,
            op_id: self.op_id.map(|id| name("ops.id", id)).transpose()?,
        })
    }
}

/// A queue at one site; the policy as [`crate::policy_columns`].
#[derive(Debug, QueryableByName)]
#[expect(missing_docs, reason = "what the names say")]
pub struct QueueStatus {
    #[diesel(sql_type = Text)]
    pub site: String,
    #[diesel(sql_type = Text)]
    pub queue: String,
    #[diesel(sql_type = BigInt)]
    pub ready: i64,
    #[diesel(sql_type = BigInt)]
    pub delayed: i64,
    #[diesel(sql_type = BigInt)]
    pub in_flight: i64,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub oldest_due_at_us: Option<i64>,
    #[diesel(embed)]
    pub policy: OuterPolicy,
    #[diesel(embed)]
    pub bucket: OuterBucket,
}

impl Row for QueueStatus {
    type Value = rows::QueueStatus;
    fn read(self) -> StoreResult<rows::QueueStatus> {
        Ok(rows::QueueStatus {
            site: name("gates.site", self.site)?,
            queue: name("gates.queue", self.queue)?,
            ready: self.ready,
            delayed: self.delayed,
            in_flight: self.in_flight,
            oldest_due_at: self.oldest_due_at_us.map(|at| instant("ready.due_at_us", at)).transpose()?,
            policy: self.policy.read()?,
            bucket: self.bucket.read()?,
        })
    }
}

/// Workflows of one status, and the sums of their counters.
#[derive(Debug, QueryableByName)]
#[expect(missing_docs, reason = "what the names say")]
pub struct StatusTotals {
    #[diesel(sql_type = Text)]
    pub status: String,
    #[diesel(sql_type = BigInt)]
    pub workflows: i64,
    #[diesel(embed)]
    pub counts: workflow::Counts,
}

impl Row for StatusTotals {
    type Value = (WorkflowStatus, i64, Counters);
    fn read(self) -> StoreResult<Self::Value> {
        Ok((workflow::status(&self.status)?, self.workflows, self.counts.into()))
    }
}

/// Leases that hold, and those that are expired.
#[derive(Debug, QueryableByName)]
#[expect(missing_docs, reason = "what the names say")]
pub struct LeaseTotals {
    #[diesel(sql_type = BigInt)]
    pub live: i64,
    #[diesel(sql_type = BigInt)]
    pub expired: i64,
}
