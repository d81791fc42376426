//! Why an engine could not be built or run.

use crate::client::{ClientError, InvalidSpec};
use crate::model::{Timestamp, WorkerName};
use crate::store::StoreError;

/// Why an engine could not be built or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// What the builder was told does not fit together.
    #[error("the engine cannot be built: {0}")]
    Setup(InvalidSpec),
    /// It was built outside a tokio runtime, which handlers need.
    #[error("build the engine inside a tokio runtime: its handlers run there")]
    NoRuntime,
    /// It was built to be driven by hand.
    #[error("this engine was built with automatic(false): drive it by run_once, run_until_idle or reconcile_once")]
    NotAutomatic,
    /// Another process leads the store's maintenance, and this one was not to meddle.
    #[error("{leader:?} keeps this store up until {ends_at}: leave it to that process, or try again then")]
    NotLeader {
        /// What the leader calls itself.
        leader: WorkerName,
        /// When its term ends, by the store's clock.
        ends_at: Timestamp,
    },
    /// The store failed, for longer than the engine's patience or for good.
    #[error("the store failed")]
    Store(#[from] StoreError),
    /// The operating system gave no thread.
    #[error("no thread could be made")]
    Thread(#[source] std::io::Error),
    /// A part of the engine panicked: a defect of the store or of this crate. Leases that were held run out.
    #[error("a part of the engine panicked: {0}")]
    Panicked(String),
}

impl From<ClientError> for EngineError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Store(error) => Self::Store(error),
            other => Self::Setup(InvalidSpec::of_workflow(crate::client::with_causes(&other))),
        }
    }
}
