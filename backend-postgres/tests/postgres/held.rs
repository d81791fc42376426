//! A workflow that somebody's transaction holds for long stops nobody else's (L5, B5).

use crate::common::{SECOND, START, World};
use diesel::connection::SimpleConnection;
use leasehold_core::client::{Client, Op, Workflow, WorkflowHandle};
use leasehold_core::engine::{Engine, HandlerError, OpContext};
use leasehold_core::model::OpId;
use leasehold_core::store::rows::AttemptOutcome;
use leasehold_core::store::{BoxError, Store};
use std::sync::{Arc, Mutex, mpsc};
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

/// Its handler holds the transaction that ends the op, for longer than the lease.
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_goes_on_while_a_handler_holds_a_transaction_of_its_own() {
    let world = World::new();
    let store = Arc::new(world.another("pool_size=4"));
    let held = Arc::new(Notify::new());
    let (go, wait) = mpsc::channel::<()>();
    let wait = Arc::new(Mutex::new(wait));
    let handler = {
        let (store, held) = (Arc::clone(&store), Arc::clone(&held));
        move |ctx: OpContext, (): ()| {
            let (store, held, wait) = (Arc::clone(&store), Arc::clone(&held), Arc::clone(&wait));
            async move {
                let ended = tokio::task::spawn_blocking(move || {
                    let receipt = store.transaction(|conn| -> Result<_, BoxError> {
                        conn.batch_execute("CREATE TEMPORARY TABLE business (note TEXT) ON COMMIT DROP")?;
                        let receipt = store.on(conn, |tx| ctx.client().within(tx).complete(&ctx, &1))?;
                        held.notify_one();
                        wait.lock().unwrap().recv().unwrap();
                        Ok(receipt)
                    })?;
                    receipt.committed();
                    Ok::<_, BoxError>(())
                });
                ended.await.unwrap().map_err(|error| HandlerError::permanent(error.to_string()))
            }
        }
    };
    let engine = Engine::builder(Arc::clone(&store) as Arc<dyn Store>)
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
    let flow = start(&client, "held").await;
    timeout(PATIENCE, held.notified()).await.unwrap();
    // Past the lease: what was judged stays judged, and a recovery passes over it.
    world.clock.advance_us(40 * SECOND).unwrap();
    let neighbours = async {
        for _ in 0..20 {
            start(&client, "free").await.wait().await.unwrap();
        }
    };
    timeout(PATIENCE, neighbours).await.expect("a transaction of a handler's stopped its neighbours");
    go.send(()).unwrap();
    timeout(PATIENCE, flow.wait()).await.unwrap().unwrap();
    assert_eq!(flow.result::<i64>("a").await.unwrap(), 1);
    let attempts = client.attempts(flow.id(), &OpId::new("a").unwrap()).await.unwrap();
    assert_eq!(attempts.iter().map(|attempt| attempt.outcome).collect::<Vec<_>>(), [AttemptOutcome::Succeeded]);
    let report = timeout(PATIENCE, running.shutdown()).await.unwrap().unwrap();
    assert_eq!((report.succeeded, report.lost, report.recovered), (21, 0, 0));
}
