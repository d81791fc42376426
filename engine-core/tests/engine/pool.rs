//! Handlers really overlap, up to the limit (Q3).

use super::fixture::{LEASE, World, flow, soon};
use leasehold_core::engine::{HandlerError, OpContext};
use leasehold_core::state::WorkflowStatus;
use leasehold_core::transitions::BatchLimit;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Barrier;

#[derive(Default)]
struct Active {
    now: AtomicUsize,
    most: AtomicUsize,
}
impl Active {
    fn enter(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
    }
    fn leave(&self) {
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn three_handlers_overlap_and_never_a_fourth() {
    let world = World::new();
    let (active, together) = (Arc::new(Active::default()), Arc::new(Barrier::new(3)));
    let handler = {
        let active = Arc::clone(&active);
        move |_: OpContext, (): ()| {
            let (active, together) = (Arc::clone(&active), Arc::clone(&together));
            async move {
                active.enter();
                // Passes only when three are here at once.
                together.wait().await;
                active.leave();
                Ok::<(), HandlerError>(())
            }
        }
    };
    let engine = world.engine().max_workers(3).handler("k", handler).build().await.unwrap();
    let flow = engine.client().start(flow("k", 0..12)).await.unwrap();
    let report = soon(engine.run_until_idle()).await.unwrap();
    assert_eq!((report.processed, report.succeeded), (12, 12));
    assert_eq!(active.most.load(Ordering::SeqCst), 3);
    assert_eq!(flow.snapshot().await.unwrap().status, WorkflowStatus::Succeeded);
}

#[tokio::test]
async fn a_place_that_becomes_free_is_taken_while_others_still_run() {
    let world = World::new();
    let handler = |ctx: OpContext, (): ()| async move {
        if ctx.op_id().as_str() == "slow" {
            // Ends only once every other op has, through the one other place.
            let handle = ctx.client().handle(ctx.workflow_id().clone());
            while handle.snapshot().await?.ops.succeeded < 20 {
                tokio::task::yield_now().await;
            }
        }
        Ok::<(), HandlerError>(())
    };
    let engine = world.engine().max_workers(2).handler("k", handler).build().await.unwrap();
    let ops = std::iter::once("slow".to_owned()).chain((0..20).map(|n| n.to_string()));
    let flow = engine.client().start(flow("k", ops)).await.unwrap();
    let running = engine.start().unwrap();
    let done = soon(flow.wait()).await.unwrap();
    assert_eq!((done.status, done.ops.succeeded), (WorkflowStatus::Succeeded, 21));
    assert_eq!(running.shutdown().await.unwrap().processed, 21);
}

#[tokio::test]
async fn ops_that_may_kill_their_worker_run_one_at_a_time_and_others_beside_them() {
    let world = World::new();
    let (suspects, done) = (Arc::new(Active::default()), Arc::new(AtomicUsize::new(0)));
    let suspect = {
        let (suspects, done) = (Arc::clone(&suspects), Arc::clone(&done));
        move |_: OpContext, (): ()| {
            let (suspects, done) = (Arc::clone(&suspects), Arc::clone(&done));
            async move {
                suspects.enter();
                // Long enough for another to begin, if one may.
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
                suspects.leave();
                done.fetch_add(1, Ordering::SeqCst);
                Ok::<(), HandlerError>(())
            }
        }
    };
    let fresh = {
        let done = Arc::clone(&done);
        move |_: OpContext, (): ()| {
            let done = Arc::clone(&done);
            async move {
                // Ends only once every suspect has run beside it.
                while done.load(Ordering::SeqCst) < 4 {
                    tokio::task::yield_now().await;
                }
                Ok::<(), HandlerError>(())
            }
        }
    };
    let engine = world.engine().max_workers(8).handler("suspect", suspect).handler("fresh", fresh).build().await.unwrap();
    let suspected = engine.client().start(flow("suspect", 0..4)).await.unwrap();
    for _ in 0..2 {
        while world.claim_and_die() > 0 {}
        world.advance(LEASE);
        engine.reconcile_once(BatchLimit::DEFAULT).await.unwrap();
    }
    let fresh = engine.client().start(flow("fresh", 0..4)).await.unwrap();
    soon(engine.run_until_idle()).await.unwrap();
    assert_eq!(suspects.most.load(Ordering::SeqCst), 1);
    for flow in [suspected, fresh] {
        assert_eq!(flow.snapshot().await.unwrap().ops.succeeded, 4);
    }
}
