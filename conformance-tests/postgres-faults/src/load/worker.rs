//! A worker as a process of its own.

use super::task::{KINDS, Task};
use crate::Result;
use leasehold_core::engine::Engine;
use leasehold_core::store::Store;
use leasehold_postgres::PostgresStore;
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a worker waits for a store that is away when it starts.
const STORE_PATIENCE: Duration = Duration::from_mins(1);

/// What a worker is told, as JSON in its one argument.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WorkerConfig {
    /// The store.
    pub url: String,
    /// The worker's name, different for each process.
    pub name: String,
    /// How many handlers run at once.
    pub max_workers: usize,
    /// How long a lease lasts.
    pub lease_ms: u64,
}

/// An attempt, as a worker tells of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ran {
    /// The workflow's id.
    pub workflow: String,
    /// The op's id.
    pub op: String,
    /// The attempt's number.
    pub fence: i64,
}

/// A line of what a worker prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// A handler began.
    Begun(Ran),
    /// A handler returned a result; whether that was recorded, the ledger knows.
    Done(Ran),
    /// The worker has shut down in good order.
    Stopped {
        /// Attempts it ended.
        processed: u64,
        /// Leases it lost.
        lost: u64,
        /// Expired leases it took back.
        recovered: u64,
    },
}

/// Prints a line.
pub(super) type Tell = Arc<dyn Fn(&Line) + Send + Sync>;

/// Works until standard input ends, and prints a [`Line`] of JSON for whatever it does.
///
/// # Errors
/// When it cannot work at all.
pub fn run_worker(config: &WorkerConfig) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(async {
        let url = config.url.clone();
        let store: Arc<dyn Store> = tokio::task::spawn_blocking(move || connect(&url)).await??;
        let tell: Tell = Arc::new(print);
        let mut builder = Engine::builder(store)
            .name(&config.name)
            .max_workers(config.max_workers)
            .lease(Duration::from_millis(config.lease_ms))
            .heartbeat(Duration::from_millis(config.lease_ms / 4))
            .poll(Duration::from_millis(100))
            .patience(STORE_PATIENCE)
            .grace(Duration::from_secs(5));
        for kind in KINDS {
            let tell = Arc::clone(&tell);
            builder = builder.handler(kind, move |ctx, task: Task| {
                let tell = Arc::clone(&tell);
                async move { task.run(ctx, &tell).await }
            });
        }
        let engine = builder.build().await?;
        let report = engine.run(async { drop(tokio::task::spawn_blocking(wait_for_the_end_of_input).await) }).await?;
        tell(&Line::Stopped { processed: report.processed, lost: report.lost, recovered: report.recovered });
        Ok(())
    })
}

/// Opens the store, also one that is away for the moment.
fn connect(url: &str) -> Result<Arc<dyn Store>> {
    let deadline = Instant::now() + STORE_PATIENCE;
    loop {
        match PostgresStore::connect(url) {
            Ok(store) => return Ok(Arc::new(store)),
            Err(error) if error.is_transient() && Instant::now() < deadline => std::thread::sleep(Duration::from_millis(100)),
            Err(error) => return Err(error.into()),
        }
    }
}

fn wait_for_the_end_of_input() {
    // Nothing is said there; an error ends it as well.
    let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
}

/// One write a line, so that a process that is killed leaves whole lines.
fn print(line: &Line) {
    if let Ok(mut text) = serde_json::to_vec(line) {
        text.push(b'\n');
        // Whoever reads this notices what is missing.
        let _ = std::io::stdout().lock().write_all(&text);
    }
}
