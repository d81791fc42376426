//! What clients and operators read.

use super::write::{artifact, attempt, event, record, write};
use crate::case::cases;
use crate::scenario::{LEASE, json, microseconds, name};
use crate::verbs::{limit, rate};
use crate::{Outcome, Planted, Scenario, World};
use leasehold_core::model::{ArtifactName, Bucket, EventSeq, Fence, OpError, OpSeq, RecordKey, WorkflowSeq};
use leasehold_core::state::{Counters, OpStatus, StoredStatus, WorkflowStatus};
use leasehold_core::store::StoreResult;
use leasehold_core::store::rows::{Attempt, AttemptOutcome, LeaseKey, OpPage, UpdateCursor, WorkflowPage, WriteSet};
use std::collections::BTreeMap;

cases! { steps:
    workflows_are_listed_newest_first_and_in_pages proves ["O3"];
    workflows_are_filtered_by_every_field proves ["O3"];
    updates_are_read_in_order_and_none_is_skipped proves ["O3"];
    running_ops_are_counted_by_workflow proves ["O3", "P2"];
    ops_are_listed_in_key_order_and_in_pages proves ["O3"];
    an_op_shows_what_its_tables_say proves ["P2", "S1"];
    a_result_is_told_of_what_is_succeeded_only proves ["K4"];
    the_ledger_is_read_oldest_first_and_in_pages proves ["L9", "K4"];
    an_attempt_is_told_as_it_was_written proves ["L9", "B8"];
    artifacts_are_listed_by_op_and_name_and_in_pages proves ["K2", "K4"];
    records_are_listed_by_key_and_in_pages proves ["K3"];
    events_are_read_behind_a_cursor_and_by_workflow proves ["O4"];
    queues_are_counted_by_site_and_queue proves ["P2"];
    the_store_is_counted_as_a_whole proves ["P2", "T5"];
}

fn workflows_are_listed_newest_first_and_in_pages(w: &mut World) -> Outcome {
    let planted: Vec<Planted> = (0..7).map(|_| Scenario::new().op("a").plant(w)).collect::<Result<_, _>>()?;
    let mut expected: Vec<WorkflowSeq> = planted.iter().map(|planted| planted.workflow).collect();
    expected.reverse();
    let mut listed = Vec::new();
    loop {
        let page = WorkflowPage { before: listed.last().copied(), limit: 3, ..WorkflowPage::default() };
        let rows = w.read(|tx| tx.list_workflows(&page))?;
        if rows.is_empty() {
            break;
        }
        assert!(rows.len() <= 3);
        listed.extend(rows.iter().map(|row| row.seq));
    }
    assert_eq!(listed, expected);
    Ok(())
}

fn workflows_are_filtered_by_every_field(w: &mut World) -> Outcome {
    let early = w.now();
    let a = Scenario::new().called("x").at_site("s").about("p").op("a").plant(w)?;
    w.clock().advance(LEASE)?;
    let b = Scenario::new().called("y").at_site("t").op("a").succeeded().plant(w)?;
    let late = w.now();
    let found = |page: WorkflowPage| -> StoreResult<Vec<WorkflowSeq>> {
        let page = WorkflowPage { limit: 10, ..page };
        Ok(w.read(|tx| tx.list_workflows(&page))?.iter().map(|row| row.seq).collect())
    };
    let all = WorkflowPage::default;
    assert_eq!(found(all())?, [b.workflow, a.workflow]);
    assert_eq!(found(WorkflowPage { name: Some(name("x")), ..all() })?, [a.workflow]);
    assert_eq!(found(WorkflowPage { site: Some(name("t")), ..all() })?, [b.workflow]);
    assert_eq!(found(WorkflowPage { subject: Some(name("p")), ..all() })?, [a.workflow]);
    assert_eq!(found(WorkflowPage { status: Some(WorkflowStatus::Succeeded), ..all() })?, [b.workflow]);
    assert_eq!(found(WorkflowPage { created_from: Some(late), ..all() })?, [b.workflow], "from is inclusive");
    assert_eq!(found(WorkflowPage { created_before: Some(late), ..all() })?, [a.workflow], "before is exclusive");
    assert_eq!(found(WorkflowPage { created_before: Some(early), ..all() })?, []);
    assert_eq!(found(WorkflowPage { name: Some(name("x")), site: Some(name("t")), ..all() })?, [], "filters narrow together");
    Ok(())
}

fn updates_are_read_in_order_and_none_is_skipped(w: &mut World) -> Outcome {
    // All in one microsecond, and every third in one transaction's order by itself.
    let planted: Vec<Planted> = (0..10).map(|_| Scenario::new().op("a").plant(w)).collect::<Result<_, _>>()?;
    let mut seen: BTreeMap<WorkflowSeq, UpdateCursor> = BTreeMap::new();
    let mut cursor = None;
    loop {
        let rows = w.read(|tx| tx.workflows_since(cursor, 3))?;
        if rows.is_empty() {
            break;
        }
        for row in rows {
            let next = UpdateCursor { updated_at: row.updated_at, seq: row.seq };
            assert!(cursor < Some(next), "in order of (updated_at, key)");
            cursor = Some(next);
            assert_eq!(seen.insert(row.seq, next), None, "once");
        }
    }
    assert_eq!(seen.len(), planted.len());
    // Whatever the clock does, what changes from here on is behind the cursor.
    w.clock().go_back(LEASE)?;
    let late = Scenario::new().op("a").plant(w)?;
    let rows = w.read(|tx| tx.workflows_since(cursor, 10))?;
    assert_eq!(rows.iter().map(|row| row.seq).collect::<Vec<_>>(), [late.workflow]);
    Ok(())
}

fn running_ops_are_counted_by_workflow(w: &mut World) -> Outcome {
    let a = Scenario::new().op("a").leased_by("w1").op("b").leased_by("w2").op("c").plant(w)?;
    let b = Scenario::new().op("a").kind("other").leased_by("w1").plant(w)?;
    let c = Scenario::new().op("a").plant(w)?;
    let counts: BTreeMap<WorkflowSeq, i64> =
        w.read(|tx| tx.running_counts(&[a.workflow, b.workflow, c.workflow]))?.into_iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(counts, BTreeMap::from([(a.workflow, 2), (b.workflow, 1)]));
    Ok(())
}

fn ops_are_listed_in_key_order_and_in_pages(w: &mut World) -> Outcome {
    let planted = Scenario::new().ops("a", 5).op("f").failed().op("g").failed().plant(w)?;
    Scenario::new().ops("a", 5).plant(w)?;
    let mut expected: Vec<OpSeq> = planted.ops.values().copied().collect();
    expected.sort_unstable();
    let list = |status, after, limit| -> StoreResult<Vec<OpSeq>> {
        let page = OpPage { status, after, limit };
        Ok(w.read(|tx| tx.list_ops(planted.workflow, &page))?.iter().map(|view| view.state.seq).collect())
    };
    let mut listed = list(None, None, 4)?;
    assert_eq!(listed.len(), 4);
    listed.extend(list(None, listed.last().copied(), 4)?);
    assert_eq!(listed, expected);
    assert_eq!(list(Some(StoredStatus::Failed), None, 10)?, [planted.op("f"), planted.op("g")]);
    assert_eq!(list(Some(StoredStatus::Failed), Some(planted.op("f")), 10)?, [planted.op("g")]);
    Ok(())
}

fn an_op_shows_what_its_tables_say(w: &mut World) -> Outcome {
    let later = w.now().after(LEASE)?;
    let planted = Scenario::new()
        .op("run")
        .leased_by("w1")
        .op("ready")
        .op("later")
        .due(later)
        .op("pending")
        .after(&["ready"])
        .op("failed")
        .failed()
        .op("blocked")
        .after(&["failed"])
        .op("waiting")
        .row(StoredStatus::Waiting)
        .op("canceled")
        .row(StoredStatus::Canceled)
        .plant(w)?;
    for (id, status) in [
        ("run", OpStatus::Running),
        ("ready", OpStatus::Ready),
        ("later", OpStatus::Ready),
        ("pending", OpStatus::Pending),
        ("failed", OpStatus::Failed),
        ("blocked", OpStatus::Blocked),
        ("waiting", OpStatus::Waiting),
        ("canceled", OpStatus::Canceled),
    ] {
        let view = w.view(planted.op(id))?;
        let due_at = match id {
            "ready" => Some(w.now()),
            "later" => Some(later),
            _ => None,
        };
        assert_eq!((view.status, view.due_at, view.lease.is_some()), (status, due_at, id == "run"), "{id}");
        assert_eq!((&view.result, &view.error), (&None, &None), "{id}");
    }
    assert_eq!(w.view(planted.op("run"))?.lease, Some(planted.claimed("run").lease));
    let absent = OpSeq(planted.op("canceled").0 + 1_000);
    assert_eq!(w.read(|tx| tx.op_views(&[absent, planted.op("run")]))?.len(), 1, "absent ones are left out");
    Ok(())
}

fn line(planted: &Planted, op: &str, fence: i64, outcome: AttemptOutcome) -> Attempt {
    let key = LeaseKey { op: planted.op(op), token: leasehold_core::model::LeaseToken::random(), fence: Fence(fence) };
    attempt(planted, key, outcome)
}

fn a_result_is_told_of_what_is_succeeded_only(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("done").succeeded().op("ready").op("failed").failed().plant(w)?;
    let with = |op: &str, fence, outcome, result: Option<&str>, error: Option<OpError>| Attempt {
        result: result.map(json),
        error,
        ..line(&planted, op, fence, outcome)
    };
    let broken = OpError { details: json("[1]"), ..OpError::new("broken", "it broke") };
    let attempts = vec![
        with("done", 1, AttemptOutcome::Retried, None, Some(broken.clone())),
        with("done", 2, AttemptOutcome::Succeeded, Some(r#"{ "x" : 1 }"#), None),
        with("ready", 1, AttemptOutcome::Succeeded, Some("2"), None),
        with("failed", 1, AttemptOutcome::Failed, None, Some(broken.clone())),
    ];
    write(w, &planted, &WriteSet { attempts, ..WriteSet::default() })?;
    let ops = [planted.op("done"), planted.op("ready"), planted.op("failed")];
    assert_eq!(w.read(|tx| tx.results(&ops))?, [(planted.op("done"), json(r#"{ "x" : 1 }"#))]);
    let done = w.view(planted.op("done"))?;
    assert_eq!((done.result, done.error), (Some(json(r#"{ "x" : 1 }"#)), None), "the last attempt did not fail");
    assert_eq!(w.view(planted.op("ready"))?.result, None, "an op that is open again has no result");
    assert_eq!(w.view(planted.op("failed"))?.error, Some(broken));
    Ok(())
}

fn the_ledger_is_read_oldest_first_and_in_pages(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").op("b").plant(w)?;
    let mut attempts: Vec<Attempt> = (1..=12).map(|fence| line(&planted, "a", fence, AttemptOutcome::Released)).collect();
    attempts.push(line(&planted, "b", 1, AttemptOutcome::Released));
    write(w, &planted, &WriteSet { attempts, ..WriteSet::default() })?;
    let fences = |after, limit| -> StoreResult<Vec<i64>> {
        Ok(w.read(|tx| tx.attempts(planted.op("a"), Fence(after), limit))?.iter().map(|attempt| attempt.key.fence.0).collect())
    };
    assert_eq!(fences(0, 100)?, (1..=12).collect::<Vec<_>>());
    assert_eq!(fences(0, 2)?, [1, 2]);
    assert_eq!(fences(10, 5)?, [11, 12]);
    Ok(())
}

fn an_attempt_is_told_as_it_was_written(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").plant(w)?;
    let mut attempts = Vec::new();
    for (fence, outcome) in (1..).zip(AttemptOutcome::ALL) {
        let ended_at = w.now().after(microseconds(fence))?;
        let error = OpError { details: json(r#"{"a":[]}"#), ..OpError::new("code", "line one\nline two 'quoted' ü") };
        let known = matches!(outcome, AttemptOutcome::Failed | AttemptOutcome::Retried);
        let result = (outcome == AttemptOutcome::Succeeded).then(|| json("[ 1.50 ]"));
        let error = known.then_some(error);
        attempts.push(Attempt { worker: name("wörker"), ended_at, result, error, ..line(&planted, "a", fence, outcome) });
    }
    write(w, &planted, &WriteSet { attempts: attempts.clone(), ..WriteSet::default() })?;
    assert_eq!(w.read(|tx| tx.attempts(planted.op("a"), Fence::NONE, 100))?, attempts);
    Ok(())
}

fn artifacts_are_listed_by_op_and_name_and_in_pages(w: &mut World) -> Outcome {
    let (planted, other) = (Scenario::new().op("a").op("b").plant(w)?, Scenario::new().op("a").plant(w)?);
    let place = |op: &str, artifact: &str| (planted.op(op), name::<ArtifactName>(artifact));
    let order = [place("a", "x"), place("a", "y"), place("b", "w"), place("b", "x")];
    let artifacts = vec![
        artifact(&planted, "b", "x", 1, b""),
        artifact(&planted, "a", "y", 1, &[0, 255, 10]),
        artifact(&planted, "b", "w", 1, b"w"),
        artifact(&planted, "a", "x", 1, b"x"),
    ];
    write(w, &planted, &WriteSet { artifacts, ..WriteSet::default() })?;
    write(w, &other, &WriteSet { artifacts: vec![artifact(&other, "a", "x", 1, b"other")], ..WriteSet::default() })?;
    let list = |op: Option<OpSeq>, after: Option<(OpSeq, ArtifactName)>, limit| -> StoreResult<Vec<(OpSeq, ArtifactName)>> {
        let rows = w.read(|tx| tx.artifacts(planted.workflow, op, after.clone(), limit))?;
        Ok(rows.into_iter().map(|row| (row.op, row.name)).collect())
    };
    assert_eq!(list(None, None, 10)?, order);
    assert_eq!(list(Some(planted.op("b")), None, 10)?, order.get(2..).unwrap_or_default());
    let mut paged = list(None, None, 3)?;
    paged.extend(list(None, paged.last().cloned(), 3)?);
    assert_eq!(paged, order);
    let rows = w.read(|tx| tx.artifacts(planted.workflow, None, None, 10))?;
    let sizes: Vec<i64> = rows.iter().map(|row| row.size).collect();
    assert_eq!(sizes, [1, 3, 1, 0]);
    assert!(rows.iter().all(|row| row.op == planted.op(row.op_id.as_str())), "{rows:?}");
    assert_eq!(w.read(|tx| tx.artifact_content(planted.op("a"), &name("y")))?, Some(vec![0, 255, 10]));
    assert_eq!(w.read(|tx| tx.artifact_content(planted.op("b"), &name("x")))?, Some(Vec::new()), "nothing is content too");
    assert_eq!(w.read(|tx| tx.artifact_content(planted.op("b"), &name("y")))?, None);
    Ok(())
}

fn records_are_listed_by_key_and_in_pages(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").plant(w)?;
    let keys = ["", "é", "z", "B", "a"].map(|key| format!("key {key}"));
    let records = keys.iter().map(|key| record(&planted, key, "1")).collect();
    write(w, &planted, &WriteSet { records, ..WriteSet::default() })?;
    let mut expected: Vec<RecordKey> = keys.iter().map(name).collect();
    // By bytes, on every backend: a collation would put "B" behind "a".
    expected.sort();
    let list = |after: Option<&RecordKey>, limit| -> StoreResult<Vec<RecordKey>> {
        let rows = w.read(|tx| tx.records(planted.workflow, &name("c"), after, limit))?;
        Ok(rows.into_iter().map(|row| row.record.key).collect())
    };
    assert_eq!(list(None, 10)?, expected);
    let mut paged = list(None, 2)?;
    while let Some(page) = Some(list(paged.last(), 2)?).filter(|page| !page.is_empty()) {
        paged.extend(page);
    }
    assert_eq!(paged, expected);
    assert_eq!(w.read(|tx| tx.records(planted.workflow, &name("other"), None, 10))?, []);
    Ok(())
}

fn events_are_read_behind_a_cursor_and_by_workflow(w: &mut World) -> Outcome {
    let (a, b) = (Scenario::new().op("a").plant(w)?, Scenario::new().op("a").plant(w)?);
    for round in 0..4 {
        let of = if round % 2 == 0 { &a } else { &b };
        write(w, of, &WriteSet { events: vec![event(of, &round.to_string())], ..WriteSet::default() })?;
    }
    let read = |after: Option<EventSeq>, workflow, limit| w.read(|tx| tx.events_since(after, workflow, limit));
    let all = read(None, None, 100)?;
    let details = |rows: &[leasehold_core::store::rows::EventRow]| -> Vec<String> {
        rows.iter().filter_map(|row| row.event.detail.clone()).collect()
    };
    assert_eq!(details(&all), ["0", "1", "2", "3"]);
    let second = all.get(1).map(|row| row.seq);
    assert_eq!(details(&read(second, None, 100)?), ["2", "3"]);
    assert_eq!(details(&read(None, None, 2)?), ["0", "1"]);
    assert_eq!(details(&read(None, Some(b.workflow), 100)?), ["1", "3"]);
    assert_eq!(details(&read(second, Some(b.workflow), 100)?), ["3"]);
    let last = all.last().map(|row| row.seq);
    assert_eq!(read(last, None, 100)?, []);
    Ok(())
}

fn queues_are_counted_by_site_and_queue(w: &mut World) -> Outcome {
    let later = w.now().after(LEASE)?;
    let planted = Scenario::new()
        .ops("k", 3)
        .op("soon")
        .due(later)
        .op("x")
        .kind("k")
        .site("s")
        .op("y")
        .kind("k")
        .queue("q")
        .due(later)
        .op("z")
        .queue("q")
        .row(StoredStatus::Pending)
        .plant(w)?;
    w.set_policies(&[rate("q", 2.0, 5), limit("default", 4)])?;
    let [default, ..] = planted.lanes.as_slice() else { panic!("there are lanes") };
    let takes = vec![leasehold_core::store::rows::LaneTake { lane: default.key, gate: default.gate, limit: 2 }];
    w.tx(|tx| tx.claim_ready(&leasehold_core::store::rows::Claim { takes: takes.clone(), ..planted.claim(0) }))?;
    let bucket = Bucket { micro_tokens: 7, counted_at: w.now() };
    w.tx(|tx| {
        tx.lock_gates(&[default.gate])?;
        tx.set_buckets(&[(default.gate, bucket)])
    })?;
    let start = w.now();
    let counts = |w: &World| -> StoreResult<BTreeMap<String, (i64, i64, i64)>> {
        let queues = w.read(|tx| tx.queue_statuses())?;
        Ok(queues.iter().map(|row| (format!("{} {}", row.site, row.queue), (row.ready, row.delayed, row.in_flight))).collect())
    };
    let at = |queue: &str, site: &str| format!("{site} {queue}");
    let (default_queue, at_s, q) = (at("default", "default"), at("default", "s"), at("q", "default"));
    let expected = BTreeMap::from([(default_queue.clone(), (1, 1, 2)), (at_s.clone(), (1, 0, 0)), (q.clone(), (0, 1, 0))]);
    assert_eq!(counts(w)?, expected);
    w.clock().set(later)?;
    let expected = BTreeMap::from([(default_queue, (2, 0, 2)), (at_s, (1, 0, 0)), (q, (1, 0, 0))]);
    assert_eq!(counts(w)?, expected, "what is due counts as ready before it is promoted");
    let in_order: Vec<String> = w.read(|tx| tx.queue_statuses())?.iter().map(|row| format!("{} {}", row.site, row.queue)).collect();
    assert_eq!(in_order, ["default default", "default q", "s default"]);
    for row in w.read(|tx| tx.queue_statuses())? {
        let is_default = row.queue.as_str() == "default";
        assert_eq!(row.policy, Some(if is_default { limit("default", 4) } else { rate("q", 2.0, 5) }), "{row:?}");
        assert_eq!(row.oldest_due_at, Some(if is_default { start } else { later }), "{row:?}");
        assert_eq!(row.bucket, (is_default && row.site.as_str() == "default").then_some(bucket), "{row:?}");
    }
    Ok(())
}

fn the_store_is_counted_as_a_whole(w: &mut World) -> Outcome {
    Scenario::new().op("a").leased_by("w1").op("b").after(&["a"]).op("c").succeeded().plant(w)?;
    Scenario::new().op("f").failed().op("g").after(&["f"]).plant(w)?;
    Scenario::new().op("s").succeeded().plant(w)?;
    let totals = w.read(|tx| tx.totals())?;
    let workflows: BTreeMap<WorkflowStatus, i64> = totals.workflows.iter().copied().filter(|(_, count)| *count > 0).collect();
    let expected = BTreeMap::from([(WorkflowStatus::Running, 1), (WorkflowStatus::Failed, 1), (WorkflowStatus::Succeeded, 1)]);
    assert_eq!(workflows, expected);
    assert_eq!(totals.ops, Counters { pending: 1, blocked: 1, open: 1, succeeded: 2, failed: 1, ..Counters::default() });
    assert_eq!((totals.leases_live, totals.leases_expired), (1, 0));
    w.clock().advance(LEASE)?;
    let totals = w.read(|tx| tx.totals())?;
    assert_eq!((totals.leases_live, totals.leases_expired), (0, 1), "at its expiry a lease is expired");
    Ok(())
}
