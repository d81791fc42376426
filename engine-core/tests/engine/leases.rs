//! Leases are kept while they can be, and nothing is recorded by whoever lost one (L1, L4, L5, L11).

use super::fixture::{Begun, Faults, LEASE, World, flow, id, op, outcomes, soon};
use leasehold_core::engine::{HandlerError, Notice, NoticeKind, OpContext};
use leasehold_core::model::Micros;
use leasehold_core::state::{OpStatus, WorkflowStatus};
use leasehold_core::store::rows::AttemptOutcome;
use leasehold_core::store::{StoreError, StoreExt, TxKind};
use leasehold_core::transitions::Actor;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use tokio::sync::Notify;

type Running = Pin<Box<dyn Future<Output = Result<i64, HandlerError>> + Send>>;

/// A handler whose first attempt runs until it is told to stop, then returns a result all the same.
fn stubborn() -> (Begun, Arc<Notify>, impl Fn(OpContext, ()) -> Running) {
    let (begun, stopped) = (Begun::default(), Arc::new(Notify::new()));
    let begins = begun.clone();
    let told = Arc::clone(&stopped);
    let handler = move |ctx: OpContext, (): ()| -> Running {
        let told = Arc::clone(&told);
        begins.one();
        Box::pin(async move {
            if ctx.attempt() == 1 {
                ctx.cancellation().cancelled().await;
                told.notify_one();
            }
            Ok(ctx.attempt())
        })
    };
    (begun, stopped, handler)
}

#[tokio::test]
async fn a_handler_that_lost_its_lease_is_stopped_and_writes_nothing() {
    let world = World::new();
    let (begun, stopped, handler) = stubborn();
    let lost = Arc::new(Mutex::new(Vec::new()));
    let observer = {
        let lost = Arc::clone(&lost);
        move |notice: &Notice| {
            if notice.kind == NoticeKind::OpLeaseLost {
                lost.lock().unwrap().push((notice.op_id.clone().unwrap(), notice.attempt.unwrap().0));
            }
        }
    };
    let engine = world.engine().handler("k", handler).observer(observer).build().await.unwrap();
    let flow = engine.client().start(flow("k", ["a"])).await.unwrap();
    let running = engine.start().unwrap();
    begun.all(1).await;
    world.advance(LEASE);
    soon(stopped.notified()).await;
    // The op is taken back and runs again; only that counts.
    soon(flow.wait()).await.unwrap();
    assert_eq!(flow.result::<i64>("a").await.unwrap(), 2);
    assert_eq!(outcomes(&flow, "a").await, [AttemptOutcome::Abandoned, AttemptOutcome::Succeeded]);
    let report = running.shutdown().await.unwrap();
    assert_eq!((report.succeeded, report.lost, report.recovered), (1, 1, 1));
    assert!(engine.flush_observers(Duration::from_secs(30)).await);
    assert_eq!(*lost.lock().unwrap(), [(id("a"), 1)]);
}

#[tokio::test]
async fn a_cancel_reaches_the_running_handler_at_once_in_its_own_process() {
    let world = World::new();
    let (begun, stopped, handler) = stubborn();
    // No heartbeat comes by itself in this test.
    let engine = world.engine().heartbeat(Duration::from_hours(1)).lease(Duration::from_hours(10)).handler("k", handler);
    let engine = engine.build().await.unwrap();
    let flow = engine.client().start(flow("k", ["a"])).await.unwrap();
    let running = engine.start().unwrap();
    begun.all(1).await;
    let canceled = engine.client().cancel_workflow(flow.id(), &Actor::new("ada")).await.unwrap();
    assert_eq!((canceled.ops, canceled.running), (1, 1));
    soon(stopped.notified()).await;
    assert_eq!(running.shutdown().await.unwrap().succeeded, 0);
    assert_eq!(op(&flow, "a").await.status, OpStatus::Canceled);
    assert_eq!(outcomes(&flow, "a").await, [AttemptOutcome::Canceled]);
}

#[tokio::test]
async fn a_cancel_by_another_process_reaches_the_handler_on_its_next_heartbeat() {
    let world = World::new();
    let (begun, stopped, handler) = stubborn();
    let engine = world.engine().handler("k", handler).build().await.unwrap();
    let flow = engine.client().start(flow("k", ["a"])).await.unwrap();
    let running = engine.start().unwrap();
    begun.all(1).await;
    world.client().cancel_workflow(flow.id(), &Actor::new("ada")).await.unwrap();
    soon(stopped.notified()).await;
    assert_eq!(soon(flow.wait()).await.unwrap().status, WorkflowStatus::Canceled);
    running.shutdown().await.unwrap();
    assert_eq!(outcomes(&flow, "a").await, [AttemptOutcome::Canceled]);
}

#[tokio::test]
async fn a_worker_that_cannot_reach_its_store_stops_its_handlers_before_their_leases_can_have_ended() {
    let away = Arc::new(AtomicBool::new(false));
    let faults = {
        let away = Arc::clone(&away);
        Faults {
            before: Box::new(move |_| away.load(Ordering::SeqCst).then(|| StoreError::Unavailable("cut off".into()))),
            ..Faults::default()
        }
    };
    let world = World::with_faults(faults);
    let (begun, stopped, handler) = stubborn();
    // By the worker's own clock, which no test moves; the store's stands still.
    let engine = world.engine().lease(Duration::from_millis(300)).handler("k", handler).build().await.unwrap();
    let flow = engine.client().start(flow("k", ["a"])).await.unwrap();
    let running = engine.start().unwrap();
    begun.all(1).await;
    away.store(true, Ordering::SeqCst);
    soon(stopped.notified()).await;
    away.store(false, Ordering::SeqCst);
    let report = running.shutdown().await.unwrap();
    assert_eq!((report.lost, report.processed), (1, 0));
    // Nothing was recorded: by the store's clock the lease still holds, and nobody uses it.
    assert_eq!(op(&flow, "a").await.status, OpStatus::Running);
    assert_eq!(outcomes(&flow, "a").await, []);
}

/// The test's own thread is blocked by the handler, so another one moves the clock and watches the lease.
#[tokio::test(flavor = "current_thread")]
async fn a_handler_that_blocks_the_runtime_does_not_stop_the_heartbeat() {
    let world = World::new();
    let (blocked, is_blocked) = mpsc::channel::<()>();
    let (release, gate) = mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let handler = move |_: OpContext, (): ()| {
        let (blocked, gate) = (blocked.clone(), Arc::clone(&gate));
        async move {
            blocked.send(()).unwrap();
            gate.lock().unwrap().recv().unwrap();
            Ok::<(), HandlerError>(())
        }
    };
    let engine = world.engine().handler("k", handler).build().await.unwrap();
    let flow = engine.client().start(flow("k", ["a"])).await.unwrap();
    let seq = op(&flow, "a").await.state.seq;
    let (clock, store) = (Arc::clone(&world.clock), Arc::clone(&world.store));
    let mover = std::thread::spawn(move || {
        is_blocked.recv().unwrap();
        let expiry = || store.with(TxKind::Read, |tx| Ok::<_, StoreError>(tx.leases_of(&[seq])?[0].expires_at)).unwrap();
        for _ in 0..10 {
            let before = expiry();
            clock.advance(Micros::try_from(LEASE / 2).unwrap());
            while expiry() == before {
                std::thread::yield_now();
            }
        }
        release.send(()).unwrap();
    });
    let report = soon(engine.run_until_idle()).await.unwrap();
    mover.join().unwrap();
    assert_eq!((report.succeeded, report.lost), (1, 0));
    assert_eq!(outcomes(&flow, "a").await, [AttemptOutcome::Succeeded]);
}
