//! One process keeps the store up, and nobody depends on it (L7, L10, L13).

use super::fixture::{Begun, Faults, LEASE, World, flow, op, outcomes, soon, until};
use leasehold_core::engine::{EngineError, HandlerError, OpContext};
use leasehold_core::model::{Fence, OpSeq};
use leasehold_core::state::OpStatus;
use leasehold_core::store::rows::AttemptOutcome;
use leasehold_core::store::{StoreError, TxKind};
use leasehold_core::transitions::BatchLimit;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

const TERM: Duration = Duration::from_secs(10);

async fn quick(_: OpContext, (): ()) -> Result<(), HandlerError> {
    Ok(())
}

#[tokio::test]
async fn a_pass_by_hand_is_refused_while_another_process_leads() {
    let world = World::new();
    let engine = |name: &str| world.engine().name(name).automatic(false).handler("k", quick).build();
    let (first, second) = (engine("first").await.unwrap(), engine("second").await.unwrap());
    let flow = first.client().start(flow("k", ["a", "b"])).await.unwrap();
    assert_eq!(first.reconcile_once(BatchLimit::DEFAULT).await.unwrap().recovered, []);
    assert_eq!(world.claim_and_die_of(None, 1), 1);
    for _ in 0..2 {
        match second.reconcile_once(BatchLimit::DEFAULT).await {
            Err(EngineError::NotLeader { leader, .. }) => assert_eq!(leader.as_str(), "first"),
            other => panic!("{other:?}"),
        }
    }
    world.advance(LEASE);
    // Nobody renewed: the term is over, and who comes first leads.
    assert_eq!(second.reconcile_once(BatchLimit::DEFAULT).await.unwrap().recovered.len(), 1);
    assert!(matches!(first.reconcile_once(BatchLimit::DEFAULT).await, Err(EngineError::NotLeader { .. })));
    assert_eq!(soon(first.run_once()).await.unwrap().succeeded, 2, "to work one need not lead");
    assert_eq!(flow.snapshot().await.unwrap().ops.succeeded, 2);
}

#[tokio::test]
async fn an_engine_that_stops_gives_the_lead_up() {
    let world = World::new();
    let engine = |name: &str| world.engine().name(name).maintenance_term(TERM).handler("k", quick).build();
    let (first, second) = (engine("first").await.unwrap(), engine("second").await.unwrap());
    let running = first.start().unwrap();
    until(|| async {
        first.reconcile_once(BatchLimit::DEFAULT).await.is_ok() && world.client().clock_status().await.unwrap().mark.is_some()
    })
    .await;
    assert!(matches!(second.reconcile_once(BatchLimit::DEFAULT).await, Err(EngineError::NotLeader { .. })));
    running.shutdown().await.unwrap();
    until(|| async { second.reconcile_once(BatchLimit::DEFAULT).await.is_ok() }).await;
}

#[tokio::test]
async fn the_leader_recovers_while_all_its_workers_are_busy() {
    let world = World::new();
    let client = world.client();
    let dead = client.start(flow("other", ["dead"])).await.unwrap();
    assert_eq!(world.claim_and_die(), 1);
    world.advance(LEASE / 2);
    let (begun, go_on) = (Begun::default(), Arc::new(Notify::new()));
    let handler = {
        let (begun, go_on) = (begun.clone(), Arc::clone(&go_on));
        move |_: OpContext, (): ()| {
            let (begun, go_on) = (begun.clone(), Arc::clone(&go_on));
            async move {
                begun.one();
                go_on.notified().await;
                Ok::<(), HandlerError>(())
            }
        }
    };
    let engine = world.engine().max_workers(1).handler("k", handler).build().await.unwrap();
    let busy = client.start(flow("k", ["busy"])).await.unwrap();
    let running = engine.start().unwrap();
    begun.all(1).await;
    world.advance(LEASE / 2);
    until(|| async { op(&dead, "dead").await.status == OpStatus::Ready }).await;
    assert_eq!(outcomes(&dead, "dead").await, [AttemptOutcome::Abandoned]);
    go_on.notify_one();
    soon(busy.wait()).await.unwrap();
    assert_eq!(running.shutdown().await.unwrap().recovered, 1);
}

/// The row that cannot be taken back is the first in every list, and the pass may take one at a time.
#[tokio::test]
async fn one_lease_that_cannot_be_taken_back_stops_nobody() {
    let check = |kind, tx: &mut dyn leasehold_core::store::Tx| {
        let refused = kind == TxKind::Maintenance && !tx.attempts(OpSeq(1), Fence::NONE, 1)?.is_empty();
        if refused { Err(StoreError::Rejected("invalid byte sequence".into())) } else { Ok(()) }
    };
    let world = World::with_faults(Faults { check: Box::new(check), ..Faults::default() });
    let engine = world.engine().automatic(false).handler("k", quick).build().await.unwrap();
    let flow = engine.client().start(flow("k", ["bad", "b", "c", "d"])).await.unwrap();
    for _ in 0..4 {
        assert_eq!(world.claim_and_die_of(None, 1), 1);
        world.advance(Duration::from_micros(1));
    }
    world.advance(LEASE);
    let one = BatchLimit::new(1).unwrap();
    let mut recovered = Vec::new();
    for _ in 0..4 {
        let pass = engine.reconcile_once(one).await.unwrap();
        assert_eq!(pass.isolated.iter().map(|lease| lease.op).collect::<Vec<_>>(), [OpSeq(1)], "it is told of each time");
        recovered.extend(pass.recovered.into_iter().map(|op| op.op.to_string()));
    }
    assert_eq!(recovered, ["b", "c", "d"], "one a pass, the longest expired first");
    assert_eq!(op(&flow, "bad").await.status, OpStatus::Running);
    assert_eq!(soon(engine.run_once()).await.unwrap().succeeded, 3);
}
