//! What makes two requests the same workflow, and two ops the same op (I1, I2, I4).

use crate::case::cases;
use crate::scenario::name;
use crate::{Outcome, Planted, Scenario, World};
use leasehold_core::model::{Digest, WorkflowName, derived_id};
use leasehold_core::state::{OpStatus, WorkflowStatus};
use leasehold_core::transitions::{CreateOutcome, TransitionError};

cases! {
    ensuring_twice_creates_once_and_attaches proves ["I1", "I2"];
    attaching_restarts_nothing_in_any_status proves ["I2"];
    attaching_tells_whether_the_input_differs proves ["I2"];
    another_identity_under_the_same_id_is_a_conflict_that_names_both proves ["I2"];
    another_name_under_the_same_id_is_a_conflict proves ["I2"];
    an_id_is_derived_from_name_and_identity proves ["I1"];
    a_second_op_with_a_dedup_key_attaches_in_the_same_call proves ["I4"];
    an_added_op_with_a_dedup_key_attaches_in_any_status proves ["I4"];
    dedup_keys_of_other_workflows_are_others proves ["I4"];
    what_depends_on_an_attached_op_waits_for_its_holder proves ["I4"];
}

fn ensuring_twice_creates_once_and_attaches(w: &mut World) -> Outcome {
    let scenario = Scenario::new().id("w").identity("x").op("a");
    assert_eq!(w.ensure(scenario.spec(w))?, CreateOutcome::Created);
    let planted = Planted::find(w, &name("w"))?;
    let before = w.fingerprint(&planted)?;
    let expected = CreateOutcome::Attached { status: WorkflowStatus::Running, input_differs: false };
    assert_eq!(w.ensure(scenario.spec(w))?, expected);
    assert_eq!(w.ensure(Scenario::new().id("w").identity("x").op("b").spec(w))?, expected, "the graph is not compared");
    assert_eq!(w.fingerprint(&planted)?, before);
    assert_eq!(w.workflow(&name("w"))?.digest, Some(Digest::of_bytes(b"x")), "the digest is stored");
    Ok(())
}

fn attaching_restarts_nothing_in_any_status(w: &mut World) -> Outcome {
    let base = |id: &str| Scenario::new().id(id).identity("x").op("a");
    let done = base("succeeded").succeeded().build(w)?;
    let failed = base("failed").failed().build(w)?;
    let canceled = base("canceled").build(w)?;
    w.cancel(&canceled)?;
    let running = base("running").leased_by("w1").build(w)?;
    for (planted, status) in [
        (done, WorkflowStatus::Succeeded),
        (failed, WorkflowStatus::Failed),
        (canceled, WorkflowStatus::Canceled),
        (running, WorkflowStatus::Running),
    ] {
        let before = w.fingerprint(&planted)?;
        let outcome = w.ensure(base(planted.id.as_str()).spec(w))?;
        assert_eq!(outcome, CreateOutcome::Attached { status, input_differs: false });
        assert_eq!(w.fingerprint(&planted)?, before);
    }
    Ok(())
}

fn attaching_tells_whether_the_input_differs(w: &mut World) -> Outcome {
    let with = |input: &str| Scenario::new().id("w").started_with(input).op("a").spec(w);
    w.ensure(with(r#"{"a":1,"b":2}"#))?;
    let differs = |outcome| matches!(outcome, CreateOutcome::Attached { input_differs: true, .. });
    assert!(!differs(w.ensure(with(r#"{ "b": 2, "a": 1 }"#))?), "spelling is no difference");
    assert!(differs(w.ensure(with(r#"{"a":1,"b":3}"#))?));
    assert_eq!(w.workflow(&name("w"))?.input.as_str(), r#"{"a":1,"b":2}"#, "the first input stays");
    Ok(())
}

fn another_identity_under_the_same_id_is_a_conflict_that_names_both(w: &mut World) -> Outcome {
    let planted = Scenario::new().id("w").called("n").identity("x").op("a").build(w)?;
    let before = w.fingerprint(&planted)?;
    let digest = |text: &str| Digest::of_bytes(text.as_bytes()).to_string();
    for (scenario, given) in [(Scenario::new().identity("y"), digest("y")), (Scenario::new(), "none".to_owned())] {
        match w.ensure(scenario.id("w").called("n").op("a").spec(w)) {
            Err(TransitionError::IdentityConflict { id, found_digest, given_digest, .. }) => {
                assert_eq!((id, found_digest, given_digest), (name("w"), digest("x"), given));
            }
            other => panic!("another identity got {other:?}"),
        }
    }
    assert_eq!(w.fingerprint(&planted)?, before);
    Ok(())
}

fn another_name_under_the_same_id_is_a_conflict(w: &mut World) -> Outcome {
    Scenario::new().id("w").called("n").identity("x").op("a").build(w)?;
    let outcome = w.ensure(Scenario::new().id("w").called("m").identity("x").op("a").spec(w));
    match outcome {
        Err(TransitionError::IdentityConflict { found_name, given_name, .. }) => {
            assert_eq!((found_name, given_name), (name::<WorkflowName>("n"), name("m")));
            Ok(())
        }
        other => panic!("another name got {other:?}"),
    }
}

fn an_id_is_derived_from_name_and_identity(w: &mut World) -> Outcome {
    let digest = Digest::of_bytes(b"x");
    let id = derived_id(&name("n"), &digest);
    let scenario = Scenario::new().id(id.as_str()).called("n").identity("x").op("a");
    assert_eq!(w.ensure(scenario.spec(w))?, CreateOutcome::Created);
    assert!(matches!(w.ensure(scenario.spec(w))?, CreateOutcome::Attached { .. }));
    assert_ne!(derived_id(&name("m"), &digest), id);
    Ok(())
}

fn a_second_op_with_a_dedup_key_attaches_in_the_same_call(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").dedup_key("k").op("b").dedup_key("k").op("c").dedup_key("other").build(w)?;
    assert_eq!(planted.ops.keys().collect::<Vec<_>>(), ["a", "c"]);
    assert_eq!(w.drain("w1")?, 2);
    Ok(())
}

fn an_added_op_with_a_dedup_key_attaches_in_any_status(w: &mut World) -> Outcome {
    let planted = Scenario::new()
        .op("done")
        .dedup_key("done")
        .succeeded()
        .op("failed")
        .dedup_key("failed")
        .failed()
        .op("blocked")
        .dedup_key("blocked")
        .after(&["failed"])
        .op("ready")
        .dedup_key("ready")
        .build(w)?;
    let before = w.all_ops(planted.workflow)?;
    for (key, status) in
        [("done", OpStatus::Succeeded), ("failed", OpStatus::Failed), ("blocked", OpStatus::Blocked), ("ready", OpStatus::Ready)]
    {
        let added = w.add(&planted, &Scenario::new().op(&format!("again {key}")).dedup_key(key))?;
        let [op] = added.as_slice() else { panic!("one op was asked for: {added:?}") };
        assert_eq!((op.id.as_str(), op.holder.as_str()), (format!("again {key}").as_str(), key), "the answer names the holder");
        assert_eq!((op.status, op.created), (status, false), "and its state");
    }
    assert_eq!(w.all_ops(planted.workflow)?, before);
    Ok(())
}

fn dedup_keys_of_other_workflows_are_others(w: &mut World) -> Outcome {
    let (a, b) = (Scenario::new().op("a").dedup_key("k").build(w)?, Scenario::new().op("a").dedup_key("k").build(w)?);
    assert_ne!(a.op("a"), b.op("a"));
    let added = w.add(&a, &Scenario::new().op("new").dedup_key("of b"))?;
    assert!(added.iter().all(|op| op.created));
    w.add(&b, &Scenario::new().op("new").dedup_key("of b"))?;
    assert_eq!(w.drain("w1")?, 4);
    Ok(())
}

fn what_depends_on_an_attached_op_waits_for_its_holder(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").dedup_key("k").build(w)?;
    let added = w.add(&planted, &Scenario::new().op("b").dedup_key("k").op("c").after(&["b"]))?;
    let mut told: Vec<_> = added.iter().map(|op| (op.id.as_str(), op.created, op.status)).collect();
    told.sort_unstable();
    assert_eq!(told, [("b", false, OpStatus::Ready), ("c", true, OpStatus::Pending)]);
    let a = w.claim_one("w1")?;
    assert_eq!(a.op_id, name("a"));
    w.complete_one(&a, "null")?;
    let planted = Planted::find(w, &planted.id)?;
    assert_eq!(w.status(&planted, "c")?, OpStatus::Ready);
    Ok(())
}
