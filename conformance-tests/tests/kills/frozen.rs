//! A leader that is frozen with what it holds, by SIGSTOP: its work goes on elsewhere, another leads under a later epoch, and
//! when it thaws nothing of it is written (L1, L10). By real clocks, with leases and terms of a second.

use crate::PATIENCE;
use crate::place::Place;
use leasehold_core::client::{Client, Op, Workflow};
use leasehold_core::engine::{Engine, EngineBuilder, EngineError, HandlerError, OpContext};
use leasehold_core::model::Epoch;
use leasehold_core::store::rows::AttemptOutcome;
use leasehold_core::store::{BoxError, Hints, Store, StoreExt, StoreInfo, StoreResult, SystemClock, Tx, TxKind};
use leasehold_core::transitions::{BatchLimit, CLOCK_TOLERANCE, Pass, Upkeep, recover, upkeep};
use leasehold_postgres::PostgresStore;
use leasehold_sqlite::SqliteStore;
use leasehold_test_postgres::TestSchema;
use libtest_mimic::Failed;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::runtime::Runtime;

const URL: &str = "LEASEHOLD_TEST_FROZEN_URL";
const OPS: usize = 4;
/// As many of them as the leader holds when it is frozen.
const HELD: usize = 2;
const SECOND: Duration = Duration::from_secs(1);
/// The epoch of a store's first leader.
const FIRST: Epoch = Epoch(1);

fn open(url: &str) -> Result<Arc<dyn Store>, BoxError> {
    match url.strip_prefix("sqlite:") {
        Some(path) => Ok(Arc::new(SqliteStore::open(Path::new(path), Arc::new(SystemClock))?)),
        None => Ok(Arc::new(PostgresStore::connect(url)?)),
    }
}

fn engine(store: &Arc<dyn Store>, name: &str) -> EngineBuilder {
    Engine::builder(Arc::clone(store)).name(name).max_workers(HELD).lease(SECOND).maintenance_term(SECOND)
}

/// Waits for what another process does.
fn until(what: &str, mut holds: impl FnMut() -> Result<bool, BoxError>) -> Result<(), BoxError> {
    let deadline = Instant::now() + PATIENCE;
    while !holds()? {
        if Instant::now() > deadline {
            return Err(format!("waited for {PATIENCE:?}: {what}").into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

// ---- the one that is frozen ----

/// A store whose transactions can be kept from beginning: frozen within one, a process would keep its locks, and on SQLite
/// nobody could write at all. That is another test.
#[derive(Debug)]
struct Between {
    inner: Arc<dyn Store>,
    open: RwLock<()>,
}

impl Store for Between {
    fn transact(&self, kind: TxKind, body: &mut dyn FnMut(&mut dyn Tx) -> StoreResult<()>) -> StoreResult<()> {
        let _open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        self.inner.transact(kind, body)
    }
    fn describe(&self) -> StoreResult<StoreInfo> {
        self.inner.describe()
    }
    fn try_write(&self) -> StoreResult<()> {
        self.inner.try_write()
    }
    fn hints(&self) -> Option<Arc<dyn Hints>> {
        self.inner.hints()
    }
}

/// Whether this process is the one that shall be frozen; then it leads, works, freezes itself, and tells what it could
/// still do when it has thawed.
pub(crate) fn freeze_if_told() {
    let Ok(url) = std::env::var(URL) else { return };
    let said = Runtime::new().unwrap().block_on(lead_and_freeze(&url)).unwrap_or_else(|error| format!("failed: {error}"));
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{said}").unwrap();
    stdout.flush().unwrap();
    std::process::exit(0);
}

async fn lead_and_freeze(url: &str) -> Result<String, BoxError> {
    let between = Arc::new(Between { inner: open(url)?, open: RwLock::new(()) });
    let store: Arc<dyn Store> = Arc::clone(&between) as Arc<dyn Store>;
    let begun = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&begun);
    let handler = move |ctx: OpContext, (): ()| {
        counts.fetch_add(1, Ordering::SeqCst);
        async move {
            ctx.cancellation().cancelled().await;
            Ok::<_, HandlerError>("too late")
        }
    };
    let engine = engine(&store, "frozen").handler("k", handler).build().await?;
    let running = engine.start()?;
    until("it works", || Ok(begun.load(Ordering::SeqCst) == HELD))?;
    engine.reconcile_once(BatchLimit::DEFAULT).await?;
    {
        // Nothing is open, and nothing opens before it has thawed.
        let _shut = between.open.write().unwrap_or_else(PoisonError::into_inner);
        Command::new("kill").args(["-STOP", &std::process::id().to_string()]).status()?;
    }
    let door = Upkeep { epoch: Some(FIRST), tolerance: CLOCK_TOLERANCE };
    let mut refused = 0;
    for _ in 0..3 {
        let pass = store.with(TxKind::Maintenance, |tx| upkeep(tx, door, |tx| recover(tx, BatchLimit::DEFAULT)))?;
        refused += usize::from(pass == Pass::NotLeader);
    }
    // Handlers end when they are told that their leases are lost; a shutdown waits for them.
    let report = running.shutdown().await?;
    Ok(format!("refused {refused} lost {} succeeded {}", report.lost, report.succeeded))
}

// ---- the others ----

/// The trial.
pub(crate) fn is_replaced(place: Place) -> Result<(), Failed> {
    let (folder, schema): (Option<TempDir>, Option<TestSchema>) = match place {
        Place::Sqlite => (Some(tempfile::tempdir()?), None),
        Place::Postgres => (None, Some(TestSchema::new()?)),
    };
    let url = match (&folder, &schema) {
        (Some(folder), _) => format!("sqlite:{}", folder.path().join("store.db").display()),
        (None, Some(schema)) => schema.url(),
        (None, None) => unreachable!("there is one"),
    };
    let store = open(&url)?;
    let runtime = Runtime::new()?;
    let flow = (0..OPS).fold(Workflow::new("w"), |flow, n| flow.op(Op::new(n.to_string(), "k")));
    let flow = runtime.block_on(Client::new(Arc::clone(&store)).start(flow))?;

    let mut child = Command::new(std::env::current_exe()?).env(URL, &url).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let pid = child.id().to_string();
    until("it is frozen", || Ok(state_of(&pid)? == "T"))?;

    let handler = |_: OpContext, (): ()| async { Ok::<_, HandlerError>("in time") };
    let engine = runtime.block_on(engine(&store, "successor").handler("k", handler).build())?;
    let running = engine.start()?;
    let done = runtime.block_on(async { tokio::time::timeout(PATIENCE, flow.wait()).await })??;
    assert_eq!(done.ops.succeeded, i64::try_from(OPS)?, "the work goes on");
    until("another leads", || match runtime.block_on(engine.reconcile_once(BatchLimit::DEFAULT)) {
        Ok(_) => Ok(true),
        Err(EngineError::NotLeader { .. }) => Ok(false),
        Err(other) => Err(other.into()),
    })?;
    assert!(!store.with(TxKind::Maintenance, |tx| tx.hold_epoch(FIRST))?, "under a later epoch");
    assert_eq!(state_of(&pid)?, "T", "all this while it was frozen");

    Command::new("kill").args(["-CONT", &pid]).status()?;
    let mut said = String::new();
    BufReader::new(child.stdout.take().ok_or("the child has no output")?).read_line(&mut said)?;
    child.wait()?;
    assert_eq!(said.trim(), format!("refused 3 lost {HELD} succeeded 0"));
    runtime.block_on(running.shutdown())?;

    let mut abandoned = 0;
    for op in 0..OPS {
        let id = leasehold_core::model::OpId::new(op.to_string())?;
        let attempts = runtime.block_on(flow.client().attempts(flow.id(), &id))?;
        let outcomes: Vec<AttemptOutcome> = attempts.iter().map(|attempt| attempt.outcome).collect();
        let last = attempts.last().ok_or("each op was attempted")?;
        assert_eq!((last.outcome, last.worker.as_str()), (AttemptOutcome::Succeeded, "successor"));
        assert!(outcomes.iter().filter(|outcome| **outcome == AttemptOutcome::Succeeded).count() == 1, "{outcomes:?}");
        // On a machine that is starved the successor can lose leases as well.
        let of_the_frozen = attempts.iter().filter(|attempt| attempt.worker.as_str() == "frozen");
        abandoned += of_the_frozen.filter(|attempt| attempt.outcome == AttemptOutcome::Abandoned).count();
    }
    assert_eq!(abandoned, HELD, "each lease of the frozen one was taken back once");
    drop((folder, schema));
    Ok(())
}

/// How the process is, as the kernel says it: `T` is stopped.
fn state_of(pid: &str) -> Result<String, BoxError> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, behind_the_name) = stat.rsplit_once(')').ok_or("the kernel says something else")?;
    Ok(behind_the_name.split_whitespace().next().unwrap_or_default().to_owned())
}
