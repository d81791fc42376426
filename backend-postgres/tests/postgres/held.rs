//! A workflow that somebody's transaction holds for long stops nobody else's (L5, B5).

use crate::common::{SECOND, START, World};
use diesel::connection::SimpleConnection;
use leasehold_core::client::{Client, Op, Workflow, WorkflowHandle};
use leasehold_core::engine::{Engine, HandlerError, OpContext};
use leasehold_core::model::OpId;
use leasehold_core::store::Store;
use leasehold_core::store::rows::AttemptOutcome;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(30);

async fn start(client: &Client, kind: &str) -> WorkflowHandle {
    client.start(Workflow::new("w").op(Op::new("a", kind).input(&()))).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_goes_on_while_a_transaction_holds_one_of_its_workflows() {
    let world = World::new();
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let handler = {
        let (begun, go) = (Arc::clone(&begun), Arc::clone(&go));
        move |_: OpContext, (): ()| {
            let (begun, go) = (Arc::clone(&begun), Arc::clone(&go));
            async move {
                begun.notify_one();
                go.notified().await;
                Ok::<_, HandlerError>(1)
            }
        }
    };
    let engine = Engine::builder(Arc::new(world.another("pool_size=3")) as Arc<dyn Store>)
        .handler("held", handler)
        .handler("free", async |_: OpContext, (): ()| Ok::<_, HandlerError>(2))
        .lease(Duration::from_secs(30))
        .heartbeat(Duration::from_millis(20))
        .poll(Duration::from_millis(20))
        .build()
        .await
        .unwrap();
    let running = engine.start().unwrap();
    let client = engine.client();
    let held = start(&client, "held").await;
    timeout(PATIENCE, begun.notified()).await.unwrap();

    let mut holder = world.schema.connect().unwrap();
    holder.batch_execute(&format!("BEGIN; SELECT seq FROM workflows WHERE id = '{}' FOR UPDATE", held.id())).unwrap();
    go.notify_one();
    let neighbours = async {
        for _ in 0..20 {
            start(&client, "free").await.wait().await.unwrap();
        }
    };
    timeout(PATIENCE, neighbours).await.expect("an end that waits for its workflow stopped its neighbours");
    // The end that waits keeps its lease: past two thirds of it, it is renewed.
    world.clock.advance_us(20 * SECOND).unwrap();
    world.until("SELECT expires_at_us AS number FROM leases", START + 50 * SECOND);
    holder.batch_execute("COMMIT").unwrap();
    timeout(PATIENCE, held.wait()).await.unwrap().unwrap();
    assert_eq!(held.result::<i64>("a").await.unwrap(), 1);
    let attempts = client.attempts(held.id(), &OpId::new("a").unwrap()).await.unwrap();
    assert_eq!(attempts.iter().map(|attempt| attempt.outcome).collect::<Vec<_>>(), [AttemptOutcome::Succeeded]);
    let report = timeout(PATIENCE, running.shutdown()).await.unwrap().unwrap();
    assert_eq!((report.succeeded, report.lost, report.unsaved), (21, 0, 0));
}
