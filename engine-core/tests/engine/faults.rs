//! A store that fails: lost answers, outages, rows that it refuses (L11, L12, L13).

use super::fixture::{Faults, World, flow, op, outcomes, soon, until};
use leasehold_core::client::ClientError;
use leasehold_core::engine::{EngineError, HandlerError, OpContext};
use leasehold_core::model::OpSeq;
use leasehold_core::state::{OpStatus, WorkflowStatus};
use leasehold_core::store::rows::AttemptOutcome;
use leasehold_core::store::{StoreError, TxKind};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

fn cut_off() -> StoreError {
    StoreError::Unavailable("the connection was lost".into())
}

/// Loses the answer to the first commit of every kind of transaction that writes.
fn lost_answers() -> Faults {
    let lost: Mutex<HashSet<TxKind>> = Mutex::default();
    let after = move |kind| (kind != TxKind::Read && lost.lock().unwrap().insert(kind)).then(cut_off);
    Faults { after: Box::new(after), ..Faults::default() }
}

#[tokio::test]
async fn a_lost_answer_to_any_commit_has_no_second_effect() {
    let world = World::with_faults(lost_answers());
    let runs = Arc::new(AtomicUsize::new(0));
    let handler = {
        let runs = Arc::clone(&runs);
        move |ctx: OpContext, (): ()| {
            runs.fetch_add(1, Ordering::SeqCst);
            async move { Ok::<i64, HandlerError>(ctx.attempt()) }
        }
    };
    let engine = world.engine().handler("k", handler).build().await.unwrap();
    // The creation's answer is lost as well, and the workflow still this call's own.
    let flow = engine.client().start(flow("k", ["a"])).await.unwrap();
    assert!(flow.created());
    let report = soon(engine.run_until_idle()).await.unwrap();
    assert_eq!((report.processed, report.succeeded, report.lost), (1, 1, 0));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert_eq!(flow.result::<i64>("a").await.unwrap(), 1);
    assert_eq!(outcomes(&flow, "a").await, [AttemptOutcome::Succeeded]);
    assert_eq!(flow.client().list(leasehold_core::store::rows::WorkflowPage::default()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_claim_whose_answer_never_came_is_given_back_by_a_shutdown() {
    // Lost from the moment on that there is something to lose.
    let leased = Arc::new(AtomicBool::new(false));
    let noticed = Arc::clone(&leased);
    let check = move |_, tx: &mut dyn leasehold_core::store::Tx| {
        noticed.fetch_or(!tx.leases_of(&[OpSeq(1), OpSeq(2)])?.is_empty(), Ordering::SeqCst);
        Ok(())
    };
    let after = move |kind| (kind == TxKind::Claim && leased.load(Ordering::SeqCst)).then(cut_off);
    let world = World::with_faults(Faults { check: Box::new(check), after: Box::new(after), ..Faults::default() });
    let handler = |_: OpContext, (): ()| async { Err::<(), _>(HandlerError::permanent("it must not begin")) };
    let engine = world.engine().handler("k", handler).build().await.unwrap();
    let flow = engine.client().start(flow("k", ["a", "b"])).await.unwrap();
    let running = engine.start().unwrap();
    until(|| async { flow.snapshot().await.unwrap().ops.running == 2 }).await;
    let report = soon(running.shutdown()).await.unwrap();
    assert_eq!((report.released, report.failed, report.lost, report.unsaved), (2, 0, 0, 0));
    for id in ["a", "b"] {
        assert_eq!(outcomes(&flow, id).await, [AttemptOutcome::Released]);
        let op = op(&flow, id).await;
        assert_eq!((op.status, op.state.losses), (OpStatus::Ready, 0));
    }
}

#[tokio::test]
async fn a_result_that_cannot_be_saved_is_tried_until_it_is() {
    let failures = Arc::new(AtomicUsize::new(8));
    let left = Arc::clone(&failures);
    let before = move |kind| {
        let fails = kind == TxKind::Commit && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        fails.then(|| StoreError::Full("no space left on device".into()))
    };
    let world = World::with_faults(Faults { before: Box::new(before), ..Faults::default() });
    let handler = |_: OpContext, (): ()| async { Ok::<(), HandlerError>(()) };
    let engine = world.engine().handler("k", handler).build().await.unwrap();
    let flow = engine.client().start(flow("k", 0..5)).await.unwrap();
    let running = engine.start().unwrap();
    let done = soon(flow.wait()).await.unwrap();
    assert_eq!((done.status, failures.load(Ordering::SeqCst)), (WorkflowStatus::Succeeded, 0));
    assert_eq!(running.shutdown().await.unwrap().succeeded, 5);
}

#[tokio::test]
async fn one_row_that_the_store_refuses_fails_alone() {
    // As a database would for a value that only it minds.
    let check = |kind, tx: &mut dyn leasehold_core::store::Tx| {
        let all: Vec<OpSeq> = (1..=200).map(OpSeq).collect();
        let poisoned = kind == TxKind::Commit && tx.results(&all)?.iter().any(|(_, result)| result.as_str() == "\"poison\"");
        if poisoned { Err(StoreError::Rejected("invalid byte sequence".into())) } else { Ok(()) }
    };
    let world = World::with_faults(Faults { check: Box::new(check), ..Faults::default() });
    let handler =
        |ctx: OpContext, (): ()| async move { Ok::<_, HandlerError>(if ctx.op_id().as_str() == "33" { "poison" } else { "fine" }) };
    let engine = world.engine().max_workers(100).handler("k", handler).build().await.unwrap();
    let flow = engine.client().start(flow("k", 0..100)).await.unwrap();
    let report = soon(engine.run_until_idle()).await.unwrap();
    assert_eq!((report.succeeded, report.failed, report.lost), (99, 1, 0));
    let refused = op(&flow, "33").await;
    assert_eq!(refused.status, OpStatus::Failed);
    let error = refused.error.unwrap();
    assert_eq!(error.code, "not_storable");
    assert!(error.message.contains("invalid byte sequence"), "{}", error.message);
}

#[tokio::test]
async fn errors_of_the_store_are_errors_and_never_retried_ops() {
    let on = Arc::new(AtomicUsize::new(0));
    let switch = Arc::clone(&on);
    let before = move |kind| match (switch.load(Ordering::SeqCst), kind) {
        (1, TxKind::Claim) | (2, TxKind::Commit) => Some(cut_off()),
        _ => None,
    };
    let world = World::with_faults(Faults { before: Box::new(before), ..Faults::default() });
    let handler = |_: OpContext, (): ()| async { Ok::<(), HandlerError>(()) };
    let engine = world.engine().automatic(false).patience(Duration::from_millis(50)).handler("k", handler).build().await.unwrap();
    let flow = engine.client().start(flow("k", ["a"])).await.unwrap();
    for broken in [1, 2] {
        on.store(broken, Ordering::SeqCst);
        let failed = soon(engine.run_once()).await;
        assert!(matches!(failed, Err(EngineError::Store(StoreError::Unavailable(_)))), "{failed:?}");
        assert_eq!(outcomes(&flow, "a").await, []);
    }
    on.store(0, Ordering::SeqCst);
    world.advance(super::fixture::LEASE);
    let report = soon(engine.run_once()).await.unwrap();
    assert_eq!((report.recovered, report.succeeded), (1, 1));
}

#[tokio::test]
async fn a_call_gives_up_after_its_patience_and_says_why() {
    let world = World::with_faults(Faults { before: Box::new(|_| Some(cut_off())), ..Faults::default() });
    let client = world.client().with_patience(Duration::from_millis(20));
    let failed = soon(client.start(flow("k", ["a"]))).await.unwrap_err();
    assert!(matches!(failed, ClientError::Store(StoreError::Unavailable(_))), "{failed:?}");
}
