//! How a run ended: what it made, or what went wrong and what to do.

use crate::commands::run::METADATA_KEY;
use crate::exit::{CliError, Exit};
use crate::kinds::handlers::printed;
use crate::output::{Colour, bytes, count, duration, instant, line, print, shell_word};
use crate::screen::Screen;
use leasehold::client::{Client, ClientError, WorkflowSnapshot};
use leasehold::model::{OpId, WorkflowId};
use leasehold::state::{StoredStatus, WorkflowStatus};
use leasehold::store::rows::{ArtifactRow, OpPage, OpView};
use serde_json::{Map, Value, json};
use std::time::Instant;

/// More of a kind are counted, not listed.
const LISTED_MAX: usize = 20;

/// An error's text on one line.
const ERROR_CHARS_MAX: usize = 300;

/// What is told at the end of a run.
pub(crate) struct Report<'a> {
    pub(crate) screen: &'a Screen,
    pub(crate) client: &'a Client,
    pub(crate) id: &'a WorkflowId,
    /// The op whose output is shown.
    pub(crate) print: Option<OpId>,
    pub(crate) begun: Instant,
    /// What a suggested command needs to mean the same store.
    pub(crate) store: String,
}

impl Report<'_> {
    /// Tells it, and how the program is to end. `before` says that the workflow had ended before this run.
    pub(crate) async fn tell(&self, before: bool, events_dropped: u64) -> Result<Exit, CliError> {
        let snapshot = self.client.snapshot(self.id).await?;
        let exit = Exit::of_workflow(snapshot.status).unwrap_or(Exit::Interrupted);
        let artifacts = self.client.artifacts(self.id).await?;
        let printed = self.printed(&snapshot).await?;
        let failed = self.failed(&snapshot).await?;
        if self.screen.is_json() {
            self.tell_programs(&snapshot, exit, &artifacts, printed.as_deref(), &failed, events_dropped);
            return Ok(exit);
        }
        match snapshot.status {
            WorkflowStatus::Succeeded => self.tell_success(&snapshot, before, &artifacts),
            WorkflowStatus::Failed => self.tell_failure(&snapshot, &failed),
            WorkflowStatus::Canceled => self.tell_cancellation(&snapshot),
            WorkflowStatus::Running => self.tell_interruption(&snapshot),
        }
        if let Some(text) = printed {
            print(&text);
        }
        Ok(exit)
    }

    fn tell_success(&self, snapshot: &WorkflowSnapshot, before: bool, artifacts: &[ArtifactRow]) {
        let (name, id) = (&snapshot.name, &snapshot.id);
        let ops = count(snapshot.ops.total, "op");
        let text = if before {
            let finished = snapshot.finished_at.map_or_else(String::new, |at| format!(" since {}", instant(at)));
            format!("{name} {id}: was already complete{finished} ({ops}); nothing was done. --new runs it anew")
        } else {
            format!("{name} {id}: succeeded, {ops} in {}", duration(self.begun.elapsed()))
        };
        self.screen.say_always(&self.screen.paint(Colour::Green, &text));
        for artifact in artifacts.iter().take(LISTED_MAX) {
            let path = format!("{}/{}", artifact.op_id, artifact.name);
            let show = format!("leasehold show {id} --artifact {}{}", shell_word(&path), self.store);
            self.screen.say(&format!("artifact {path} ({}): {show}", bytes(artifact.size)));
        }
        if artifacts.len() > LISTED_MAX {
            self.screen.say(&format!("and {} more: leasehold show {id}{}", artifacts.len() - LISTED_MAX, self.store));
        }
    }

    fn tell_failure(&self, snapshot: &WorkflowSnapshot, failed: &[OpView]) {
        let (id, ops) = (&snapshot.id, snapshot.ops);
        let blocked = if ops.blocked > 0 { format!(", {} blocked by them", ops.blocked) } else { String::new() };
        let text = format!("{} {id}: failed; {} of {} failed{blocked}", snapshot.name, ops.failed, count(ops.total, "op"));
        self.screen.say_always(&self.screen.paint(Colour::Red, &text));
        for op in failed {
            let error =
                op.error.as_ref().map_or_else(String::new, |error| format!("{}: {}", error.code, line(&error.message, ERROR_CHARS_MAX)));
            self.screen.say_always(&format!("  {}: {error}", op.state.id));
        }
        if usize::try_from(ops.failed).is_ok_and(|all| all > failed.len()) {
            self.screen.say_always(&format!("  …: leasehold show {id}{}", self.store));
        }
        let again = go_on(snapshot, &self.store);
        self.screen.say_always(&format!("repair the cause, then: leasehold retry {id}{} && {again}", self.store));
    }

    fn tell_cancellation(&self, snapshot: &WorkflowSnapshot) {
        let (name, id, ops) = (&snapshot.name, &snapshot.id, snapshot.ops);
        let text = format!("{name} {id}: canceled; {} of {} had succeeded. --new runs it anew", ops.succeeded, count(ops.total, "op"));
        self.screen.say_always(&self.screen.paint(Colour::Yellow, &text));
    }

    fn tell_interruption(&self, snapshot: &WorkflowSnapshot) {
        let (name, id, ops) = (&snapshot.name, &snapshot.id, snapshot.ops);
        let again = go_on(snapshot, &self.store);
        let text = format!("{name} {id}: interrupted; {} of {} are done. It goes on with: {again}", ops.succeeded, count(ops.total, "op"));
        self.screen.say_always(&self.screen.paint(Colour::Yellow, &text));
    }

    fn tell_programs(
        &self,
        snapshot: &WorkflowSnapshot,
        exit: Exit,
        artifacts: &[ArtifactRow],
        printed: Option<&str>,
        failed: &[OpView],
        events_dropped: u64,
    ) {
        let artifacts: Vec<Value> = artifacts.iter().map(artifact_json).collect();
        let failed: Vec<Value> = failed.iter().map(|op| json!({"op": op.state.id, "error": op.error})).collect();
        self.screen.event(
            "end",
            json!({
                "workflow": snapshot.id,
                "name": snapshot.name,
                "status": snapshot.status,
                "ops": snapshot.ops,
                "failed": failed,
                "artifacts": artifacts,
                "output": printed,
                "events_dropped": events_dropped,
                "exit_code": exit.code(),
            }),
        );
    }

    /// The output that the file wants shown.
    async fn printed(&self, snapshot: &WorkflowSnapshot) -> Result<Option<String>, ClientError> {
        let Some(op) = self.print.as_ref().filter(|_| snapshot.status == WorkflowStatus::Succeeded) else {
            return Ok(None);
        };
        let result = self.client.op_result(self.id, op).await?;
        Ok(Some(printed(&result).0))
    }

    async fn failed(&self, snapshot: &WorkflowSnapshot) -> Result<Vec<OpView>, ClientError> {
        if snapshot.ops.failed == 0 {
            return Ok(Vec::new());
        }
        let limit = u32::try_from(LISTED_MAX).unwrap_or(u32::MAX);
        self.client.ops(self.id, OpPage { status: Some(StoredStatus::Failed), after: None, limit }).await
    }
}

/// The command that goes on with a workflow.
pub(crate) fn go_on(snapshot: &WorkflowSnapshot, store: &str) -> String {
    let metadata = snapshot.metadata.decode::<Map<String, Value>>().unwrap_or_default();
    let own = metadata.get(METADATA_KEY);
    let file = own.and_then(|own| own.get("file")).and_then(Value::as_str);
    let plain = own.is_some_and(|own| own.get("input").is_some_and(|input| input.as_object().is_none_or(Map::is_empty)));
    match file {
        // Started with --new or with an input, only its id names it for certain.
        Some(file) if plain && snapshot.digest.is_some() => format!("leasehold run {}{store}", shell_word(file)),
        _ => format!("leasehold run --resume {}{store}", snapshot.id),
    }
}

/// An artifact for programs.
pub(crate) fn artifact_json(artifact: &ArtifactRow) -> Value {
    json!({
        "op": artifact.op_id,
        "name": artifact.name,
        "kind": artifact.kind,
        "content_type": artifact.content_type,
        "size": artifact.size,
        "sha256": artifact.sha256,
        "at": artifact.at,
    })
}
