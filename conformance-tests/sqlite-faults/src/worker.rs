//! A process that works on a file, and says what the store has acknowledged.

use crate::Result;
use leasehold_core::client::{Client, Op, Workflow};
use leasehold_core::engine::{Engine, HandlerError, Notice, NoticeKind, OpContext};
use leasehold_core::model::{Backoff, Micros, RetryPolicy};
use leasehold_core::state::WorkflowStatus;
use leasehold_core::store::rows::EventKind;
use leasehold_core::store::{Store, SystemClock};
use leasehold_sqlite::SqliteStore;
use std::collections::VecDeque;
use std::fmt;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long leases last: so short that the next process takes over while the test runs.
pub const LEASE: Duration = Duration::from_millis(500);

/// Workflows that a worker keeps under way.
const LIVE_MAX: usize = 6;

/// Something that the store has acknowledged. A worker prints it, a line each.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Acked {
    /// The workflow was created.
    Created(String),
    /// The attempt succeeded.
    Succeeded {
        /// The workflow's id.
        workflow: String,
        /// The op's id.
        op: String,
        /// The attempt's number.
        fence: i64,
    },
}

impl Acked {
    /// Reads a line; `None` for any other.
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        match (words.next()?, words.next()?, words.next(), words.next()) {
            ("created", workflow, None, None) => Some(Self::Created(workflow.to_owned())),
            ("succeeded", workflow, Some(op), Some(fence)) => {
                Some(Self::Succeeded { workflow: workflow.to_owned(), op: op.to_owned(), fence: fence.parse().ok()? })
            }
            _ => None,
        }
    }
}

impl fmt::Display for Acked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Created(workflow) => write!(f, "created {workflow}"),
            Self::Succeeded { workflow, op, fence } => write!(f, "succeeded {workflow} {op} {fence}"),
        }
    }
}

/// One write a line, so that a process that is killed leaves whole lines.
fn say(acked: &Acked) {
    // Whoever reads this notices what is missing.
    let _ = std::io::stdout().lock().write_all(format!("{acked}\n").as_bytes());
}

/// Opens the store in `file`.
///
/// # Errors
/// The store's.
pub fn open(file: &Path) -> Result<Arc<dyn Store>> {
    Ok(Arc::new(SqliteStore::open(file, Arc::new(SystemClock))?))
}

/// An engine of the tests over `store`, which tells of every success once it is committed.
///
/// # Errors
/// The engine's.
pub async fn engine(store: Arc<dyn Store>, tell: impl Fn(&Acked) + Send + Sync + 'static) -> Result<Engine> {
    let told = move |notice: &Notice| {
        if let (NoticeKind::Event(EventKind::OpSucceeded), Some(workflow), Some(op), Some(fence)) =
            (notice.kind, &notice.workflow_id, &notice.op_id, notice.attempt)
        {
            tell(&Acked::Succeeded { workflow: workflow.to_string(), op: op.to_string(), fence: fence.0 });
        }
    };
    let builder = Engine::builder(store).max_workers(8).lease(LEASE).heartbeat(LEASE / 5).poll(Duration::from_millis(50));
    Ok(builder.observer(told).handler("step", step).build().await?)
}

/// Returns its attempt's number; the first op of a workflow also emits one.
async fn step(ctx: OpContext, _input: ()) -> Result<i64, HandlerError> {
    if ctx.op_id().as_str() == "first" {
        ctx.emit(op("emitted"))?;
    }
    Ok(ctx.attempt())
}

fn op(id: &str) -> Op {
    // However many workers die, no op is given up for it.
    let retry = RetryPolicy { max_lost: 100_000, backoff: Backoff::Fixed, base: Micros::from_millis(10), ..RetryPolicy::default() };
    Op::new(id, "step").retry(retry)
}

/// A diamond whose first op emits one more.
pub fn flow(name: &str, size: usize) -> Workflow {
    let left = op("left").after("first").input(&());
    let flow = Workflow::new(name).metadata(&"x".repeat(size)).op(op("first")).op(left);
    flow.op(op("right").after("first")).op(op("last").after_all(["left", "right"]))
}

/// The ops of a [`flow`] once it has ended.
pub const FLOW_OPS: usize = 5;

/// Works on `file` until it is killed: starts workflows, runs them, and says what was acknowledged.
///
/// # Errors
/// When the store fails in a way that it must not.
pub fn work_until_killed(file: &Path) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let engine = engine(open(file)?, say).await?;
        let client = engine.client();
        let running = engine.start()?;
        tokio::select! {
            ended = start_and_wait(&client) => ended,
            () = running.broken() => Err("the engine has stopped by itself".into()),
        }
    })
}

async fn start_and_wait(client: &Client) -> Result<()> {
    let mut live = VecDeque::with_capacity(LIVE_MAX);
    loop {
        if live.len() < LIVE_MAX {
            let flow = client.start(flow("killed", 100)).await?;
            say(&Acked::Created(flow.id().to_string()));
            live.push_back(flow);
        } else if let Some(oldest) = live.pop_front() {
            oldest.wait().await?;
        }
    }
}

/// Runs what is left in the store to its end.
///
/// # Errors
/// When that takes longer than `within`, or the store fails.
pub async fn run_to_the_end(store: Arc<dyn Store>, within: Duration) -> Result<()> {
    let engine = engine(store, |_| ()).await?;
    let running = engine.start()?;
    let done = tokio::time::timeout(within, all_ended(&engine.client())).await;
    running.shutdown().await?;
    done.map_err(|_| format!("the work does not end within {within:?}"))?
}

async fn all_ended(client: &Client) -> Result<()> {
    loop {
        let workflows = client.status().await?.totals.workflows;
        if workflows.iter().all(|(status, count)| *status != WorkflowStatus::Running || *count == 0) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
