//! `leasehold why`: what an op, or a workflow, that does not go on comes down to.

use super::{find, op_id};
use crate::args::{GlobalArgs, WhyArgs};
use crate::exit::{CliError, Exit};
use crate::output::{Page, Paint, instant, line, op_colour, print, print_json};
use crate::store::{self, Missing};
use leasehold::client::Client;
use leasehold::doctor::{Root, WaitsFor, Why};
use leasehold::state::OpStatus;

/// An error's text on one line.
const ERROR_CHARS_MAX: usize = 200;

pub(crate) async fn run(args: &WhyArgs, global: &GlobalArgs) -> Result<Exit, CliError> {
    let client = Client::new(store::open(global, Missing::Refuse).await?);
    let workflow = find(&client, &args.workflow).await?;
    let why = match &args.op {
        Some(op) => client.why(&workflow.id, &op_id(op)?).await?,
        None => client.why_workflow(&workflow.id).await?,
    };
    if global.json {
        print_json(&serde_json::to_value(&why).unwrap_or_default());
        return Ok(Exit::Success);
    }
    let subject = match (&why.op, why.status) {
        (Some(op), Some(status)) => format!("op {op} of {} is {status}", workflow.name),
        _ => format!("{} {} is {}", workflow.name, workflow.id, workflow.status),
    };
    print(&for_people(&subject, &why, Paint::for_stdout()));
    Ok(Exit::Success)
}

fn for_people(subject: &str, why: &Why, paint: Paint) -> String {
    let mut text = Page::default();
    text.line(subject);
    for root in &why.roots {
        let since = root.since.map_or_else(String::new, |at| format!(" since {}", instant(at)));
        let status = paint.paint(op_colour(root.status), &root.status.to_string());
        text.line(&format!("  {} {status}{since}{}", root.op, because(root)));
    }
    if why.unlisted > 0 {
        text.line(&format!("  and {} more", why.unlisted));
    }
    text.finish()
}

/// What a root waits for, or why it failed.
fn because(root: &Root) -> String {
    let waits = root.waits_for.as_ref().map(|waits| match waits {
        WaitsFor::Instant { at } => format!(": waits until {}", instant(*at)),
        WaitsFor::QueueFull { site, queue, limit } => format!(": queue {queue} at {site} runs {limit}, and may run no more"),
        WaitsFor::QueueRate { site, queue } => format!(": queue {queue} at {site} may not start another yet"),
        WaitsFor::Worker { kind, agent: None } => format!(": waits for a worker that runs {kind}"),
        WaitsFor::Worker { kind, agent: Some(agent) } => format!(": waits for a worker that runs {kind} as {agent}"),
        WaitsFor::ItsWorker { worker, lease_expires_at } => {
            format!(": by {worker}, whose lease holds until {}", instant(*lease_expires_at))
        }
    });
    let error = root.error.as_ref().filter(|_| matches!(root.status, OpStatus::Failed | OpStatus::Ready));
    let error = error.map(|error| format!(": {}: {}", error.code, line(&error.message, ERROR_CHARS_MAX)));
    match (root.status, waits, error) {
        (OpStatus::Failed, _, error) => error.unwrap_or_default(),
        // One that is tried again tells what went wrong, and until when it waits.
        (_, Some(waits), Some(error)) => format!("{waits}, its last attempt ended with {}", error.trim_start_matches(": ")),
        (_, waits, _) => waits.unwrap_or_default(),
    }
}
