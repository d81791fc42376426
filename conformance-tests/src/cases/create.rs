//! Making workflows (S9, B8).

use crate::case::cases;
use crate::scenario::{json, name};
use crate::{Outcome, Planted, Scenario, World};
use leasehold_core::model::{Json, Limits, NAME_BYTES_MAX, RequestId, RetryPolicy, WorkflowSpec};
use leasehold_core::state::{Counters, OpStatus, WorkflowStatus};
use leasehold_core::store::BoxError;
use leasehold_core::transitions::{CreateMode, CreateOutcome, CreateRequest, GraphError, TransitionError};

cases! {
    a_new_workflow_waits_where_it_has_dependencies proves ["S1", "S3", "S9"];
    an_op_takes_the_site_of_its_workflow_unless_it_names_one proves ["Q1"];
    a_cycle_is_refused_with_its_ops_named proves ["S9"];
    a_self_dependency_is_refused_with_its_op_named proves ["S9"];
    a_dangling_dependency_is_refused_with_both_named proves ["S9"];
    a_duplicate_id_is_refused_with_its_name proves ["S9"];
    a_workflow_without_ops_is_refused proves ["S8"];
    a_doubled_edge_counts_as_one proves ["S9"];
    an_edge_that_is_hard_and_soft_is_hard proves ["S9", "S4"];
    an_op_may_be_given_before_its_dependencies proves ["S9"];
    an_op_may_name_what_waits_for_it proves ["S9"];
    an_input_at_the_limit_is_stored_and_one_byte_more_refused proves ["B8"];
    a_name_of_the_longest_kind_is_stored proves ["B8"];
    any_text_is_stored_as_given proves ["B8"];
    deep_json_is_stored_as_given proves ["B8"];
    integers_beyond_two_to_the_53_are_kept_exactly proves ["B8", "I3"];
    megabytes_are_stored_as_given proves ["B8"];
    starting_a_taken_id_is_refused_and_changes_nothing proves ["I1", "I2"];
    a_repeated_create_finds_its_own_workflow proves ["L12", "I2"];
    a_workflow_is_there_whole_or_not_at_all proves ["S9", "L2"];
}

fn a_new_workflow_waits_where_it_has_dependencies(w: &mut World) -> Outcome {
    let planted =
        Scenario::new().op("a").op("b").after(&["a"]).op("c").after_settled(&["a"]).op("d").after(&["b", "c"]).op("e").build(w)?;
    let statuses = w.statuses(&planted, &["a", "b", "c", "d", "e"])?;
    assert_eq!(statuses, [OpStatus::Ready, OpStatus::Pending, OpStatus::Pending, OpStatus::Pending, OpStatus::Ready]);
    let row = w.workflow(&planted.id)?;
    assert_eq!(row.status, WorkflowStatus::Running);
    assert_eq!(row.counters, Counters { pending: 3, open: 2, ..Counters::default() });
    let unmet: Vec<i32> = w.all_ops(planted.workflow)?.iter().map(|op| op.state.unmet).collect();
    assert_eq!(unmet.iter().sum::<i32>(), 4);
    Ok(())
}

fn an_op_takes_the_site_of_its_workflow_unless_it_names_one(w: &mut World) -> Outcome {
    let planted = Scenario::new().at_site("eu").op("a").op("b").site("us").build(w)?;
    assert_eq!(w.view(planted.op("a"))?.site, name("eu"));
    assert_eq!(w.view(planted.op("b"))?.site, name("us"));
    Ok(())
}

/// Refuses the scenario, and stores nothing of it.
fn refused(w: &World, scenario: &Scenario) -> Result<GraphError, BoxError> {
    let spec = scenario.spec(w);
    let id = spec.id.clone();
    let error = match w.create(spec) {
        Err(TransitionError::Graph(error)) => error,
        other => panic!("a bad graph got {other:?}"),
    };
    assert!(w.read(|tx| tx.workflows(std::slice::from_ref(&id)))?.is_empty(), "nothing is stored");
    assert_eq!(w.read(|tx| tx.totals())?.ops.total(), 0);
    Ok(error)
}

fn a_cycle_is_refused_with_its_ops_named(w: &mut World) -> Outcome {
    let scenario = Scenario::new().op("a").after(&["c"]).op("b").after(&["a"]).op("c").after_settled(&["b"]).op("free");
    let GraphError::Cycle(mut ops) = refused(w, &scenario)? else { panic!("a cycle is refused as one") };
    ops.sort();
    assert_eq!(ops, [name("a"), name("b"), name("c")]);
    Ok(())
}

fn a_self_dependency_is_refused_with_its_op_named(w: &mut World) -> Outcome {
    assert_eq!(refused(w, &Scenario::new().op("a").op("b").after(&["b"]))?, GraphError::SelfDependency(name("b")));
    assert_eq!(refused(w, &Scenario::new().op("a").op("b").before(&["b"]))?, GraphError::SelfDependency(name("b")));
    Ok(())
}

fn a_dangling_dependency_is_refused_with_both_named(w: &mut World) -> Outcome {
    let error = refused(w, &Scenario::new().op("a").op("b").after(&["a", "x"]))?;
    assert_eq!(error, GraphError::UnknownDependency { op: name("b"), missing: name("x") });
    let error = refused(w, &Scenario::new().op("a").before(&["x"]))?;
    assert_eq!(error, GraphError::UnknownBefore { op: name("a"), missing: name("x") });
    // An op of another workflow is as good as none.
    Scenario::new().op("x").build(w)?;
    let error = w.create(Scenario::new().op("b").after(&["x"]).spec(w));
    assert!(matches!(error, Err(TransitionError::Graph(GraphError::UnknownDependency { .. }))), "{error:?}");
    Ok(())
}

fn a_duplicate_id_is_refused_with_its_name(w: &mut World) -> Outcome {
    assert_eq!(refused(w, &Scenario::new().op("a").op("b").op("a"))?, GraphError::DuplicateOp(name("a")));
    Ok(())
}

fn a_workflow_without_ops_is_refused(w: &mut World) -> Outcome {
    assert_eq!(refused(w, &Scenario::new().id("empty"))?, GraphError::Empty(name("empty")));
    Ok(())
}

fn a_doubled_edge_counts_as_one(w: &mut World) -> Outcome {
    let planted =
        Scenario::new().op("a").op("b").after(&["a", "a"]).op("c").before(&["b"]).op("d").after(&["c"]).before(&["b", "b"]).build(w)?;
    assert_eq!(w.view(planted.op("b"))?.state.unmet, 3);
    assert_eq!(w.read(|tx| tx.upstream(&[planted.op("b")]))?.len(), 3);
    w.drain("w1")?;
    assert_eq!(w.workflow(&planted.id)?.status, WorkflowStatus::Succeeded);
    Ok(())
}

fn an_edge_that_is_hard_and_soft_is_hard(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").failed().op("b").after_settled(&["a"]).after(&["a"]).build(w)?;
    assert_eq!(w.status(&planted, "b")?, OpStatus::Blocked);
    Ok(())
}

fn an_op_may_be_given_before_its_dependencies(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("last").after(&["middle"]).op("middle").after(&["first"]).op("first").build(w)?;
    assert_eq!(w.statuses(&planted, &["first", "middle", "last"])?, [OpStatus::Ready, OpStatus::Pending, OpStatus::Pending]);
    assert_eq!(w.drain("w1")?, 3);
    Ok(())
}

fn an_op_may_name_what_waits_for_it(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").op("b").before(&["a"]).build(w)?;
    assert_eq!(w.statuses(&planted, &["a", "b"])?, [OpStatus::Pending, OpStatus::Ready]);
    let first = w.claim_one("w1")?;
    assert_eq!(first.op_id, name("b"));
    w.complete_one(&first, "null")?;
    assert_eq!(w.status(&planted, "a")?, OpStatus::Ready);
    Ok(())
}

/// A JSON string that has this many bytes with its quotes.
fn text_of(bytes: usize) -> String {
    format!("\"{}\"", "x".repeat(bytes - 2))
}

fn an_input_at_the_limit_is_stored_and_one_byte_more_refused(w: &mut World) -> Outcome {
    let limit = Limits::default().input_bytes;
    let scenario = |bytes: usize| Scenario::new().op("a").input(&text_of(bytes));
    let planted = scenario(limit).build(w)?;
    assert_eq!(w.view(planted.op("a"))?.input.as_str().len(), limit);
    for spec in [
        scenario(limit + 1).spec(w),
        Scenario::new().started_with(&text_of(limit + 1)).op("a").spec(w),
        Scenario::new().workflow_metadata(&text_of(limit + 1)).op("a").spec(w),
        Scenario::new().op("a").metadata(&text_of(limit + 1)).spec(w),
    ] {
        let id = spec.id.clone();
        let outcome = w.create(spec);
        assert!(matches!(outcome, Err(TransitionError::TooLarge(_))), "{outcome:?}");
        assert!(w.read(|tx| tx.workflows(std::slice::from_ref(&id)))?.is_empty());
    }
    Ok(())
}

fn a_name_of_the_longest_kind_is_stored(w: &mut World) -> Outcome {
    // Three bytes a character, so that a store which counts characters is found out.
    let long = "語".repeat(NAME_BYTES_MAX / 3);
    let planted = Scenario::new().id(&long).called(&long).at_site(&long).op(&long).queue(&long).dedup_key(&long).build(w)?;
    let view = w.view(planted.op(&long))?;
    assert_eq!((view.state.id.as_str(), view.queue.as_str(), view.site.as_str()), (long.as_str(), long.as_str(), long.as_str()));
    let claimed = w.claim_one(&long)?;
    assert_eq!((claimed.workflow_id.as_str(), claimed.lease.worker.as_str()), (long.as_str(), long.as_str()));
    Ok(())
}

fn any_text_is_stored_as_given(w: &mut World) -> Outcome {
    let texts = [
        "a/b",
        "order:42@x",
        "x#y?z",
        "100%",
        "walk (1)",
        "..",
        "ü/é",
        "data.id' OR '1'='1",
        "x\"; drop table ops; --",
        " ",
        "😀",
        "\u{fffd}",
        "A",
        "a",
    ];
    let mut scenario = Scenario::new().id("💥 ' \" \\ ; --");
    for text in texts {
        scenario = scenario.op(text).queue(text).site(text).input(&Json::encode(text)?.to_string());
    }
    let planted = scenario.build(w)?;
    for text in texts {
        let view = w.view(planted.op(text))?;
        assert_eq!((view.state.id.as_str(), view.queue.as_str(), view.site.as_str(), view.kind.as_str()), (text, text, text, text));
        assert_eq!(view.input.decode::<String>()?, text);
        let found = w.read(|tx| tx.ops_by_id(&[(planted.workflow, name(text))]))?;
        assert_eq!(found.len(), 1, "{text:?} is found, and nothing else with it");
    }
    assert_eq!(w.drain("w1")?, texts.len());
    Ok(())
}

fn deep_json_is_stored_as_given(w: &mut World) -> Outcome {
    let depth = leasehold_core::model::JSON_DEPTH_MAX;
    let deep = "[".repeat(depth) + &"]".repeat(depth);
    let planted = Scenario::new().op("a").input(&deep).build(w)?;
    assert_eq!(w.view(planted.op("a"))?.input.as_str(), deep);
    Ok(())
}

fn integers_beyond_two_to_the_53_are_kept_exactly(w: &mut World) -> Outcome {
    let numbers = "[9007199254740993,-9223372036854775808,18446744073709551615,1.0,1e2,-0.0]";
    let planted = Scenario::new().op("a").input(numbers).build(w)?;
    let claimed = w.claim_one("w1")?;
    assert_eq!(claimed.input.as_str(), numbers);
    w.complete_one(&claimed, numbers)?;
    assert_eq!(w.view(planted.op("a"))?.result, Some(json(numbers)));
    Ok(())
}

fn megabytes_are_stored_as_given(w: &mut World) -> Outcome {
    let big = Json::encode(&"é\n\"".repeat(150_000))?;
    let planted = Scenario::new().op("a").input(big.as_str()).build(w)?;
    let claimed = w.claim_one("w1")?;
    assert_eq!(claimed.input, big);
    w.complete_one(&claimed, big.as_str())?;
    assert_eq!(w.read(|tx| tx.results(&[planted.op("a")]))?, [(planted.op("a"), big)]);
    Ok(())
}

fn starting_a_taken_id_is_refused_and_changes_nothing(w: &mut World) -> Outcome {
    let planted = Scenario::new().id("w").op("a").build(w)?;
    let before = w.fingerprint(&planted)?;
    let outcome = w.create(Scenario::new().id("w").op("a").op("b").spec(w));
    assert!(matches!(&outcome, Err(TransitionError::WorkflowExists(id)) if id.as_str() == "w"), "{outcome:?}");
    assert_eq!(w.fingerprint(&planted)?, before);
    Ok(())
}

fn a_repeated_create_finds_its_own_workflow(w: &mut World) -> Outcome {
    let spec: WorkflowSpec = Scenario::new().id("w").op("a").spec(w);
    for mode in [CreateMode::Start, CreateMode::Ensure] {
        let request = CreateRequest::new(spec.clone(), RequestId::random(), mode, &Limits::default())?;
        let first = w.create_with(&request);
        if mode == CreateMode::Ensure {
            assert!(matches!(first, Ok(CreateOutcome::Attached { .. })), "{first:?}");
            continue;
        }
        assert_eq!(first?, CreateOutcome::Created);
        let planted = Planted::find(w, &spec.id)?;
        let before = w.fingerprint(&planted)?;
        assert_eq!(w.create_with(&request)?, CreateOutcome::Created, "a lost reply ends as the first answer");
        assert_eq!(w.fingerprint(&planted)?, before);
    }
    Ok(())
}

fn a_workflow_is_there_whole_or_not_at_all(w: &mut World) -> Outcome {
    let scenario = Scenario::new().id("w").ops("a", 50).op("end").after(&["a0"]).retry(RetryPolicy::once());
    let world = &*w;
    std::thread::scope(|scope| -> Outcome {
        let maker = scope.spawn(|| world.create(scenario.spec(world)));
        loop {
            let rows =
                world.read(|tx| tx.list_workflows(&leasehold_core::store::rows::WorkflowPage { limit: 10, ..Default::default() }))?;
            if let Some(row) = rows.first() {
                assert_eq!(row.counters.total(), 51, "a reader saw half of it");
                assert_eq!(world.all_ops(row.seq)?.len(), 51);
                break;
            }
        }
        match maker.join() {
            Ok(outcome) => assert_eq!(outcome?, CreateOutcome::Created),
            Err(panic) => std::panic::resume_unwind(panic),
        }
        Ok(())
    })
}
