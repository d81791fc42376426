//! How a graph grows while it runs (S9, L12).

use crate::case::cases;
use crate::scenario::name;
use crate::verbs::plan;
use crate::{Outcome, Planted, Scenario, World};
use leasehold_core::model::RequestId;
use leasehold_core::state::OpStatus::{self, Blocked, Pending, Ready};
use leasehold_core::state::{Counters, WorkflowStatus};
use leasehold_core::store::BoxError;
use leasehold_core::transitions::{Actor, AddOps, GraphError, TransitionError};

cases! {
    an_added_op_waits_for_what_has_not_ended proves ["S9"];
    an_op_added_behind_a_success_is_ready_at_once proves ["S9"];
    an_op_added_behind_a_failure_is_blocked_at_once proves ["S9", "S2"];
    an_op_added_to_a_failed_workflow_runs proves ["S9", "S8"];
    nothing_is_added_to_a_workflow_that_has_succeeded_or_was_canceled proves ["S9", "S6"];
    an_op_can_be_added_before_one_that_waits proves ["S9"];
    nothing_is_added_before_an_op_that_waits_no_more proves ["S9"];
    an_added_op_cannot_close_a_circle proves ["S9"];
    an_added_op_whose_id_is_taken_by_another_is_refused proves ["S9", "I4"];
    a_repeated_addition_gets_its_first_answer proves ["L12"];
    a_refused_addition_leaves_nothing proves ["S9", "L2"];
    an_op_added_before_a_blocked_one_keeps_it_blocked proves ["S9", "S2"];
}

/// The statuses that the answer gives, by id: it names each op, in no order.
fn told(added: &[leasehold_core::transitions::AddedOp]) -> Vec<(String, OpStatus, bool)> {
    let mut told: Vec<_> = added.iter().map(|op| (op.id.to_string(), op.status, op.created)).collect();
    told.sort();
    told
}

fn addition(w: &World, to: &Planted, scenario: &Scenario) -> Result<AddOps, BoxError> {
    Ok(AddOps { request: RequestId::random(), actor: Actor::new("ann"), workflow: to.id.clone(), plan: plan(w, scenario)? })
}

fn an_added_op_waits_for_what_has_not_ended(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("done").succeeded().op("run").leased_by("w1").op("next").after(&["run"]).build(w)?;
    let added =
        w.add(&planted, &Scenario::new().op("x").after(&["done", "run"]).op("y").after(&["x", "next"]).op("z").after_settled(&["run"]))?;
    let expected = ["x", "y", "z"].map(|id| (id.to_owned(), Pending, true));
    assert_eq!(told(&added), expected);
    let planted_now = Planted::find(w, &planted.id)?;
    assert_eq!(w.statuses(&planted_now, &["x", "y", "z"])?, [Pending, Pending, Pending]);
    w.complete_one(&planted.claimed("run"), "null")?;
    assert_eq!(w.statuses(&planted_now, &["x", "y", "z"])?, [Ready, Pending, Ready]);
    assert_eq!(w.drain("w1")?, 4);
    Ok(())
}

fn an_op_added_behind_a_success_is_ready_at_once(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("done").succeeded().op("open").build(w)?;
    let added = w.add(&planted, &Scenario::new().op("x").after(&["done"]).op("y"))?;
    assert_eq!(told(&added), [("x".to_owned(), Ready, true), ("y".to_owned(), Ready, true)]);
    assert_eq!(w.workflow(&planted.id)?.counters, Counters { open: 3, succeeded: 1, ..Counters::default() });
    assert_eq!(w.drain("w1")?, 3);
    Ok(())
}

fn an_op_added_behind_a_failure_is_blocked_at_once(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("bad").failed().op("down").after(&["bad"]).op("open").build(w)?;
    let added = w.add(&planted, &Scenario::new().op("x").after(&["down"]).op("y").after(&["x"]).op("z").after_settled(&["x"]))?;
    let expected = [("x", Blocked), ("y", Blocked), ("z", Ready)].map(|(id, status)| (id.to_owned(), status, true));
    assert_eq!(told(&added), expected);
    w.retry_op(&planted, "bad")?;
    let planted = Planted::find(w, &planted.id)?;
    assert_eq!(w.statuses(&planted, &["down", "x", "y", "z"])?, [Pending, Pending, Pending, Ready]);
    assert_eq!(w.drain("w1")?, 6);
    Ok(())
}

fn an_op_added_to_a_failed_workflow_runs(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("bad").failed().build(w)?;
    assert_eq!(w.workflow(&planted.id)?.status, WorkflowStatus::Failed);
    w.add(&planted, &Scenario::new().op("x"))?;
    let row = w.workflow(&planted.id)?;
    assert_eq!((row.status, row.finished_at), (WorkflowStatus::Running, None));
    assert_eq!(w.drain("w1")?, 1);
    assert_eq!(w.workflow(&planted.id)?.status, WorkflowStatus::Failed, "what failed is failed still");
    Ok(())
}

fn nothing_is_added_to_a_workflow_that_has_succeeded_or_was_canceled(w: &mut World) -> Outcome {
    let done = Scenario::new().op("a").succeeded().build(w)?;
    let canceled = Scenario::new().op("a").build(w)?;
    w.cancel(&canceled)?;
    for (planted, status) in [(done, WorkflowStatus::Succeeded), (canceled, WorkflowStatus::Canceled)] {
        let before = w.fingerprint(&planted)?;
        match w.add(&planted, &Scenario::new().op("x")) {
            Err(TransitionError::WorkflowStatus { status: found, .. }) => assert_eq!(found, status),
            other => panic!("an addition to a {status} workflow got {other:?}"),
        }
        assert_eq!(w.fingerprint(&planted)?, before);
    }
    Ok(())
}

fn an_op_can_be_added_before_one_that_waits(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("run").leased_by("w1").op("end").after(&["run"]).build(w)?;
    w.add(&planted, &Scenario::new().op("x").op("y").after(&["x"]).before(&["end"]))?;
    w.complete_one(&planted.claimed("run"), "null")?;
    assert_eq!(w.status(&planted, "end")?, Pending, "the finaliser waits for what was added before it");
    let mut order = Vec::new();
    while let Some(op) = w.claim("w1", 1)?.pop() {
        order.push(op.op_id.to_string());
        w.complete_one(&op, "null")?;
    }
    assert_eq!(order, ["x", "y", "end"]);
    Ok(())
}

fn nothing_is_added_before_an_op_that_waits_no_more(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("ready").op("run").leased_by("w1").op("done").succeeded().op("bad").failed().build(w)?;
    let before = w.fingerprint(&planted)?;
    for target in ["ready", "run", "done", "bad"] {
        match w.add(&planted, &Scenario::new().op("x").before(&[target])) {
            Err(TransitionError::Graph(GraphError::BeforeTooLate { op, target: named, .. })) => {
                assert_eq!((op, named), (name("x"), name(target)));
            }
            other => panic!("an op before {target} got {other:?}"),
        }
    }
    assert_eq!(w.fingerprint(&planted)?, before);
    Ok(())
}

fn an_added_op_cannot_close_a_circle(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").op("b").after(&["a"]).op("c").after(&["b"]).build(w)?;
    let before = w.fingerprint(&planted)?;
    for scenario in [
        Scenario::new().op("x").after(&["c"]).before(&["b"]),
        Scenario::new().op("x").after(&["c"]).op("y").after(&["x"]).before(&["b"]),
        Scenario::new().op("x").after(&["y"]).op("y").after(&["x"]),
    ] {
        let outcome = w.add(&planted, &scenario);
        assert!(matches!(outcome, Err(TransitionError::Graph(GraphError::BeforeAndAfter { .. } | GraphError::Cycle(_)))), "{outcome:?}");
    }
    assert_eq!(w.fingerprint(&planted)?, before);
    assert_eq!(w.drain("w1")?, 3);
    Ok(())
}

fn an_added_op_whose_id_is_taken_by_another_is_refused(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").input("1").build(w)?;
    let before = w.fingerprint(&planted)?;
    let outcome = w.add(&planted, &Scenario::new().op("x").op("a").input("2"));
    assert!(matches!(&outcome, Err(TransitionError::Graph(GraphError::OpExists(id))) if id.as_str() == "a"), "{outcome:?}");
    assert_eq!(w.fingerprint(&planted)?, before);
    Ok(())
}

fn a_repeated_addition_gets_its_first_answer(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").build(w)?;
    let call = addition(w, &planted, &Scenario::new().op("x").op("y").after(&["a"]))?;
    let first = w.add_with(&call)?;
    w.drain("w1")?;
    let before = w.fingerprint(&planted)?;
    assert_eq!(w.add_with(&call)?, first, "also when the workflow has succeeded since");
    assert_eq!(w.fingerprint(&planted)?, before);
    let other = AddOps { request: call.request, ..addition(w, &planted, &Scenario::new().op("z"))? };
    let outcome = w.add_with(&other);
    assert!(matches!(&outcome, Err(TransitionError::RequestReused(request)) if *request == call.request), "{outcome:?}");
    assert_eq!(w.fingerprint(&planted)?, before);
    Ok(())
}

fn a_refused_addition_leaves_nothing(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").op("b").after(&["a"]).build(w)?;
    let before = w.fingerprint(&planted)?;
    let outcome = w.add(&planted, &Scenario::new().op("good").after(&["a"]).before(&[]).op("bad").after(&["nowhere"]));
    match outcome {
        Err(TransitionError::Graph(GraphError::UnknownDependency { op, missing })) => {
            assert_eq!((op, missing), (name("bad"), name("nowhere")));
        }
        other => panic!("a dangling dependency got {other:?}"),
    }
    assert_eq!(w.fingerprint(&planted)?, before);
    let nowhere = AddOps { workflow: name("nowhere"), ..addition(w, &planted, &Scenario::new().op("x"))? };
    assert!(matches!(w.add_with(&nowhere), Err(TransitionError::NoWorkflow(_))));
    Ok(())
}

fn an_op_added_before_a_blocked_one_keeps_it_blocked(w: &mut World) -> Outcome {
    let planted = Scenario::new()
        .op("bad")
        .failed()
        .op("down")
        .after(&["bad"])
        .op("soft")
        .after_settled(&["down"])
        .op("deep")
        .after(&["down"])
        .build(w)?;
    w.add(&planted, &Scenario::new().op("x").before(&["down"]))?;
    assert_eq!(w.statuses(&planted, &["down", "soft", "deep"])?, [Blocked, Ready, Blocked]);
    w.retry_op(&planted, "bad")?;
    assert_eq!(w.statuses(&planted, &["down", "deep"])?, [Pending, Pending]);
    assert_eq!(w.view(planted.op("down"))?.state.unmet, 2);
    assert_eq!(w.drain("w1")?, 5);
    Ok(())
}
