//! What an application says of one op, and what its handler leaves behind.

use super::{
    AgentName, ArtifactName, CollectionName, DedupKey, Json, KindName, Micros, OpId, QueueName, RecordKey, RetryPolicy, SiteName,
    storable_text,
};
use serde::{Deserialize, Serialize};

/// That an op waits for another of its workflow.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Dependency {
    /// The op waited for.
    pub on: OpId,
    /// Whether it must succeed. One that need not only has to be settled: succeeded, failed, blocked or canceled.
    pub required: bool,
}

/// One op to create: everything that stays as it is said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpSpec {
    /// Its id, unique in the workflow.
    pub id: OpId,
    /// Which handler runs it.
    pub kind: KindName,
    /// Where it waits.
    pub queue: QueueName,
    /// Its site; `None` takes the parent's, else the workflow's.
    pub site: Option<SiteName>,
    /// The agent that must run it; `None` is any worker with its kind.
    pub agent: Option<AgentName>,
    /// Higher is claimed first, strictly, inside one lane.
    pub priority: i32,
    /// What the handler gets.
    pub input: Json,
    /// What people and tools attach to it.
    pub metadata: Json,
    /// The ops it waits for: of the same call or, when it is added, of the workflow.
    pub after: Vec<Dependency>,
    /// Ops that shall also wait for it. They are of the same call, or still pending in the workflow; then `after` may
    /// name ops of the same call only, so that no cycle can arise.
    pub before: Vec<OpId>,
    /// When a failed attempt is tried again.
    pub retry: RetryPolicy,
    /// A second op with the same key in the same workflow attaches to the first.
    pub dedup_key: Option<DedupKey>,
    /// How long one attempt may run; then it fails as "timed out". `None` is as long as its lease is renewed.
    #[serde(rename = "time_limit_us")]
    pub time_limit: Option<Micros>,
}

impl OpSpec {
    /// An op `id` of `kind` with nothing else said.
    pub fn new(id: OpId, kind: KindName) -> Self {
        Self {
            id,
            kind,
            queue: QueueName::default(),
            site: None,
            agent: None,
            priority: 0,
            input: Json::null(),
            metadata: Json::null(),
            after: Vec::new(),
            before: Vec::new(),
            retry: RetryPolicy::default(),
            dedup_key: None,
            time_limit: None,
        }
    }
}

/// Whether an error is worth another attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// Another attempt may succeed.
    Retryable,
    /// Every attempt would fail alike.
    Permanent,
}

/// What a failed attempt leaves behind: a stable code for programs, a message for people, details as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpError {
    /// A stable code, such as `timed_out`.
    pub code: String,
    /// What went wrong, for a person.
    pub message: String,
    /// Anything else, for a program.
    #[serde(default)]
    pub details: Json,
}

impl OpError {
    /// The code of an error that named none.
    pub const GENERIC: &'static str = "error";
    /// The handler panicked.
    pub const PANICKED: &'static str = "panicked";
    /// The attempt ran longer than the op's time limit.
    pub const TIMED_OUT: &'static str = "timed_out";
    /// More workers were lost with the op than its policy allows.
    pub const WORKER_LOST: &'static str = "worker_lost";
    /// The handler's result is over the limit or cannot be stored.
    pub const BAD_RESULT: &'static str = "bad_result";
    /// The op's input does not have the shape that the handler takes.
    pub const BAD_INPUT: &'static str = "bad_input";
    /// The handler ended the attempt in a transaction of its own that was not committed.
    pub const NOT_COMMITTED: &'static str = "not_committed";
    /// What the handler emitted was refused.
    pub const BAD_EMISSION: &'static str = "bad_emission";
    /// Nobody knows what the attempt did.
    pub const OUTCOME_UNKNOWN: &'static str = "outcome_unknown";
    /// An operator or a probe said that the op has failed.
    pub const VERDICT: &'static str = "verdict";
    /// A wait that cannot be: not positive, or past year 9999.
    pub const BAD_WAIT: &'static str = "bad_wait";

    /// An error with `code` and `message`.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), details: Json::null() }
    }

    /// The same with texts that every store holds: without NUL characters, code and message cut to `limit` bytes each.
    #[must_use]
    pub fn storable(&self, limit: usize) -> Self {
        Self { code: storable_text(&self.code, limit), message: storable_text(&self.message, limit), details: self.details.clone() }
    }
}

/// What an artifact is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArtifactKind {
    /// Text that people read.
    Text,
    /// A picture.
    Image,
    /// Sound.
    Audio,
    /// Anything else.
    Binary,
}

impl ArtifactKind {
    /// As stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Image => "image",
            Self::Audio => "audio",
            Self::Binary => "binary",
        }
    }
    /// Reads the stored form.
    pub fn from_stored(text: &str) -> Option<Self> {
        [Self::Text, Self::Image, Self::Audio, Self::Binary].into_iter().find(|kind| kind.as_str() == text)
    }
}

/// Something an op made, kept with the op under a name. A later attempt's replaces an earlier one's of that name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// Its name, unique in the op.
    pub name: ArtifactName,
    /// What it is.
    pub kind: ArtifactKind,
    /// Its media type, such as `text/plain`.
    pub content_type: String,
    /// What people and tools attach to it.
    pub metadata: Json,
    /// The bytes.
    pub content: Vec<u8>,
}

/// A value kept under (collection, key) of the workflow; the last writer wins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The group.
    pub collection: CollectionName,
    /// The key in the group.
    pub key: RecordKey,
    /// The value.
    pub value: Json,
}
