//! Handlers that wait (W1, W2).

use super::fixture::{Begun, LEASE, World, flow, id, op, outcomes, soon};
use leasehold_core::engine::{HandlerError, OpContext};
use leasehold_core::model::{OpError, Timestamp};
use leasehold_core::state::OpStatus;
use leasehold_core::store::rows::{AttemptOutcome, WaitReason};
use leasehold_core::transitions::BatchLimit;
use std::time::Duration;

const PAUSE: Duration = Duration::from_mins(10);

/// Waits once, and then answers for how long it did.
async fn patient(ctx: OpContext, (): ()) -> Result<u64, HandlerError> {
    let Some(woken) = ctx.woken().await? else {
        return Err(ctx.wait_for(PAUSE));
    };
    assert_eq!(woken.wait.reason, WaitReason::Timer);
    Ok(woken.woken_at.since(woken.wait.since).as_secs())
}

#[tokio::test]
async fn a_handler_waits_and_goes_on_when_its_instant_has_come() {
    let world = World::new();
    let engine = world.engine().automatic(false).handler("k", patient).build().await.unwrap();
    let flow = engine.client().start(flow("k", ["a"])).await.unwrap();
    let report = soon(engine.run_once()).await.unwrap();
    assert_eq!((report.processed, report.suspended, report.failed), (1, 1, 0));
    assert_eq!(op(&flow, "a").await.status, OpStatus::Waiting);
    // Idle, although something waits: that is left to its instant.
    assert_eq!(soon(engine.run_until_idle()).await.unwrap().processed, 0);
    let limit = BatchLimit::new(10).unwrap();
    assert_eq!(engine.reconcile_once(limit).await.unwrap().woken, []);
    world.advance(PAUSE);
    let woken = engine.reconcile_once(limit).await.unwrap().woken;
    assert_eq!(woken.iter().map(|op| (&op.workflow, op.op.clone())).collect::<Vec<_>>(), [(flow.id(), id("a"))]);
    assert_eq!(soon(engine.run_once()).await.unwrap().succeeded, 1);
    assert_eq!(flow.result::<u64>("a").await.unwrap(), PAUSE.as_secs());
    assert_eq!(outcomes(&flow, "a").await, [AttemptOutcome::Suspended, AttemptOutcome::Succeeded]);
}

#[tokio::test]
async fn a_started_engine_wakes_what_another_process_left_waiting() {
    let world = World::new();
    let first = world.engine().automatic(false).handler("k", patient).build().await.unwrap();
    let flow = first.client().start(flow("k", ["a", "b"])).await.unwrap();
    assert_eq!(soon(first.run_once()).await.unwrap().suspended, 2);
    drop(first);
    let second = world.engine().name("w2").handler("k", patient).build().await.unwrap();
    let running = second.start().unwrap();
    world.advance(PAUSE);
    soon(flow.wait()).await.unwrap();
    let report = running.shutdown().await.unwrap();
    assert_eq!((report.woken, report.succeeded, report.suspended), (2, 2, 0));
}

#[tokio::test]
async fn an_instant_that_has_passed_is_no_reason_to_stop() {
    let world = World::new();
    let handler = |ctx: OpContext, (): ()| async move {
        if ctx.woken().await?.is_none() {
            return Err(ctx.wait_until(Timestamp::MIN));
        }
        Ok(())
    };
    let engine = world.engine().handler("k", handler).build().await.unwrap();
    let running = engine.start().unwrap();
    let flow = engine.client().start(flow("k", ["a"])).await.unwrap();
    soon(flow.wait()).await.unwrap();
    assert_eq!(running.shutdown().await.unwrap().woken, 1);
}

#[tokio::test]
async fn what_is_no_wait_fails_the_op_with_its_reason() {
    let world = World::new();
    let handler = |ctx: OpContext, (): ()| async move {
        let duration = if ctx.op_id().as_str() == "none" { Duration::ZERO } else { Duration::MAX };
        Err::<(), _>(ctx.wait_for(duration))
    };
    let engine = world.engine().automatic(false).handler("k", handler).build().await.unwrap();
    let flow = engine.client().start(flow("k", ["none", "endless"])).await.unwrap();
    assert_eq!(soon(engine.run_once()).await.unwrap().failed, 2);
    for name in ["none", "endless"] {
        assert_eq!(op(&flow, name).await.error.unwrap().code, OpError::BAD_WAIT);
    }
}

#[tokio::test]
async fn a_handler_that_waits_when_it_is_told_to_stop_waits() {
    let world = World::new();
    let begun = Begun::default();
    let counted = begun.clone();
    let handler = move |ctx: OpContext, (): ()| {
        counted.one();
        async move {
            ctx.cancellation().cancelled().await;
            Err::<(), _>(ctx.wait_for(LEASE))
        }
    };
    let engine = world.engine().grace(Duration::ZERO).stop_wait(Duration::from_secs(10)).handler("k", handler).build().await.unwrap();
    let running = engine.start().unwrap();
    let flow = engine.client().start(flow("k", ["a"])).await.unwrap();
    begun.all(1).await;
    let report = soon(running.shutdown()).await.unwrap();
    assert_eq!((report.suspended, report.released), (1, 0));
    assert_eq!(op(&flow, "a").await.status, OpStatus::Waiting);
}
