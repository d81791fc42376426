//! Ops whose effect must not be repeated (L9, L15, L16).

use super::fixture::{Begun, LEASE, World, attempts, id, op, outcomes, soon, until};
use leasehold_core::client::{Actor, Op, OpVerdict, Workflow};
use leasehold_core::engine::{HandlerError, OpContext, ProbeAnswer, ProbeContext};
use leasehold_core::model::{Fence, Json, OpError};
use leasehold_core::state::OpStatus;
use leasehold_core::store::rows::{AttemptOutcome, WaitReason};
use leasehold_core::transitions::BatchLimit;
use std::time::Duration;

/// One op `a` whose effect must not be repeated, and `b` behind it.
fn once(op: Op) -> Workflow {
    Workflow::new("w").op(op.effect_once()).op(Op::new("b", "b").after("a"))
}

async fn quick(_: OpContext, (): ()) -> Result<(), HandlerError> {
    Ok(())
}

#[tokio::test]
async fn an_op_is_dispatched_before_its_handler_begins_and_others_are_not() {
    let world = World::new();
    let handler = |ctx: OpContext, (): ()| async move {
        let view = ctx.client().op(ctx.workflow_id(), ctx.op_id()).await?;
        Ok::<_, HandlerError>(view.lease.is_some_and(|lease| lease.dispatched_at.is_some()))
    };
    let engine = world.engine().handler("k", handler).build().await.unwrap();
    let running = engine.start().unwrap();
    let flow = engine.client().start(Workflow::new("w").op(Op::new("a", "k").effect_once()).op(Op::new("b", "k"))).await.unwrap();
    soon(flow.wait()).await.unwrap();
    assert!(flow.result::<bool>("a").await.unwrap(), "the commit is behind the handler");
    assert!(!flow.result::<bool>("b").await.unwrap(), "an ordinary op pays nothing");
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_panic_and_a_time_out_leave_an_unknown_outcome_and_an_error_is_tried_again() {
    let world = World::new();
    let handler = |ctx: OpContext, (): ()| async move {
        match ctx.op_id().as_str() {
            "panics" => panic!("on purpose"),
            "hangs" => std::future::pending().await,
            _ => Err::<(), _>(HandlerError::retryable("refused").after(LEASE)),
        }
    };
    let engine = world.engine().automatic(false).handler("k", handler).build().await.unwrap();
    let ops = [Op::new("panics", "k"), Op::new("hangs", "k").time_limit(Duration::from_millis(20)), Op::new("fails", "k")];
    let flow = engine.client().start(Workflow::new("w").ops(ops.map(Op::effect_once))).await.unwrap();
    let report = soon(engine.run_once()).await.unwrap();
    assert_eq!((report.abandoned, report.retried, report.failed), (2, 1, 0));
    for (name, code) in [("panics", OpError::PANICKED), ("hangs", OpError::TIMED_OUT)] {
        let view = op(&flow, name).await;
        assert_eq!(view.wait.map(|wait| wait.reason), Some(WaitReason::Verdict));
        assert_eq!(view.error.unwrap().code, code, "what happened is kept for whoever judges");
    }
    assert_eq!(op(&flow, "fails").await.status, OpStatus::Ready);
}

#[tokio::test]
async fn a_shutdown_hands_back_what_has_not_begun_and_asks_about_what_has() {
    let world = World::new();
    let begun = Begun::default();
    let counted = begun.clone();
    let handler = move |_: OpContext, (): ()| {
        counted.one();
        std::future::pending::<Result<(), HandlerError>>()
    };
    let engine = world.engine().grace(Duration::ZERO).handler("a", handler).handler("b", quick).build().await.unwrap();
    let running = engine.start().unwrap();
    let flow = engine.client().start(once(Op::new("a", "a"))).await.unwrap();
    begun.all(1).await;
    let report = soon(running.shutdown()).await.unwrap();
    assert_eq!((report.abandoned, report.released), (1, 0));
    assert_eq!(outcomes(&flow, "a").await, [AttemptOutcome::Abandoned]);
    assert_eq!(op(&flow, "a").await.status, OpStatus::Waiting);
}

#[tokio::test]
async fn a_probe_is_asked_and_what_it_knows_settles_the_op() {
    let world = World::new();
    let handler = |ctx: OpContext, (): ()| async move {
        assert_ne!(ctx.attempt(), 1, "on purpose");
        Ok::<_, HandlerError>(ctx.idempotency_key())
    };
    let probe = |ctx: ProbeContext| async move {
        assert_eq!((ctx.attempt, ctx.error.map(|error| error.code)), (Fence(1), Some(OpError::PANICKED.to_owned())));
        match ctx.op_id.as_str() {
            "known" => Ok(ProbeAnswer::Known(OpVerdict::Succeed { result: Json::encode(&ctx.idempotency_key)? })),
            "repeat" => Ok(ProbeAnswer::Known(OpVerdict::Retry)),
            "fails" => Err(HandlerError::retryable("the bank is closed")),
            "panics" => panic!("on purpose"),
            _ => Ok(ProbeAnswer::StillUnknown),
        }
    };
    let engine = world.engine().automatic(false).handler("k", handler).handler("x", handler).probe("k", probe).build().await.unwrap();
    let names = ["known", "repeat", "fails", "panics", "unknown"];
    let other = Op::new("no-probe", "x").effect_once();
    let flow = Workflow::new("w").ops(names.map(|name| Op::new(name, "k").effect_once())).op(other);
    let flow = engine.client().start(flow).await.unwrap();
    assert_eq!(soon(engine.run_once()).await.unwrap().abandoned, 6);
    let mut probed = soon(engine.reconcile_once(BatchLimit::DEFAULT)).await.unwrap().probed;
    probed.sort_by(|a, b| a.op.cmp(&b.op));
    let told: Vec<_> = probed.iter().map(|one| (one.op.as_str(), one.attempt, one.status)).collect();
    assert_eq!(told, [("known", Fence(1), OpStatus::Succeeded), ("repeat", Fence(1), OpStatus::Ready)]);
    for name in ["fails", "panics", "unknown", "no-probe"] {
        assert_eq!(op(&flow, name).await.status, OpStatus::Waiting, "{name}");
    }
    assert_eq!(soon(engine.run_once()).await.unwrap().succeeded, 1);
    let known: String = flow.result("known").await.unwrap();
    assert_ne!(known, flow.result::<String>("repeat").await.unwrap(), "each op has a key of its own, and the probe knows it");
}

#[tokio::test]
async fn a_started_engine_asks_its_probes_by_itself() {
    let world = World::new();
    let handler = |_: OpContext, (): ()| async move { if true { panic!("on purpose") } else { Ok::<(), HandlerError>(()) } };
    let probe = |_: ProbeContext| async move { Ok::<_, HandlerError>(ProbeAnswer::Known(OpVerdict::Succeed { result: Json::null() })) };
    let builder = world.engine().handler("a", handler).handler("b", quick).probe("a", probe).probe_every(Duration::from_millis(5));
    let engine = builder.build().await.unwrap();
    let running = engine.start().unwrap();
    let flow = engine.client().start(once(Op::new("a", "a"))).await.unwrap();
    soon(flow.wait()).await.unwrap();
    assert_eq!(outcomes(&flow, "a").await, [AttemptOutcome::Abandoned, AttemptOutcome::Succeeded]);
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_person_settles_what_nobody_knows_and_the_workflow_goes_on() {
    let world = World::new();
    let handler = |_: OpContext, (): ()| async move { if true { panic!("on purpose") } else { Ok::<(), HandlerError>(()) } };
    let engine = world.engine().handler("a", handler).handler("b", quick).build().await.unwrap();
    let running = engine.start().unwrap();
    let flow = engine.client().start(once(Op::new("a", "a"))).await.unwrap();
    until(|| async { op(&flow, "a").await.status == OpStatus::Waiting }).await;
    let ann = Actor::new("ann");
    let verdict = OpVerdict::Succeed { result: Json::parse("\"paid\"").unwrap() };
    let client = engine.client();
    let stale = client.settle_op(flow.id(), &id("a"), Fence(9), verdict.clone(), &ann).await.unwrap_err();
    assert!(stale.to_string().contains("attempt 1, not on 9"), "{stale}");
    let status = client.settle_op(flow.id(), &id("a"), Fence(1), verdict, &ann).await.unwrap();
    assert_eq!(status, OpStatus::Succeeded);
    soon(flow.wait()).await.unwrap();
    assert_eq!(flow.result::<String>("a").await.unwrap(), "paid");
    let lines = attempts(&flow, "a").await;
    assert_eq!(lines.iter().map(|line| line.worker.as_str()).collect::<Vec<_>>(), ["w1", "ann"]);
    running.shutdown().await.unwrap();
}
