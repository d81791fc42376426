//! An engine driven by hand (L14).

use super::fixture::{LEASE, World, flow, id, op, outcomes, soon};
use leasehold_core::client::{Op, Workflow};
use leasehold_core::engine::{EngineError, HandlerError, OpContext};
use leasehold_core::model::{QueueName, QueuePolicy, RetryPolicy};
use leasehold_core::state::OpStatus;
use leasehold_core::store::rows::AttemptOutcome;
use leasehold_core::transitions::{BatchLimit, Ended};
use std::time::Duration;

async fn quick(_: OpContext, (): ()) -> Result<(), HandlerError> {
    Ok(())
}

#[tokio::test]
async fn a_cycle_claims_once_and_tells_what_it_touched() {
    let world = World::new();
    let engine = world.engine().max_workers(2).automatic(false).handler("k", quick).build().await.unwrap();
    assert!(matches!(engine.start(), Err(EngineError::NotAutomatic)));
    let chain = Workflow::new("w").op(Op::new("a", "k").priority(1)).op(Op::new("b", "k").after("a")).op(Op::new("c", "k"));
    let flow = engine.client().start(chain).await.unwrap();
    let first = soon(engine.run_once()).await.unwrap();
    let mut touched: Vec<(&str, &Ended)> = first.attempts.iter().map(|attempt| (attempt.op_id.as_str(), &attempt.ended)).collect();
    touched.sort_unstable_by_key(|(op, _)| *op);
    assert_eq!(touched, [("a", &Ended::Succeeded), ("c", &Ended::Succeeded)]);
    assert_eq!((first.processed, first.succeeded), (2, 2));
    // What the cycle made ready is for the next one.
    assert_eq!(op(&flow, "b").await.status, OpStatus::Ready);
    assert_eq!(soon(engine.run_once()).await.unwrap().attempts.len(), 1);
    assert_eq!(soon(engine.run_once()).await.unwrap().processed, 0);
}

#[tokio::test]
async fn reconciling_takes_back_what_expired_and_moves_what_is_due_and_runs_nothing() {
    let world = World::new();
    let handler = |ctx: OpContext, (): ()| async move {
        if ctx.op_id().as_str() == "later" && ctx.failures() == 0 {
            return Err(HandlerError::retryable("not yet").after(LEASE));
        }
        Ok(())
    };
    let engine = world.engine().automatic(false).handler("k", handler).build().await.unwrap();
    let flow = engine.client().start(flow("k", ["later"])).await.unwrap();
    assert_eq!(soon(engine.run_once()).await.unwrap().retried, 1);
    let limit = BatchLimit::new(10).unwrap();
    assert_eq!(engine.reconcile_once(limit).await.unwrap().promoted, 0);
    world.advance(LEASE);
    assert_eq!(engine.reconcile_once(limit).await.unwrap().promoted, 1);
    assert_eq!(outcomes(&flow, "later").await, [AttemptOutcome::Retried]);
    assert_eq!(soon(engine.run_once()).await.unwrap().succeeded, 1);
}

#[tokio::test]
async fn a_worker_lost_too_often_fails_its_op() {
    use leasehold_core::model::OpError;
    let world = World::new();
    let engine = world.engine().automatic(false).handler("k", quick).build().await.unwrap();
    let poison = Op::new("a", "k").retry(RetryPolicy { max_lost: 2, ..RetryPolicy::default() });
    let flow = engine.client().start(Workflow::new("w").op(poison).op(Op::new("b", "k").after("a"))).await.unwrap();
    let mut recovered = Vec::new();
    for _ in 0..2 {
        assert_eq!(world.claim_and_die(), 1);
        world.advance(LEASE);
        recovered.extend(engine.reconcile_once(BatchLimit::DEFAULT).await.unwrap().recovered);
    }
    assert_eq!(recovered.iter().map(|op| op.status).collect::<Vec<_>>(), [OpStatus::Ready, OpStatus::Failed]);
    assert_eq!(soon(engine.run_once()).await.unwrap().processed, 0);
    let error = op(&flow, "a").await.error.unwrap();
    assert_eq!(error.code, OpError::WORKER_LOST);
    assert!(error.message.starts_with("worker lost"), "{}", error.message);
    assert_eq!(op(&flow, "b").await.status, OpStatus::Blocked);
    let retried = engine.client().retry_op(flow.id(), &id("a"), &leasehold_core::client::Actor::new("ada")).await.unwrap();
    assert_eq!(retried, [id("a")]);
    assert_eq!(soon(engine.run_until_idle()).await.unwrap().succeeded, 2);
}

#[tokio::test]
async fn a_limited_queue_never_runs_more_at_once_and_idle_does_not_wait_for_it() {
    let world = World::new();
    let policy = QueuePolicy { max_in_flight: Some(2), ..QueuePolicy::unlimited(QueueName::new("q").unwrap()) };
    let engine = world.engine().automatic(false).policy(policy).handler("k", quick).build().await.unwrap();
    let flow = Workflow::new("w").ops((0..7).map(|n| Op::new(n.to_string(), "k").queue("q")));
    let flow = engine.client().start(flow).await.unwrap();
    assert_eq!(soon(engine.run_once()).await.unwrap().processed, 2);
    assert_eq!(soon(engine.run_until_idle()).await.unwrap().processed, 5);
    assert_eq!(flow.snapshot().await.unwrap().ops.succeeded, 7);
    assert_eq!(engine.client().policies().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_rate_is_kept_to_and_does_not_wait_for_the_poll() {
    use leasehold_core::engine::{Engine, Notice};
    use leasehold_core::memory::MemoryStore;
    use leasehold_core::model::RateLimit;
    use leasehold_core::store::SystemClock;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    let rate = Some(RateLimit { per_second: 200.0, burst: 2 });
    let policy = QueuePolicy { rate, ..QueuePolicy::unlimited(QueueName::new("q").unwrap()) };
    let limited = Arc::new(AtomicUsize::new(0));
    let heard = Arc::clone(&limited);
    let observer = move |notice: &Notice| {
        heard.fetch_add(usize::from(notice.kind.as_str() == "queue_rate_limited"), Ordering::SeqCst);
    };
    let store = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
    // With an hour between polls only the known instant of the next token brings the next claim about.
    let engine = Engine::builder(store).poll(Duration::from_hours(1)).policy(policy).handler("k", quick).observer(observer);
    let engine = engine.build().await.unwrap();
    let running = engine.start().unwrap();
    let began = std::time::Instant::now();
    let flow = engine.client().start(Workflow::new("w").ops((0..12).map(|n| Op::new(n.to_string(), "k").queue("q")))).await.unwrap();
    soon(flow.wait()).await.unwrap();
    // Two at once, and ten more at five milliseconds each.
    assert!(began.elapsed() >= Duration::from_millis(50), "{:?}", began.elapsed());
    running.shutdown().await.unwrap();
    assert!(engine.flush_observers(Duration::from_secs(30)).await);
    assert!(limited.load(Ordering::SeqCst) >= 1);
}

#[tokio::test]
async fn a_retry_that_is_due_soon_does_not_wait_for_the_poll() {
    use leasehold_core::engine::Engine;
    use leasehold_core::memory::MemoryStore;
    use leasehold_core::store::SystemClock;
    let handler = |ctx: OpContext, (): ()| async move {
        if ctx.failures() < 3 { Err(HandlerError::retryable("again").after(Duration::from_millis(1))) } else { Ok(()) }
    };
    let store = std::sync::Arc::new(MemoryStore::new(std::sync::Arc::new(SystemClock)));
    // With an hour between polls only the hint brings the retries about.
    let engine = Engine::builder(store).poll(Duration::from_hours(1)).handler("k", handler).build().await.unwrap();
    let op = Op::new("a", "k").retry(RetryPolicy::default().attempts(5));
    let running = engine.start().unwrap();
    let flow = engine.client().start(Workflow::new("w").op(op)).await.unwrap();
    soon(flow.wait()).await.unwrap();
    assert_eq!(running.shutdown().await.unwrap().retried, 3);
}
