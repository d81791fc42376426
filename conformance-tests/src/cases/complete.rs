//! Completing ops (L2, L12, K2 to K4).

use crate::case::cases;
use crate::scenario::{json, microseconds, name};
use crate::verbs::{completion, failure, giving_back, permanent_failure};
use crate::{Outcome, Planted, Scenario, World};
use leasehold_core::model::{Artifact, ArtifactKind, Digest, Fence, Record};
use leasehold_core::state::{OpStatus, WorkflowStatus};
use leasehold_core::store::rows::{AttemptOutcome, ClaimedOp};
use leasehold_core::transitions::{End, Ended, Finish};

cases! {
    a_completion_writes_result_ledger_status_and_counters_at_once proves ["L2", "L9", "S8"];
    a_result_is_read_by_whoever_comes_after proves ["K4"];
    a_completion_keeps_its_artifacts proves ["K2"];
    a_later_attempt_replaces_an_artifact_of_its_name proves ["K2"];
    a_failed_attempt_leaves_no_artifact_and_no_record proves ["K2", "K3", "L2"];
    the_last_record_of_a_key_wins proves ["K3"];
    records_belong_to_one_workflow proves ["K3"];
    a_batch_is_judged_op_by_op proves ["L1", "L13"];
    a_batch_may_mix_every_end proves ["L2"];
    a_batch_spans_workflows proves ["L2"];
    a_lease_named_twice_in_a_batch_gets_one_answer proves ["L12"];
    a_repeated_completion_gets_its_first_answer proves ["L1", "L12"];
    a_completion_after_another_end_of_the_same_lease_is_lost proves ["L1"];
    another_end_after_a_completion_is_lost proves ["L1"];
    a_repeated_completion_with_another_result_changes_nothing proves ["L12"];
    an_empty_batch_does_nothing proves ["L2"];
    two_parents_that_end_in_one_batch_wake_their_child_once proves ["S3", "S7"];
    a_success_and_a_failure_in_one_batch_block_the_child proves ["S2", "S3"];
}

fn a_completion_writes_result_ledger_status_and_counters_at_once(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("wörker").build(w)?;
    let claimed = planted.claimed("a");
    w.clock().advance(microseconds(7))?;
    w.complete_one(&claimed, r#"{ "n" : 1 }"#)?;
    let view = w.view(planted.op("a"))?;
    assert_eq!((view.status, view.lease, view.due_at, view.finished_at), (OpStatus::Succeeded, None, None, Some(w.now())));
    assert_eq!(view.result, Some(json(r#"{ "n" : 1 }"#)));
    let attempts = w.read(|tx| tx.attempts(planted.op("a"), Fence::NONE, 10))?;
    let [attempt] = attempts.as_slice() else { panic!("there was one attempt: {attempts:?}") };
    assert_eq!((attempt.key, attempt.outcome, attempt.worker.as_str()), (claimed.lease.key, AttemptOutcome::Succeeded, "wörker"));
    assert_eq!((attempt.acquired_at, attempt.ended_at), (claimed.lease.acquired_at, w.now()));
    assert_eq!((&attempt.result, &attempt.error), (&Some(json(r#"{ "n" : 1 }"#)), &None));
    let row = w.workflow(&planted.id)?;
    assert_eq!((row.status, row.counters.succeeded, row.finished_at), (WorkflowStatus::Succeeded, 1, Some(w.now())));
    Ok(())
}

fn a_result_is_read_by_whoever_comes_after(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").op("b").after(&["a"]).build(w)?;
    w.complete_one(&planted.claimed("a"), "[1]")?;
    let b = w.claim_one("w2")?;
    let parents = w.read(|tx| tx.upstream(&[b.lease.key.op]))?;
    let [edge] = parents.as_slice() else { panic!("it has one parent: {parents:?}") };
    assert_eq!(w.read(|tx| tx.results(&[edge.parent]))?, [(planted.op("a"), json("[1]"))]);
    Ok(())
}

fn with(claimed: &ClaimedOp, artifacts: Vec<Artifact>, records: Vec<Record>) -> Finish {
    Finish { end: End::Complete { result: json("null"), artifacts, records, emitted: None }, ..completion(claimed, "null") }
}

fn artifact(artifact: &str, content: &[u8]) -> Artifact {
    Artifact {
        name: name(artifact),
        kind: ArtifactKind::Image,
        content_type: "image/png".to_owned(),
        metadata: json(r#"{"w":1}"#),
        content: content.to_vec(),
    }
}

fn record(key: &str, value: &str) -> Record {
    Record { collection: name("c"), key: name(key), value: json(value) }
}

fn a_completion_keeps_its_artifacts(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
    let claimed = planted.claimed("a");
    let bytes: Vec<u8> = (0..=255).collect();
    let outcome =
        w.finish_one(with(&claimed, vec![artifact("../x", &bytes), artifact("empty", b""), artifact("../x", b"last")], Vec::new()))?;
    assert_eq!(outcome, Ended::Succeeded);
    let rows = w.read(|tx| tx.artifacts(planted.workflow, None, None, 10))?;
    let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["../x", "empty"], "a name is only a name; of one name the last wins");
    let Some(row) = rows.first() else { panic!("there are two") };
    assert_eq!((row.op, row.op_id.as_str(), row.kind, row.content_type.as_str()), (planted.op("a"), "a", ArtifactKind::Image, "image/png"));
    assert_eq!((row.size, row.sha256, row.fence, row.at), (4, Digest::of_bytes(b"last"), claimed.lease.key.fence, w.now()));
    assert_eq!(w.read(|tx| tx.artifact_content(planted.op("a"), &name("../x")))?, Some(b"last".to_vec()));
    Ok(())
}

fn a_later_attempt_replaces_an_artifact_of_its_name(w: &mut World) -> Outcome {
    // A success is final here, so the earlier attempt's artifact is written by the step itself.
    let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
    let claimed = planted.claimed("a");
    let old = super::steps::write::artifact(&planted, "a", "report", 0, b"old");
    super::steps::write::write(w, &planted, &leasehold_core::store::rows::WriteSet { artifacts: vec![old], ..Default::default() })?;
    w.finish_one(with(&claimed, vec![artifact("report", b"new")], Vec::new()))?;
    let rows = w.read(|tx| tx.artifacts(planted.workflow, None, None, 10))?;
    assert_eq!(rows.iter().map(|row| (row.name.as_str(), row.fence)).collect::<Vec<_>>(), [("report", claimed.lease.key.fence)]);
    assert_eq!(w.read(|tx| tx.artifact_content(planted.op("a"), &name("report")))?, Some(b"new".to_vec()));
    Ok(())
}

fn a_failed_attempt_leaves_no_artifact_and_no_record(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").op("x").build(w)?;
    let claimed = planted.claimed("a");
    // It would have succeeded, but for what it emits.
    let Finish { end, .. } = super::emit::emitting(w, &claimed, &Scenario::new().op("x").input("2"))?;
    let End::Complete { emitted, .. } = end else { panic!("it is a completion") };
    let end = End::Complete { result: json("1"), artifacts: vec![artifact("report", b"x")], records: vec![record("k", "1")], emitted };
    assert!(matches!(w.finish_one(Finish { end, ..completion(&claimed, "1") })?, Ended::Failed { .. }));
    assert_eq!(w.read(|tx| tx.artifacts(planted.workflow, None, None, 10))?, []);
    assert_eq!(w.read(|tx| tx.records(planted.workflow, &name("c"), None, 10))?, []);
    Ok(())
}

fn values(w: &World, planted: &Planted) -> Result<Vec<(String, String)>, leasehold_core::store::StoreError> {
    let rows = w.read(|tx| tx.records(planted.workflow, &name("c"), None, 100))?;
    Ok(rows.into_iter().map(|row| (row.record.key.to_string(), row.record.value.to_string())).collect())
}

fn the_last_record_of_a_key_wins(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").op("b").leased_by("w1").op("c").leased_by("w1").build(w)?;
    let item = |op: &str, records| with(&planted.claimed(op), Vec::new(), records);
    w.finish_one(item("a", vec![record("k", "1"), record("l", "1"), record("k", "2")]))?;
    let pairs = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<Vec<_>>();
    assert_eq!(values(w, &planted)?, pairs(&[("k", "2"), ("l", "1")]));
    w.finish(&[item("b", vec![record("k", "3")]), item("c", vec![record("k", "4"), record("m", "5")])])?;
    assert_eq!(values(w, &planted)?, pairs(&[("k", "4"), ("l", "1"), ("m", "5")]), "in the order of the batch");
    let rows = w.read(|tx| tx.records(planted.workflow, &name("c"), None, 1))?;
    assert_eq!(rows.iter().map(|row| (row.op, row.at)).collect::<Vec<_>>(), [(planted.op("c"), w.now())]);
    Ok(())
}

fn records_belong_to_one_workflow(w: &mut World) -> Outcome {
    let (a, b) = (Scenario::new().op("a").leased_by("w1").build(w)?, Scenario::new().op("a").leased_by("w1").build(w)?);
    w.finish(&[with(&a.claimed("a"), Vec::new(), vec![record("k", "1")]), with(&b.claimed("a"), Vec::new(), vec![record("k", "2")])])?;
    assert_eq!(values(w, &a)?, [("k".to_owned(), "1".to_owned())]);
    assert_eq!(values(w, &b)?, [("k".to_owned(), "2".to_owned())]);
    Ok(())
}

fn a_batch_is_judged_op_by_op(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("early").leased_by("w1").op("late").op("gone").leased_by("w1").build(w)?;
    w.clock().advance(crate::scenario::LEASE)?;
    let late = w.claim_one("w1")?;
    let batch = [completion(&planted.claimed("early"), "1"), completion(&late, "2"), completion(&planted.claimed("gone"), "3")];
    assert_eq!(w.finish(&batch)?, [Ended::LeaseLost, Ended::Succeeded, Ended::LeaseLost]);
    assert_eq!(w.statuses(&planted, &["early", "late", "gone"])?, [OpStatus::Running, OpStatus::Succeeded, OpStatus::Running]);
    Ok(())
}

fn a_batch_may_mix_every_end(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("done").op("flaky").op("broken").op("back").op("below").after(&["broken", "done"]).build(w)?;
    let claimed = w.claim("w1", 10)?;
    let items: Vec<Finish> = claimed
        .iter()
        .map(|op| match op.op_id.as_str() {
            "done" => completion(op, "1"),
            "flaky" => failure(op),
            "broken" => permanent_failure(op),
            _ => giving_back(op),
        })
        .collect();
    for (op, outcome) in claimed.iter().zip(w.finish(&items)?) {
        let fits = match op.op_id.as_str() {
            "done" => outcome == Ended::Succeeded,
            "flaky" => matches!(outcome, Ended::Retried { .. }),
            "broken" => matches!(outcome, Ended::Failed { .. }),
            _ => outcome == Ended::Released,
        };
        assert!(fits, "{:?}: {outcome:?}", op.op_id);
    }
    let statuses = w.statuses(&planted, &["done", "flaky", "broken", "back", "below"])?;
    assert_eq!(statuses, [OpStatus::Succeeded, OpStatus::Ready, OpStatus::Failed, OpStatus::Ready, OpStatus::Blocked]);
    Ok(())
}

fn a_batch_spans_workflows(w: &mut World) -> Outcome {
    let planted: Vec<Planted> =
        (0..5).map(|_| Scenario::new().op("a").leased_by("w1").op("b").after(&["a"]).build(w)).collect::<Result<_, _>>()?;
    let items: Vec<Finish> = planted.iter().map(|planted| completion(&planted.claimed("a"), "1")).collect();
    assert!(w.finish(&items)?.iter().all(|outcome| *outcome == Ended::Succeeded));
    for planted in &planted {
        assert_eq!(w.statuses(planted, &["a", "b"])?, [OpStatus::Succeeded, OpStatus::Ready]);
    }
    assert_eq!(w.drain("w1")?, 5);
    Ok(())
}

fn a_lease_named_twice_in_a_batch_gets_one_answer(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
    let item = completion(&planted.claimed("a"), "1");
    assert_eq!(w.finish(&[item.clone(), item])?, [Ended::Succeeded, Ended::Succeeded]);
    assert_eq!(w.workflow(&planted.id)?.counters.succeeded, 1);
    Ok(())
}

fn a_repeated_completion_gets_its_first_answer(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").op("b").after(&["a"]).build(w)?;
    let item = completion(&planted.claimed("a"), "1");
    assert_eq!(w.finish_one(item.clone())?, Ended::Succeeded);
    let before = w.fingerprint(&planted)?;
    for _ in 0..2 {
        assert_eq!(w.finish_one(item.clone())?, Ended::Succeeded);
        w.clock().advance(crate::scenario::LEASE)?;
    }
    assert_eq!(w.fingerprint(&planted)?, before, "also after the lease would have expired");
    Ok(())
}

fn a_completion_after_another_end_of_the_same_lease_is_lost(w: &mut World) -> Outcome {
    for end in [failure, permanent_failure, giving_back] {
        let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
        let claimed = planted.claimed("a");
        w.finish_one(end(&claimed))?;
        let before = w.fingerprint(&planted)?;
        assert_eq!(w.finish_one(completion(&claimed, "1"))?, Ended::LeaseLost, "the lease did not end so");
        assert_eq!(w.fingerprint(&planted)?, before);
        w.cancel(&planted)?;
    }
    Ok(())
}

fn another_end_after_a_completion_is_lost(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
    let claimed = planted.claimed("a");
    w.complete_one(&claimed, "1")?;
    let before = w.fingerprint(&planted)?;
    for end in [failure, permanent_failure, giving_back] {
        assert_eq!(w.finish_one(end(&claimed))?, Ended::LeaseLost, "the lease did not end so");
    }
    assert_eq!(w.fingerprint(&planted)?, before);
    Ok(())
}

fn a_repeated_completion_with_another_result_changes_nothing(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
    let claimed = planted.claimed("a");
    w.complete_one(&claimed, "1")?;
    w.complete_one(&claimed, "2")?;
    assert_eq!(w.view(planted.op("a"))?.result, Some(json("1")));
    Ok(())
}

fn an_empty_batch_does_nothing(w: &mut World) -> Outcome {
    assert_eq!(w.finish(&[])?, []);
    assert_eq!(w.heartbeat(&[])?, []);
    Ok(())
}

fn two_parents_that_end_in_one_batch_wake_their_child_once(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").op("b").leased_by("w1").op("x").after(&["a", "b"]).build(w)?;
    let batch = [completion(&planted.claimed("a"), "1"), completion(&planted.claimed("b"), "2")];
    assert_eq!(w.finish(&batch)?, [Ended::Succeeded, Ended::Succeeded]);
    assert_eq!(w.status(&planted, "x")?, OpStatus::Ready);
    assert_eq!(w.claim("w1", 10)?.len(), 1);
    Ok(())
}

fn a_success_and_a_failure_in_one_batch_block_the_child(w: &mut World) -> Outcome {
    let planted = Scenario::new()
        .op("a")
        .leased_by("w1")
        .op("b")
        .leased_by("w1")
        .op("x")
        .after(&["a", "b"])
        .op("y")
        .after_settled(&["a", "b"])
        .build(w)?;
    w.finish(&[permanent_failure(&planted.claimed("a")), completion(&planted.claimed("b"), "2")])?;
    assert_eq!(w.statuses(&planted, &["x", "y"])?, [OpStatus::Blocked, OpStatus::Ready]);
    Ok(())
}
