//! The program of each host in `run.sh`: see the README beside it.
//!
//! ```text
//! multi-host start              makes the workflow; prints its id
//! multi-host worker NAME ID     a worker, until the workflow has ended
//! multi-host holder NAME        takes one op and keeps it alive until it is taken away, then tries every verb
//! multi-host wait ID            waits for the workflow's end; prints every attempt
//! multi-host clock              prints how many seconds this host's clock is ahead of the database's
//! ```
//! The store's URL is in `LEASEHOLD_STORE`.

mod holder;
mod worker;

use leasehold::model::{OpId, WorkflowId};
use leasehold::prelude::*;
use leasehold::store::{Clock, StoreExt, SystemClock, TxKind};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

/// How long a lease lasts: the ops of a host that is cut off go to another after this time.
const LEASE: Duration = Duration::from_secs(4);
/// How often leases are renewed.
const HEARTBEAT: Duration = Duration::from_secs(1);

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let url = std::env::var("LEASEHOLD_STORE").map_err(|_| "LEASEHOLD_STORE must hold the store's URL")?;
    let store = leasehold::connect(&url).await?;
    match arguments.as_slice() {
        ["start"] => start(store).await,
        ["worker", name, id] => worker::run(store, name, &WorkflowId::new(*id)?).await,
        ["holder", name] => holder::run(store, name).await,
        ["wait", id] => wait(store, &WorkflowId::new(*id)?).await,
        ["clock"] => clock(store).await,
        _ => Err("usage: multi-host start | worker NAME ID | holder NAME | wait ID | clock".into()),
    }
}

/// Prints a line at once, with this host's name.
fn say(name: &str, what: &str) {
    // Whoever listens may have gone; the work goes on.
    let _ = writeln!(std::io::stdout().lock(), "{name}: {what}");
}

/// Two ops that take long, one for the worker of a host and one for its holder, and one that waits for both.
async fn start(store: Arc<dyn Store>) -> Outcome {
    let flow =
        Workflow::new("multi-host")
            .op(Op::new("long", worker::KIND))
            .op(Op::new("held", holder::KIND))
            .op(Op::new("report", worker::KIND).after_all(["long", "held"]));
    let handle = Client::new(store).start(flow).await?;
    writeln!(std::io::stdout().lock(), "{}", handle.id())?;
    Ok(())
}

/// Prints the ledger, a line an attempt: op, number, worker, outcome, when it began and ended by the store's clock in
/// microseconds since 1970.
async fn wait(store: Arc<dyn Store>, id: &WorkflowId) -> Outcome {
    let client = Client::new(store);
    let ended = client.handle(id.clone()).wait().await?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "workflow {}", ended.status)?;
    for op in ["long", "held", "report"] {
        for attempt in client.attempts(id, &OpId::new(op)?).await? {
            let (began, over) = (attempt.acquired_at.as_micros(), attempt.ended_at.as_micros());
            writeln!(out, "attempt {op} {} {} {} {began} {over}", attempt.key.fence.0, attempt.worker, attempt.outcome.as_str())?;
        }
    }
    Ok(())
}

/// Prints how far the two clocks are apart.
async fn clock(store: Arc<dyn Store>) -> Outcome {
    let there = tokio::task::spawn_blocking(move || store.with(TxKind::Read, |tx| tx.now())).await??;
    let here = SystemClock.now();
    writeln!(std::io::stdout().lock(), "{}", (here.as_micros() - there.as_micros()) / 1_000_000)?;
    Ok(())
}
