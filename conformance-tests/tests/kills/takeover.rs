//! A worker that dies with a thousand leases: once they have ended, another runs all of their ops before its next poll (L7,
//! L8, L15).

use crate::PATIENCE;
use crate::place::{Ground, Place};
use leasehold_core::client::{Client, Op, Workflow};
use leasehold_core::engine::{Engine, HandlerError, OpContext};
use leasehold_core::model::Micros;
use leasehold_core::store::rows::Lease;
use leasehold_core::store::{BoxError, Store, StoreExt, TxKind};
use libtest_mimic::Failed;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const URL: &str = "LEASEHOLD_TEST_TAKEOVER_URL";
const OPS: usize = 1_000;
const LEASE: Duration = Duration::from_secs(30);

/// Whether this process is the one that shall die; then it works until it does.
pub(crate) fn die_if_told() {
    let Ok(url) = std::env::var(URL) else { return };
    let runtime = Runtime::new().unwrap();
    let begun = Arc::new(AtomicUsize::new(0));
    let running = runtime.block_on(work(Ground::open_at(&url).unwrap(), "dies", &begun)).unwrap();
    while begun.load(Ordering::SeqCst) < OPS {
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut stdout = std::io::stdout();
    writeln!(stdout, "all begun").unwrap();
    stdout.flush().unwrap();
    // Not dropped before the end: it would give its ops back.
    let _held = running;
    loop {
        std::thread::park();
    }
}

/// A worker whose handlers never end, and which looks for work of itself only once an hour.
async fn work(store: Arc<dyn Store>, name: &str, begun: &Arc<AtomicUsize>) -> Result<leasehold_core::engine::Running, BoxError> {
    let begun = Arc::clone(begun);
    let handler = move |_: OpContext, (): ()| {
        begun.fetch_add(1, Ordering::SeqCst);
        std::future::pending::<Result<(), HandlerError>>()
    };
    let engine = Engine::builder(store).name(name).max_workers(OPS).lease(LEASE).poll(Duration::from_hours(1)).handler("k", handler);
    let engine = engine.grace(Duration::ZERO).stop_wait(Duration::from_millis(50));
    Ok(engine.build().await?.start()?)
}

/// The trial.
pub(crate) fn all_are_taken_over(place: Place) -> Result<(), Failed> {
    let ground = Ground::new(place)?;
    let store = ground.open()?;
    let runtime = Runtime::new()?;
    let ops = (0..OPS).map(|n| Op::new(n.to_string(), "k"));
    let flow = ops.fold(Workflow::new("thousand"), Workflow::op);
    let flow = runtime.block_on(Client::new(Arc::clone(&store)).start(flow))?;
    drop(flow);

    let mut child = Command::new(std::env::current_exe()?).env(URL, ground.url()?).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("the child has no output")?).read_line(&mut line)?;
    child.kill()?;
    child.wait()?;
    assert_eq!(line.trim(), "all begun");

    ground.advance(Micros::try_from(LEASE)?)?;
    let ended: Vec<Lease> = store.with(TxKind::Read, |tx| tx.expired_leases(u32::MAX))?;
    assert_eq!(ended.len(), OPS, "every lease of the dead worker has ended");
    let began = Instant::now();
    let begun = Arc::new(AtomicUsize::new(0));
    let running = runtime.block_on(work(Arc::clone(&store), "takes_over", &begun))?;
    while begun.load(Ordering::SeqCst) < OPS {
        if began.elapsed() > PATIENCE {
            return Err(format!("{} of {OPS} run after {PATIENCE:?}", begun.load(Ordering::SeqCst)).into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let took = began.elapsed();
    let leases = store.with(TxKind::Read, |tx| tx.leases_of(&ended.iter().map(|lease| lease.key.op).collect::<Vec<_>>()))?;
    // The clock stands at the instant at which the old leases ended: no op waited for a later one.
    let instant = ended.iter().map(|lease| lease.expires_at).max();
    assert!(leases.iter().all(|lease| lease.worker.as_str() == "takes_over" && Some(lease.acquired_at) == instant));
    eprintln!("{}: {OPS} leases of a killed worker taken over in {took:?}", place.name());
    runtime.block_on(running.shutdown())?;
    Ok(())
}
