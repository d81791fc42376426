//! `leasehold cancel`: ends a workflow for good.

use super::{actor, find};
use crate::args::{CancelArgs, GlobalArgs};
use crate::exit::{CliError, Exit};
use crate::output::{count, print, print_json};
use crate::store::{self, Missing};
use leasehold::client::Client;
use serde_json::json;

pub(crate) async fn run(args: &CancelArgs, global: &GlobalArgs) -> Result<Exit, CliError> {
    let client = Client::new(store::open(global, Missing::Refuse).await?);
    let workflow = find(&client, &args.workflow).await?;
    let canceled = client.cancel_workflow(&workflow.id, &actor(&args.actor)).await?;
    if global.json {
        print_json(&json!({"workflow": workflow.id, "ops": canceled.ops, "running": canceled.running}));
        return Ok(Exit::Success);
    }
    let running = match canceled.running {
        0 => String::new(),
        n => format!("; {} told to stop", if n == 1 { "1 running one is".to_owned() } else { format!("{n} running ones are") }),
    };
    let ops = count(i64::try_from(canceled.ops).unwrap_or(i64::MAX), "op");
    print(&format!("{} {}: canceled {ops}{running}\n", workflow.name, workflow.id));
    Ok(Exit::Success)
}
