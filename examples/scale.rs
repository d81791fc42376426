//! What an op costs as graphs grow, and how processes share one SQLite file.
//!
//! ```sh
//! cargo run --release --example scale                 # creation and drain of 1,000 and of 100,000 ops, side by side
//! cargo run --release --example scale -- share        # ten processes drain 20,000 ops on one file
//! ```
//!
//! Absolute times are this machine's; the ratios are what to look at.

#![allow(clippy::print_stdout, reason = "a program that tells a person what it measured")]

use leasehold::prelude::*;
use leasehold::store::{Hints, StoreInfo, StoreResult, Tx, TxKind};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

type Failure = Box<dyn std::error::Error>;

const PROCESSES: usize = 10;
const SHARED_OPS: u32 = 20_000;

async fn nothing(_ctx: OpContext, (): ()) -> Result<(), HandlerError> {
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => grow().await,
        ["share"] => share().await,
        ["work", url] => work(url).await,
        _ => Err("give nothing, or `share`".into()),
    }
}

/// A graph with as many leaves as fit, every tenth of them joined at once: a fan-in that grows with the graph.
fn graph(ops: u32) -> Workflow {
    let joins = 10;
    let fan_in = ops / joins - 1;
    let mut flow = Workflow::new("scale").identity(&ops);
    for join in 0..joins {
        let leaves: Vec<String> = (0..fan_in).map(|leaf| format!("leaf-{join}-{leaf}")).collect();
        let mut last = Op::new(format!("join-{join}"), "nothing");
        for leaf in &leaves {
            last = last.after(leaf.as_str());
        }
        flow = leaves.into_iter().fold(flow, |flow, leaf| flow.op(Op::new(leaf, "nothing"))).op(last);
    }
    flow
}

async fn grow() -> Result<(), Failure> {
    let mut costs = Vec::new();
    for ops in [1_000_u32, 100_000] {
        let folder = std::env::temp_dir().join(format!("leasehold-scale-{}-{ops}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let store = leasehold::connect(&format!("sqlite:{}", folder.join("scale.db").display())).await?;
        let engine = Engine::builder(store).max_workers(1_000).handler("nothing", nothing).build().await?;
        let flow = graph(ops);
        let begun = Instant::now();
        let handle = engine.client().ensure(flow).await?;
        let created = begun.elapsed();
        let begun = Instant::now();
        let running = engine.start()?;
        let snapshot = handle.wait().await?;
        let drained = begun.elapsed();
        running.shutdown().await?;
        std::fs::remove_dir_all(&folder)?;
        let per_op = |took: Duration| took.as_secs_f64() * 1e6 / f64::from(ops);
        println!(
            "{ops} ops, fan-in {}: {:?}; create {:.1} µs/op, drain {:.1} µs/op",
            ops / 10 - 1,
            snapshot.status,
            per_op(created),
            per_op(drained)
        );
        costs.push((per_op(created), per_op(drained)));
    }
    if let [(small_create, small_drain), (large_create, large_drain)] = costs.as_slice() {
        println!(
            "100,000 against 1,000, cost per op: create {:.2} ×, drain {:.2} ×",
            large_create / small_create,
            large_drain / small_drain
        );
    }
    Ok(())
}

async fn share() -> Result<(), Failure> {
    let folder = std::env::temp_dir().join(format!("leasehold-share-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let url = format!("sqlite:{}", folder.join("share.db").display());
    let client = Client::new(leasehold::connect(&url).await?);
    let handle = client.ensure(graph(SHARED_OPS)).await?;
    let program = std::env::current_exe()?;
    let begun = Instant::now();
    let spawn = || Command::new(&program).args(["work", &url]).stdout(Stdio::piped()).spawn();
    let workers = (0..PROCESSES).map(|_| spawn()).collect::<Result<Vec<_>, _>>()?;
    for worker in workers {
        let output = worker.wait_with_output()?;
        print!("{}", String::from_utf8_lossy(&output.stdout));
        if !output.status.success() {
            return Err("a worker failed".into());
        }
    }
    let snapshot = handle.snapshot().await?;
    println!(
        "{PROCESSES} processes, {SHARED_OPS} ops in {:.1} s: {:?}, {:?}",
        begun.elapsed().as_secs_f64(),
        snapshot.status,
        snapshot.ops
    );
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

/// One of the processes: works until the workflow has ended.
async fn work(url: &str) -> Result<(), Failure> {
    let store = Arc::new(Timed { inner: leasehold::connect(url).await?, longest_us: AtomicU64::new(0) });
    let engine = Engine::builder(Arc::clone(&store) as Arc<dyn Store>).max_workers(100).handler("nothing", nothing).build().await?;
    let handle = engine.client().ensure(graph(SHARED_OPS)).await?;
    let report = engine
        .run(async {
            // An error here shows again in the report of the run.
            let _ = handle.wait().await;
        })
        .await?;
    let longest = Duration::from_micros(store.longest_us.load(Ordering::Relaxed));
    println!("process {}: {} ops, longest call {longest:?}", std::process::id(), report.succeeded);
    Ok(())
}

/// Remembers the longest call.
#[derive(Debug)]
struct Timed {
    inner: Arc<dyn Store>,
    longest_us: AtomicU64,
}

impl Store for Timed {
    fn transact(&self, kind: TxKind, body: &mut dyn FnMut(&mut dyn Tx) -> StoreResult<()>) -> StoreResult<()> {
        let begun = Instant::now();
        let done = self.inner.transact(kind, body);
        self.longest_us.fetch_max(u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        done
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
