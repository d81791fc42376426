//! Reading and locking workflows and their graphs.

use crate::case::cases;
use crate::plant::new_workflow;
use crate::scenario::{json, microseconds, name};
use crate::world::transact;
use crate::{Outcome, Planted, Scenario, World};
use leasehold_core::model::{Fence, OpSeq, RetryPolicy, WorkflowId, WorkflowSeq};
use leasehold_core::state::{Counters, StoredStatus, WorkflowStatus};
use leasehold_core::store::rows::{DownstreamEdge, LockedWorkflow, Reach};
use leasehold_core::store::{StoreError, TxKind, Wait};
use std::collections::BTreeSet;
use std::sync::Barrier;

cases! { steps:
    a_new_workflow_is_stored_as_given proves ["I1"];
    a_taken_id_is_left_out_and_the_others_are_inserted proves ["I2"];
    of_two_creators_of_one_id_one_inserts proves ["I2"];
    an_id_that_was_rolled_back_is_free proves ["I2", "L2"];
    a_locked_workflow_says_what_is_stored proves ["S7"];
    locking_leaves_out_what_is_not_there proves ["S7"];
    one_transaction_at_a_time_holds_a_workflow proves ["S7"];
    keys_of_ops_are_never_given_out_twice proves ["L6", "S9"];
    an_op_is_stored_as_given proves ["B8", "S9"];
    ops_are_found_by_key_id_and_dedup_key proves ["S9", "I4"];
    ops_with_a_status_come_in_key_order proves ["S5", "S6"];
    children_are_those_that_wait_and_no_others proves ["S2", "S4"];
    descendants_are_reached_through_required_edges_only proves ["S2", "S4"];
    each_edge_below_is_told_once proves ["S2", "S12"];
    a_chain_is_read_to_its_end proves ["S2", "S12"];
    parents_are_told_with_their_statuses proves ["S3", "S9"];
}

fn a_new_workflow_is_stored_as_given(w: &mut World) -> Outcome {
    let scenario = Scenario::new()
        .id("order:42@x/ü 'q' \"d\" %")
        .called("nightly")
        .identity("tenant a")
        .started_with(r#"{ "b" : 1.0, "a":[ 1 ] }"#)
        .workflow_metadata(r#"{"note":"ü😀"}"#)
        .at_site("eu")
        .about("customer 7");
    let new = new_workflow(&scenario.spec(w), w.now());
    let inserted = w.tx(|tx| tx.insert_workflows(std::slice::from_ref(&new)))?;
    let [(id, seq)] = inserted.as_slice() else { panic!("one was inserted: {inserted:?}") };
    assert_eq!(*id, new.id);
    let row = w.workflow(&new.id)?;
    assert_eq!(row.seq, *seq);
    assert_eq!((row.request, &row.name, row.digest), (new.request, &new.name, new.digest));
    assert_eq!((row.input.as_str(), row.metadata.as_str()), (new.input.as_str(), new.metadata.as_str()), "JSON is not rewritten");
    assert_eq!((&row.site, &row.subject), (&new.site, &new.subject));
    assert_eq!((row.status, row.cancel_requested, row.counters), (WorkflowStatus::Running, false, Counters::default()));
    assert_eq!((row.created_at, row.finished_at), (w.now(), None));
    Ok(())
}

fn a_taken_id_is_left_out_and_the_others_are_inserted(w: &mut World) -> Outcome {
    let new = |id: &str| new_workflow(&Scenario::new().id(id).started_with(&format!("{id:?}")).spec(w), w.now());
    w.tx(|tx| tx.insert_workflows(&[new("b")]))?;
    let before = w.workflow(&name("b"))?;
    let mut again = new("b");
    again.input = json("2");
    let inserted = w.tx(|tx| tx.insert_workflows(&[new("c"), again.clone(), new("a")]))?;
    let ids: BTreeSet<WorkflowId> = inserted.iter().map(|(id, _)| id.clone()).collect();
    assert_eq!(ids, BTreeSet::from([name("a"), name("c")]));
    for (id, seq) in inserted {
        let row = w.workflow(&id)?;
        assert_eq!((row.seq, row.input), (seq, json(&format!("{:?}", id.as_str()))), "each key belongs to its id");
    }
    assert_eq!(w.workflow(&name("b"))?, before, "the first one is untouched");
    Ok(())
}

fn of_two_creators_of_one_id_one_inserts(w: &mut World) -> Outcome {
    const CREATORS: usize = 4;
    for round in 0..25 {
        let id = format!("w{round}");
        let start = Barrier::new(CREATORS);
        let inserted: Result<Vec<usize>, StoreError> = std::thread::scope(|scope| {
            let creators: Vec<_> = (0..CREATORS)
                .map(|_| {
                    scope.spawn(|| {
                        let new = new_workflow(&Scenario::new().id(&id).spec(w), w.now());
                        start.wait();
                        w.tx(|tx| {
                            let inserted = tx.insert_workflows(std::slice::from_ref(&new))?.len();
                            let there = tx.workflows(std::slice::from_ref(&new.id))?.len();
                            assert_eq!(there, 1, "who did not insert it sees it");
                            Ok(inserted)
                        })
                    })
                })
                .collect();
            creators.into_iter().map(|creator| creator.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        });
        assert_eq!(inserted?.iter().sum::<usize>(), 1, "round {round}");
    }
    Ok(())
}

fn an_id_that_was_rolled_back_is_free(w: &mut World) -> Outcome {
    let new = new_workflow(&Scenario::new().id("a").spec(w), w.now());
    let outcome = w.store().transact(TxKind::Client, &mut |tx| {
        assert_eq!(tx.insert_workflows(std::slice::from_ref(&new))?.len(), 1);
        Err(StoreError::RolledBack)
    });
    assert!(outcome.is_err());
    assert_eq!(w.read(|tx| tx.workflows(std::slice::from_ref(&new.id)))?, []);
    assert_eq!(w.tx(|tx| tx.insert_workflows(std::slice::from_ref(&new)))?.len(), 1);
    Ok(())
}

fn a_locked_workflow_says_what_is_stored(w: &mut World) -> Outcome {
    let planted = Scenario::new().at_site("eu").op("a").succeeded().op("b").failed().op("c").after(&["b"]).op("d").plant(w)?;
    let row = w.workflow(&planted.id)?;
    assert_eq!(row.counters, Counters { blocked: 1, open: 1, succeeded: 1, failed: 1, ..Counters::default() });
    let expected =
        LockedWorkflow { seq: row.seq, id: row.id, site: name("eu"), status: row.status, cancel_requested: false, counters: row.counters };
    for wait in [Wait::Block, Wait::Skip] {
        assert_eq!(w.tx(|tx| tx.lock_workflows(&[planted.workflow], wait))?, std::slice::from_ref(&expected));
    }
    Ok(())
}

fn locking_leaves_out_what_is_not_there(w: &mut World) -> Outcome {
    let (a, b) = (Scenario::new().op("a").plant(w)?, Scenario::new().op("a").plant(w)?);
    let absent = WorkflowSeq(b.workflow.0 + 1_000);
    let locked = w.tx(|tx| tx.lock_workflows(&[absent, b.workflow, a.workflow], Wait::Block))?;
    let seqs: BTreeSet<WorkflowSeq> = locked.iter().map(|workflow| workflow.seq).collect();
    assert_eq!(seqs, BTreeSet::from([a.workflow, b.workflow]));
    Ok(())
}

/// Each thread reads a counter behind the lock and writes it one higher: no increment is lost.
fn one_transaction_at_a_time_holds_a_workflow(w: &mut World) -> Outcome {
    const WRITERS: usize = 4;
    const ROUNDS: usize = 15;
    let planted = Scenario::new().op("a").plant(w)?;
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS).map(|_| scope.spawn(|| (0..ROUNDS).try_for_each(|_| raise(w, &planted)))).collect();
        writers.into_iter().try_for_each(|writer| writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    let raised = w.workflow(&planted.id)?.counters.waiting;
    assert_eq!(usize::try_from(raised), Ok(WRITERS * ROUNDS));
    Ok(())
}

fn raise(w: &World, planted: &Planted) -> Result<(), StoreError> {
    w.tx(|tx| {
        let locked = tx.lock_workflows(&[planted.workflow], Wait::Block)?;
        let [workflow] = locked.as_slice() else { panic!("the workflow is there") };
        let counters = Counters { waiting: workflow.counters.waiting + 1, ..workflow.counters };
        let at = tx.now()?;
        let change = leasehold_core::store::rows::WorkflowChange {
            seq: workflow.seq,
            status: workflow.status,
            cancel_requested: false,
            counters,
            finished_at: None,
            at,
        };
        tx.write(&leasehold_core::store::rows::WriteSet { workflows: vec![change], ..Default::default() })?;
        Ok(())
    })
}

fn keys_of_ops_are_never_given_out_twice(w: &mut World) -> Outcome {
    const TAKERS: usize = 4;
    let taken: Result<Vec<Vec<OpSeq>>, StoreError> = std::thread::scope(|scope| {
        let takers: Vec<_> = (0..TAKERS)
            .map(|_| scope.spawn(|| (0..10).map(|round| w.tx(|tx| tx.reserve_ops(round))).collect::<Result<Vec<_>, _>>()))
            .collect();
        let mut all = Vec::new();
        for taker in takers {
            all.extend(taker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(all)
    });
    let taken = taken?;
    for batch in &taken {
        assert!(batch.is_sorted_by(|a, b| a < b), "ascending: {batch:?}");
    }
    let distinct: BTreeSet<OpSeq> = taken.iter().flatten().copied().collect();
    assert_eq!(distinct.len(), TAKERS * (0..10).sum::<usize>());
    Ok(())
}

fn an_op_is_stored_as_given(w: &mut World) -> Outcome {
    let retry = RetryPolicy { max_attempts: 7, max_lost: 2, ..RetryPolicy::once() };
    let planted = Scenario::new()
        .op("ü/é 100% \"'; DROP TABLE ops; --")
        .kind("resize")
        .queue("cpu")
        .site("eu")
        .agent("gpu")
        .priority(i32::MIN)
        .input(r#"{"n":9007199254740993,"max":18446744073709551615}"#)
        .metadata(" [ 1 , 2 ]")
        .retry(retry)
        .dedup_key("once")
        .time_limit(microseconds(5))
        .plant(w)?;
    let op = planted.op("ü/é 100% \"'; DROP TABLE ops; --");
    let view = w.view(op)?;
    assert_eq!(view.input.as_str(), r#"{"n":9007199254740993,"max":18446744073709551615}"#);
    assert_eq!(view.metadata.as_str(), " [ 1 , 2 ]");
    assert_eq!((&view.kind, &view.queue, &view.site, &view.agent), (&name("resize"), &name("cpu"), &name("eu"), &Some(name("gpu"))));
    assert_eq!((view.time_limit, view.created_at, view.finished_at), (Some(microseconds(5)), w.now(), None));
    let state = &view.state;
    assert_eq!((state.priority, state.retry, &state.dedup_key), (i32::MIN, retry, &Some(name("once"))));
    assert_eq!((state.fence, state.failures, state.losses, state.parent), (Fence::NONE, 0, 0, None));
    assert_eq!(w.read(|tx| tx.ops(&[op]))?, std::slice::from_ref(state), "transitions read the same");
    Ok(())
}

fn ops_are_found_by_key_id_and_dedup_key(w: &mut World) -> Outcome {
    let a = Scenario::new().op("x").dedup_key("k").op("y").plant(w)?;
    let b = Scenario::new().op("x").dedup_key("k").op("z").plant(w)?;
    let absent = OpSeq(b.op("z").0 + 1_000);
    let seqs = |states: Vec<leasehold_core::store::rows::OpState>| states.iter().map(|state| state.seq).collect::<BTreeSet<_>>();
    assert_eq!(seqs(w.read(|tx| tx.ops(&[b.op("z"), absent, a.op("x")]))?), BTreeSet::from([a.op("x"), b.op("z")]));
    let ids = [(a.workflow, name("x")), (a.workflow, name("z")), (b.workflow, name("z"))];
    assert_eq!(seqs(w.read(|tx| tx.ops_by_id(&ids))?), BTreeSet::from([a.op("x"), b.op("z")]), "an id is looked up in its own workflow");
    let keys = [(b.workflow, name("k")), (a.workflow, name("other"))];
    assert_eq!(seqs(w.read(|tx| tx.ops_by_dedup_key(&keys))?), BTreeSet::from([b.op("x")]));
    Ok(())
}

fn ops_with_a_status_come_in_key_order(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").failed().op("b").op("c").after(&["a"]).op("d").failed().op("e").succeeded().plant(w)?;
    Scenario::new().op("a").failed().plant(w)?;
    let with = |statuses: &[StoredStatus]| -> Result<Vec<OpSeq>, StoreError> {
        Ok(w.read(|tx| tx.ops_with_status(planted.workflow, statuses))?.iter().map(|state| state.seq).collect())
    };
    assert_eq!(with(&[StoredStatus::Failed])?, [planted.op("a"), planted.op("d")]);
    assert_eq!(with(&[StoredStatus::Open, StoredStatus::Blocked])?, [planted.op("b"), planted.op("c")]);
    assert_eq!(with(&StoredStatus::ALL)?.len(), 5);
    Ok(())
}

/// Edges as (parent, child, required), sorted.
fn below(w: &World, planted: &Planted, from: &[&str], reach: Reach) -> Result<Vec<(String, String, bool)>, StoreError> {
    let from: Vec<OpSeq> = from.iter().map(|id| planted.op(id)).collect();
    let edges = w.read(|tx| tx.downstream(&from, reach))?;
    let id = |seq: OpSeq| planted.ops.iter().find(|(_, op)| **op == seq).map_or_else(String::new, |(id, _)| id.clone());
    let mut told: Vec<(String, String, bool)> =
        edges.iter().map(|DownstreamEdge { parent, required, child }| (id(*parent), child.id.to_string(), *required)).collect();
    told.sort();
    Ok(told)
}

fn edges(list: &[(&str, &str, bool)]) -> Vec<(String, String, bool)> {
    list.iter().map(|(parent, child, required)| ((*parent).to_owned(), (*child).to_owned(), *required)).collect()
}

fn children_are_those_that_wait_and_no_others(w: &mut World) -> Outcome {
    let mut scenario = Scenario::new().op("p").failed();
    for status in StoredStatus::ALL {
        scenario = scenario.op(status.as_str()).after(&["p"]).row(status);
    }
    let planted = scenario.op("soft").after_settled(&["p"]).row(StoredStatus::Pending).op("below").after(&["pending"]).plant(w)?;
    let expected = edges(&[("p", "blocked", true), ("p", "pending", true), ("p", "soft", false)]);
    assert_eq!(below(w, &planted, &["p"], Reach::Children)?, expected);
    let told = w.read(|tx| tx.downstream(&[planted.op("p")], Reach::Children))?;
    for edge in told {
        assert_eq!(vec![edge.child.clone()], w.read(|tx| tx.ops(&[edge.child.seq]))?, "the child is told whole");
    }
    Ok(())
}

fn descendants_are_reached_through_required_edges_only(w: &mut World) -> Outcome {
    let planted = Scenario::new()
        .op("p")
        .op("hard")
        .after(&["p"])
        .op("soft")
        .after_settled(&["p"])
        .op("below hard")
        .after(&["hard"])
        .op("soft below hard")
        .after_settled(&["hard"])
        .op("below soft")
        .after(&["soft"])
        .op("done")
        .after(&["p"])
        .row(StoredStatus::Canceled)
        .op("below done")
        .after(&["done"])
        .plant(w)?;
    let expected = edges(&[("hard", "below hard", true), ("hard", "soft below hard", false), ("p", "hard", true), ("p", "soft", false)]);
    assert_eq!(below(w, &planted, &["p"], Reach::Descendants)?, expected);
    Ok(())
}

fn each_edge_below_is_told_once(w: &mut World) -> Outcome {
    // Layers of three, each op after all of the layer above: the paths triple with every layer, the edges do not.
    const LAYERS: usize = 12;
    let mut scenario = Scenario::new().op("0a").op("0b").op("0c");
    for layer in 1..LAYERS {
        let above = ["a", "b", "c"].map(|part| format!("{}{part}", layer - 1));
        for part in ["a", "b", "c"] {
            scenario = scenario.op(&format!("{layer}{part}")).after(&above.each_ref().map(String::as_str));
        }
    }
    let planted = scenario.plant(w)?;
    let told = below(w, &planted, &["0a", "0b", "0c"], Reach::Descendants)?;
    assert_eq!(told.len(), (LAYERS - 1) * 9);
    assert_eq!(told.iter().collect::<BTreeSet<_>>().len(), told.len());
    Ok(())
}

fn a_chain_is_read_to_its_end(w: &mut World) -> Outcome {
    const LENGTH: usize = 2_000;
    let mut scenario = Scenario::new().op("0");
    for at in 1..LENGTH {
        scenario = scenario.op(&at.to_string()).kind("link").after(&[&(at - 1).to_string()]);
    }
    let planted = scenario.plant(w)?;
    let edges = w.read(|tx| tx.downstream(&[planted.op("0")], Reach::Descendants))?;
    assert_eq!(edges.len(), LENGTH - 1);
    Ok(())
}

fn parents_are_told_with_their_statuses(w: &mut World) -> Outcome {
    let planted = Scenario::new()
        .op("a")
        .succeeded()
        .op("b")
        .failed()
        .op("c")
        .op("x")
        .after(&["a", "b"])
        .after_settled(&["c"])
        .op("y")
        .after(&["a"])
        .op("z")
        .after(&["b"])
        .plant(w)?;
    let mut told: Vec<(OpSeq, String, StoredStatus, bool)> =
        transact(w.store().as_ref(), TxKind::Read, |tx| tx.upstream(&[planted.op("x"), planted.op("y")]))?
            .into_iter()
            .map(|edge| {
                assert_eq!(edge.parent, planted.op(edge.parent_id.as_str()));
                (edge.child, edge.parent_id.to_string(), edge.parent_status, edge.required)
            })
            .collect();
    told.sort();
    let (x, y) = (planted.op("x"), planted.op("y"));
    let expected = [
        (x, "a".to_owned(), StoredStatus::Succeeded, true),
        (x, "b".to_owned(), StoredStatus::Failed, true),
        (x, "c".to_owned(), StoredStatus::Open, false),
        (y, "a".to_owned(), StoredStatus::Succeeded, true),
    ];
    assert_eq!(told, expected);
    Ok(())
}
