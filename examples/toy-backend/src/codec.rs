//! How rows are spelled in the file, where the contract's types do not say it themselves. For a backend on a database, its
//! driver does most of this.

use leasehold_core::model::{
    Artifact, ArtifactKind, ArtifactName, Bucket, CollectionName, DedupKey, Digest, Fence, GateKey, Json, Lane, LaneKey, LeaseToken,
    Micros, OpError, OpId, OpSeq, Record, RecordKey, RequestId, RetryPolicy, SiteName, SubjectId, Timestamp, WorkerName, WorkflowId,
    WorkflowName, WorkflowSeq,
};
use leasehold_core::state::{Counters, StoredStatus, WorkflowStatus};
use leasehold_core::store::rows::{
    Act, Attempt, AttemptOutcome, Edge, EventKind, Lease, LeaseKey, NewArtifact, NewEvent, NewOp, NewRecord, OpWait, OpWake, QueuedOp,
    WaitKey, WaitReason, WorkflowRow,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Values that are spelled another way in the file.
pub(crate) trait Spelled: Sized {
    type Spelling: Serialize + DeserializeOwned;
    fn spell(&self) -> Self::Spelling;
    fn read(spelling: Self::Spelling) -> Option<Self>;
}

/// For `#[serde(with = "spelled")]`.
mod spelled {
    use super::Spelled;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    pub(super) fn serialize<T: Spelled, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        value.spell().serialize(serializer)
    }
    pub(super) fn deserialize<'de, T: Spelled, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
        let spelling = T::Spelling::deserialize(deserializer)?;
        T::read(spelling).ok_or_else(|| D::Error::custom(format!("not a {}", std::any::type_name::<T>())))
    }
}

/// JSON comes back as the text that was given: read as a value and written again, its spaces and numbers would change.
impl Spelled for Json {
    type Spelling = String;
    fn spell(&self) -> String {
        self.as_str().to_owned()
    }
    fn read(spelling: String) -> Option<Self> {
        Some(Self::from_stored(spelling))
    }
}

impl Spelled for OpError {
    type Spelling = (String, String, String);
    fn spell(&self) -> Self::Spelling {
        (self.code.clone(), self.message.clone(), self.details.spell())
    }
    fn read((code, message, details): Self::Spelling) -> Option<Self> {
        Some(Self { code, message, details: Json::from_stored(details) })
    }
}

impl Spelled for Digest {
    type Spelling = String;
    fn spell(&self) -> String {
        self.to_string()
    }
    fn read(spelling: String) -> Option<Self> {
        spelling.parse().ok()
    }
}

impl<T: Spelled> Spelled for Option<T> {
    type Spelling = Option<T::Spelling>;
    fn spell(&self) -> Self::Spelling {
        self.as_ref().map(T::spell)
    }
    fn read(spelling: Self::Spelling) -> Option<Self> {
        match spelling {
            Some(spelling) => T::read(spelling).map(Some),
            None => Some(None),
        }
    }
}

macro_rules! spelled_as_stored {
    ($($name:ident),*) => {$(
        impl Spelled for $name {
            type Spelling = String;
            fn spell(&self) -> String {
                self.as_str().to_owned()
            }
            fn read(spelling: String) -> Option<Self> {
                Self::from_stored(&spelling)
            }
        }
    )*};
}
spelled_as_stored!(StoredStatus, AttemptOutcome, EventKind, WaitReason);

// ---- the core's structs, field by field, as serde wants them for types of another crate ----

#[derive(Serialize, Deserialize)]
#[serde(remote = "WorkflowRow")]
pub(crate) struct WorkflowDef {
    seq: WorkflowSeq,
    id: WorkflowId,
    request: RequestId,
    name: WorkflowName,
    #[serde(with = "spelled")]
    digest: Option<Digest>,
    #[serde(with = "spelled")]
    input: Json,
    #[serde(with = "spelled")]
    metadata: Json,
    site: SiteName,
    subject: Option<SubjectId>,
    status: WorkflowStatus,
    cancel_requested: bool,
    #[serde(with = "CountersDef")]
    counters: Counters,
    created_at: Timestamp,
    updated_at: Timestamp,
    finished_at: Option<Timestamp>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Counters")]
struct CountersDef {
    pending: i64,
    blocked: i64,
    open: i64,
    waiting: i64,
    succeeded: i64,
    failed: i64,
    canceled: i64,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "NewOp")]
pub(crate) struct OpDef {
    seq: OpSeq,
    workflow: WorkflowSeq,
    id: OpId,
    parent: Option<OpSeq>,
    lane: Lane,
    priority: i32,
    #[serde(with = "spelled")]
    input: Json,
    #[serde(with = "spelled")]
    metadata: Json,
    retry: RetryPolicy,
    dedup_key: Option<DedupKey>,
    time_limit: Option<Micros>,
    #[serde(with = "spelled")]
    spec: Digest,
    #[serde(with = "spelled")]
    status: StoredStatus,
    unmet: i32,
    broken: i32,
    created_at: Timestamp,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Edge")]
pub(crate) struct EdgeDef {
    child: OpSeq,
    parent: OpSeq,
    required: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Bucket")]
pub(crate) struct BucketDef {
    micro_tokens: i64,
    counted_at: Timestamp,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "QueuedOp")]
pub(crate) struct QueuedDef {
    op: OpSeq,
    lane: LaneKey,
    priority: i32,
    due_at: Timestamp,
    fence: Fence,
    failures: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "LeaseKey")]
struct LeaseKeyDef {
    op: OpSeq,
    token: LeaseToken,
    fence: Fence,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Lease")]
pub(crate) struct LeaseDef {
    #[serde(with = "LeaseKeyDef")]
    key: LeaseKey,
    workflow: WorkflowSeq,
    gate: GateKey,
    worker: WorkerName,
    acquired_at: Timestamp,
    expires_at: Timestamp,
    dispatched_at: Option<Timestamp>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "WaitKey")]
struct WaitKeyDef {
    op: OpSeq,
    fence: Fence,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "OpWait")]
pub(crate) struct WaitDef {
    #[serde(with = "WaitKeyDef")]
    key: WaitKey,
    workflow: WorkflowSeq,
    #[serde(with = "spelled")]
    reason: WaitReason,
    since: Timestamp,
    due_at: Option<Timestamp>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "OpWake")]
pub(crate) struct WakeDef {
    #[serde(with = "WaitDef")]
    wait: OpWait,
    woken_at: Timestamp,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Attempt")]
pub(crate) struct AttemptDef {
    #[serde(with = "LeaseKeyDef")]
    key: LeaseKey,
    workflow: WorkflowSeq,
    worker: WorkerName,
    acquired_at: Timestamp,
    ended_at: Timestamp,
    #[serde(with = "spelled")]
    outcome: AttemptOutcome,
    #[serde(with = "spelled")]
    result: Option<Json>,
    #[serde(with = "spelled")]
    error: Option<OpError>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "NewArtifact")]
pub(crate) struct ArtifactDef {
    op: OpSeq,
    workflow: WorkflowSeq,
    fence: Fence,
    #[serde(with = "ContentDef")]
    artifact: Artifact,
    #[serde(with = "spelled")]
    sha256: Digest,
    at: Timestamp,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Artifact")]
struct ContentDef {
    name: ArtifactName,
    kind: ArtifactKind,
    content_type: String,
    #[serde(with = "spelled")]
    metadata: Json,
    content: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "NewRecord")]
pub(crate) struct RecordDef {
    workflow: WorkflowSeq,
    op: OpSeq,
    #[serde(with = "ValueDef")]
    record: Record,
    at: Timestamp,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Record")]
struct ValueDef {
    collection: CollectionName,
    key: RecordKey,
    #[serde(with = "spelled")]
    value: Json,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "NewEvent")]
pub(crate) struct EventDef {
    at: Timestamp,
    #[serde(with = "spelled")]
    kind: EventKind,
    workflow: Option<WorkflowSeq>,
    op: Option<OpSeq>,
    fence: Option<Fence>,
    actor: Option<String>,
    detail: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Act")]
pub(crate) struct ActDef {
    request: RequestId,
    question: String,
    #[serde(with = "spelled")]
    answer: Json,
    actor: String,
    at: Timestamp,
}
