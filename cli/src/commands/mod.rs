//! What the program does, a file a command. Every act is a call of the library.

pub(crate) mod cancel;
pub(crate) mod clock;
pub(crate) mod doctor;
pub(crate) mod list;
pub(crate) mod migrate;
pub(crate) mod retry;
pub(crate) mod run;
pub(crate) mod settle;
pub(crate) mod show;
pub(crate) mod status;
pub(crate) mod why;

use crate::args::ActorArgs;
use crate::exit::CliError;
use leasehold::client::{Actor, Client, WorkflowSnapshot};
use leasehold::model::{OpId, WorkflowId, WorkflowName};
use leasehold::store::rows::WorkflowPage;

/// The workflow that `text` means: by its id, else by its name if only one has it.
pub(crate) async fn find(client: &Client, text: &str) -> Result<WorkflowSnapshot, CliError> {
    /// More would not help to choose.
    const SHOWN: usize = 5;
    let id = WorkflowId::new(text).map_err(|error| CliError::Usage(error.to_string()))?;
    match client.snapshot(&id).await {
        Ok(found) => return Ok(found),
        Err(leasehold::client::ClientError::NotFound { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let name = WorkflowName::new(text).map_err(|error| CliError::Usage(error.to_string()))?;
    let limit = u32::try_from(SHOWN + 1).unwrap_or(u32::MAX);
    let mut named = client.list(WorkflowPage { name: Some(name), limit, ..WorkflowPage::default() }).await?;
    if named.len() > 1 {
        let ids: Vec<String> = named.iter().take(SHOWN).map(|one| format!("  {} ({})", one.id, one.status)).collect();
        let more = if named.len() > SHOWN { "\n  …" } else { "" };
        return Err(CliError::Usage(format!("several workflows are called {text:?}; name one by its id:\n{}{more}", ids.join("\n"))));
    }
    named.pop().ok_or_else(|| {
        CliError::Usage(format!("there is no workflow with the id or name {text:?}; `leasehold list` shows those there are"))
    })
}

pub(crate) fn op_id(text: &str) -> Result<OpId, CliError> {
    OpId::new(text).map_err(|error| CliError::Usage(error.to_string()))
}

/// Who acts: as said, else the user.
pub(crate) fn actor(given: &ActorArgs) -> Actor {
    let user = || ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok()).filter(|name| !name.is_empty());
    let name = given.by.clone().or_else(user).unwrap_or_else(|| "leasehold".to_owned());
    Actor { name, reason: given.reason.clone() }
}
