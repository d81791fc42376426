//! `leasehold retry`: failed ops once more.

use super::{actor, find, op_id};
use crate::args::{GlobalArgs, RetryArgs};
use crate::exit::{CliError, Exit};
use crate::output::{count, print, print_json};
use crate::report::go_on;
use crate::store::{self, Missing};
use leasehold::client::Client;
use leasehold::model::OpId;
use serde_json::json;

/// More are counted, not listed.
const LISTED_MAX: usize = 10;

pub(crate) async fn run(args: &RetryArgs, global: &GlobalArgs) -> Result<Exit, CliError> {
    let ops = args.ops.iter().map(|op| op_id(op)).collect::<Result<Vec<OpId>, _>>()?;
    let client = Client::new(store::open(global, Missing::Refuse).await?);
    let workflow = find(&client, &args.workflow).await?;
    let actor = actor(&args.actor);
    let mut ready = Vec::new();
    if ops.is_empty() {
        ready = client.retry_workflow(&workflow.id, &actor).await?;
    }
    for op in &ops {
        ready.extend(client.retry_op(&workflow.id, op, &actor).await?);
    }
    let again = go_on(&workflow, &store::option(global));
    if global.json {
        print_json(&json!({"workflow": workflow.id, "ready": ready, "run": again}));
        return Ok(Exit::Success);
    }
    let names: Vec<&str> = ready.iter().take(LISTED_MAX).map(OpId::as_str).collect();
    let more = if ready.len() > LISTED_MAX { ", …" } else { "" };
    let ops = count(i64::try_from(ready.len()).unwrap_or(i64::MAX), "op");
    print(&format!("{} {}: {ops} made ready: {}{more}\ngo on with: {again}\n", workflow.name, workflow.id, names.join(", ")));
    Ok(Exit::Success)
}
