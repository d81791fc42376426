//! How an op's end spreads, and how a graph grows (S1 to S4, S8, S9, Q4).

use crate::case::cases;
use crate::scenario::{LEASE, name};
use crate::verbs::{completion, failure, plan};
use crate::{Outcome, Planted, Scenario, World};
use leasehold_core::model::{RequestId, RetryPolicy};
use leasehold_core::state::OpStatus::{self, Blocked, Failed, Pending, Ready, Running, Succeeded};
use leasehold_core::state::{Counters, WorkflowStatus};
use leasehold_core::store::BoxError;
use leasehold_core::store::rows::ClaimedOp;
use leasehold_core::transitions::{Actor, AddOps, End, Ended, Finish, GraphError, TransitionError};

cases! {
    a_child_is_ready_when_its_last_parent_has_succeeded proves ["S3"];
    a_failure_blocks_everything_below_it_and_nothing_else proves ["S2"];
    a_failure_frees_those_that_only_waited_for_the_end proves ["S4"];
    a_blocked_op_settles_its_soft_children proves ["S4", "S2"];
    a_retry_that_will_come_moves_no_child proves ["S2", "S4"];
    a_child_blocked_twice_stays_blocked_until_both_are_mended proves ["S2", "S3"];
    a_soft_parent_that_reopens_holds_what_still_waits_and_nothing_further_on proves ["S4", "S5"];
    a_workflow_status_follows_its_ops proves ["S8"];
    a_diamond_runs_its_join_once proves ["S3", "S7"];
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
    emitted_ops_know_their_parent_and_inherit_its_site proves ["Q4"];
    an_emitted_op_may_wait_for_its_emitter_and_others proves ["Q4", "S9"];
    an_emitted_op_can_be_put_before_the_finaliser proves ["Q4", "S9"];
    an_emission_that_is_there_already_with_the_same_spec_attaches proves ["Q4", "I4"];
    an_emission_with_another_spec_fails_the_attempt_and_names_the_op proves ["Q4"];
    an_emission_with_a_dangling_dependency_fails_the_attempt_for_good proves ["Q4", "S9"];
    emitted_ops_run_in_a_later_claim proves ["Q4"];
}

fn a_child_is_ready_when_its_last_parent_has_succeeded(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").op("b").op("c").op("x").after(&["a", "b", "c"]).build(w)?;
    for (parent, then) in [("b", Pending), ("a", Pending), ("c", Ready)] {
        let claimed = w.claim_kind("w1", parent, 1)?;
        w.complete_one(claimed.first().ok_or("the parent is ready")?, "null")?;
        assert_eq!(w.status(&planted, "x")?, then, "after {parent}");
    }
    assert_eq!(w.view(planted.op("x"))?.due_at, Some(w.now()));
    Ok(())
}

fn a_failure_blocks_everything_below_it_and_nothing_else(w: &mut World) -> Outcome {
    let planted = Scenario::new()
        .op("done")
        .succeeded()
        .op("sibling")
        .op("bad")
        .failed()
        .op("child")
        .after(&["bad", "done"])
        .op("grandchild")
        .after(&["child", "sibling"])
        .op("other")
        .after(&["sibling"])
        .build(w)?;
    let statuses = w.statuses(&planted, &["done", "sibling", "bad", "child", "grandchild", "other"])?;
    assert_eq!(statuses, [Succeeded, Ready, Failed, Blocked, Blocked, Pending]);
    assert_eq!(w.workflow(&planted.id)?.status, WorkflowStatus::Running, "what can move, moves");
    assert_eq!(w.drain("w1")?, 2);
    let statuses = w.statuses(&planted, &["sibling", "child", "grandchild", "other"])?;
    assert_eq!(statuses, [Succeeded, Blocked, Blocked, Succeeded]);
    assert_eq!(w.workflow(&planted.id)?.status, WorkflowStatus::Failed);
    Ok(())
}

fn a_failure_frees_those_that_only_waited_for_the_end(w: &mut World) -> Outcome {
    let planted = Scenario::new()
        .op("good")
        .op("bad")
        .failed()
        .op("report")
        .after_settled(&["bad"])
        .op("later")
        .after_settled(&["bad"])
        .after(&["good"])
        .build(w)?;
    assert_eq!(w.statuses(&planted, &["report", "later"])?, [Ready, Pending]);
    assert_eq!(w.drain("w1")?, 3);
    assert_eq!(w.workflow(&planted.id)?.status, WorkflowStatus::Failed, "one op failed");
    Ok(())
}

fn a_blocked_op_settles_its_soft_children(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("bad").failed().op("blocked").after(&["bad"]).op("report").after_settled(&["blocked"]).build(w)?;
    assert_eq!(w.statuses(&planted, &["blocked", "report"])?, [Blocked, Ready]);
    Ok(())
}

fn a_retry_that_will_come_moves_no_child(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").op("hard").after(&["a"]).op("soft").after_settled(&["a"]).build(w)?;
    assert!(matches!(w.finish_one(failure(&planted.claimed("a")))?, Ended::Retried { .. }));
    assert_eq!(w.statuses(&planted, &["a", "hard", "soft"])?, [Ready, Pending, Pending]);
    w.clock().advance(LEASE)?;
    assert_eq!(w.drain("w1")?, 3, "each runs once");
    Ok(())
}

fn a_child_blocked_twice_stays_blocked_until_both_are_mended(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").failed().op("b").failed().op("x").after(&["a", "b"]).op("y").after(&["x"]).build(w)?;
    w.retry_op(&planted, "a")?;
    assert_eq!(w.statuses(&planted, &["a", "b", "x", "y"])?, [Ready, Failed, Blocked, Blocked]);
    w.retry_op(&planted, "b")?;
    assert_eq!(w.statuses(&planted, &["a", "b", "x", "y"])?, [Ready, Ready, Pending, Pending]);
    assert_eq!(w.drain("w1")?, 4);
    Ok(())
}

fn a_soft_parent_that_reopens_holds_what_still_waits_and_nothing_further_on(w: &mut World) -> Outcome {
    let planted = Scenario::new()
        .op("a")
        .failed()
        .op("hold")
        .op("waits")
        .after_settled(&["a"])
        .after(&["hold"])
        .op("ready")
        .after_settled(&["a"])
        .op("running")
        .after_settled(&["a"])
        .leased_by("w1")
        .op("done")
        .after_settled(&["a"])
        .succeeded()
        .build(w)?;
    w.retry_op(&planted, "a")?;
    assert_eq!(w.statuses(&planted, &["waits", "ready", "running", "done"])?, [Pending, Ready, Running, Succeeded]);
    assert_eq!(w.view(planted.op("waits"))?.state.unmet, 2, "it waits for its soft parent again");
    w.complete_one(&planted.claimed("running"), "null")?;
    let hold = w.claim_kind("w1", "hold", 1)?;
    w.complete_one(hold.first().ok_or("it is ready")?, "null")?;
    assert_eq!(w.status(&planted, "waits")?, Pending);
    let again = w.claim_kind("w1", "a", 1)?;
    w.complete_one(again.first().ok_or("it is ready")?, "null")?;
    assert_eq!(w.status(&planted, "waits")?, Ready);
    Ok(())
}

fn a_workflow_status_follows_its_ops(w: &mut World) -> Outcome {
    let status = |planted: &Planted| -> Result<(WorkflowStatus, bool), BoxError> {
        let row = w.workflow(&planted.id)?;
        Ok((row.status, row.finished_at.is_some()))
    };
    let planted = Scenario::new().op("a").leased_by("w1").op("b").after(&["a"]).build(w)?;
    assert_eq!(status(&planted)?, (WorkflowStatus::Running, false));
    w.fail_for_good(&planted.claimed("a"))?;
    assert_eq!(status(&planted)?, (WorkflowStatus::Failed, true), "failed and blocked ops end it");
    w.retry_op(&planted, "a")?;
    assert_eq!(status(&planted)?, (WorkflowStatus::Running, false), "a repair runs it again");
    w.drain("w1")?;
    assert_eq!(status(&planted)?, (WorkflowStatus::Succeeded, true));
    let canceled = Scenario::new().op("a").build(w)?;
    w.cancel(&canceled)?;
    assert_eq!(status(&canceled)?, (WorkflowStatus::Canceled, true));
    Ok(())
}

fn a_diamond_runs_its_join_once(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").op("b").after(&["a"]).op("c").after(&["a"]).op("d").after(&["b", "c"]).build(w)?;
    assert_eq!(w.drain("w1")?, 4);
    // Both middle ops may end in one batch: the join is told of both at once.
    let views = w.all_ops(planted.workflow)?;
    assert!(views.iter().all(|view| view.state.fence.0 == 1), "{views:?}");
    Ok(())
}

/// The statuses that the answer gives, by id: it names each op, in no order.
fn told(added: &[leasehold_core::transitions::AddedOp]) -> Vec<(String, OpStatus, bool)> {
    let mut told: Vec<_> = added.iter().map(|op| (op.id.to_string(), op.status, op.created)).collect();
    told.sort();
    told
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

fn addition(w: &World, to: &Planted, scenario: &Scenario) -> Result<AddOps, BoxError> {
    Ok(AddOps { request: RequestId::random(), actor: Actor::new("ann"), workflow: to.id.clone(), plan: plan(w, scenario)? })
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
            assert_eq!((op, missing), (name("bad"), name("nowhere")))
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

/// The completion of an op that emits a scenario's ops.
pub(super) fn emitting(w: &World, claimed: &ClaimedOp, scenario: &Scenario) -> Result<Finish, BoxError> {
    let end = End::Complete {
        result: crate::scenario::json("null"),
        artifacts: Vec::new(),
        records: Vec::new(),
        emitted: Some(plan(w, scenario)?),
    };
    Ok(Finish { end, ..completion(claimed, "null") })
}

fn emitted_ops_know_their_parent_and_inherit_its_site(w: &mut World) -> Outcome {
    let planted = Scenario::new().at_site("eu").op("a").site("us").leased_by("w1").build(w)?;
    let item = emitting(w, &planted.claimed("a"), &Scenario::new().op("x").op("y").site("asia"))?;
    assert_eq!(w.finish_one(item)?, Ended::Succeeded);
    let now = Planted::find(w, &planted.id)?;
    for (id, site) in [("x", "us"), ("y", "asia")] {
        let view = w.view(now.op(id))?;
        assert_eq!((view.status, view.state.parent, view.site), (Ready, Some(planted.op("a")), name(site)), "{id}");
    }
    let claimed = w.claim("w1", 10)?;
    assert!(claimed.iter().all(|op| op.parent == Some(name("a"))), "a handler is told the parent: {claimed:?}");
    Ok(())
}

fn an_emitted_op_may_wait_for_its_emitter_and_others(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").op("b").op("bad").failed().build(w)?;
    let scenario =
        Scenario::new().op("x").after(&["a"]).op("y").after(&["x", "b"]).op("z").after(&["bad"]).op("s").after_settled(&["bad", "a"]);
    assert_eq!(w.finish_one(emitting(w, &planted.claimed("a"), &scenario)?)?, Ended::Succeeded);
    let now = Planted::find(w, &planted.id)?;
    assert_eq!(w.statuses(&now, &["x", "y", "z", "s"])?, [Ready, Pending, Blocked, Ready]);
    Ok(())
}

fn an_emitted_op_can_be_put_before_the_finaliser(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("list").leased_by("w1").op("end").after(&["list"]).build(w)?;
    let scenario = Scenario::new().op("f1").after(&["list"]).before(&["end"]).op("f2").before(&["end"]);
    assert_eq!(w.finish_one(emitting(w, &planted.claimed("list"), &scenario)?)?, Ended::Succeeded);
    let now = Planted::find(w, &planted.id)?;
    assert_eq!(w.statuses(&now, &["f1", "f2", "end"])?, [Ready, Ready, Pending]);
    for (file, then) in [("f1", Pending), ("f2", Ready)] {
        let claimed = w.claim_kind("w1", file, 1)?;
        w.complete_one(claimed.first().ok_or("it is ready")?, "null")?;
        assert_eq!(w.status(&now, "end")?, then, "after {file}");
    }
    Ok(())
}

/// An op that succeeds on its second attempt, and emitted on its first: as after a lost worker.
fn an_emission_that_is_there_already_with_the_same_spec_attaches(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").op("b").leased_by("w1").build(w)?;
    let emitted = Scenario::new().op("x").input("1");
    let (a, b) = (planted.claimed("a"), planted.claimed("b"));
    assert_eq!(w.finish_one(emitting(w, &a, &emitted)?)?, Ended::Succeeded);
    match w.finish_one(emitting(w, &b, &emitted)?)? {
        Ended::Failed { error } => assert!(error.message.contains("\"x\""), "another parent's op is another op: {error:?}"),
        other => panic!("an id of another parent's op got {other:?}"),
    }
    let now = Planted::find(w, &planted.id)?;
    assert_eq!(now.ops.len(), 3);
    // The same op emits again when an operator has it done again; until then an emission repeats inside one call.
    let twice = Scenario::new().op("y").dedup_key("k").op("z").dedup_key("k");
    let c = Scenario::new().op("c").leased_by("w1").build(w)?;
    assert_eq!(w.finish_one(emitting(w, &c.claimed("c"), &twice)?)?, Ended::Succeeded);
    assert_eq!(Planted::find(w, &c.id)?.ops.keys().collect::<Vec<_>>(), ["c", "y"]);
    Ok(())
}

fn an_emission_with_another_spec_fails_the_attempt_and_names_the_op(w: &mut World) -> Outcome {
    let retry = RetryPolicy::default();
    let planted = Scenario::new().op("a").retry(retry).leased_by("w1").op("x").input("1").op("end").after(&["a"]).build(w)?;
    let item = emitting(w, &planted.claimed("a"), &Scenario::new().op("x").input("2").op("new"))?;
    match w.finish_one(item.clone())? {
        Ended::Failed { error } => {
            assert_eq!(error.code, leasehold_core::model::OpError::BAD_EMISSION);
            assert!(error.message.contains("\"x\""), "{error:?}");
        }
        other => panic!("a clash got {other:?}"),
    }
    assert_eq!(w.statuses(&planted, &["a", "end"])?, [Failed, Blocked], "for good, although attempts were left");
    let now = Planted::find(w, &planted.id)?;
    assert_eq!(now.ops.len(), 3, "nothing of the emission is stored");
    assert_eq!(w.view(planted.op("a"))?.error.map(|error| error.code), Some("bad_emission".to_owned()));
    assert!(matches!(w.finish_one(item)?, Ended::Failed { .. }), "a repetition gets the first answer");
    Ok(())
}

fn an_emission_with_a_dangling_dependency_fails_the_attempt_for_good(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
    match w.finish_one(emitting(w, &planted.claimed("a"), &Scenario::new().op("x").after(&["nowhere"]))?)? {
        Ended::Failed { error } => assert!(error.message.contains("nowhere"), "{error:?}"),
        other => panic!("a dangling dependency got {other:?}"),
    }
    assert_eq!(w.status(&planted, "a")?, Failed);
    assert_eq!(Planted::find(w, &planted.id)?.ops.len(), 1);
    Ok(())
}

fn emitted_ops_run_in_a_later_claim(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
    assert_eq!(w.claim("w1", 10)?, []);
    w.finish_one(emitting(w, &planted.claimed("a"), &Scenario::new().ops("x", 3))?)?;
    assert_eq!(w.claim("w1", 10)?.len(), 3);
    assert_eq!(w.statuses(&Planted::find(w, &planted.id)?, &["x0", "x1", "x2"])?, [Running, Running, Running]);
    Ok(())
}
