//! Observers hear of what was committed, in that order, whatever they do (O1, O2).

use super::fixture::{World, soon};
use leasehold_core::client::{Op, Workflow};
use leasehold_core::engine::{HandlerError, Notice, OpContext};
use leasehold_core::model::OpId;
use leasehold_core::store::{StoreExt, TxKind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[tokio::test]
async fn observers_hear_after_the_commit_and_in_its_order_and_one_that_panics_stops_nothing() {
    let world = World::new();
    let heard: Arc<Mutex<Vec<Notice>>> = Arc::default();
    let listen = {
        let (heard, store) = (Arc::clone(&heard), Arc::clone(&world.store));
        move |notice: &Notice| {
            // Nothing is told before it is in the store.
            if let Some(workflow) = &notice.workflow_id {
                let there = store.with(TxKind::Read, |tx| tx.workflows(std::slice::from_ref(workflow))).unwrap();
                assert_eq!(there.len(), 1);
            }
            heard.lock().unwrap().push(notice.clone());
        }
    };
    let handler = |_: OpContext, (): ()| async { Ok::<(), HandlerError>(()) };
    let engine = world.engine().handler("k", handler).observer(|_: &Notice| panic!("always")).observer(listen).build().await.unwrap();
    let flow = Workflow::new("w").op(Op::new("a", "k").queue("q")).op(Op::new("b", "k").after("a"));
    let flow = engine.client().start(flow).await.unwrap();
    world.advance(Duration::from_secs(5));
    let running = engine.start().unwrap();
    soon(flow.wait()).await.unwrap();
    running.shutdown().await.unwrap();
    assert!(engine.flush_observers(Duration::from_secs(30)).await);
    let heard = heard.lock().unwrap();
    let told: Vec<(&str, Option<&str>)> =
        heard.iter().map(|notice| (notice.kind.as_str(), notice.op_id.as_ref().map(OpId::as_str))).collect();
    let told: Vec<_> = told.into_iter().filter(|(kind, _)| *kind != "idle").collect();
    assert_eq!(
        told,
        [
            ("workflow_created", None),
            ("op_leased", Some("a")),
            ("op_succeeded", Some("a")),
            ("op_leased", Some("b")),
            ("op_succeeded", Some("b")),
            ("workflow_updated", None),
        ]
    );
    let leased = heard.iter().find(|notice| notice.kind.as_str() == "op_leased").unwrap();
    assert_eq!(leased.queue_wait, Some(Duration::from_secs(5)));
    let succeeded = heard.iter().find(|notice| notice.kind.as_str() == "op_succeeded").unwrap();
    assert_eq!(succeeded.queue.as_ref().unwrap().as_str(), "q");
    assert_eq!(succeeded.op_kind.as_ref().unwrap().as_str(), "k");
    assert_eq!(succeeded.worker.as_ref().unwrap().as_str(), "w1");
    assert!(succeeded.run_time.is_some() && succeeded.attempt.unwrap().0 == 1);
    assert_eq!(heard.last().unwrap().code.as_deref().filter(|code| *code != "idle"), heard.last().unwrap().code.as_deref());
    assert_eq!(engine.notices_dropped(), 0);
}

#[tokio::test]
async fn an_idle_engine_says_so_once() {
    let world = World::new();
    let (heard, mut hears) = tokio::sync::mpsc::unbounded_channel();
    let handler = |_: OpContext, (): ()| async { Ok::<(), HandlerError>(()) };
    let observer = move |notice: &Notice| heard.send(notice.kind.as_str()).unwrap();
    let engine = world.engine().poll(Duration::from_millis(1)).handler("k", handler).observer(observer).build().await.unwrap();
    let running = engine.start().unwrap();
    assert_eq!(soon(hears.recv()).await, Some("idle"));
    let flow = engine.client().start(Workflow::new("w").op(Op::new("a", "k"))).await.unwrap();
    soon(flow.wait()).await.unwrap();
    let mut kinds = Vec::new();
    while kinds.last() != Some(&"idle") {
        kinds.extend(soon(hears.recv()).await);
    }
    assert_eq!(kinds, ["workflow_created", "op_leased", "op_succeeded", "workflow_updated", "idle"]);
    running.shutdown().await.unwrap();
}
