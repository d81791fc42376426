//! `leasehold show`: one workflow, one of its ops, or what an op gave.

use super::{find, op_id};
use crate::args::{GlobalArgs, ShowArgs};
use crate::exit::{CliError, Exit};
use crate::kinds::handlers::printed;
use crate::output::{
    Cell, Colour, Page, Paint, Table, bytes, count, duration, instant, line, op_colour, print, print_bytes, print_json, workflow_colour,
};
use crate::report::artifact_json;
use crate::store::{self, Missing};
use leasehold::client::{Client, WorkflowSnapshot};
use leasehold::model::{ArtifactName, WorkflowId};
use leasehold::state::StoredStatus;
use leasehold::store::rows::{ArtifactRow, Attempt, OpPage, OpView, OpWait, WaitReason};
use serde_json::{Value, json};

/// An error's text in a table.
const ERROR_CHARS_MAX: usize = 100;

pub(crate) async fn run(args: &ShowArgs, global: &GlobalArgs) -> Result<Exit, CliError> {
    let client = Client::new(store::open(global, Missing::Refuse).await?);
    let workflow = find(&client, &args.workflow).await?;
    if let Some(op) = &args.output {
        let result = client.op_result(&workflow.id, &op_id(op)?).await?;
        print(&printed(&result).0);
    } else if let Some(path) = &args.artifact {
        print_bytes(&artifact(&client, &workflow.id, path).await?);
    } else if let Some(op) = &args.op {
        let view = client.op(&workflow.id, &op_id(op)?).await?;
        let attempts = client.attempts(&workflow.id, &view.state.id).await?;
        if global.json {
            print_json(&json!({"op": op_json(&view), "attempts": attempts.iter().map(attempt_json).collect::<Vec<_>>()}));
        } else {
            print(&op_for_people(&view, &attempts, Paint::for_stdout()));
        }
    } else {
        let ops = ops(&client, &workflow.id, args.limit).await?;
        let artifacts = client.artifacts(&workflow.id).await?;
        if global.json {
            let artifacts: Vec<Value> = artifacts.iter().map(artifact_json).collect();
            let ops: Vec<Value> = ops.iter().map(op_json).collect();
            print_json(&json!({"workflow": workflow, "ops": ops, "artifacts": artifacts}));
        } else {
            print(&workflow_for_people(&workflow, &ops, &artifacts, Paint::for_stdout()));
        }
    }
    Ok(Exit::Success)
}

/// The content of `OP/NAME`. Both may hold slashes: the first split that is an artifact counts.
async fn artifact(client: &Client, id: &WorkflowId, path: &str) -> Result<Vec<u8>, CliError> {
    let artifacts = client.artifacts(id).await?;
    let found = artifacts.iter().find(|artifact| {
        path.strip_prefix(artifact.op_id.as_str()).and_then(|rest| rest.strip_prefix('/')) == Some(artifact.name.as_str())
    });
    let Some(found) = found else {
        let known: Vec<String> = artifacts.iter().take(10).map(|artifact| format!("{}/{}", artifact.op_id, artifact.name)).collect();
        let known = if known.is_empty() { "it has none".to_owned() } else { format!("it has {}", known.join(", ")) };
        return Err(CliError::Usage(format!("workflow {id} has no artifact {path:?}; {known}")));
    };
    let name: &ArtifactName = &found.name;
    Ok(client.artifact(id, &found.op_id, name).await?)
}

/// Up to `limit` ops, those first that somebody has to look at.
async fn ops(client: &Client, id: &WorkflowId, limit: u32) -> Result<Vec<OpView>, CliError> {
    let order = [
        StoredStatus::Failed,
        StoredStatus::Open,
        StoredStatus::Waiting,
        StoredStatus::Blocked,
        StoredStatus::Pending,
        StoredStatus::Canceled,
        StoredStatus::Succeeded,
    ];
    let mut ops: Vec<OpView> = Vec::new();
    for status in order {
        let mut after = None;
        loop {
            let left = limit.saturating_sub(u32::try_from(ops.len()).unwrap_or(u32::MAX));
            // A limit of 0 would mean the largest page.
            if left == 0 {
                return Ok(ops);
            }
            let page = client.ops(id, OpPage { status: Some(status), after, limit: left }).await?;
            let Some(last) = page.last() else {
                break;
            };
            after = Some(last.state.seq);
            ops.extend(page);
        }
    }
    Ok(ops)
}

fn workflow_for_people(workflow: &WorkflowSnapshot, ops: &[OpView], artifacts: &[ArtifactRow], paint: Paint) -> String {
    let counts = workflow.ops;
    let mut text = Page::default();
    text.line(&format!("{}  {}", paint.paint(Colour::Bold, workflow.name.as_str()), workflow.id));
    let ended = workflow
        .finished_at
        .map_or_else(String::new, |at| format!(", ended {} ({})", instant(at), duration(at.since(workflow.created_at))));
    let status = paint.paint(workflow_colour(workflow.status), &workflow.status.to_string());
    text.line(&format!("status     {status}, created {}{ended}", instant(workflow.created_at)));
    let parts = [
        ("succeeded", counts.succeeded),
        ("failed", counts.failed),
        ("blocked", counts.blocked),
        ("running", counts.running),
        ("ready", counts.ready),
        ("pending", counts.pending),
        ("waiting", counts.waiting),
        ("canceled", counts.canceled),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| format!("{count} {name}")).collect();
    text.line(&format!("ops        {} ({})", counts.total, parts.join(", ")));
    if workflow.input.as_str() != "null" && workflow.input.as_str() != "{}" {
        text.line(&format!("input      {}", line(workflow.input.as_str(), 200)));
    }
    let mut table = Table::new(["OP", "STATUS", "KIND", "QUEUE", "ATTEMPTS", "ERROR OR WORKER"]);
    for op in ops {
        table.row([
            op.state.id.as_str().into(),
            Cell::coloured(op.status.to_string(), op_colour(op.status)),
            op.kind.as_str().into(),
            op.queue.as_str().into(),
            attempts_begun(op).to_string().into(),
            note(op).into(),
        ]);
    }
    text.table(&table, paint);
    let more = counts.total - i64::try_from(ops.len()).unwrap_or(i64::MAX);
    if more > 0 {
        text.line(&format!("and {} more: show them with --limit", count(more, "op")));
    }
    if !artifacts.is_empty() {
        let mut table = Table::new(["ARTIFACT", "TYPE", "SIZE"]);
        for artifact in artifacts {
            let path = format!("{}/{}", artifact.op_id, artifact.name);
            table.row([path.into(), artifact.content_type.as_str().into(), bytes(artifact.size).into()]);
        }
        text.table(&table, paint);
    }
    text.finish()
}

/// How many attempts have begun: the ledger's, and the one that runs.
fn attempts_begun(op: &OpView) -> i64 {
    op.lease.as_ref().map_or(op.state.fence.0, |lease| lease.key.fence.0)
}

/// What matters most of an op besides its status.
fn note(op: &OpView) -> String {
    if let Some(lease) = &op.lease {
        return format!("{} until {}", lease.worker, instant(lease.expires_at));
    }
    if let Some(wait) = &op.wait {
        return waits_for(wait);
    }
    let due = op.due_at.filter(|_| op.state.failures > 0).map(|due| format!("tried again {}; ", instant(due))).unwrap_or_default();
    op.error.as_ref().map_or(due.clone(), |error| format!("{due}{}: {}", error.code, line(&error.message, ERROR_CHARS_MAX)))
}

/// What an op waits for.
fn waits_for(wait: &OpWait) -> String {
    match wait.reason {
        WaitReason::Timer => format!("until {}", wait.due_at.map(instant).unwrap_or_default()),
        WaitReason::Verdict => format!("for a verdict on attempt {} (leasehold settle)", wait.key.fence.0),
    }
}

fn op_for_people(op: &OpView, attempts: &[Attempt], paint: Paint) -> String {
    let status = paint.paint(op_colour(op.status), &op.status.to_string());
    let mut text = Page::default();
    text.line(&format!("{}  {status}", paint.paint(Colour::Bold, op.state.id.as_str())));
    text.line(&format!("kind       {}, queue {}, site {}, priority {}", op.kind, op.queue, op.site, op.state.priority));
    text.line(&format!("input      {}", op.input));
    if let Some(lease) = &op.lease {
        text.line(&format!("lease      {} until {}", lease.worker, instant(lease.expires_at)));
    }
    if let Some(due) = op.due_at.filter(|_| op.lease.is_none()) {
        text.line(&format!("due        {}", instant(due)));
    }
    if let Some(wait) = &op.wait {
        text.line(&format!("waits      {}, since {}", waits_for(wait), instant(wait.since)));
    }
    if let Some(error) = &op.error {
        text.line(&format!("error      {}: {}", paint.paint(Colour::Red, &error.code), error.message));
        if error.details.as_str() != "null" {
            text.line(&format!("details    {}", error.details));
        }
    }
    if let Some(result) = &op.result {
        text.line(&format!("result     {result}"));
    }
    let mut table = Table::new(["ATTEMPT", "OUTCOME", "BEGAN", "TOOK", "WORKER", "ERROR"]);
    for attempt in attempts {
        let error = attempt.error.as_ref();
        table.row([
            attempt.key.fence.0.to_string().into(),
            attempt.outcome.as_str().into(),
            instant(attempt.acquired_at).into(),
            duration(attempt.ended_at.since(attempt.acquired_at)).into(),
            attempt.worker.as_str().into(),
            error.map_or_else(String::new, |error| format!("{}: {}", error.code, line(&error.message, ERROR_CHARS_MAX))).into(),
        ]);
    }
    if !table.is_empty() {
        text.table(&table, paint);
    }
    text.finish()
}

fn op_json(op: &OpView) -> Value {
    json!({
        "id": op.state.id,
        "status": op.status,
        "kind": op.kind,
        "queue": op.queue,
        "site": op.site,
        "priority": op.state.priority,
        "input": op.input,
        "metadata": op.metadata,
        "attempts": attempts_begun(op),
        "failures": op.state.failures,
        "losses": op.state.losses,
        "created_at": op.created_at,
        "finished_at": op.finished_at,
        "due_at": op.due_at,
        "wait": op.wait.as_ref().map(|wait| json!({
            "for": wait.reason.as_str(), "attempt": wait.key.fence, "since": wait.since, "due_at": wait.due_at,
        })),
        "lease": op.lease.as_ref().map(|lease| json!({
            "worker": lease.worker, "attempt": lease.key.fence, "acquired_at": lease.acquired_at, "expires_at": lease.expires_at,
        })),
        "result": op.result,
        "error": op.error,
    })
}

fn attempt_json(attempt: &Attempt) -> Value {
    json!({
        "attempt": attempt.key.fence,
        "outcome": attempt.outcome.as_str(),
        "worker": attempt.worker,
        "acquired_at": attempt.acquired_at,
        "ended_at": attempt.ended_at,
        "result": attempt.result,
        "error": attempt.error,
    })
}
