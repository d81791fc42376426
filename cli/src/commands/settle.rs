//! `leasehold settle`: says what became of an attempt of which nobody knows what it did.

use super::{actor, find, op_id};
use crate::args::{GlobalArgs, SettleArgs};
use crate::exit::{CliError, Exit};
use crate::output::{print, print_json};
use crate::report::go_on;
use crate::store::{self, Missing};
use leasehold::client::{Client, OpVerdict};
use leasehold::model::{Fence, Json};
use serde_json::json;

pub(crate) async fn run(args: &SettleArgs, global: &GlobalArgs) -> Result<Exit, CliError> {
    let verdict = verdict(args)?;
    let op = op_id(&args.op)?;
    let client = Client::new(store::open(global, Missing::Refuse).await?);
    let workflow = find(&client, &args.workflow).await?;
    let attempt = match args.attempt {
        Some(attempt) => Fence(attempt),
        // The one that it waits for now; an op that waits for none is refused below.
        None => client.op(&workflow.id, &op).await?.wait.map_or(Fence::NONE, |wait| wait.key.fence),
    };
    let status = client.settle_op(&workflow.id, &op, attempt, verdict, &actor(&args.actor)).await?;
    let again = go_on(&workflow, &store::option(global));
    if global.json {
        print_json(&json!({"workflow": workflow.id, "op": op, "attempt": attempt, "status": status, "run": again}));
        return Ok(Exit::Success);
    }
    print(&format!("{} {}: op {op} is {status} now\ngo on with: {again}\n", workflow.name, workflow.id));
    Ok(Exit::Success)
}

fn verdict(args: &SettleArgs) -> Result<OpVerdict, CliError> {
    match (&args.succeed, &args.fail) {
        (Some(result), _) => {
            let result = Json::parse(result.as_str()).map_err(|error| CliError::Usage(format!("--succeed {result:?}: {error}")))?;
            Ok(OpVerdict::Succeed { result })
        }
        (None, Some(message)) => Ok(OpVerdict::Fail { message: message.clone() }),
        (None, None) => Ok(OpVerdict::Retry),
    }
}
