//! Alone in its process, so that nobody else's threads are counted.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed unwrap is a failed test")]

use leasehold_core::client::{Op, Workflow};
use leasehold_core::engine::{Engine, HandlerError, OpContext};
use leasehold_core::memory::MemoryStore;
use leasehold_core::store::SystemClock;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Barrier;

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

#[tokio::test]
async fn a_thousand_waiting_handlers_cost_no_thread_each() {
    const OPS: usize = 1_000;
    let store = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
    let (asleep, go) = (Arc::new(Barrier::new(OPS + 1)), Arc::new(Barrier::new(OPS + 1)));
    let handler = {
        let (asleep, go) = (Arc::clone(&asleep), Arc::clone(&go));
        move |_: OpContext, (): ()| {
            let (asleep, go) = (Arc::clone(&asleep), Arc::clone(&go));
            async move {
                asleep.wait().await;
                go.wait().await;
                Ok::<(), HandlerError>(())
            }
        }
    };
    let engine = Engine::builder(store).max_workers(OPS).handler("sleep", handler).build().await.unwrap();
    let flow = Workflow::new("sleepers").ops((0..OPS).map(|n| Op::new(n.to_string(), "sleep")));
    let flow = engine.client().start(flow).await.unwrap();
    let before = threads();
    let running = engine.start().unwrap();
    let patience = Duration::from_mins(1);
    tokio::time::timeout(patience, asleep.wait()).await.expect("all handlers run at once");
    // The engine's own four, and the blocking pool's for the client's calls.
    let more = threads() - before;
    assert!(more <= 16, "{more} threads for {OPS} handlers");
    tokio::time::timeout(patience, go.wait()).await.expect("all handlers wake");
    let done = tokio::time::timeout(patience, flow.wait()).await.expect("all results are saved").unwrap();
    assert_eq!(done.ops.succeeded, i64::try_from(OPS).unwrap());
    running.shutdown().await.unwrap();
}
