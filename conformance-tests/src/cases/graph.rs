//! How an op's end spreads, and how a graph grows (S1 to S4, S8, S9, Q4).

use crate::case::cases;
use crate::scenario::LEASE;
use crate::verbs::failure;
use crate::{Outcome, Planted, Scenario, World};
use leasehold_core::state::OpStatus::{Blocked, Failed, Pending, Ready, Running, Succeeded};
use leasehold_core::state::WorkflowStatus;
use leasehold_core::store::BoxError;
use leasehold_core::transitions::Ended;

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
