//! `leasehold run`: a workflow to its end.

use crate::args::{GlobalArgs, RunArgs};
use crate::commands::find;
use crate::exit::{CliError, Exit, with_causes};
use crate::file::identity::Identity;
use crate::file::problem::FileError;
use crate::file::{self, input};
use crate::guard::Guard;
use crate::kinds::BuiltIn;
use crate::kinds::handlers::{HttpHandler, ShellHandler, described};
use crate::kinds::http::Requester;
use crate::kinds::shell::STOP_GRACE;
use crate::output::{Colour, count};
use crate::progress::Progress;
use crate::report;
use crate::screen::{LogWriter, Screen};
use crate::signals::Signals;
use crate::store::{self, Missing};
use crate::worker;
use leasehold::client::{Client, ClientError, Workflow, WorkflowHandle, WorkflowSnapshot};
use leasehold::engine::{Engine, Notice, Observer};
use leasehold::model::{AgentName, OpId, QueuePolicy, WorkflowId, fresh_id};
use serde_json::{Map, Value, json};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What is to be run.
enum Target {
    /// This workflow, made or attached to.
    Described { workflow: Box<Workflow>, new: bool },
    /// One that is there.
    Stored,
}

/// What a run needs to know of its workflow before it is there.
struct Plan {
    id: WorkflowId,
    target: Target,
    policies: Vec<QueuePolicy>,
    /// The op whose output is shown at the end.
    print: Option<OpId>,
}

/// The member of a workflow's metadata where a run keeps what later commands tell.
pub(crate) const METADATA_KEY: &str = "leasehold";

/// Runs a workflow until it has ended or somebody stops it.
pub(crate) async fn run(args: &RunArgs, global: &GlobalArgs) -> Result<Exit, CliError> {
    let begun = Instant::now();
    let described = match &args.file {
        Some(path) => Some(describe(path, args)?),
        None => None,
    };
    let screen = Arc::new(Screen::new(global.json, args.quiet, args.stream));
    crate::log::start(LogWriter(screen.bars().cloned()));
    let mut signals = Signals::listen().map_err(CliError::system("signals cannot be listened to"))?;
    let missing = if described.is_some() { Missing::Create } else { Missing::Refuse };
    let opened = store::open(global, missing).await?;
    let plan = match (described, &args.resume) {
        (Some(plan), _) => plan,
        (None, Some(resume)) => stored(&find(&Client::new(Arc::clone(&opened)), resume).await?),
        (None, None) => return Err(CliError::Usage("give a workflow file, or --resume and a workflow".to_owned())),
    };

    let scratch = tempfile::Builder::new().prefix("leasehold-").tempdir().map_err(CliError::system("a temporary folder cannot be made"))?;
    let guard = Arc::new(Guard::start(scratch.path()).map_err(CliError::system("the guard process cannot be started"))?);
    let name = worker::own_name();
    let progress = Arc::new(Progress::new(Arc::clone(&screen), name.clone()));
    let told = Arc::clone(&progress);
    let builder = Engine::builder(opened)
        .name(name.as_str())
        .max_workers(args.workers.map_or_else(processors, NonZeroUsize::get))
        .lease(args.lease.as_duration())
        .grace(args.grace.as_duration())
        .stop_wait(STOP_WAIT)
        .agent(own_agent(&plan.id)?.as_str())
        .raw_handler(BuiltIn::Shell.as_str(), ShellHandler::new(Arc::clone(&guard), scratch.path().to_owned(), Arc::clone(&screen)))
        .raw_handler(BuiltIn::Http.as_str(), HttpHandler::new(requester()?))
        .observer(move |notice: &Notice| told.notice(notice));
    let engine = plan.policies.iter().cloned().fold(builder, leasehold::engine::EngineBuilder::policy).build().await?;
    let client = engine.client();
    let handle = match plan.target {
        Target::Described { workflow, new: true } => client.start(*workflow).await,
        Target::Described { workflow, new: false } => client.ensure(*workflow).await,
        Target::Stored => Ok(client.handle(plan.id)),
    }
    .map_err(|error| in_file(args.file.as_deref(), error))?;
    let found = handle.snapshot().await?;
    say_begin(&screen, &handle, &found, &store::shown(global));
    // What was heard until here, such as its making, has just been said.
    engine.flush_observers(LAST_NOTICES).await;
    progress.follow(handle.id());
    let ended = if found.status.is_ended() { Ended::Before } else { work(&engine, &handle, &progress, &screen, &mut signals).await? };
    engine.flush_observers(LAST_NOTICES).await;
    if ended == Ended::Now {
        progress.finish(&client).await;
    }
    let left = report::Report { screen: &screen, client: &client, id: handle.id(), print: plan.print, begun, store: store::option(global) };
    let exit = left.tell(ended == Ended::Before, engine.notices_dropped()).await?;
    tidy(engine, guard, scratch);
    Ok(exit)
}

/// How long a handler that was told to stop may go on: a process group has its grace, and what it left behind as well.
const STOP_WAIT: Duration = Duration::from_secs(2 * STOP_GRACE.as_secs() + 1);

/// How long the last events may take to be told.
const LAST_NOTICES: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// It had ended before this run.
    Before,
    /// This run is over, whether or not the workflow has ended.
    Now,
}

/// Works until the workflow has ended, or a signal says to stop.
async fn work(
    engine: &Engine,
    handle: &WorkflowHandle,
    progress: &Progress,
    screen: &Arc<Screen>,
    signals: &mut Signals,
) -> Result<Ended, CliError> {
    let client = engine.client();
    let mut failed = None;
    let mut stopped = false;
    let until = async {
        tokio::select! {
            ended = handle.wait() => failed = ended.err(),
            () = progress.watch(&client) => {}
            signal = signals.next() => {
                stopped = true;
                screen.say_always(&format!("{signal}: running ops are finished, the rest is given back; once more stops at once"));
                screen.event("interrupted", json!({"signal": signal}));
            }
        }
    };
    let running = engine.start()?;
    tokio::select! {
        () = until => {}
        () = running.broken() => {}
    }
    let shutdown = running.shutdown();
    tokio::select! {
        ended = shutdown => ended?,
        () = progress.watch(&client) => unreachable!("it watches for ever"),
        signal = signals.next() => {
            if stopped {
                screen.say_always(&format!("{signal}: stopped"));
                std::process::exit(Exit::Interrupted.code().into());
            }
            // The workflow has ended; the last commits are on their way and take a moment.
            return Ok(Ended::Now);
        }
    };
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(Ended::Now),
    }
}

/// Reads the file and says which workflow it is.
fn describe(path: &Path, args: &RunArgs) -> Result<Plan, CliError> {
    let file = file::load(path)?;
    let given = input::parse_given(&args.input).map_err(CliError::Usage)?;
    let merged = input::merge(&file.input, &given).map_err(|message| CliError::Usage(format!("{}: {message}", path.display())))?;
    let mut metadata = file.metadata.clone();
    let own = json!({"file": path, "input": given, "print": file.print});
    metadata.insert(METADATA_KEY.to_owned(), own);
    let mut workflow = Workflow::new(file.name.as_str()).input(&merged).metadata(&metadata);
    if let Some(site) = &file.site {
        workflow = workflow.site(site.as_str());
    }
    if let Some(subject) = &file.subject {
        workflow = workflow.subject(subject.as_str());
    }
    if args.new {
        workflow = workflow.id(args.id.clone().unwrap_or_else(|| fresh_id().to_string()));
    } else {
        workflow = workflow.identity(&Identity::of(path, &file, &merged)?);
        if let Some(id) = &args.id {
            workflow = workflow.id(id.as_str());
        }
    }
    let refuse = |problem: String| FileError::new(path, problem);
    let id = workflow.clone().build().map_err(|error| refuse(error.to_string()))?.id;
    let agent = own_agent(&id)?;
    let workflow = workflow.ops(file.ops.iter().map(|op| described(op).agent(agent.as_str())));
    let target = Target::Described { workflow: Box::new(workflow), new: args.new };
    Ok(Plan { id, target, policies: file.policies, print: file.print })
}

/// What is wrong with the graph is wrong with the file.
fn in_file(file: Option<&Path>, error: ClientError) -> CliError {
    match (file, error) {
        (Some(path), error @ (ClientError::Invalid(_) | ClientError::Graph(_) | ClientError::TooLarge(_))) => {
            FileError::new(path, with_causes(&error)).into()
        }
        (_, error) => error.into(),
    }
}

/// A workflow that is there.
fn stored(found: &WorkflowSnapshot) -> Plan {
    let print = found.metadata.decode::<Map<String, Value>>().ok();
    let print = print.and_then(|metadata| OpId::new(metadata.get(METADATA_KEY)?.get("print")?.as_str()?).ok());
    Plan { id: found.id.clone(), target: Target::Stored, policies: Vec::new(), print }
}

/// Whether `leasehold run` made the workflow: then its ops name its id as their agent.
pub(crate) fn made_by_run(workflow: &WorkflowSnapshot) -> bool {
    workflow.metadata.decode::<Map<String, Value>>().is_ok_and(|metadata| metadata.contains_key(METADATA_KEY))
}

/// What marks the ops of a run. Only runs of the same workflow take them: what another run left in the store, perhaps
/// because it was stopped for a reason, does not begin to move when this one works there.
fn own_agent(id: &WorkflowId) -> Result<AgentName, CliError> {
    AgentName::new(id.as_str()).map_err(|error| CliError::Usage(error.to_string()))
}

fn requester() -> Result<Requester, CliError> {
    Requester::new()
        .map_err(|error| CliError::System { what: "HTTP requests cannot be made".to_owned(), source: std::io::Error::other(error) })
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

fn say_begin(screen: &Screen, handle: &WorkflowHandle, found: &WorkflowSnapshot, url: &str) {
    let (name, id) = (screen.paint(Colour::Bold, found.name.as_str()), &found.id);
    if handle.created() {
        screen.say(&format!("{name} {id}: created in {url} with {}", count(found.ops.total, "op")));
    } else if !found.status.is_ended() {
        screen.say(&format!("{name} {id}: going on; {} of {} are done", found.ops.succeeded, count(found.ops.total, "op")));
    }
    screen.event(
        "run",
        json!({
            "workflow": id, "name": found.name, "created": handle.created(), "status": found.status, "ops": found.ops, "store": url,
        }),
    );
}

/// Ends the guard once the engine's handlers have let go of it; only then is the folder nobody's.
fn tidy(engine: Engine, guard: Arc<Guard>, scratch: TempDir) {
    drop(engine);
    drop(guard);
    drop(scratch);
}
