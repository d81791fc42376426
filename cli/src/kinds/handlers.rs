//! The built-in kinds as handlers of the engine.

use super::failure::Failure;
use super::http::{HttpInput, HttpOutput, Requester};
use super::shell::{self, Attempt, Scratch, ShellInput, ShellOutput, Stdin, Surroundings, Tap};
use crate::commands::run::made_by_run;
use crate::exit::with_causes;
use crate::guard::Guard;
use crate::screen::Screen;
use leasehold::client::Op;
use leasehold::engine::{Handler, HandlerError, OpContext};
use leasehold::model::{ErrorClass, Json, OpError, OpId, OpSpec, WorkflowId};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Runs shell ops.
#[derive(Debug)]
pub(crate) struct ShellHandler {
    guard: Arc<Guard>,
    /// Where each attempt gets its folder.
    scratch: PathBuf,
    screen: Arc<Screen>,
    workflows: Workflows,
}

impl ShellHandler {
    pub(crate) fn new(guard: Arc<Guard>, scratch: PathBuf, screen: Arc<Screen>) -> Self {
        Self { guard, scratch, screen, workflows: Workflows::default() }
    }
}

#[async_trait::async_trait]
impl Handler for ShellHandler {
    async fn run(&self, ctx: OpContext) -> Result<Json, HandlerError> {
        let input: ShellInput = decode(&ctx)?;
        let workflow = self.workflows.of(&ctx).await?;
        let results = ctx.dependencies().await?;
        let stdin = stdin(&ctx, &input, &results).await?;
        let parent = self.scratch.clone();
        let scratch = tokio::task::spawn_blocking(move || Scratch::create(&parent, &workflow.input, &results)).await?;
        let scratch =
            scratch.map_err(|error| HandlerError::retryable(format!("the op's folder cannot be made: {error}")).code("scratch"))?;
        let success = shell::run(
            &input,
            Surroundings {
                attempt: Attempt {
                    workflow: ctx.workflow_id().to_string(),
                    op: ctx.op_id().to_string(),
                    number: ctx.attempt(),
                    idempotency_key: ctx.idempotency_key(),
                },
                scratch: &scratch,
                stdin,
                cancel: ctx.cancellation().clone(),
                guard: &self.guard,
                tap: tap(&self.screen, ctx.op_id()),
            },
        )
        .await
        .map_err(handler_error)?;
        for artifact in success.artifacts {
            ctx.attach(artifact)?;
        }
        for spec in &success.emitted {
            let op = described(spec);
            ctx.emit(match &workflow.agent {
                Some(agent) => op.agent(agent.as_str()),
                None => op,
            })?;
        }
        encode(&success.output)
    }
}

/// Runs http ops.
#[derive(Debug)]
pub(crate) struct HttpHandler {
    requester: Requester,
}

impl HttpHandler {
    pub(crate) fn new(requester: Requester) -> Self {
        Self { requester }
    }
}

#[async_trait::async_trait]
impl Handler for HttpHandler {
    async fn run(&self, ctx: OpContext) -> Result<Json, HandlerError> {
        let input: HttpInput = decode(&ctx)?;
        let body = match &input.body_from {
            Some(op) => Some(printed_whole(op, &ctx.dependency_json(op.as_str()).await?)?),
            None => None,
        };
        let key = ctx.idempotency_key();
        tokio::select! {
            output = self.requester.run(&input, &key, body) => encode(&output.map_err(handler_error)?),
            () = ctx.cancellation().cancelled() => Err(HandlerError::retryable("the request was stopped before its answer").code("stopped")),
        }
    }
}

/// An op as the library's builder takes it.
pub(crate) fn described(spec: &OpSpec) -> Op {
    let mut op = Op::new(spec.id.as_str(), spec.kind.as_str())
        .queue(spec.queue.as_str())
        .priority(spec.priority)
        .input(&spec.input)
        .metadata(&spec.metadata)
        .retry(spec.retry);
    for dependency in &spec.after {
        op = if dependency.required { op.after(dependency.on.as_str()) } else { op.after_settled(dependency.on.as_str()) };
    }
    for id in &spec.before {
        op = op.before(id.as_str());
    }
    if let Some(site) = &spec.site {
        op = op.site(site.as_str());
    }
    if let Some(key) = &spec.dedup_key {
        op = op.dedup_key(key.as_str());
    }
    match spec.time_limit {
        Some(limit) => op.time_limit(limit.as_duration()),
        None => op,
    }
}

/// What an op printed: a shell op's standard output, an http op's body, else its result as JSON; and whether that is all.
pub(crate) fn printed(result: &Json) -> (String, bool) {
    if let Ok(output) = result.decode::<ShellOutput>() {
        return (output.stdout, !output.truncated);
    }
    if let Ok(output) = result.decode::<HttpOutput>() {
        return (output.body, !output.truncated);
    }
    match result.decode::<Value>() {
        Ok(Value::String(text)) => (text, true),
        Ok(_) | Err(_) => (result.to_string(), true),
    }
}

fn printed_whole(op: &OpId, result: &Json) -> Result<String, HandlerError> {
    let (text, whole) = printed(result);
    if whole {
        return Ok(text);
    }
    let message = format!("only the beginning of what op \"{op}\" gave was kept: raise its output_limit, or hand it over as an artifact");
    Err(HandlerError::permanent(message).code("truncated"))
}

async fn stdin(ctx: &OpContext, input: &ShellInput, results: &[(OpId, Json)]) -> Result<Vec<u8>, HandlerError> {
    match &input.stdin {
        None => Ok(Vec::new()),
        Some(Stdin::Text(text)) => Ok(text.clone().into_bytes()),
        Some(Stdin::From(from)) => match &from.artifact {
            Some(name) => ctx.artifact_of(from.from.as_str(), name.as_str()).await,
            None => match results.iter().find(|(op, _)| *op == from.from) {
                Some((op, result)) => Ok(printed_whole(op, result)?.into_bytes()),
                None => Ok(printed_whole(&from.from, &ctx.dependency_json(from.from.as_str()).await?)?.into_bytes()),
            },
        },
    }
}

fn tap(screen: &Arc<Screen>, op: &OpId) -> Option<Tap> {
    screen.streams().then(|| {
        let (screen, op) = (Arc::clone(screen), op.to_string());
        let tap: Tap = Arc::new(move |line: &str| screen.op_line(&op, line));
        tap
    })
}

fn decode<T: DeserializeOwned>(ctx: &OpContext) -> Result<T, HandlerError> {
    ctx.input().decode().map_err(|error| HandlerError::permanent(with_causes(&error)).code(OpError::BAD_INPUT))
}

fn encode<T: serde::Serialize>(output: &T) -> Result<Json, HandlerError> {
    Json::encode(output).map_err(|error| HandlerError::permanent(with_causes(&error)).code(OpError::BAD_RESULT))
}

fn handler_error(failure: Failure) -> HandlerError {
    let error = match failure.class {
        ErrorClass::Retryable => HandlerError::retryable(failure.message),
        ErrorClass::Permanent => HandlerError::permanent(failure.message),
    };
    let error = if failure.details.is_null() { error } else { error.details(&failure.details) };
    let error = error.code(failure.code);
    match failure.delay {
        Some(delay) => error.after(delay),
        None => error,
    }
}

/// What never changes of a workflow: read once a workflow and not once an op.
#[derive(Debug, Clone)]
struct Constant {
    input: Json,
    /// What the ops that its ops emit must name, so that only its own runs take them.
    agent: Option<WorkflowId>,
}

#[derive(Debug, Default)]
struct Workflows(Mutex<HashMap<WorkflowId, Constant>>);

impl Workflows {
    /// A run has one workflow, and works on few others.
    const KEPT_MAX: usize = 64;

    async fn of(&self, ctx: &OpContext) -> Result<Constant, HandlerError> {
        let id = ctx.workflow_id();
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned();
        if let Some(constant) = known {
            return Ok(constant);
        }
        let snapshot = ctx.client().snapshot(id).await?;
        let agent = made_by_run(&snapshot).then(|| id.clone());
        let constant = Constant { input: snapshot.input, agent };
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= Self::KEPT_MAX {
            kept.clear();
        }
        kept.insert(id.clone(), constant.clone());
        Ok(constant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::op::parse_op;
    use serde_json::json;

    #[test]
    fn nothing_of_an_op_is_lost_on_the_way_to_the_library() {
        let mut problems = Vec::new();
        let spec = parse_op(
            json!({
                "id": "a", "kind": "shell", "command": "true", "queue": "q", "site": "eu", "priority": -3, "after": ["b"],
                "after_settled": ["c"], "before": ["d"], "time_limit": "5m", "dedup_key": "k", "metadata": {"x": 1},
                "retry": {"max_attempts": 7, "backoff": "linear", "base": "250ms", "cap": "10s", "jitter": "none", "max_lost": 2},
            }),
            "",
            &mut problems,
        )
        .unwrap();
        assert_eq!(described(&spec).build().unwrap(), spec);
    }

    #[test]
    fn what_an_op_printed_depends_on_its_kind() {
        let printed = |value: Value| printed(&Json::encode(&value).unwrap());
        let shell = json!({"stdout": "out\n", "stderr_tail": "", "exit_code": 0, "truncated": true, "lossy": false});
        assert_eq!(printed(shell), ("out\n".into(), false));
        let http = json!({"status": 200, "url": "http://a/", "content_type": null, "body": "page", "truncated": false, "lossy": false});
        assert_eq!(printed(http), ("page".into(), true));
        assert_eq!(printed(json!("text")), ("text".into(), true));
        assert_eq!(printed(json!({"n": 1})), (r#"{"n":1}"#.into(), true));
    }
}
