//! How the program ends: exit codes, and errors as people read them.

use crate::file::problem::FileError;
use leasehold::ConnectError;
use leasehold::client::ClientError;
use leasehold::engine::EngineError;
use leasehold::state::WorkflowStatus;
use leasehold::store::StoreError;
use std::process::ExitCode;

/// The exit codes, which are an interface: see `docs/CLI.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The workflow succeeded; the act was done.
    Success = 0,
    /// The workflow failed; the act was refused by what is there.
    Failed = 1,
    /// The command line, the file or a name in it is wrong. Nothing was done.
    Usage = 2,
    /// The workflow was canceled.
    Canceled = 3,
    /// The store is busy or cannot be reached: try again.
    Store = 4,
    /// The store takes no writes.
    ReadOnly = 5,
    /// The store has no space left.
    Full = 6,
    /// The store is no sound database.
    Corrupt = 7,
    /// The store's schema does not fit this program.
    Schema = 8,
    /// Stopped by a signal before the workflow ended; the same command goes on.
    Interrupted = 130,
}

impl Exit {
    /// How a workflow that stands so ends the program; `None` while it runs.
    pub(crate) const fn of_workflow(status: WorkflowStatus) -> Option<Self> {
        match status {
            WorkflowStatus::Running => None,
            WorkflowStatus::Succeeded => Some(Self::Success),
            WorkflowStatus::Failed => Some(Self::Failed),
            WorkflowStatus::Canceled => Some(Self::Canceled),
        }
    }

    pub(crate) const fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Why a command did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// The workflow file cannot be run.
    #[error(transparent)]
    File(#[from] FileError),
    /// The command line is wrong, or names something that is not there.
    #[error("{0}")]
    Usage(String),
    /// The library refused.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The store cannot be opened.
    #[error("--store {url}")]
    Connect {
        /// Which one, as it may be shown.
        url: String,
        /// Why.
        source: ConnectError,
    },
    /// The system refused something else.
    #[error("{what}")]
    System {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
}

impl CliError {
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        |source| Self::System { what, source }
    }

    /// The code to end with.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Connect { source: ConnectError::Store(error), .. } => of_store(error),
            Self::File(_) | Self::Usage(_) | Self::Connect { .. } => Exit::Usage,
            Self::System { .. } => Exit::Failed,
            Self::Client(error) => of_client(error),
            Self::Engine(error) => of_chain(error),
        }
    }

    /// The error and its causes on one line, without what repeats.
    pub(crate) fn message(&self) -> String {
        with_causes(self)
    }
}

/// An error and its causes; a cause whose text the one before it ends with is left out.
pub(crate) fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        let said = source.to_string();
        if !text.ends_with(&said) {
            text = format!("{text}: {said}");
        }
        cause = source.source();
    }
    text
}

fn of_client(error: &ClientError) -> Exit {
    match error {
        ClientError::NotFound { .. }
        | ClientError::Invalid(_)
        | ClientError::Graph(_)
        | ClientError::TooLarge(_)
        | ClientError::Time(_)
        | ClientError::IdentityConflict(_) => Exit::Usage,
        _ => of_chain(error),
    }
}

/// The code of the store's error that is at the root, else [`Exit::Failed`].
fn of_chain(error: &(dyn std::error::Error + 'static)) -> Exit {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(store) = error.downcast_ref::<StoreError>() {
            return of_store(store);
        }
        cause = error.source();
    }
    Exit::Failed
}

/// The code of a store that cannot be used.
pub(crate) const fn of_store(error: &StoreError) -> Exit {
    match error {
        StoreError::Full(_) => Exit::Full,
        StoreError::ReadOnly(_) => Exit::ReadOnly,
        StoreError::Corrupt(_) => Exit::Corrupt,
        StoreError::Schema(_) => Exit::Schema,
        _ => Exit::Store,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold::store::SchemaError;

    #[test]
    fn a_store_that_cannot_be_used_is_told_apart_by_its_cause() {
        let boxed = || Box::new(std::io::Error::other("x"));
        for (error, exit) in [
            (StoreError::Busy(boxed()), Exit::Store),
            (StoreError::Unavailable(boxed()), Exit::Store),
            (StoreError::ReadOnly(boxed()), Exit::ReadOnly),
            (StoreError::Full(boxed()), Exit::Full),
            (StoreError::Corrupt(boxed()), Exit::Corrupt),
            (StoreError::Schema(SchemaError::Older { found: 0, known: 1 }), Exit::Schema),
        ] {
            assert_eq!(CliError::Client(ClientError::Store(error)).exit(), exit);
        }
    }

    #[test]
    fn a_message_holds_every_cause_once() {
        let busy = StoreError::Busy(Box::new(std::io::Error::other("locked")));
        let error = CliError::Connect { url: "sqlite:x".into(), source: ConnectError::Store(busy) };
        assert_eq!(error.message(), "--store sqlite:x: the store could not be opened: the database is busy: locked");
        assert_eq!(error.exit(), Exit::Store);
    }
}
