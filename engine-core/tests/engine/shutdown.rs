//! How an engine ends: nothing waits for a lease to run out, nothing counts as a failure (L8, L15).

use super::fixture::{Begun, World, flow, op, outcomes, soon, until};
use leasehold_core::engine::{EngineError, HandlerError, OpContext};
use leasehold_core::state::{OpStatus, WorkflowStatus};
use leasehold_core::store::rows::AttemptOutcome;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

#[tokio::test]
async fn handlers_that_end_within_the_grace_are_waited_for() {
    let world = World::new();
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let handler = {
        let (begun, go) = (Arc::clone(&begun), Arc::clone(&go));
        move |_: OpContext, (): ()| {
            let (begun, go) = (Arc::clone(&begun), Arc::clone(&go));
            async move {
                begun.notify_one();
                go.notified().await;
                Ok::<(), HandlerError>(())
            }
        }
    };
    let engine = world.engine().max_workers(1).grace(Duration::from_secs(30)).handler("k", handler).build().await.unwrap();
    let flow = engine.client().start(flow("k", ["a", "b"])).await.unwrap();
    let running = engine.start().unwrap();
    soon(begun.notified()).await;
    let mut shutdown = Box::pin(running.shutdown());
    // Told to stop, and waiting for the handler.
    assert!(tokio::time::timeout(Duration::ZERO, &mut shutdown).await.is_err());
    go.notify_one();
    let report = soon(shutdown).await.unwrap();
    assert_eq!((report.succeeded, report.released), (1, 0));
    // Nothing is claimed once it was told to stop.
    let snapshot = flow.snapshot().await.unwrap();
    assert_eq!((snapshot.ops.succeeded, snapshot.ops.ready, snapshot.ops.running), (1, 1, 0));
}

async fn interrupted(ctx: OpContext) -> Result<(), HandlerError> {
    match ctx.op_id().as_str() {
        // Listens, and gives up with an error.
        "listens" => {
            ctx.cancellation().cancelled().await;
            Err(HandlerError::permanent("interrupted"))
        }
        // Listens, and is done.
        "done" => {
            ctx.cancellation().cancelled().await;
            Ok(())
        }
        _ => std::future::pending().await,
    }
}

#[tokio::test]
async fn what_still_runs_after_the_grace_is_given_back_at_once_and_costs_no_attempt() {
    let (world, begun) = (World::new(), Begun::default());
    let begins = begun.clone();
    let handler = move |ctx: OpContext, (): ()| {
        begins.one();
        interrupted(ctx)
    };
    let builder = world.engine().grace(Duration::ZERO).stop_wait(Duration::from_millis(500));
    let engine = builder.handler("k", handler).build().await.unwrap();
    let flow = engine.client().start(flow("k", ["listens", "done", "deaf"])).await.unwrap();
    let running = engine.start().unwrap();
    begun.all(3).await;
    let report = soon(running.shutdown()).await.unwrap();
    assert_eq!((report.succeeded, report.released, report.failed, report.lost, report.unsaved), (1, 2, 0, 0, 0));
    for name in ["listens", "deaf"] {
        let op = op(&flow, name).await;
        assert_eq!((op.status, op.state.failures, op.state.losses), (OpStatus::Ready, 0, 0), "{name}");
        assert_eq!(outcomes(&flow, name).await, [AttemptOutcome::Released]);
    }
}

/// The handlers block as many threads as there are: no task and no timer of the runtime runs any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_that_block_every_thread_do_not_hold_a_shutdown_up() {
    let world = World::new();
    let (begun, mut hears) = tokio::sync::mpsc::unbounded_channel();
    let (release, gate) = std::sync::mpsc::channel::<()>();
    let gate = Arc::new(std::sync::Mutex::new(gate));
    let handler = move |_: OpContext, (): ()| {
        let (begun, gate) = (begun.clone(), Arc::clone(&gate));
        async move {
            begun.send(()).unwrap();
            let released = gate.lock().unwrap().recv();
            assert!(released.is_err(), "nobody sends");
            Ok::<(), HandlerError>(())
        }
    };
    let engine = world.engine().grace(Duration::ZERO).handler("k", handler).build().await.unwrap();
    let flow = engine.client().start(flow("k", ["a", "b"])).await.unwrap();
    let running = engine.start().unwrap();
    hears.recv().await.unwrap();
    hears.recv().await.unwrap();
    let report = running.shutdown().await.unwrap();
    assert_eq!((report.released, report.lost, report.unsaved), (2, 0, 0));
    assert_eq!(flow.snapshot().await.unwrap().ops.ready, 2);
    drop(release);
}

#[tokio::test]
async fn an_engine_that_is_dropped_gives_its_ops_back_and_does_not_hang() {
    let world = World::new();
    let handler = |_: OpContext, (): ()| std::future::pending::<Result<(), HandlerError>>();
    let engine = world.engine().handler("k", handler).build().await.unwrap();
    let flow = engine.client().start(flow("k", ["a"])).await.unwrap();
    let running = engine.start().unwrap();
    until(|| async { op(&flow, "a").await.status == OpStatus::Running }).await;
    drop(running);
    until(|| async { op(&flow, "a").await.status == OpStatus::Ready }).await;
    assert_eq!(outcomes(&flow, "a").await, [AttemptOutcome::Released]);
}

#[test]
fn a_runtime_that_goes_away_gives_its_ops_back() {
    let world = World::new();
    let handler = |_: OpContext, (): ()| std::future::pending::<Result<(), HandlerError>>();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (running, id) = runtime.block_on(async {
        let engine = world.engine().handler("k", handler).build().await.unwrap();
        let flow = engine.client().start(flow("k", ["a"])).await.unwrap();
        let running = engine.start().unwrap();
        until(|| async { op(&flow, "a").await.status == OpStatus::Running }).await;
        (running, flow.id().clone())
    });
    drop(runtime);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let flow = world.client().handle(id);
        until(|| async { outcomes(&flow, "a").await.contains(&AttemptOutcome::Released) }).await;
        soon(running.shutdown()).await.unwrap();
    });
}

#[tokio::test]
async fn a_run_ends_with_what_it_was_to_wait_for() {
    let world = World::new();
    let handler = |_: OpContext, (): ()| async { Ok::<(), HandlerError>(()) };
    let engine = world.engine().handler("k", handler).build().await.unwrap();
    let flow = engine.client().start(flow("k", 0..50)).await.unwrap();
    let report = soon(engine.run(async {
        flow.wait().await.unwrap();
    }))
    .await
    .unwrap();
    assert_eq!(report.succeeded, 50);
    assert_eq!(flow.snapshot().await.unwrap().status, WorkflowStatus::Succeeded);
}

#[test]
fn an_engine_outside_a_runtime_says_what_it_needs() {
    let world = World::new();
    let mut build = std::pin::pin!(world.engine().build());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(Err(error)) = build.as_mut().poll(&mut context) else {
        panic!("it cannot be built here");
    };
    assert!(matches!(error, EngineError::NoRuntime), "{error}");
}
