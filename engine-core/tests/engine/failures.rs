//! Whatever a handler does, the worker and the other ops go on (Q8, B8, L13).

use super::fixture::{World, attempts, flow, id, op, outcomes, soon};
use leasehold_core::client::{Op, Workflow};
use leasehold_core::engine::{HandlerError, OpContext};
use leasehold_core::model::{Limits, OpError, RetryPolicy};
use leasehold_core::state::{OpStatus, WorkflowStatus};
use leasehold_core::store::rows::AttemptOutcome;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

#[tokio::test]
async fn a_panic_fails_its_attempt_with_its_message_and_nothing_else() {
    let world = World::new();
    let handler = |ctx: OpContext, (): ()| async move {
        assert!(ctx.op_id().as_str() != "bad", "the {} broke", "spring");
        Ok::<(), HandlerError>(())
    };
    let engine = world.engine().handler("k", handler).build().await.unwrap();
    let flow = engine.client().start(flow("k", ["bad", "good"])).await.unwrap();
    let report = soon(engine.run_until_idle()).await.unwrap();
    assert_eq!((report.succeeded, report.retried, report.failed), (1, 1, 0));
    let error = attempts(&flow, "bad").await.pop().unwrap().error.unwrap();
    assert_eq!((error.code.as_str(), error.message.as_str()), (OpError::PANICKED, "the spring broke"));
    assert_eq!(op(&flow, "good").await.status, OpStatus::Succeeded);
}

#[tokio::test]
async fn a_result_over_its_limit_fails_for_good_and_one_at_its_limit_is_kept() {
    let world = World::new();
    let mut limits = Limits::default();
    limits.result_bytes = 100;
    // Two more bytes for the quotes.
    let handler = |_: OpContext, bytes: usize| async move { Ok::<String, HandlerError>("x".repeat(bytes - 2)) };
    let engine = world.engine().limits(limits).handler("k", handler).build().await.unwrap();
    let flow = Workflow::new("w").op(Op::new("at", "k").input(&100)).op(Op::new("over", "k").input(&101));
    let flow = engine.client().start(flow).await.unwrap();
    soon(engine.run_until_idle()).await.unwrap();
    assert_eq!(op(&flow, "at").await.status, OpStatus::Succeeded);
    let over = op(&flow, "over").await;
    assert_eq!((over.status, over.state.failures), (OpStatus::Failed, 1));
    let error = over.error.unwrap();
    assert_eq!((error.code.as_str(), error.message.as_str()), (OpError::BAD_RESULT, "the result has 101, over the limit of 100"));
}

#[tokio::test]
async fn what_cannot_be_stored_is_a_clear_failure_or_made_storable() {
    let world = World::new();
    let handler = |ctx: OpContext, (): ()| async move {
        match ctx.op_id().as_str() {
            "result" => Ok("a\0b".to_owned()),
            "error" => Err(HandlerError::permanent(format!("bad \0 byte {}", String::from_utf8_lossy(&[0xF1])))),
            _ => Err(HandlerError::permanent("é".repeat(40_000)).code("x\0y").details("z\0")),
        }
    };
    let engine = world.engine().handler("k", handler).build().await.unwrap();
    let flow = engine.client().start(flow("k", ["result", "error", "long"])).await.unwrap();
    let report = soon(engine.run_until_idle()).await.unwrap();
    assert_eq!(report.failed, 3);
    let result = op(&flow, "result").await.error.unwrap();
    assert_eq!(result.code, OpError::BAD_RESULT);
    assert!(result.message.contains("NUL"), "{}", result.message);
    assert_eq!(op(&flow, "error").await.error.unwrap().message, "bad \u{fffd} byte \u{fffd}");
    let long = op(&flow, "long").await.error.unwrap();
    assert_eq!(long.code, "x\u{fffd}y");
    assert!(long.message.len() <= Limits::default().error_bytes && long.message.ends_with('…'));
    assert!(long.details.as_str().contains("details_not_kept"));
}

#[tokio::test]
async fn an_input_of_another_shape_fails_for_good() {
    let world = World::new();
    let handler = |_: OpContext, n: u32| async move { Ok::<u32, HandlerError>(n) };
    let engine = world.engine().handler("k", handler).build().await.unwrap();
    let flow = engine.client().start(Workflow::new("w").op(Op::new("a", "k").input("three"))).await.unwrap();
    soon(engine.run_until_idle()).await.unwrap();
    let error = op(&flow, "a").await.error.unwrap();
    assert_eq!(error.code, OpError::BAD_INPUT);
    assert!(error.message.contains("u32"), "{}", error.message);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_handler_that_never_returns_is_stopped_at_its_time_limit_also_one_that_blocks() {
    let world = World::new();
    let (release, gate) = mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let handler = move |ctx: OpContext, (): ()| {
        let gate = Arc::clone(&gate);
        async move {
            match ctx.op_id().as_str() {
                "waits" => std::future::pending().await,
                // Blocks its thread until the test is over.
                "blocks" => assert!(gate.lock().unwrap().recv().is_err(), "nobody sends"),
                _ => ctx.cancellation().cancelled().await,
            }
            Ok::<(), HandlerError>(())
        }
    };
    let engine = world.engine().handler("k", handler).build().await.unwrap();
    let limited = |op: &str| Op::new(op, "k").time_limit(Duration::from_millis(30)).retry(RetryPolicy::once());
    let flow = Workflow::new("w").ops(["waits", "blocks", "listens"].map(limited));
    let flow = engine.client().start(flow).await.unwrap();
    let report = soon(engine.run_until_idle()).await.unwrap();
    assert_eq!((report.processed, report.failed), (3, 3));
    for name in ["waits", "blocks", "listens"] {
        assert_eq!(op(&flow, name).await.error.unwrap().code, OpError::TIMED_OUT, "{name}");
    }
    drop(release);
}

#[tokio::test]
async fn retryable_errors_wait_as_they_say_and_permanent_ones_do_not_come_back() {
    let world = World::new();
    let handler = |ctx: OpContext, (): ()| async move {
        match (ctx.op_id().as_str(), ctx.failures()) {
            ("later", 0) => Err(HandlerError::retryable("come back").code("busy").after(Duration::from_hours(1))),
            ("never", _) => Err(HandlerError::permanent("no such page").code("not_found")),
            ("plain", 0) => Err(std::io::Error::other("a plain error").into()),
            (_, failures) => Ok(failures),
        }
    };
    let engine = world.engine().handler("k", handler).build().await.unwrap();
    let flow = engine.client().start(flow("k", ["later", "never", "plain"])).await.unwrap();
    let first = soon(engine.run_until_idle()).await.unwrap();
    assert_eq!((first.retried, first.failed), (2, 1));
    // The policy's first delay is at most a second.
    world.advance(Duration::from_secs(1));
    assert_eq!(soon(engine.run_until_idle()).await.unwrap().succeeded, 1);
    assert_eq!(op(&flow, "later").await.status, OpStatus::Ready);
    world.advance(Duration::from_secs(3_599));
    assert_eq!(soon(engine.run_until_idle()).await.unwrap().succeeded, 1);
    assert_eq!(flow.result::<u32>("later").await.unwrap(), 1);
    assert_eq!(outcomes(&flow, "plain").await, [AttemptOutcome::Retried, AttemptOutcome::Succeeded]);
    let never = op(&flow, "never").await.error.unwrap();
    assert_eq!((never.code.as_str(), never.message.as_str()), ("not_found", "no such page"));
    assert_eq!(flow.snapshot().await.unwrap().status, WorkflowStatus::Failed);
}

#[tokio::test]
async fn what_a_handler_leaves_is_kept_with_its_success_and_not_with_its_failure() {
    use leasehold_core::model::{Artifact, ArtifactKind, ArtifactName, CollectionName, Json, Record, RecordKey};
    let world = World::new();
    let handler = |ctx: OpContext, (): ()| async move {
        let attempt = ctx.attempt();
        ctx.emit(Op::new(format!("child-{attempt}"), "child").before("last"))?;
        ctx.attach(Artifact {
            name: ArtifactName::new("log")?,
            kind: ArtifactKind::Text,
            content_type: "text/plain".to_owned(),
            metadata: Json::null(),
            content: format!("attempt {attempt}").into_bytes(),
        })?;
        ctx.record(Record { collection: CollectionName::new("c")?, key: RecordKey::new("k")?, value: Json::encode(&attempt)? })?;
        if attempt == 1 { Err(HandlerError::retryable("once more").after(Duration::from_secs(1))) } else { Ok(attempt) }
    };
    let child = |ctx: OpContext, (): ()| async move { Ok::<_, HandlerError>((ctx.parent().cloned(), ctx.site().clone())) };
    let last = |ctx: OpContext, (): ()| async move {
        let ids: Vec<String> = ctx.dependencies().await?.into_iter().map(|(op, _)| op.to_string()).collect();
        let log = ctx.artifact_of("maker", "log").await?;
        Ok::<_, HandlerError>((ids, String::from_utf8(log)?, ctx.dependency::<i64>("maker").await?))
    };
    let engine = world.engine().handler("k", handler).handler("child", child).handler("last", last).build().await.unwrap();
    let flow = Workflow::new("w").op(Op::new("maker", "k").site("eu")).op(Op::new("last", "last").after("maker"));
    let flow = engine.client().start(flow).await.unwrap();
    soon(engine.run_until_idle()).await.unwrap();
    assert_eq!(flow.snapshot().await.unwrap().ops.total, 2);
    world.advance(Duration::from_secs(1));
    soon(engine.run_until_idle()).await.unwrap();
    assert_eq!(flow.result::<(Option<String>, String)>("child-2").await.unwrap(), (Some("maker".to_owned()), "eu".to_owned()));
    let mut last: (Vec<String>, String, i64) = flow.result("last").await.unwrap();
    last.0.sort();
    assert_eq!(last, (vec!["child-2".to_owned(), "maker".to_owned()], "attempt 2".to_owned(), 2));
    let client = flow.client();
    let records = client.records(flow.id(), &CollectionName::new("c").unwrap(), None, 0).await.unwrap();
    assert_eq!(records.iter().map(|row| row.record.value.as_str()).collect::<Vec<_>>(), ["2"]);
    let artifacts = client.artifacts(flow.id()).await.unwrap();
    assert_eq!(artifacts.len(), 1);
    assert_eq!(client.artifact(flow.id(), &id("maker"), &ArtifactName::new("log").unwrap()).await.unwrap(), b"attempt 2");
}

#[tokio::test]
async fn an_emission_that_cannot_be_is_a_permanent_failure_that_names_it() {
    let world = World::new();
    let handler = |ctx: OpContext, (): ()| async move {
        match ctx.op_id().as_str() {
            "kind" => ctx.emit(Op::new("x", "nobody"))?,
            "name" => ctx.emit(Op::new("x\n", "k"))?,
            "edge" => ctx.emit(Op::new("x", "k").after("missing"))?,
            _ => {
                ctx.emit(Op::new("y", "k"))?;
                ctx.emit(Op::new("y", "k").priority(1))?;
            }
        }
        Ok::<(), HandlerError>(())
    };
    let engine = world.engine().handler("k", handler).build().await.unwrap();
    let flow = engine.client().start(flow("k", ["kind", "name", "edge", "twice"])).await.unwrap();
    assert_eq!(soon(engine.run_until_idle()).await.unwrap().failed, 4);
    for (name, said) in [("kind", "nobody"), ("name", "control"), ("edge", "missing"), ("twice", "\"y\"")] {
        let error = op(&flow, name).await.error.unwrap();
        assert_eq!(error.code, OpError::BAD_EMISSION, "{name}");
        assert!(error.message.contains(said), "{name}: {}", error.message);
    }
}
