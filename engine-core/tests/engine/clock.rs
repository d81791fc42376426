//! A clock that goes back holds dispatch, and one that jumps forward costs nobody a lease (T7).

use super::fixture::{Begun, LEASE, World, flow, op, outcomes, soon, until};
use leasehold_core::client::Actor;
use leasehold_core::engine::{HandlerError, Notice, OpContext};
use leasehold_core::model::{Micros, Timestamp};
use leasehold_core::state::OpStatus;
use leasehold_core::store::Clock;
use leasehold_core::store::rows::{AttemptOutcome, EventKind};
use leasehold_core::transitions::BatchLimit;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

const MINUTE: Duration = Duration::from_mins(1);

async fn quick(_: OpContext, (): ()) -> Result<(), HandlerError> {
    Ok(())
}

fn goes_back(world: &World, by: Duration) {
    let by = Micros::try_from(by).unwrap().get();
    world.clock.set(Timestamp::from_micros(now(world).as_micros() - by).unwrap());
}

fn now(world: &World) -> Timestamp {
    Clock::now(world.clock.as_ref())
}

async fn anomalies(world: &World) -> usize {
    let events = world.client().events(None, 0).await.unwrap();
    events.iter().filter(|row| row.event.kind == EventKind::ClockAnomaly).count()
}

#[tokio::test]
async fn a_cycle_by_hand_says_that_it_was_held() {
    let world = World::new();
    let engine = world.engine().automatic(false).handler("k", quick).build().await.unwrap();
    let client = engine.client();
    assert_eq!(engine.reconcile_once(BatchLimit::DEFAULT).await.unwrap().held, None);
    let flow = client.start(flow("k", ["a"])).await.unwrap();
    goes_back(&world, MINUTE);
    for _ in 0..2 {
        let report = soon(engine.run_once()).await.unwrap();
        assert!(report.held.is_some() && report.processed == 0, "{report:?}");
        let done = engine.reconcile_once(BatchLimit::DEFAULT).await.unwrap();
        assert!(done.held.is_some() && done.recovered.is_empty(), "{done:?}");
    }
    assert_eq!(anomalies(&world).await, 1);
    let status = client.clock_status().await.unwrap();
    assert!(status.held() && status.behind == MINUTE, "{status:?}");
    assert!(status.anomaly_since.is_some());
    // Within the tolerance that was asked for it is fine.
    assert!(!client.with_clock_tolerance(MINUTE).clock_status().await.unwrap().held());
    let tolerant = world.engine().automatic(false).clock_tolerance(MINUTE).handler("k", quick).build().await.unwrap();
    assert_eq!(soon(tolerant.run_once()).await.unwrap().held, None);
    client.trust_clock(&Actor::new("ann")).await.unwrap();
    let report = soon(engine.run_once()).await.unwrap();
    assert_eq!((report.held, report.succeeded), (None, 1), "what was made ready by the mistaken clock runs");
    assert_eq!(op(&flow, "a").await.status, OpStatus::Succeeded);
    assert!(!client.clock_status().await.unwrap().held());
}

#[tokio::test]
async fn a_running_engine_says_once_that_it_is_held_and_goes_on_by_itself() {
    let world = World::new();
    let heard = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&heard);
    let observer = move |notice: &Notice| {
        counts.fetch_add(usize::from(notice.kind.as_str() == "clock_anomaly"), Ordering::SeqCst);
    };
    let engine = world.engine().handler("k", quick).observer(observer).build().await.unwrap();
    let running = engine.start().unwrap();
    // Leading the store's maintenance it has remembered the time.
    until(|| async { world.client().clock_status().await.unwrap().mark.is_some() }).await;
    goes_back(&world, MINUTE);
    until(|| async { anomalies(&world).await == 1 }).await;
    let flow = engine.client().start(flow("k", ["a"])).await.unwrap();
    assert_eq!(op(&flow, "a").await.status, OpStatus::Ready);
    world.advance(MINUTE);
    soon(flow.wait()).await.unwrap();
    running.shutdown().await.unwrap();
    assert!(engine.flush_observers(Duration::from_secs(30)).await);
    assert_eq!((heard.load(Ordering::SeqCst), anomalies(&world).await), (1, 1));
    let bare = world.client().events(None, 0).await.unwrap();
    assert!(bare.iter().any(|row| row.workflow_id.is_none() && row.event.kind == EventKind::ClockAnomaly));
}

#[tokio::test]
async fn a_handler_keeps_its_lease_when_time_jumps_and_a_dead_one_does_not() {
    let world = World::new();
    let (begun, go_on) = (Begun::default(), Arc::new(Notify::new()));
    let handler = {
        let (begun, go_on) = (begun.clone(), Arc::clone(&go_on));
        move |ctx: OpContext, (): ()| {
            let (begun, go_on) = (begun.clone(), Arc::clone(&go_on));
            async move {
                begun.one();
                if ctx.op_id().as_str() == "alive" {
                    go_on.notified().await;
                }
                Ok::<i64, HandlerError>(ctx.attempt())
            }
        }
    };
    let client = world.client();
    let dead = client.start(flow("dead", ["dead"])).await.unwrap();
    assert_eq!(world.claim_and_die(), 1);
    let engine = world.engine().jump_grace(Duration::from_secs(10)).handler("k", handler.clone()).handler("dead", handler);
    let engine = engine.build().await.unwrap();
    let alive = client.start(flow("k", ["alive"])).await.unwrap();
    let running = engine.start().unwrap();
    begun.all(1).await;
    // A laptop that slept for two hours: both leases have expired by the clock, but one has an owner that beats.
    world.advance(Duration::from_hours(2));
    until(|| async {
        let lease = op(&alive, "alive").await.lease;
        let renewed = now(&world).after(Micros::try_from(LEASE).unwrap()).unwrap();
        lease.is_some_and(|lease| lease.expires_at == renewed)
    })
    .await;
    assert_eq!(outcomes(&dead, "dead").await, [], "it might have been alive as well");
    world.advance(Duration::from_secs(10));
    soon(dead.wait()).await.unwrap();
    assert_eq!(outcomes(&dead, "dead").await, [AttemptOutcome::Abandoned, AttemptOutcome::Succeeded]);
    go_on.notify_one();
    soon(alive.wait()).await.unwrap();
    assert_eq!(outcomes(&alive, "alive").await, [AttemptOutcome::Succeeded], "one attempt, in spite of the jump");
    let report = running.shutdown().await.unwrap();
    assert_eq!((report.lost, report.recovered), (0, 1));
}

/// Neither a heartbeat nor a claim has looked in between.
#[tokio::test]
async fn a_result_that_comes_right_after_a_jump_is_saved() {
    let world = World::new();
    let (begun, go_on) = (Begun::default(), Arc::new(Notify::new()));
    let handler = {
        let (begun, go_on) = (begun.clone(), Arc::clone(&go_on));
        move |ctx: OpContext, (): ()| {
            let (begun, go_on) = (begun.clone(), Arc::clone(&go_on));
            async move {
                begun.one();
                go_on.notified().await;
                Ok::<i64, HandlerError>(ctx.attempt())
            }
        }
    };
    let slow = Duration::from_hours(1);
    let engine = world.engine().jump_grace(Duration::from_secs(10)).heartbeat(slow).poll(slow).handler("k", handler);
    let engine = engine.build().await.unwrap();
    let flow = engine.client().start(flow("k", ["a"])).await.unwrap();
    let running = engine.start().unwrap();
    begun.all(1).await;
    // Its upkeep has looked, and will not look again for an hour.
    until(|| async { world.client().clock_status().await.unwrap().mark.is_some() }).await;
    world.advance(Duration::from_hours(2));
    go_on.notify_one();
    soon(flow.wait()).await.unwrap();
    assert_eq!(outcomes(&flow, "a").await, [AttemptOutcome::Succeeded]);
    assert_eq!(running.shutdown().await.unwrap().lost, 0);
}
