//! What may start, and in which order (Q1 to Q3, Q5, Q7).

use crate::case::cases;
use crate::scenario::{LEASE, name};
use crate::verbs::{claim_request, completion, limit};
use crate::{Outcome, Scenario, World};
use leasehold_core::model::{Micros, QueuePolicy};
use leasehold_core::store::rows::ClaimedOp;
use leasehold_core::transitions::{ClaimCursor, ClaimRequest, Ended};
use std::collections::{BTreeMap, BTreeSet};

cases! {
    a_claim_takes_no_more_than_its_capacity proves ["Q2", "Q3"];
    a_queue_without_a_policy_is_unlimited proves ["Q1"];
    a_queue_never_runs_more_than_its_limit proves ["Q1"];
    an_end_of_any_kind_frees_its_slot proves ["Q1", "L8"];
    a_late_end_frees_no_slot_a_second_time proves ["Q1", "L1", "L8"];
    a_limit_counts_each_site_apart proves ["Q1"];
    the_most_specific_policy_wins proves ["Q1"];
    a_limit_of_zero_starts_nothing proves ["Q1", "Q6"];
    a_policy_changed_while_work_runs_holds_from_the_next_claim proves ["Q5"];
    a_limit_holds_across_the_kinds_of_a_queue proves ["Q1"];
    one_full_queue_does_not_starve_another proves ["Q2"];
    a_batch_is_shared_by_the_queues_in_turn proves ["Q2"];
    a_big_queue_does_not_keep_a_small_one_waiting proves ["Q2"];
    inside_a_queue_the_highest_priority_goes_first proves ["Q2"];
    a_worker_gets_only_kinds_that_it_serves proves ["Q7"];
    an_op_that_names_an_agent_waits_for_it proves ["Q7"];
    a_claim_that_is_repeated_gets_the_same_leases proves ["L12"];
    a_claim_that_was_never_made_can_be_repeated proves ["L12"];
    a_claim_says_whether_there_is_more proves ["Q2"];
    many_lanes_are_all_served proves ["Q2", "Q10"];
}

fn ids(claimed: &[ClaimedOp]) -> BTreeSet<String> {
    claimed.iter().map(|op| op.op_id.to_string()).collect()
}

/// How many of each queue were claimed.
fn by_queue(claimed: &[ClaimedOp]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for op in claimed {
        *counts.entry(op.queue.to_string()).or_default() += 1;
    }
    counts
}

/// Ops in a queue, `prefix` also being their kind.
pub(super) fn queued(scenario: Scenario, queue: &str, prefix: &str, count: usize) -> Scenario {
    (0..count).fold(scenario, |scenario, at| scenario.op(&format!("{prefix}{at}")).kind(prefix).queue(queue))
}

fn a_claim_takes_no_more_than_its_capacity(w: &mut World) -> Outcome {
    let scenario = queued(queued(Scenario::new(), "p", "a", 10), "q", "b", 10);
    scenario.build(w)?;
    for capacity in [0, 1, 3, 7] {
        assert_eq!(w.claim("w1", capacity)?.len(), capacity as usize);
    }
    Ok(())
}

fn a_queue_without_a_policy_is_unlimited(w: &mut World) -> Outcome {
    w.set_policies(&[limit("other", 1)])?;
    queued(Scenario::new(), "q", "a", 50).build(w)?;
    assert_eq!(w.claim("w1", 100)?.len(), 50);
    Ok(())
}

fn a_queue_never_runs_more_than_its_limit(w: &mut World) -> Outcome {
    w.set_policies(&[limit("q", 3)])?;
    queued(Scenario::new(), "q", "a", 10).build(w)?;
    let mut running = w.claim("w1", 2)?;
    running.extend(w.claim("w2", 100)?);
    assert_eq!(running.len(), 3, "whoever claims");
    assert_eq!(w.claim("w3", 100)?, []);
    let mut done = 0;
    while let Some(op) = running.pop() {
        w.complete_one(&op, "1")?;
        done += 1;
        let next = w.claim("w1", 100)?;
        assert_eq!(next.len(), usize::from(done <= 7), "one ends, one starts");
        running.extend(next);
    }
    assert_eq!(done, 10);
    Ok(())
}

fn an_end_of_any_kind_frees_its_slot(w: &mut World) -> Outcome {
    use crate::verbs::{failure, giving_back, permanent_failure};
    w.set_policies(&[limit("q", 1)])?;
    let planted = queued(Scenario::new(), "q", "a", 6).build(w)?;
    for end in [|op: &ClaimedOp| completion(op, "1"), failure, permanent_failure, giving_back] {
        let claimed = w.claim("w1", 10)?;
        let [op] = claimed.as_slice() else { panic!("one slot is free: {claimed:?}") };
        w.finish_one(end(op))?;
    }
    assert_eq!(w.claim("w1", 10)?.len(), 1);
    w.clock().advance(LEASE)?;
    w.recover(10)?;
    assert_eq!(w.claim("w1", 10)?.len(), 1, "a recovery frees it too");
    w.cancel(&planted)?;
    queued(Scenario::new(), "q", "b", 1).build(w)?;
    assert_eq!(w.claim("w1", 10)?.len(), 1, "and so does a cancel");
    Ok(())
}

fn a_late_end_frees_no_slot_a_second_time(w: &mut World) -> Outcome {
    w.set_policies(&[limit("q", 1)])?;
    queued(Scenario::new(), "q", "a", 4).build(w)?;
    let late = w.claim("w1", 10)?;
    w.clock().advance(LEASE)?;
    w.recover(10)?;
    assert_eq!(w.claim("w2", 10)?.len(), 1);
    for op in &late {
        assert_eq!(w.finish_one(completion(op, "1"))?, Ended::LeaseLost);
    }
    assert_eq!(w.claim("w3", 10)?, [], "the slot was given back once, by the recovery");
    Ok(())
}

fn a_limit_counts_each_site_apart(w: &mut World) -> Outcome {
    w.set_policies(&[limit("q", 2)])?;
    for site in ["s", "t", "u"] {
        queued(Scenario::new().at_site(site), "q", "a", 5).build(w)?;
    }
    let claimed = w.claim("w1", 100)?;
    let mut sites = BTreeMap::new();
    for op in &claimed {
        *sites.entry(op.site.to_string()).or_insert(0) += 1;
    }
    assert_eq!(sites, BTreeMap::from([("s".to_owned(), 2), ("t".to_owned(), 2), ("u".to_owned(), 2)]));
    Ok(())
}

fn the_most_specific_policy_wins(w: &mut World) -> Outcome {
    let own = QueuePolicy { site: Some(name("s")), ..limit("q", 3) };
    let free = QueuePolicy { site: Some(name("free")), ..QueuePolicy::unlimited(name("q")) };
    w.set_policies(&[limit("q", 1), own, free])?;
    for (site, expected) in [("s", 3), ("other", 1), ("free", 5)] {
        queued(Scenario::new().at_site(site), "q", site, 5).build(w)?;
        assert_eq!(w.claim_kind("w1", site, 100)?.len(), expected, "{site}");
    }
    Ok(())
}

fn a_limit_of_zero_starts_nothing(w: &mut World) -> Outcome {
    w.set_policies(&[limit("q", 0)])?;
    queued(queued(Scenario::new(), "q", "a", 5), "p", "b", 1).build(w)?;
    assert_eq!(by_queue(&w.claim("w1", 100)?), BTreeMap::from([("p".to_owned(), 1)]));
    w.set_policies(&[limit("q", 1)])?;
    assert_eq!(w.claim("w1", 100)?.len(), 1);
    Ok(())
}

fn a_policy_changed_while_work_runs_holds_from_the_next_claim(w: &mut World) -> Outcome {
    w.set_policies(&[limit("q", 4)])?;
    queued(Scenario::new(), "q", "a", 20).build(w)?;
    let mut running = w.claim("w1", 100)?;
    assert_eq!(running.len(), 4);
    w.set_policies(&[limit("q", 2)])?;
    for left in [3, 2, 1] {
        w.complete_one(&running.pop().ok_or("four run")?, "1")?;
        let next = w.claim("w1", 100)?;
        assert_eq!(next.len(), usize::from(left < 2), "what runs goes on, and nothing starts above the limit");
        running.extend(next);
    }
    w.set_policies(&[QueuePolicy::unlimited(name("q"))])?;
    assert_eq!(w.claim("w1", 100)?.len(), 20 - 4 - 1);
    Ok(())
}

fn a_limit_holds_across_the_kinds_of_a_queue(w: &mut World) -> Outcome {
    w.set_policies(&[limit("q", 3)])?;
    let scenario = queued(queued(queued(Scenario::new(), "q", "a", 4), "q", "b", 4), "q", "c", 4);
    scenario.build(w)?;
    assert_eq!(w.claim("w1", 100)?.len(), 3);
    assert_eq!(w.claim_kind("w2", "c", 100)?, []);
    Ok(())
}

fn one_full_queue_does_not_starve_another(w: &mut World) -> Outcome {
    w.set_policies(&[limit("full", 1)])?;
    queued(queued(Scenario::new(), "full", "a", 100), "free", "b", 10).build(w)?;
    let claimed = w.claim("w1", 100)?;
    let rest = w.claim("w1", 100)?;
    assert_eq!(by_queue(&claimed).get("full"), Some(&1));
    assert_eq!(claimed.len() + rest.len(), 11, "a full queue takes no slot from another");
    Ok(())
}

fn a_batch_is_shared_by_the_queues_in_turn(w: &mut World) -> Outcome {
    let scenario = queued(queued(queued(Scenario::new(), "p", "a", 100), "q", "b", 100), "r", "c", 100);
    scenario.build(w)?;
    let claimed = by_queue(&w.claim("w1", 30)?);
    assert_eq!(claimed, BTreeMap::from([("p".to_owned(), 10), ("q".to_owned(), 10), ("r".to_owned(), 10)]));
    // One slot at a time, with the cursor that a process keeps: the turn goes around.
    let mut cursor = ClaimCursor::default();
    let mut total: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..30 {
        let report = w.claim_with(&ClaimRequest { cursor, ..claim_request("w1", 1) })?;
        cursor = report.cursor;
        for (queue, count) in by_queue(&report.ops) {
            *total.entry(queue).or_default() += count;
        }
    }
    assert_eq!(total, BTreeMap::from([("p".to_owned(), 10), ("q".to_owned(), 10), ("r".to_owned(), 10)]));
    Ok(())
}

fn a_big_queue_does_not_keep_a_small_one_waiting(w: &mut World) -> Outcome {
    queued(queued(Scenario::new(), "big", "a", 500), "small", "b", 1).build(w)?;
    let claimed = w.claim("w1", 10)?;
    assert!(claimed.iter().any(|op| op.queue.as_str() == "small"), "{:?}", by_queue(&claimed));
    Ok(())
}

fn inside_a_queue_the_highest_priority_goes_first(w: &mut World) -> Outcome {
    let mut scenario = Scenario::new();
    for (at, priority) in [0, 5, -5, 5, 9].into_iter().enumerate() {
        // Kinds of their own: the order holds across the lanes of a queue.
        scenario = scenario.op(&format!("{at}")).priority(priority);
    }
    scenario.build(w)?;
    let mut order = Vec::new();
    while let Some(op) = w.claim("w1", 1)?.pop() {
        order.push(op.op_id.to_string());
    }
    assert_eq!(order, ["4", "1", "3", "0", "2"]);
    Ok(())
}

fn a_worker_gets_only_kinds_that_it_serves(w: &mut World) -> Outcome {
    Scenario::new().op("a").op("b").op("c").build(w)?;
    let kinds = Some(vec![name("a"), name("c"), name("never heard of")]);
    let claimed = w.claim_with(&ClaimRequest { kinds, ..claim_request("w1", 100) })?.ops;
    assert_eq!(ids(&claimed), BTreeSet::from(["a".to_owned(), "c".to_owned()]));
    let none = w.claim_with(&ClaimRequest { kinds: Some(Vec::new()), ..claim_request("w1", 100) })?.ops;
    assert_eq!(none, [], "who serves nothing gets nothing");
    assert_eq!(ids(&w.claim("w1", 100)?), BTreeSet::from(["b".to_owned()]));
    Ok(())
}

fn an_op_that_names_an_agent_waits_for_it(w: &mut World) -> Outcome {
    Scenario::new().op("a").kind("k").op("b").kind("k").agent("gpu").op("c").kind("k").agent("tpu").build(w)?;
    assert_eq!(ids(&w.claim("w1", 100)?), BTreeSet::from(["a".to_owned()]));
    let claimed = w.claim_with(&ClaimRequest { agents: vec![name("gpu")], ..claim_request("w2", 100) })?.ops;
    assert_eq!(ids(&claimed), BTreeSet::from(["b".to_owned()]));
    Ok(())
}

fn a_claim_that_is_repeated_gets_the_same_leases(w: &mut World) -> Outcome {
    Scenario::new().ops("a", 10).build(w)?;
    let request = claim_request("w1", 4);
    let mut first = w.claim_with(&request)?.ops;
    w.claim("w2", 2)?;
    w.clock().advance(Micros::from_secs(1))?;
    let mut again = w.claim_with(&ClaimRequest { repeated: true, ..request.clone() })?.ops;
    for list in [&mut first, &mut again] {
        list.sort_by_key(|op| op.lease.key);
    }
    assert_eq!(again, first, "the same leases, and no further ones");
    assert_eq!(w.claim("w3", 100)?.len(), 4);
    Ok(())
}

fn a_claim_that_was_never_made_can_be_repeated(w: &mut World) -> Outcome {
    Scenario::new().ops("a", 3).build(w)?;
    let claimed = w.claim_with(&ClaimRequest { repeated: true, ..claim_request("w1", 2) })?.ops;
    assert_eq!(claimed.len(), 2);
    Ok(())
}

fn a_claim_says_whether_there_is_more(w: &mut World) -> Outcome {
    Scenario::new().ops("a", 5).build(w)?;
    assert!(w.claim_with(&claim_request("w1", 3))?.more);
    let last = w.claim_with(&claim_request("w1", 3))?;
    assert_eq!((last.ops.len(), last.more), (2, false));
    Ok(())
}

/// More lanes than one look takes in, most of them full.
fn many_lanes_are_all_served(w: &mut World) -> Outcome {
    const SITES: usize = 300;
    let mut scenario = Scenario::new();
    for site in 0..SITES {
        scenario =
            scenario.op(&format!("a{site}")).kind("k").site(&site.to_string()).op(&format!("b{site}")).kind("k").site(&site.to_string());
    }
    scenario.build(w)?;
    w.set_policies(&[limit("default", 1)])?;
    let mut served = BTreeSet::new();
    let mut cursor = ClaimCursor::default();
    // Each claim must bring something as long as there is anything; the bound only ends a suite that is stuck.
    for _ in 0..SITES {
        let report = w.claim_with(&ClaimRequest { cursor, ..claim_request("w1", 25) })?;
        cursor = report.cursor;
        served.extend(report.ops.iter().map(|op| op.site.to_string()));
        if served.len() == SITES {
            break;
        }
    }
    assert_eq!(served.len(), SITES);
    assert_eq!(w.claim("w1", 100)?, [], "every site is full");
    Ok(())
}
