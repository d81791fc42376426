//! Ops that a handler emits with its completion (Q4).

use crate::case::cases;
use crate::scenario::name;
use crate::verbs::{completion, plan};
use crate::{Outcome, Planted, Scenario, World};
use leasehold_core::model::RetryPolicy;
use leasehold_core::state::OpStatus::{Blocked, Failed, Pending, Ready, Running};
use leasehold_core::store::BoxError;
use leasehold_core::store::rows::ClaimedOp;
use leasehold_core::transitions::{End, Ended, Finish};

cases! {
    emitted_ops_know_their_parent_and_inherit_its_site proves ["Q4"];
    an_emitted_op_may_wait_for_its_emitter_and_others proves ["Q4", "S9"];
    an_emitted_op_can_be_put_before_the_finaliser proves ["Q4", "S9"];
    an_emission_that_is_there_already_with_the_same_spec_attaches proves ["Q4", "I4"];
    an_emission_with_another_spec_fails_the_attempt_and_names_the_op proves ["Q4"];
    an_emission_with_a_dangling_dependency_fails_the_attempt_for_good proves ["Q4", "S9"];
    emitted_ops_run_in_a_later_claim proves ["Q4"];
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
