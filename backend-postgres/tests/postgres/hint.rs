//! Processes that hear of each other at once, and work on by polling where they do not (B4, S6).

use crate::common::World;
use diesel::connection::SimpleConnection;
use leasehold_core::client::{Client, Op, Workflow};
use leasehold_core::engine::{Engine, HandlerError, OpContext, Running};
use leasehold_core::model::{QueueName, QueuePolicy};
use leasehold_core::store::{Hint, Listener, Store};
use leasehold_core::transitions::Actor;
use leasehold_postgres::PostgresStore;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(30);
/// Longer than any test.
const NEVER: Duration = Duration::from_hours(1);

/// An engine that looks by itself every `poll`; its ops say that they begin, and run until they are told to stop.
async fn engine(store: PostgresStore, poll: Duration) -> (Engine, Running, UnboundedReceiver<&'static str>) {
    let (say, said) = unbounded_channel();
    let handler = move |ctx: OpContext, (): ()| {
        let say = say.clone();
        async move {
            say.send("begun").unwrap();
            ctx.cancellation().cancelled().await;
            say.send("told to stop").unwrap();
            Ok::<_, HandlerError>(())
        }
    };
    let engine = Engine::builder(Arc::new(store) as Arc<dyn Store>)
        .handler("k", handler)
        .lease(3 * NEVER)
        .heartbeat(NEVER)
        .poll(poll)
        .stop_wait(Duration::from_millis(50))
        .grace(Duration::ZERO)
        .build()
        .await
        .unwrap();
    let running = engine.start().unwrap();
    (engine, running, said)
}

#[tokio::test(flavor = "multi_thread")]
async fn another_processs_work_begins_and_its_cancel_arrives_long_before_the_next_look() {
    let world = World::new();
    let (_engine, running, mut said) = engine(world.another("pool_size=3"), NEVER).await;
    let elsewhere = Client::new(Arc::new(world.another("pool_size=3")) as Arc<dyn Store>);
    let flow = elsewhere.start(Workflow::new("w").op(Op::new("a", "k").input(&()))).await.unwrap();
    assert_eq!(timeout(PATIENCE, said.recv()).await.unwrap(), Some("begun"));
    elsewhere.cancel_workflow(flow.id(), &Actor::new("operator")).await.unwrap();
    assert_eq!(timeout(PATIENCE, said.recv()).await.unwrap(), Some("told to stop"));
    running.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_another_process_raises_is_followed_at_once() {
    let world = World::new();
    let elsewhere = Client::new(Arc::new(world.another("pool_size=3")) as Arc<dyn Store>);
    let limit = |most| QueuePolicy { max_in_flight: Some(most), ..QueuePolicy::unlimited(QueueName::new("q").unwrap()) };
    elsewhere.set_policy(limit(1)).await.unwrap();
    let (engine, running, mut said) = engine(world.another("pool_size=3"), NEVER).await;
    let ops = ["a", "b", "c"].map(|id| Op::new(id, "k").queue("q").input(&()));
    let flow = elsewhere.start(Workflow::new("w").ops(ops)).await.unwrap();
    assert_eq!(timeout(PATIENCE, said.recv()).await.unwrap(), Some("begun"));
    let running_ops = async || engine.client().snapshot(flow.id()).await.unwrap().ops.running;
    assert_eq!(running_ops().await, 1);
    elsewhere.set_policy(limit(2)).await.unwrap();
    assert_eq!(timeout(PATIENCE, said.recv()).await.unwrap(), Some("begun"));
    assert_eq!(running_ops().await, 2);
    elsewhere.cancel_workflow(flow.id(), &Actor::new("operator")).await.unwrap();
    running.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_hints_polling_finds_it() {
    let world = World::new();
    for (worker, client) in [("hints=off", "hints=off"), ("hints=off", "hints=on"), ("hints=on", "hints=off")] {
        let (_engine, running, mut said) = engine(world.another(worker), Duration::from_millis(50)).await;
        let elsewhere = Client::new(Arc::new(world.another(client)) as Arc<dyn Store>);
        let flow = elsewhere.start(Workflow::new("w").op(Op::new("a", "k").input(&()))).await.unwrap();
        assert_eq!(timeout(PATIENCE, said.recv()).await.unwrap(), Some("begun"), "{worker}, {client}");
        elsewhere.cancel_workflow(flow.id(), &Actor::new("operator")).await.unwrap();
        running.shutdown().await.unwrap();
    }
    assert!(world.another("hints=off").hints().is_none());
}

#[derive(Debug)]
struct Ear(Mutex<mpsc::Sender<Hint>>);

impl Listener for Ear {
    fn hear(&self, hint: Hint) {
        let _ = self.0.lock().unwrap().send(hint);
    }
}

#[test]
fn a_listener_whose_connection_is_lost_hears_again() {
    let world = World::new();
    let (listening, telling) = (world.another("application_name=ear"), world.another("application_name=mouth"));
    let (tell, hear) = mpsc::channel();
    let ear: Arc<dyn Listener> = Arc::new(Ear(Mutex::new(tell)));
    listening.hints().unwrap().listen(&ear);
    let sessions = "SELECT count(*) AS number FROM pg_stat_activity WHERE application_name = 'ear' AND query LIKE 'LISTEN%'";
    for _ in 0..2 {
        // Whenever it begins to hear it is told so.
        assert_eq!(hear.recv_timeout(PATIENCE).unwrap(), Hint::Work);
        world.until(sessions, 1);
        telling.hints().unwrap().tell(Hint::Canceled);
        assert_eq!(hear.recv_timeout(PATIENCE).unwrap(), Hint::Canceled);
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name IN ('ear', 'mouth')";
        world.schema.connect().unwrap().batch_execute(end).unwrap();
    }
    assert_eq!(hear.recv_timeout(PATIENCE).unwrap(), Hint::Work);
}
