//! Steps that look at rows as they are.

use crate::case::cases;
use crate::{Outcome, Scenario, World};
use leasehold_core::doctor::{self, Drift};
use leasehold_core::model::OpSeq;
use leasehold_core::state::{Counters, StoredStatus};
use leasehold_core::store::rows::{Edge, WriteSet};
use leasehold_core::store::{FactsOf, Wait};
use leasehold_core::transitions::Actor;
use std::collections::BTreeSet;
use std::time::Duration;

cases! {
    steps:
    facts_come_in_pages_and_by_key proves ["P3"];
    hot_keys_are_of_all_three_tables_in_order proves ["P3"];
    ops_are_counted_from_their_rows proves ["P3", "P2"];
    an_edge_to_an_op_that_is_not_there_is_seen_and_nothing_is_guessed proves ["P3", "S9"];
    a_walk_upstream_goes_on_through_what_it_is_told proves ["S10"];
    what_was_lost_is_reported_and_left proves ["P3"];
}

fn facts_come_in_pages_and_by_key(w: &mut World) -> Outcome {
    let planted = Scenario::new().ops("a", 5).plant(w)?;
    let other = Scenario::new().op("b").plant(w)?;
    let page = |after, limit| w.read(|tx| tx.op_facts(&FactsOf::Workflow { workflow: planted.workflow, after, limit }));
    let first = page(None, 3)?;
    let rest = page(first.last().map(|facts| facts.state.seq), 3)?;
    let ids: Vec<&str> = first.iter().chain(&rest).map(|facts| facts.state.id.as_str()).collect();
    assert_eq!(ids, ["a0", "a1", "a2", "a3", "a4"]);
    assert!(first.iter().all(|facts| facts.lane_known && facts.finished_at.is_none()));
    let absent = OpSeq(other.op("b").0 + 1_000);
    let by_key = w.read(|tx| tx.op_facts(&FactsOf::Ops(&[absent, other.op("b"), planted.op("a4")])))?;
    let seqs: Vec<OpSeq> = by_key.iter().map(|facts| facts.state.seq).collect();
    assert_eq!(seqs, [planted.op("a4"), other.op("b")]);
    assert_eq!(w.read(|tx| tx.op_facts(&FactsOf::Ops(&[])))?, []);
    Ok(())
}

fn hot_keys_are_of_all_three_tables_in_order(w: &mut World) -> Outcome {
    let later = w.now().after(crate::scenario::LEASE)?;
    let planted = Scenario::new().op("ready").op("leased").leased_by("w1").op("delayed").due(later).op("done").succeeded().plant(w)?;
    let hot = ["ready", "leased", "delayed"].map(|op| planted.op(op));
    let expected: Vec<OpSeq> = BTreeSet::from(hot).into_iter().collect();
    assert_eq!(w.read(|tx| tx.hot_keys(None, 10))?, expected);
    let mut paged = Vec::new();
    loop {
        let page = w.read(|tx| tx.hot_keys(paged.last().copied(), 1))?;
        if page.is_empty() {
            break;
        }
        paged.extend(page);
    }
    assert_eq!(paged, expected);
    let all: Vec<OpSeq> = planted.ops.values().copied().collect();
    let places = w.read(|tx| tx.places(&all))?;
    let mut places: Vec<(OpSeq, bool)> = places.iter().map(|place| (place.queued.op, place.delayed)).collect();
    places.sort_unstable();
    let mut wanted = vec![(planted.op("ready"), false), (planted.op("delayed"), true)];
    wanted.sort_unstable();
    assert_eq!(places, wanted);
    Ok(())
}

fn ops_are_counted_from_their_rows(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").op("b").after(&["a"]).op("c").failed().op("d").succeeded().op("e").plant(w)?;
    let other = Scenario::new().op("f").plant(w)?;
    let counted = w.read(|tx| tx.count_ops(&[planted.workflow, other.workflow]))?;
    let of = |workflow| counted.iter().find(|(seq, _)| *seq == workflow).map(|(_, counters)| *counters);
    let expected = Counters { open: 2, pending: 1, failed: 1, succeeded: 1, ..Counters::default() };
    assert_eq!(of(planted.workflow), Some(expected));
    assert_eq!(of(other.workflow), Some(Counters { open: 1, ..Counters::default() }));
    Ok(())
}

fn an_edge_to_an_op_that_is_not_there_is_seen_and_nothing_is_guessed(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").op("b").after(&["a"]).op("c").after(&["a"]).plant(w)?;
    let (child, workflow) = (planted.op("b"), planted.workflow);
    let loose = w.tx(|tx| {
        tx.lock_workflows(&[workflow], Wait::Block)?;
        let gone = tx.reserve_ops(1)?.pop().unwrap_or(OpSeq(0));
        let edge = Edge { child, parent: gone, required: true };
        tx.write(&WriteSet { edges: vec![edge], ..WriteSet::default() })?;
        Ok(edge)
    })?;
    let all: Vec<OpSeq> = planted.ops.values().copied().collect();
    assert_eq!(w.read(|tx| tx.loose_edges(&all))?, [loose]);
    let repair = || doctor::repair(w.store().as_ref(), &Actor::new("doctor"), Duration::from_secs(30));
    let (diagnosis, _) = repair()?;
    let found: Vec<Drift> = diagnosis.findings.iter().map(|finding| finding.drift).collect();
    assert_eq!(found, [Drift::ParentGone], "what it waits for is unknown, so it goes on waiting");
    assert_eq!(w.view(child)?.state.status, StoredStatus::Pending);
    Ok(())
}

fn a_walk_upstream_goes_on_through_what_it_is_told(w: &mut World) -> Outcome {
    let planted = Scenario::new()
        .op("root")
        .op("a")
        .after(&["root"])
        .op("b")
        .after(&["root"])
        .op("join")
        .after(&["a", "b"])
        .op("end")
        .after_settled(&["join"])
        .plant(w)?;
    let walk = |through: &[StoredStatus]| -> Result<Vec<(OpSeq, OpSeq, bool)>, leasehold_core::store::StoreError> {
        let edges = w.read(|tx| tx.upstream_through(&[planted.op("end"), planted.op("join")], through))?;
        let mut edges: Vec<_> = edges.iter().map(|edge| (edge.child, edge.parent, edge.required)).collect();
        edges.sort_unstable();
        Ok(edges)
    };
    let edge = |child: &str, parent: &str, required| (planted.op(child), planted.op(parent), required);
    let near = [edge("join", "a", true), edge("join", "b", true), edge("end", "join", false)];
    assert_eq!(walk(&[StoredStatus::Blocked])?, near);
    let mut all = vec![edge("a", "root", true), edge("b", "root", true)];
    all.extend(near);
    assert_eq!(walk(&[StoredStatus::Pending])?, all, "each edge once, whatever the ways to it");
    Ok(())
}

fn what_was_lost_is_reported_and_left(w: &mut World) -> Outcome {
    let scenario = Scenario::new().op("a").op("b").after(&["a"]).row(StoredStatus::Open).op("c").row(StoredStatus::Waiting);
    let planted = scenario.plant(w)?;
    let (diagnosis, _) = doctor::repair(w.store().as_ref(), &Actor::new("doctor"), Duration::from_secs(30))?;
    let found: Vec<Drift> = diagnosis.findings.iter().map(|finding| finding.drift).collect();
    assert_eq!(found, [Drift::Ahead, Drift::WaitGone]);
    assert_eq!(w.view(planted.op("b"))?.state.status, StoredStatus::Open, "an operator decides");
    Ok(())
}
