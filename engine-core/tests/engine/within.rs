//! Verbs in a transaction of the application's, seen from the engine (B5). The in-memory store's own stands for it.

use super::fixture::{World, attempts, outcomes, soon};
use leasehold_core::client::{ClientError, Op, Workflow};
use leasehold_core::engine::{EngineBuilder, HandlerError, Notice, NoticeKind, OpContext};
use leasehold_core::model::{Artifact, ArtifactKind, ArtifactName, Json, OpError};
use leasehold_core::store::rows::{AttemptOutcome, EventKind};
use leasehold_core::store::{Store, StoreError, StoreExt, TxKind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Kinds = Arc<Mutex<Vec<NoticeKind>>>;

/// The same, and what its observer hears.
fn observed(engine: EngineBuilder) -> (EngineBuilder, Kinds) {
    let heard: Kinds = Arc::default();
    let hears = Arc::clone(&heard);
    (engine.observer(move |notice: &Notice| hears.lock().unwrap().push(notice.kind)), heard)
}

/// Completes the op of `ctx` with `result` in a transaction of the application's, which fails as `fail` says.
fn complete(store: &Arc<dyn Store>, ctx: &OpContext, result: i64, fail: bool) -> Result<(), ClientError> {
    let receipt = store.with(TxKind::Client, |tx| {
        let receipt = ctx.client().within(tx).complete(ctx, &result)?;
        if fail { Err(ClientError::from(StoreError::Busy("the application's own code failed".into()))) } else { Ok(receipt) }
    })?;
    receipt.committed();
    Ok(())
}

#[tokio::test]
async fn observers_and_waiters_hear_of_a_start_when_they_are_told_that_it_is_committed() {
    let world = World::new();
    let (builder, heard) = observed(world.engine());
    let engine = builder.handler("k", |_: OpContext, (): ()| async { Ok::<_, HandlerError>(1) }).build().await.unwrap();
    let client = engine.client();
    let receipt =
        world.store.with(TxKind::Client, |tx| client.within(tx).start(Workflow::new("w").id("mine").op(Op::new("a", "k")))).unwrap();
    assert!(engine.flush_observers(Duration::from_secs(30)).await);
    assert_eq!(heard.lock().unwrap().as_slice(), []);
    let created = receipt.committed();
    assert!(engine.flush_observers(Duration::from_secs(30)).await);
    assert_eq!(heard.lock().unwrap().as_slice(), [NoticeKind::Event(EventKind::WorkflowCreated)]);
    engine.run_until_idle().await.unwrap();
    assert_eq!(client.handle(created.id).result::<i64>("a").await.unwrap(), 1);
}

#[tokio::test]
async fn an_end_in_a_transaction_of_the_applications_is_the_attempts_end_and_no_loss() {
    let world = World::new();
    let store = Arc::clone(&world.store);
    let (builder, heard) = observed(world.engine());
    let handler = move |ctx: OpContext, (): ()| {
        let store = Arc::clone(&store);
        async move {
            complete(&store, &ctx, 1, false).map_err(|error| HandlerError::permanent(error.to_string()))?;
            Ok::<_, HandlerError>(2)
        }
    };
    let engine = builder.handler("k", handler).build().await.unwrap();
    let flow = engine.client().start(Workflow::new("w").op(Op::new("a", "k")).op(Op::new("b", "k").after("a"))).await.unwrap();
    let running = engine.start().unwrap();
    soon(flow.wait()).await.unwrap();
    let report = running.shutdown().await.unwrap();
    assert_eq!((report.processed, report.succeeded, report.lost, report.retried), (2, 2, 0, 0));
    assert_eq!(flow.result::<i64>("a").await.unwrap(), 1, "what was committed counts, not what was returned");
    assert_eq!(outcomes(&flow, "a").await, [AttemptOutcome::Succeeded]);
    assert!(engine.flush_observers(Duration::from_secs(30)).await);
    let heard = heard.lock().unwrap();
    assert_eq!(heard.iter().filter(|kind| **kind == NoticeKind::Event(EventKind::OpSucceeded)).count(), 2);
    assert!(!heard.contains(&NoticeKind::OpLeaseLost));
}

#[tokio::test]
async fn a_handler_that_rolled_back_and_returns_all_the_same_has_failed_and_is_tried_again() {
    let world = World::new();
    let store = Arc::clone(&world.store);
    let handler = move |ctx: OpContext, (): ()| {
        let store = Arc::clone(&store);
        async move {
            let rolls_back = ctx.attempt() == 1;
            assert_eq!(complete(&store, &ctx, 1, rolls_back).is_err(), rolls_back);
            Ok::<_, HandlerError>(2)
        }
    };
    let engine = world.engine().handler("k", handler).build().await.unwrap();
    let flow = engine.client().start(Workflow::new("w").op(Op::new("a", "k"))).await.unwrap();
    let running = engine.start().unwrap();
    super::fixture::until(async || outcomes(&flow, "a").await.len() == 1).await;
    world.advance(Duration::from_mins(10));
    soon(flow.wait()).await.unwrap();
    let report = running.shutdown().await.unwrap();
    assert_eq!((report.succeeded, report.retried, report.lost), (1, 1, 0));
    let attempts = attempts(&flow, "a").await;
    assert_eq!(attempts[0].error.as_ref().unwrap().code, OpError::NOT_COMMITTED);
    assert_eq!(outcomes(&flow, "a").await, [AttemptOutcome::Retried, AttemptOutcome::Succeeded]);
}

#[tokio::test]
async fn a_handler_that_lost_its_lease_is_told_inside_the_transaction() {
    let world = World::new();
    let (store, clock) = (Arc::clone(&world.store), Arc::clone(&world.clock));
    let handler = move |ctx: OpContext, (): ()| {
        let (store, clock) = (Arc::clone(&store), Arc::clone(&clock));
        async move {
            if ctx.attempt() == 1 {
                clock.advance(super::fixture::LEASE.try_into().unwrap());
                let refused = complete(&store, &ctx, 1, false);
                assert!(matches!(refused, Err(ClientError::LeaseLost { .. })), "{refused:?}");
                return Err(HandlerError::retryable("the lease was lost"));
            }
            Ok::<_, HandlerError>(ctx.attempt())
        }
    };
    let engine = world.engine().handler("k", handler).build().await.unwrap();
    let flow = engine.client().start(Workflow::new("w").op(Op::new("a", "k"))).await.unwrap();
    let running = engine.start().unwrap();
    soon(flow.wait()).await.unwrap();
    running.shutdown().await.unwrap();
    assert_eq!(flow.result::<i64>("a").await.unwrap(), 2);
    assert_eq!(outcomes(&flow, "a").await, [AttemptOutcome::Abandoned, AttemptOutcome::Succeeded]);
}

#[tokio::test]
async fn an_ensure_without_an_identity_and_a_kind_that_nobody_serves_are_refused_before_anything_is_written() {
    let world = World::new();
    let engine = world.engine().handler("k", |_: OpContext, (): ()| async { Ok::<_, HandlerError>(1) }).build().await.unwrap();
    let client = engine.client();
    let ensured = world.store.with(TxKind::Client, |tx| client.within(tx).ensure(Workflow::new("w").op(Op::new("a", "k"))));
    assert!(ensured.unwrap_err().to_string().contains("identity"));
    let started = world.store.with(TxKind::Client, |tx| client.within(tx).start(Workflow::new("w").op(Op::new("a", "other"))));
    assert!(matches!(started, Err(ClientError::Invalid(_))));
    assert_eq!(client.status().await.unwrap().totals.ops.total(), 0);
}

#[tokio::test]
async fn what_a_handler_left_is_committed_with_its_end() {
    let world = World::new();
    let store = Arc::clone(&world.store);
    let handler = move |ctx: OpContext, (): ()| {
        let store = Arc::clone(&store);
        async move {
            let artifact = Artifact {
                name: ArtifactName::new("report").unwrap(),
                kind: ArtifactKind::Text,
                content_type: "text/plain".to_owned(),
                metadata: Json::null(),
                content: b"all is well".to_vec(),
            };
            ctx.emit(Op::new("further", "leaf"))?;
            ctx.attach(artifact)?;
            complete(&store, &ctx, 1, false).map_err(|error| HandlerError::permanent(error.to_string()))
        }
    };
    let leaf = |_: OpContext, (): ()| async { Ok::<_, HandlerError>(7) };
    let engine = world.engine().handler("k", handler).handler("leaf", leaf).build().await.unwrap();
    let flow = engine.client().start(Workflow::new("w").op(Op::new("a", "k"))).await.unwrap();
    engine.run_until_idle().await.unwrap();
    assert_eq!(flow.result::<i64>("further").await.unwrap(), 7);
    let artifacts = engine.client().artifacts(flow.id()).await.unwrap();
    assert_eq!(artifacts.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), ["report"]);
}
