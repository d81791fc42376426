//! What goes into a store and comes out of it.

mod wait;

pub use wait::{OpWait, OpWake, TakeWait, TakenWaits, WaitKey, WaitReason};

use super::ClockReading;
use crate::model::{
    AgentName, Artifact, ArtifactKind, ArtifactName, Bucket, DedupKey, Digest, Effect, EventSeq, Fence, GateKey, Json, KindName, Lane,
    LaneKey, LeaseToken, Micros, OpError, OpId, OpSeq, QueueName, QueuePolicy, Record, RequestId, RetryPolicy, SiteName, SubjectId,
    Timestamp, WorkerName, WorkflowId, WorkflowName, WorkflowSeq,
};
use crate::state::{Counters, OpStatus, StoredStatus, WorkflowStatus};

// ---- workflows ----

/// A workflow to insert; its counters start at zero and are raised by the write that inserts its ops.
#[derive(Debug, Clone)]
pub struct NewWorkflow {
    /// Its public id.
    pub id: WorkflowId,
    /// The call that creates it, so that its repetition finds its own row.
    pub request: RequestId,
    /// What it does.
    pub name: WorkflowName,
    /// Its identity's digest.
    pub digest: Option<Digest>,
    /// What it was started with.
    pub input: Json,
    /// What people and tools attach.
    pub metadata: Json,
    /// The site of ops that name none.
    pub site: SiteName,
    /// Whom its data is about.
    pub subject: Option<SubjectId>,
    /// When it is created.
    pub created_at: Timestamp,
}

/// A workflow as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowRow {
    /// The store's key.
    pub seq: WorkflowSeq,
    /// Its public id.
    pub id: WorkflowId,
    /// The call that created it.
    pub request: RequestId,
    /// What it does.
    pub name: WorkflowName,
    /// Its identity's digest.
    pub digest: Option<Digest>,
    /// What it was started with.
    pub input: Json,
    /// What people and tools attach.
    pub metadata: Json,
    /// The site of ops that name none.
    pub site: SiteName,
    /// Whom its data is about.
    pub subject: Option<SubjectId>,
    /// Where it stands.
    pub status: WorkflowStatus,
    /// Whether it was canceled as a whole: final.
    pub cancel_requested: bool,
    /// How many of its ops stand where.
    pub counters: Counters,
    /// When it was created.
    pub created_at: Timestamp,
    /// When a commit last changed it; later than in every earlier commit of the store.
    pub updated_at: Timestamp,
    /// When it ended, if it has.
    pub finished_at: Option<Timestamp>,
}

/// What a transaction knows of a workflow whose row it holds locked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockedWorkflow {
    /// The store's key.
    pub seq: WorkflowSeq,
    /// Its public id.
    pub id: WorkflowId,
    /// The site of ops that name none.
    pub site: SiteName,
    /// Where it stands.
    pub status: WorkflowStatus,
    /// Whether it was canceled as a whole.
    pub cancel_requested: bool,
    /// How many of its ops stand where.
    pub counters: Counters,
}

/// The new facts of a workflow whose row is locked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowChange {
    /// Which one.
    pub seq: WorkflowSeq,
    /// Where it now stands.
    pub status: WorkflowStatus,
    /// Whether it was canceled as a whole.
    pub cancel_requested: bool,
    /// The new counts.
    pub counters: Counters,
    /// When it ended; `None` clears it.
    pub finished_at: Option<Timestamp>,
    /// The transaction's time; the store raises `updated_at` to this or past every committed one, whichever is later.
    pub at: Timestamp,
}

// ---- the graph ----

/// An op to insert.
#[derive(Debug, Clone)]
pub struct NewOp {
    /// Its key, from [`crate::store::GraphTx::reserve_ops`].
    pub seq: OpSeq,
    /// Its workflow.
    pub workflow: WorkflowSeq,
    /// Its public id.
    pub id: OpId,
    /// The op whose attempt emitted it.
    pub parent: Option<OpSeq>,
    /// Where it waits: site, queue, kind and agent.
    pub lane: Lane,
    /// Higher is claimed first.
    pub priority: i32,
    /// What the handler gets.
    pub input: Json,
    /// What people and tools attach.
    pub metadata: Json,
    /// When a failed attempt is tried again.
    pub retry: RetryPolicy,
    /// Unique in the workflow.
    pub dedup_key: Option<DedupKey>,
    /// How long one attempt may run.
    pub time_limit: Option<Micros>,
    /// The digest of its whole spec: an emission that repeats an id attaches only if this is equal.
    pub spec: Digest,
    /// Its first status.
    pub status: StoredStatus,
    /// How many parents it waits for.
    pub unmet: i32,
    /// How many parents block it.
    pub broken: i32,
    /// When it is created.
    pub created_at: Timestamp,
}

/// A dependency to insert, between ops of one workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Edge {
    /// The op that waits.
    pub child: OpSeq,
    /// The op waited for.
    pub parent: OpSeq,
    /// Whether it must succeed.
    pub required: bool,
}

/// What transitions read of an op.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpState {
    /// Its key.
    pub seq: OpSeq,
    /// Its workflow.
    pub workflow: WorkflowSeq,
    /// Its public id.
    pub id: OpId,
    /// What its row says.
    pub status: StoredStatus,
    /// How many parents it waits for; meaningful while it is pending or blocked.
    pub unmet: i32,
    /// How many parents block it; likewise.
    pub broken: i32,
    /// The fence of its last ended attempt.
    pub fence: Fence,
    /// Failures that count against its policy.
    pub failures: u32,
    /// Lost workers that count against its policy.
    pub losses: u32,
    /// Where it waits.
    pub lane: LaneKey,
    /// Higher is claimed first.
    pub priority: i32,
    /// Its policy.
    pub retry: RetryPolicy,
    /// The op that emitted it.
    pub parent: Option<OpSeq>,
    /// Its dedup key.
    pub dedup_key: Option<DedupKey>,
    /// The digest of its spec.
    pub spec: Digest,
}

/// An edge, with the child it leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DownstreamEdge {
    /// The op waited for.
    pub parent: OpSeq,
    /// Whether it must succeed.
    pub required: bool,
    /// The op that waits.
    pub child: OpState,
}

/// An edge, with the parent it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamEdge {
    /// The op that waits.
    pub child: OpSeq,
    /// Whether the parent must succeed.
    pub required: bool,
    /// The op waited for.
    pub parent: OpSeq,
    /// Its public id.
    pub parent_id: OpId,
    /// What its row says.
    pub parent_status: StoredStatus,
}

/// How far a read of the graph goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// To the children.
    Children,
    /// On through every child that a required edge reaches, to the end.
    Descendants,
}

/// The new facts of one op: written only while its row still says `from`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpChange {
    /// Which op.
    pub op: OpSeq,
    /// What its row must say.
    pub from: StoredStatus,
    /// What it says then.
    pub to: StoredStatus,
    /// The new count of unmet parents.
    pub unmet: i32,
    /// The new count of blocking parents.
    pub broken: i32,
    /// The fence of the attempt that ended; `None` leaves it as it is.
    pub fence: Option<Fence>,
    /// The counted failures; `None` leaves them.
    pub failures: Option<u32>,
    /// The counted lost workers; `None` leaves them.
    pub losses: Option<u32>,
    /// When it ended; `None` writes that it has not, or not any more.
    pub finished_at: Option<Timestamp>,
}

/// A place in `ready` or `delayed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuedOp {
    /// The op.
    pub op: OpSeq,
    /// Where it waits.
    pub lane: LaneKey,
    /// Higher is claimed first.
    pub priority: i32,
    /// When it may be claimed; inside a priority the oldest goes first.
    pub due_at: Timestamp,
    /// The fence of its last attempt: the next lease's is one more.
    pub fence: Fence,
    /// Failures so far, for the handler to know.
    pub failures: u32,
}

// ---- leases ----

/// What names and proves one lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseKey {
    /// The op.
    pub op: OpSeq,
    /// The secret of the claim.
    pub token: LeaseToken,
    /// The attempt's number.
    pub fence: Fence,
}

/// A lease as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// What names it.
    pub key: LeaseKey,
    /// The op's workflow.
    pub workflow: WorkflowSeq,
    /// What it counts against.
    pub gate: GateKey,
    /// Who holds it: a label.
    pub worker: WorkerName,
    /// When it was given.
    pub acquired_at: Timestamp,
    /// It is expired from this instant on.
    pub expires_at: Timestamp,
    /// When its op was dispatched: from then on its handler may have begun. Only of ops whose effect must not be repeated.
    pub dispatched_at: Option<Timestamp>,
}

/// Which leases a transaction takes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Take {
    /// Those that hold: expiring later than now, and not acquired later than now.
    Live,
    /// Those that are expired: expiring at now or before.
    Expired,
}

/// Leases that were taken away, and the instant at which they were judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// The transition's own time, read behind the locks.
    pub now: Timestamp,
    /// The leases, in no order.
    pub leases: Vec<Lease>,
}

/// A lane that has something to claim, with what limits it.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenLane {
    /// The lane.
    pub lane: Lane,
    /// The most specific policy of its gate.
    pub policy: Option<QueuePolicy>,
    /// Leases of its gate, counted without a lock: a hint. Zero where its policy sets no `max_in_flight`.
    pub in_flight: u32,
}

/// What a look at lanes found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OpenLanes {
    /// The clock, read in the same statement; `None` where there are no lanes, and so nothing to claim.
    pub clock: Option<ClockReading>,
    /// The lanes.
    pub lanes: Vec<OpenLane>,
}

/// Which lanes to look at.
#[derive(Debug, Clone)]
pub struct LaneScan {
    /// Begin behind this lane, in key order; `None` from the start.
    pub after: Option<LaneKey>,
    /// Only lanes of these kinds; `None` is every kind.
    pub kinds: Option<Vec<KindName>>,
    /// Only lanes that name no agent or one of these.
    pub agents: Vec<AgentName>,
    /// At most this many.
    pub limit: u32,
}

/// A gate whose row is locked, counted by a statement of its own after the lock.
#[derive(Debug, Clone, PartialEq)]
pub struct LockedGate {
    /// Which gate.
    pub gate: GateKey,
    /// The most specific policy, read after the lock.
    pub policy: Option<QueuePolicy>,
    /// Its leases; expired ones hold their slots until they are recovered.
    pub in_flight: u32,
    /// Its token bucket; `None` before its first use.
    pub bucket: Option<Bucket>,
    /// The store's time after the lock.
    pub now: Timestamp,
}

/// What to claim.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The token of every lease it gives, made before the first try.
    pub token: LeaseToken,
    /// Who claims.
    pub worker: WorkerName,
    /// How long the leases last.
    pub lease: Micros,
    /// How many to take from which lane.
    pub takes: Vec<LaneTake>,
}

/// A lane to take from. All takes of one gate carry the same limit and are served together: at most that many of the
/// gate's ops in all, the best first across its lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneTake {
    /// The lane.
    pub lane: LaneKey,
    /// Its gate.
    pub gate: GateKey,
    /// At most this many of the gate.
    pub limit: u32,
}

/// An op that was leased, with all its handler needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedOp {
    /// The lease.
    pub lease: Lease,
    /// Its workflow's public id.
    pub workflow_id: WorkflowId,
    /// Its public id.
    pub op_id: OpId,
    /// The op that emitted it, by its public id.
    pub parent: Option<OpId>,
    /// Its kind.
    pub kind: KindName,
    /// Its queue.
    pub queue: QueueName,
    /// Its site.
    pub site: SiteName,
    /// What the handler gets.
    pub input: Json,
    /// What people and tools attached.
    pub metadata: Json,
    /// How long the attempt may run.
    pub time_limit: Option<Micros>,
    /// Whether its attempt may be repeated when nobody knows what it did.
    pub effect: Effect,
    /// Failures before this attempt.
    pub failures: u32,
    /// Since when it could have been claimed.
    pub due_at: Timestamp,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AttemptOutcome {
    /// With a result.
    Succeeded,
    /// With an error, and it was the last.
    Failed,
    /// With an error, and another will come.
    Retried,
    /// Its handler asked to wait.
    Suspended,
    /// The op or its workflow was canceled.
    Canceled,
    /// Its worker gave it back.
    Released,
    /// Its lease ran out, or it was stopped: what it did is unknown.
    Abandoned,
}

impl AttemptOutcome {
    /// Every outcome.
    pub const ALL: [Self; 7] =
        [Self::Succeeded, Self::Failed, Self::Retried, Self::Suspended, Self::Canceled, Self::Released, Self::Abandoned];

    /// As stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Retried => "retried",
            Self::Suspended => "suspended",
            Self::Canceled => "canceled",
            Self::Released => "released",
            Self::Abandoned => "abandoned",
        }
    }
    /// Reads the stored form.
    pub fn from_stored(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == text)
    }
}

/// A line of the ledger: written once, by whatever ended the attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The lease it had; its fence is the attempt's number.
    pub key: LeaseKey,
    /// The op's workflow.
    pub workflow: WorkflowSeq,
    /// Who held it.
    pub worker: WorkerName,
    /// When the lease was given.
    pub acquired_at: Timestamp,
    /// When the attempt ended, by the store's clock.
    pub ended_at: Timestamp,
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// What a success gave.
    pub result: Option<Json>,
    /// Why it failed.
    pub error: Option<OpError>,
}

// ---- what a commit writes besides ----

/// An artifact to insert or replace, by (op, name).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewArtifact {
    /// The op that made it.
    pub op: OpSeq,
    /// Its workflow.
    pub workflow: WorkflowSeq,
    /// The attempt that made it.
    pub fence: Fence,
    /// What it is.
    pub artifact: Artifact,
    /// SHA-256 of its content.
    pub sha256: Digest,
    /// When it was written.
    pub at: Timestamp,
}

/// A record to insert or replace, by (workflow, collection, key).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRecord {
    /// Its workflow.
    pub workflow: WorkflowSeq,
    /// The op that wrote it.
    pub op: OpSeq,
    /// What it says.
    pub record: Record,
    /// When it was written.
    pub at: Timestamp,
}

/// What an event tells (O2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventKind {
    /// A workflow was created.
    WorkflowCreated,
    /// A workflow's status changed, or ops were added.
    WorkflowUpdated,
    /// An op succeeded.
    OpSucceeded,
    /// An attempt failed and will be tried again.
    OpRetried,
    /// An op failed for good.
    OpFailed,
    /// A dependency broke.
    OpBlocked,
    /// A dependency was mended.
    OpUnblocked,
    /// An op was canceled.
    OpCanceled,
    /// A worker gave an op back.
    OpReleased,
    /// A lease ran out; the op is ready again.
    OpAbandoned,
    /// An operator retried an op.
    OpReopened,
    /// An op waits.
    OpWaiting,
    /// What an op waited for came; it is ready again.
    OpWoken,
    /// The store's clock is behind a time that it has shown before.
    ClockAnomaly,
    /// An operator restored trust in the clock.
    ClockTrusted,
    /// What was stored did not follow from the graph, and was put right.
    Repaired,
}

impl EventKind {
    /// Every kind.
    pub const ALL: [Self; 16] = [
        Self::WorkflowCreated,
        Self::WorkflowUpdated,
        Self::OpSucceeded,
        Self::OpRetried,
        Self::OpFailed,
        Self::OpBlocked,
        Self::OpUnblocked,
        Self::OpCanceled,
        Self::OpReleased,
        Self::OpAbandoned,
        Self::OpReopened,
        Self::OpWaiting,
        Self::OpWoken,
        Self::ClockAnomaly,
        Self::ClockTrusted,
        Self::Repaired,
    ];

    /// As stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WorkflowCreated => "workflow_created",
            Self::WorkflowUpdated => "workflow_updated",
            Self::OpSucceeded => "op_succeeded",
            Self::OpRetried => "op_retried",
            Self::OpFailed => "op_failed",
            Self::OpBlocked => "op_blocked",
            Self::OpUnblocked => "op_unblocked",
            Self::OpCanceled => "op_canceled",
            Self::OpReleased => "op_released",
            Self::OpAbandoned => "op_abandoned",
            Self::OpReopened => "op_reopened",
            Self::OpWaiting => "op_waiting",
            Self::OpWoken => "op_woken",
            Self::ClockAnomaly => "clock_anomaly",
            Self::ClockTrusted => "clock_trusted",
            Self::Repaired => "repaired",
        }
    }
    /// Reads the stored form.
    pub fn from_stored(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// An event to append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// When, by the store's clock.
    pub at: Timestamp,
    /// What.
    pub kind: EventKind,
    /// In which workflow; `None` for what is about the whole store.
    pub workflow: Option<WorkflowSeq>,
    /// To which op.
    pub op: Option<OpSeq>,
    /// In which attempt.
    pub fence: Option<Fence>,
    /// By whom: a worker or an operator.
    pub actor: Option<String>,
    /// The error's code, the new workflow status, or the operator's reason.
    pub detail: Option<String>,
}

/// An event as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRow {
    /// Its number; readers go by it.
    pub seq: EventSeq,
    /// What it tells.
    pub event: NewEvent,
    /// The workflow's public id.
    pub workflow_id: Option<WorkflowId>,
    /// The op's public id.
    pub op_id: Option<OpId>,
}

/// An operator's act, kept so that its repetition gets the first answer (L12).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Act {
    /// The call.
    pub request: RequestId,
    /// What was asked, with its target: another question under the same id is a conflict.
    pub question: String,
    /// What was answered.
    pub answer: Json,
    /// Who asked.
    pub actor: String,
    /// When.
    pub at: Timestamp,
}

/// All that one transition writes. Every non-empty part costs a bounded number of statements.
#[derive(Debug, Clone, Default)]
pub struct WriteSet {
    /// Lanes to make known; those that are there stay. Each also makes its gate known.
    pub lanes: Vec<Lane>,
    /// Ops to insert.
    pub ops: Vec<NewOp>,
    /// Dependencies to insert.
    pub edges: Vec<Edge>,
    /// Guarded changes of ops, at most one an op.
    pub changes: Vec<OpChange>,
    /// Ops that may be claimed from their due instant on, all of it now or before.
    pub ready: Vec<QueuedOp>,
    /// Ops that may be claimed later.
    pub delayed: Vec<QueuedOp>,
    /// Waits to insert.
    pub waits: Vec<OpWait>,
    /// How waits ended; each takes the place of its op's earlier one.
    pub wakes: Vec<OpWake>,
    /// Lines of the ledger.
    pub attempts: Vec<Attempt>,
    /// Artifacts, at most one of a name an op.
    pub artifacts: Vec<NewArtifact>,
    /// Records, at most one a key, sorted by the store.
    pub records: Vec<NewRecord>,
    /// Events, in the order they are numbered.
    pub events: Vec<NewEvent>,
    /// Workflows whose rows this transaction holds locked (or inserted), at most one change each.
    pub workflows: Vec<WorkflowChange>,
    /// The operator's act.
    pub act: Option<Act>,
}

// ---- what clients read ----

/// An op with everything a person asks of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpView {
    /// What transitions read of it.
    pub state: OpState,
    /// Its status.
    pub status: OpStatus,
    /// Its kind.
    pub kind: KindName,
    /// Its queue.
    pub queue: QueueName,
    /// Its site.
    pub site: SiteName,
    /// The agent it names.
    pub agent: Option<AgentName>,
    /// What the handler gets.
    pub input: Json,
    /// What people and tools attached.
    pub metadata: Json,
    /// How long one attempt may run.
    pub time_limit: Option<Micros>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// Its lease while it runs.
    pub lease: Option<Lease>,
    /// When it may be claimed, while it is ready.
    pub due_at: Option<Timestamp>,
    /// What it waits for, while it is waiting.
    pub wait: Option<OpWait>,
    /// The result of its last success, while it is succeeded.
    pub result: Option<Json>,
    /// The error of its last ended attempt, if that failed.
    pub error: Option<OpError>,
}

/// Which ops of a workflow to read: in key order, a page at a time.
#[derive(Debug, Clone)]
pub struct OpPage {
    /// Only ops whose rows say this.
    pub status: Option<StoredStatus>,
    /// Behind this key.
    pub after: Option<OpSeq>,
    /// At most this many.
    pub limit: u32,
}

/// Which workflows to list: newest first, a page at a time.
#[derive(Debug, Clone, Default)]
pub struct WorkflowPage {
    /// Only those of this name.
    pub name: Option<WorkflowName>,
    /// Only those at this site.
    pub site: Option<SiteName>,
    /// Only those that stand so.
    pub status: Option<WorkflowStatus>,
    /// Only those about this subject.
    pub subject: Option<SubjectId>,
    /// Created at this instant or later.
    pub created_from: Option<Timestamp>,
    /// Created before this instant.
    pub created_before: Option<Timestamp>,
    /// Older than the workflow with this key.
    pub before: Option<WorkflowSeq>,
    /// At most this many.
    pub limit: u32,
}

/// A position in the order of updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UpdateCursor {
    /// When the workflow was updated.
    pub updated_at: Timestamp,
    /// Which one.
    pub seq: WorkflowSeq,
}

/// An artifact without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactRow {
    /// The op that made it.
    pub op: OpSeq,
    /// The op's public id.
    pub op_id: OpId,
    /// Its name.
    pub name: ArtifactName,
    /// What it is.
    pub kind: ArtifactKind,
    /// Its media type.
    pub content_type: String,
    /// What people and tools attached.
    pub metadata: Json,
    /// Bytes of content.
    pub size: i64,
    /// SHA-256 of its content.
    pub sha256: Digest,
    /// The attempt that made it.
    pub fence: Fence,
    /// When it was written.
    pub at: Timestamp,
}

/// A queue at one site, as it stands (P2).
#[derive(Debug, Clone, PartialEq)]
pub struct QueueStatus {
    /// The site.
    pub site: SiteName,
    /// The queue.
    pub queue: QueueName,
    /// Ops that may be claimed now, those of `delayed` that are due included.
    pub ready: i64,
    /// Ops that wait for their instant.
    pub delayed: i64,
    /// Leases.
    pub in_flight: i64,
    /// Since when the longest waiting ready op is due.
    pub oldest_due_at: Option<Timestamp>,
    /// The most specific policy.
    pub policy: Option<QueuePolicy>,
    /// The token bucket.
    pub bucket: Option<Bucket>,
}

/// The store as a whole (P2).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    /// Workflows by status; one without any may be left out.
    pub workflows: Vec<(WorkflowStatus, i64)>,
    /// Ops by stored status.
    pub ops: Counters,
    /// Leases that are not expired.
    pub leases_live: i64,
    /// Leases that are expired and not yet recovered.
    pub leases_expired: i64,
}
