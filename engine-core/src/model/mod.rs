//! Values: names, instants, JSON, specs, policies. No I/O, no store.

mod identity;
mod ids;
mod json;
mod limits;
mod op;
mod policy;
mod retry;
mod time;
mod workflow;

pub use identity::{Digest, IdentityError, NotADigest, canonical_json, derived_id, fresh_id};
pub use ids::{
    AgentName, ArtifactName, CollectionName, DEFAULT_NAME, DedupKey, Epoch, EventSeq, Fence, GateKey, KindName, LaneKey, LeaseToken,
    NAME_BYTES_MAX, NameError, OpId, OpSeq, QueueName, RecordKey, RequestId, SiteName, SubjectId, WorkerName, WorkflowId, WorkflowName,
    WorkflowSeq,
};
pub use json::{JSON_DEPTH_MAX, Json, JsonError};
pub use limits::{Limits, TooLarge, check_size, storable_text};
pub use op::{Artifact, ArtifactKind, Dependency, ErrorClass, OpError, OpSpec, Record};
pub use policy::{Bucket, Lane, MICRO_TOKENS, PolicyError, QueuePolicy, RateLimit, gate_key};
pub use retry::{Backoff, Effect, Jitter, RetryPolicy};
pub use time::{Micros, TimeError, Timestamp};
pub use workflow::WorkflowSpec;
