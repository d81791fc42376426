//! What most programs name: `use leasehold::prelude::*;`.

pub use leasehold_core::client::{Actor, Client, ClientError, Definition, Op, Workflow, WorkflowHandle, WorkflowSnapshot};
pub use leasehold_core::engine::{
    CycleReport, Engine, EngineError, Handler, HandlerError, Notice, NoticeKind, Observer, OpContext, RunReport, Running,
};
pub use leasehold_core::model::{
    Artifact, ArtifactKind, ArtifactName, Backoff, Jitter, Json, Limits, Micros, OpId, QueueName, QueuePolicy, RateLimit, Record,
    RetryPolicy, SiteName, WorkflowId, WorkflowName,
};
pub use leasehold_core::state::{OpStatus, WorkflowStatus};
pub use leasehold_core::store::Store;
