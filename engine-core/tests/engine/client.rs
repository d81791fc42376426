//! What applications call, and what misuse is told (I1 to I5, S9).

use super::fixture::{World, flow, id, op, soon};
use leasehold_core::client::{Actor, ClientError, Definition, Op, Workflow};
use leasehold_core::engine::{EngineError, HandlerError, OpContext};
use leasehold_core::state::{OpStatus, WorkflowStatus};
use leasehold_core::store::rows::{OpPage, WorkflowPage};
use leasehold_core::transitions::TransitionError;

async fn quick(_: OpContext, (): ()) -> Result<(), HandlerError> {
    Ok(())
}

#[tokio::test]
async fn misuse_names_the_op_and_says_what_to_do_and_stores_nothing() {
    let world = World::new();
    let engine = world.engine().handler("k", quick).build().await.unwrap();
    let client = engine.client();
    let refused = [
        (Workflow::new("w").op(Op::new("a", "nobody")), "op \"a\": no handler here runs the kind \"nobody\"; there are handlers for \"k\""),
        (Workflow::new("w").op(Op::new("a", "k").after("b")), "op \"a\" depends on \"b\", which is not an op of this workflow"),
        (Workflow::new("w").op(Op::new("a", "k").after("a")), "op \"a\" depends on itself"),
        (Workflow::new("w").op(Op::new("a", "k").after("b")).op(Op::new("b", "k").after("a")), "depend on each other in a circle"),
        (Workflow::new("w").op(Op::new("a", "k")).op(Op::new("a", "k")), "op \"a\" is there twice"),
        (Workflow::new("w"), "has no ops"),
        (Workflow::new("w").op(Op::new("a\0", "k")), "control character"),
        (Workflow::new("w").identity("x").op(Op::new("a", "k")), "`start` makes a new workflow every time"),
        (Workflow::new("w").op(Op::new("a", "k").input(&"x".repeat(2_000_000))), "the input of op \"a\""),
    ];
    for (workflow, said) in refused {
        let error = client.start(workflow).await.unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
    }
    let error = client.ensure(flow("k", ["a"])).await.unwrap_err();
    assert!(error.to_string().contains(".identity("), "{error}");
    assert_eq!(client.list(WorkflowPage::default()).await.unwrap(), []);
    // Whoever has no engine cannot know which kinds there are.
    world.client().start(flow("nobody", ["a"])).await.unwrap();
    let lax = world.engine().strict_kinds(false).handler("k", quick).build().await.unwrap();
    lax.client().start(flow("nobody", ["a"])).await.unwrap();
}

#[tokio::test]
async fn a_builder_tells_everything_that_is_wrong() {
    let world = World::new();
    let builder = world.engine().handler("k", quick).handler("k", quick).handler("", quick).max_workers(0).name("");
    let Err(EngineError::Setup(invalid)) = builder.build().await else { panic!("it cannot be built") };
    assert_eq!(invalid.problems.len(), 4, "{invalid}");
}

#[tokio::test]
async fn ensure_makes_once_and_attaches_afterwards() {
    let world = World::new();
    let engine = world.engine().handler("k", quick).build().await.unwrap();
    let client = engine.client();
    let asked = |input: u32| flow("k", ["a"]).identity("2026-01").input(&input);
    let made = client.ensure(asked(1)).await.unwrap();
    assert!(made.created() && made.attached_status().is_none());
    soon(engine.run_until_idle()).await.unwrap();
    let attached = client.ensure(asked(2)).await.unwrap();
    assert_eq!(attached.id(), made.id());
    assert!(!attached.created() && attached.input_differs());
    assert_eq!(attached.attached_status(), Some(WorkflowStatus::Succeeded));
    assert!(!client.ensure(asked(1)).await.unwrap().input_differs());
    let taken = client.ensure(flow("k", ["a"]).identity("other").id(made.id().as_str())).await.unwrap_err();
    assert!(matches!(taken, ClientError::IdentityConflict(_)), "{taken}");
    let again = client.start(flow("k", ["a"]).id("mine")).await.unwrap();
    assert!(again.created());
    let twice = client.start(flow("k", ["a"]).id("mine")).await.unwrap_err();
    assert!(matches!(twice, ClientError::Conflict(TransitionError::WorkflowExists(_))), "{twice}");
}

#[tokio::test]
async fn a_failure_is_repaired_by_retry_and_its_siblings_are_left_alone() {
    let world = World::new();
    let handler = |ctx: OpContext, (): ()| async move {
        if ctx.op_id().as_str() == "bad" && ctx.attempt() == 1 {
            return Err(HandlerError::permanent("not today"));
        }
        Ok(ctx.attempt())
    };
    let engine = world.engine().handler("k", handler).build().await.unwrap();
    let client = engine.client();
    let graph = flow("k", ["bad", "good"]).op(Op::new("after", "k").after("bad")).op(Op::new("soft", "k").after_settled("bad"));
    let flow = client.start(graph).await.unwrap();
    soon(engine.run_until_idle()).await.unwrap();
    assert_eq!(flow.snapshot().await.unwrap().status, WorkflowStatus::Failed);
    assert_eq!((op(&flow, "after").await.status, op(&flow, "soft").await.status), (OpStatus::Blocked, OpStatus::Succeeded));
    let no_result = flow.result::<i64>("bad").await.unwrap_err();
    assert!(no_result.to_string().ends_with("is failed and has no result: error: not today"), "{no_result}");
    let ada = Actor { name: "ada".to_owned(), reason: Some("the provider is back".to_owned()) };
    assert!(matches!(client.retry_op(flow.id(), &id("good"), &ada).await, Err(ClientError::Conflict(_))));
    assert!(matches!(client.retry_op(flow.id(), &id("nobody"), &ada).await, Err(ClientError::NotFound { .. })));
    assert_eq!(client.retry_workflow(flow.id(), &ada).await.unwrap(), [id("bad")]);
    soon(engine.run_until_idle()).await.unwrap();
    let done = flow.snapshot().await.unwrap();
    assert_eq!((done.status, done.ops.succeeded), (WorkflowStatus::Succeeded, 4));
    assert_eq!((flow.result::<i64>("bad").await.unwrap(), flow.result::<i64>("good").await.unwrap()), (2, 1));
    let events = client.workflow_events(flow.id(), None, 0).await.unwrap();
    assert!(events.iter().any(|row| row.event.actor.as_deref() == Some("ada")));
}

#[tokio::test]
async fn ops_can_be_added_while_it_runs_and_not_once_it_has_succeeded() {
    let world = World::new();
    let engine = world.engine().handler("k", quick).build().await.unwrap();
    let client = engine.client();
    let flow = client.start(flow("k", ["a"])).await.unwrap();
    let added = client.add_ops(flow.id(), [Op::new("b", "k").after("a"), Op::new("c", "k").dedup_key("d")]).await.unwrap();
    assert!(added.iter().all(|op| op.created));
    let again = client.add_ops(flow.id(), [Op::new("e", "k").dedup_key("d")]).await.unwrap();
    assert_eq!((again[0].holder.as_str(), again[0].created), ("c", false));
    soon(engine.run_until_idle()).await.unwrap();
    assert_eq!(client.ops(flow.id(), OpPage { status: None, after: None, limit: 0 }).await.unwrap().len(), 3);
    let late = client.add_ops(flow.id(), [Op::new("f", "k")]).await.unwrap_err();
    assert!(matches!(late, ClientError::Conflict(_)), "{late}");
}

#[tokio::test]
async fn what_changed_is_followed_by_a_cursor_and_status_counts_it() {
    let world = World::new();
    let engine = world.engine().handler("k", quick).build().await.unwrap();
    let client = engine.client();
    for _ in 0..5 {
        client.start(flow("k", ["a"])).await.unwrap();
    }
    let first = client.snapshots_since(None, 3).await.unwrap();
    let rest = client.snapshots_since(first.cursor, 100).await.unwrap();
    assert_eq!((first.snapshots.len(), rest.snapshots.len()), (3, 2));
    let nothing = client.snapshots_since(rest.cursor, 100).await.unwrap();
    assert_eq!((nothing.snapshots.len(), nothing.cursor), (0, rest.cursor));
    soon(engine.run_until_idle()).await.unwrap();
    assert_eq!(client.snapshots_since(rest.cursor, 100).await.unwrap().snapshots.len(), 5);
    let status = client.status().await.unwrap();
    assert_eq!((status.info.backend, status.totals.ops.succeeded), ("memory", 5));
    assert_eq!(client.events(None, 0).await.unwrap().len(), 15);
}

#[tokio::test]
async fn definitions_are_started_by_name() {
    let world = World::new();
    let greet = |who: String| Workflow::new("greet").op(Op::new("hello", "echo").input(&format!("hello {who}")));
    let echo = |_: OpContext, text: String| async move { Ok::<String, HandlerError>(text) };
    let definition = Definition::new("greet", greet).display_name("Greet somebody").site("eu");
    let engine = world.engine().handler("echo", echo).define(definition).build().await.unwrap();
    let client = engine.client();
    assert_eq!(client.definitions()[0].display_name, "Greet somebody");
    let first = client.ensure_definition("greet", "Ada").await.unwrap();
    assert!(first.created() && !client.ensure_definition("greet", "Ada").await.unwrap().created());
    let other = client.start_definition("greet", "Bob").await.unwrap();
    soon(engine.run_until_idle()).await.unwrap();
    assert_eq!(other.result::<String>("hello").await.unwrap(), "hello Bob");
    let snapshot = other.snapshot().await.unwrap();
    assert_eq!((snapshot.input.as_str(), snapshot.site.as_str()), ("\"Bob\"", "eu"));
    let wrong = client.start_definition("greet", &7).await.unwrap_err();
    assert!(wrong.to_string().contains("\"greet\" does not take this input"), "{wrong}");
    assert!(matches!(client.start_definition("gret", "x").await, Err(ClientError::NotFound { .. })));
}

#[tokio::test]
async fn the_idempotency_key_is_the_same_on_every_attempt_and_of_no_other_op() {
    let world = World::new();
    let handler = |ctx: OpContext, (): ()| async move {
        if ctx.attempt() == 1 { Err(HandlerError::retryable(ctx.idempotency_key())) } else { Ok(ctx.idempotency_key()) }
    };
    let engine = world.engine().handler("k", handler).build().await.unwrap();
    let flow = engine.client().start(flow("k", ["a", "b"])).await.unwrap();
    soon(engine.run_until_idle()).await.unwrap();
    let before = op(&flow, "a").await.error.unwrap().message;
    world.advance(std::time::Duration::from_secs(5));
    soon(engine.run_until_idle()).await.unwrap();
    let key = flow.result::<String>("a").await.unwrap();
    assert_eq!((key.len(), &key), (64, &before));
    assert_ne!(key, flow.result::<String>("b").await.unwrap());
}

#[tokio::test]
async fn health_tries_a_write_and_tells_what_the_store_is() {
    let info = World::new().client().health().await.unwrap();
    assert_eq!(info.backend, "memory");
}
