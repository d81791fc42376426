//! Promoting, finding lanes, and taking what is ready.

use crate::case::cases;
use crate::scenario::{LEASE, json, microseconds, name};
use crate::{Outcome, Planted, Scenario, World};
use leasehold_core::model::{Fence, GateKey, LaneKey, LeaseToken, Micros, OpSeq};
use leasehold_core::store::rows::{Claim, ClaimedOp, LaneTake};
use leasehold_core::store::{StoreError, StoreResult, TxKind};
use std::collections::BTreeSet;
use std::sync::Barrier;

cases! { steps:
    the_highest_priority_goes_first_then_the_oldest_then_the_lowest_key proves ["Q2"];
    the_order_holds_across_the_lanes_of_a_gate proves ["Q2"];
    a_limit_bounds_a_gate_whatever_its_lanes proves ["Q1", "Q2"];
    each_gate_has_its_own_limit proves ["Q1", "Q2"];
    what_is_not_due_is_not_taken_although_it_is_first proves ["T5", "Q2"];
    only_lanes_that_are_named_are_taken_from proves ["Q2", "Q7"];
    a_lease_says_what_the_claim_said proves ["L6", "Q1"];
    a_fence_comes_from_the_queue_and_not_from_the_op proves ["L6"];
    a_claimed_op_brings_all_its_handler_needs proves ["Q4", "K4"];
    what_is_leased_is_not_ready_any_more proves ["L1"];
    each_op_is_taken_by_one_of_many_claims proves ["L1", "Q1"];
    a_claim_whose_reply_was_lost_is_found_by_its_token proves ["L12"];
    a_lease_that_would_outlast_year_9999_is_refused proves ["T4"];
    what_is_due_at_this_very_instant_is_promoted proves ["T5", "W2"];
    promotion_is_bounded_and_oldest_first proves ["L7", "T5"];
    a_promoted_op_keeps_its_place proves ["Q2", "L6"];
}

/// The ids of what was claimed. Those of one claim are in no order.
fn ids(claimed: &[ClaimedOp]) -> Vec<String> {
    claimed.iter().map(|op| op.op_id.to_string()).collect()
}

/// Claims one op after the other until nothing is left.
fn one_by_one(w: &World, planted: &Planted) -> StoreResult<Vec<String>> {
    let mut order = Vec::new();
    loop {
        let claimed = w.tx(|tx| tx.claim_ready(&planted.claim(1)))?;
        if claimed.is_empty() {
            return Ok(order);
        }
        order.extend(ids(&claimed));
    }
}

fn the_highest_priority_goes_first_then_the_oldest_then_the_lowest_key(w: &mut World) -> Outcome {
    let now = w.now();
    w.clock().advance(microseconds(10))?;
    let (old, older) = (now.after(microseconds(2))?, now.after(microseconds(1))?);
    let planted = Scenario::new()
        .op("late")
        .kind("k")
        .priority(-5)
        .due(older)
        .op("old")
        .kind("k")
        .due(old)
        .op("older")
        .kind("k")
        .due(older)
        .op("older too")
        .kind("k")
        .due(older)
        .op("urgent")
        .kind("k")
        .priority(i32::MAX)
        .op("important")
        .kind("k")
        .priority(1)
        .plant(w)?;
    assert_eq!(one_by_one(w, &planted)?, ["urgent", "important", "older", "older too", "old", "late"]);
    Ok(())
}

fn the_order_holds_across_the_lanes_of_a_gate(w: &mut World) -> Outcome {
    let mut scenario = Scenario::new();
    for (at, kind) in ["b", "a", "c", "a", "c", "b"].into_iter().enumerate() {
        scenario = scenario.op(&at.to_string()).kind(kind).priority(i32::try_from(at)?);
    }
    let planted = scenario.plant(w)?;
    assert_eq!(ids(&w.tx(|tx| tx.claim_ready(&planted.claim(2)))?).into_iter().collect::<BTreeSet<_>>(), set(&["5", "4"]));
    assert_eq!(one_by_one(w, &planted)?, ["3", "2", "1", "0"]);
    Ok(())
}

pub(super) fn set(ids: &[&str]) -> BTreeSet<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

fn a_limit_bounds_a_gate_whatever_its_lanes(w: &mut World) -> Outcome {
    let planted = Scenario::new().ops("a", 10).ops("b", 10).ops("c", 10).plant(w)?;
    for limit in [1, 5, 7] {
        assert_eq!(w.tx(|tx| tx.claim_ready(&planted.claim(limit)))?.len(), limit as usize);
    }
    assert_eq!(w.tx(|tx| tx.claim_ready(&planted.claim(100)))?.len(), 30 - 13);
    Ok(())
}

fn each_gate_has_its_own_limit(w: &mut World) -> Outcome {
    let mut scenario = Scenario::new();
    for (queue, site) in [("q", "s"), ("q", "t"), ("p", "s")] {
        for at in 0..4 {
            scenario = scenario.op(&format!("{queue}{site}{at}")).kind("k").queue(queue).site(site);
        }
    }
    let planted = scenario.plant(w)?;
    let mut claim = planted.claim(0);
    for (take, limit) in claim.takes.iter_mut().zip([1, 2, 3]) {
        take.limit = limit;
    }
    let claimed = w.tx(|tx| tx.claim_ready(&claim))?;
    for take in &claim.takes {
        let count = claimed.iter().filter(|op| op.lease.gate == take.gate).count();
        assert_eq!(count, take.limit as usize, "{take:?}");
    }
    Ok(())
}

fn what_is_not_due_is_not_taken_although_it_is_first(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("early").kind("k").priority(9).op("due").kind("k").plant(w)?;
    let start = w.now();
    // The clock went back: what was due then is not due now.
    w.clock().go_back(microseconds(1))?;
    assert_eq!(w.tx(|tx| tx.claim_ready(&planted.claim(10)))?, []);
    let older = Scenario::new().op("older").kind("k").plant(w)?;
    assert_eq!(ids(&w.tx(|tx| tx.claim_ready(&planted.claim(10)))?), ["older"], "what is due is taken from behind what is not");
    w.clock().set(start)?;
    assert_eq!(ids(&w.tx(|tx| tx.claim_ready(&older.claim(10)))?).len(), 2);
    Ok(())
}

fn only_lanes_that_are_named_are_taken_from(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").op("b").op("c").agent("gpu").plant(w)?;
    for (id, lane) in ["a", "b", "c"].into_iter().zip(planted.lanes.clone()) {
        let takes = vec![LaneTake { lane: lane.key, gate: lane.gate, limit: 10 }];
        assert_eq!(ids(&w.tx(|tx| tx.claim_ready(&Claim { takes: takes.clone(), ..planted.claim(0) }))?), [id]);
    }
    let unknown = vec![LaneTake { lane: LaneKey(1), gate: GateKey(1), limit: 10 }];
    assert_eq!(w.tx(|tx| tx.claim_ready(&Claim { takes: unknown.clone(), ..planted.claim(0) }))?, []);
    Ok(())
}

fn a_lease_says_what_the_claim_said(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").plant(w)?;
    let claim = Claim { worker: name("wörker 1"), lease: Micros::from_secs(7), ..planted.claim(1) };
    let claimed = w.tx(|tx| tx.claim_ready(&claim))?;
    let [op] = claimed.as_slice() else { panic!("one was ready") };
    let lease = &op.lease;
    assert_eq!((lease.key.op, lease.key.token, lease.key.fence), (planted.op("a"), claim.token, Fence(1)));
    assert_eq!((lease.workflow, &lease.worker), (planted.workflow, &claim.worker));
    assert_eq!((lease.acquired_at, lease.expires_at), (w.now(), w.now().after(claim.lease)?));
    assert_eq!(Some(lease.gate), planted.lanes.first().map(|lane| lane.gate));
    assert_eq!(w.read(|tx| tx.leases_of(&[planted.op("a")]))?, std::slice::from_ref(lease), "it is stored as it was told");
    Ok(())
}

fn a_fence_comes_from_the_queue_and_not_from_the_op(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").queued_with_fence(41).plant(w)?;
    assert_eq!(w.view(planted.op("a"))?.state.fence, Fence::NONE, "the op's own row says something older");
    let claimed = w.tx(|tx| tx.claim_ready(&planted.claim(1)))?;
    assert_eq!(claimed.iter().map(|op| op.lease.key.fence).collect::<Vec<_>>(), [Fence(42)]);
    Ok(())
}

fn a_claimed_op_brings_all_its_handler_needs(w: &mut World) -> Outcome {
    let planted = Scenario::new()
        .id("the workflow")
        .op("a")
        .kind("k")
        .queue("q")
        .site("s")
        .input(r#"{ "in" : 1 }"#)
        .metadata("[2]")
        .time_limit(microseconds(99))
        .plant(w)?;
    let due = w.now();
    w.clock().advance(LEASE)?;
    let claimed = w.tx(|tx| tx.claim_ready(&planted.claim(1)))?;
    let [op] = claimed.as_slice() else { panic!("one was ready") };
    assert_eq!((op.workflow_id.as_str(), op.op_id.as_str(), &op.parent), ("the workflow", "a", &None));
    assert_eq!((op.kind.as_str(), op.queue.as_str(), op.site.as_str()), ("k", "q", "s"));
    assert_eq!((op.input.as_str(), &op.metadata), (r#"{ "in" : 1 }"#, &json("[2]")));
    assert_eq!((op.time_limit, op.failures, op.due_at), (Some(microseconds(99)), 0, due));
    Ok(())
}

fn what_is_leased_is_not_ready_any_more(w: &mut World) -> Outcome {
    let planted = Scenario::new().ops("a", 5).plant(w)?;
    let first = w.tx(|tx| tx.claim_ready(&planted.claim(3)))?;
    let second = w.tx(|tx| tx.claim_ready(&planted.claim(3)))?;
    assert_eq!((first.len(), second.len()), (3, 2));
    let distinct: BTreeSet<OpSeq> = first.iter().chain(&second).map(|op| op.lease.key.op).collect();
    assert_eq!(distinct.len(), 5);
    for op in w.all_ops(planted.workflow)? {
        assert!(op.lease.is_some() && op.due_at.is_none(), "{op:?}");
    }
    Ok(())
}

fn each_op_is_taken_by_one_of_many_claims(w: &mut World) -> Outcome {
    const WORKERS: usize = 4;
    const OPS: usize = 120;
    let planted = Scenario::new().ops("a", OPS).plant(w)?;
    let start = Barrier::new(WORKERS);
    let claimed: Result<Vec<OpSeq>, StoreError> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    let mut mine = Vec::new();
                    // A claim skips what another holds, so it may come back empty before all is taken.
                    while w.read(|tx| tx.totals())?.leases_live < i64::try_from(OPS).unwrap_or(i64::MAX) {
                        let claim = planted.claim(7);
                        let ops = crate::world::transact(w.store().as_ref(), TxKind::Claim, |tx| tx.claim_ready(&claim))?;
                        mine.extend(ops.iter().map(|op| op.lease.key.op));
                    }
                    Ok(mine)
                })
            })
            .collect();
        let mut all = Vec::new();
        for worker in workers {
            all.extend(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(all)
    });
    let claimed = claimed?;
    assert_eq!(claimed.len(), OPS, "no op was taken twice");
    assert_eq!(claimed.iter().collect::<BTreeSet<_>>().len(), OPS);
    Ok(())
}

fn a_claim_whose_reply_was_lost_is_found_by_its_token(w: &mut World) -> Outcome {
    let planted = Scenario::new().ops("a", 4).plant(w)?;
    let (claim, other) = (planted.claim(2), planted.claim(1));
    let mut claimed = w.tx(|tx| tx.claim_ready(&claim))?;
    w.tx(|tx| tx.claim_ready(&other))?;
    let mut found = w.tx(|tx| tx.claimed_by(claim.token))?;
    for list in [&mut claimed, &mut found] {
        list.sort_by_key(|op| op.lease.key);
    }
    assert_eq!(found, claimed);
    assert_eq!(w.tx(|tx| tx.claimed_by(LeaseToken::random()))?, []);
    Ok(())
}

fn a_lease_that_would_outlast_year_9999_is_refused(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").plant(w)?;
    let claim = Claim { lease: microseconds(i64::MAX), ..planted.claim(1) };
    let outcome = w.tx(|tx| tx.claim_ready(&claim));
    assert!(matches!(outcome, Err(StoreError::Rejected(_))), "neither wrapped nor clamped: {outcome:?}");
    assert_eq!(w.tx(|tx| tx.claim_ready(&planted.claim(1)))?.len(), 1);
    Ok(())
}

fn what_is_due_at_this_very_instant_is_promoted(w: &mut World) -> Outcome {
    let due = w.now().after(LEASE)?;
    let planted = Scenario::new().op("a").due(due).plant(w)?;
    for (by, promoted) in [(-1, 0), (0, 1)] {
        w.clock().set(leasehold_core::model::Timestamp::from_micros(due.as_micros() + by)?)?;
        assert_eq!(w.tx(|tx| tx.promote(10))?, promoted, "{by} µs from its instant");
        assert_eq!(w.tx(|tx| tx.claim_ready(&planted.claim(10)))?.len(), promoted as usize);
    }
    Ok(())
}

fn promotion_is_bounded_and_oldest_first(w: &mut World) -> Outcome {
    let mut scenario = Scenario::new();
    for at in [3, 1, 2, 4] {
        scenario = scenario.op(&at.to_string()).kind("k").due(w.now().after(microseconds(at))?);
    }
    let planted = scenario.plant(w)?;
    w.clock().advance(LEASE)?;
    assert_eq!(w.tx(|tx| tx.promote(2))?, 2);
    assert_eq!(ids(&w.tx(|tx| tx.claim_ready(&planted.claim(10)))?).into_iter().collect::<BTreeSet<_>>(), set(&["1", "2"]));
    assert_eq!(w.tx(|tx| tx.promote(10))?, 2);
    assert_eq!(w.tx(|tx| tx.promote(10))?, 0);
    Ok(())
}

fn a_promoted_op_keeps_its_place(w: &mut World) -> Outcome {
    let due = w.now().after(microseconds(5))?;
    let planted = Scenario::new().op("a").kind("k").priority(3).due(due).queued_with_fence(8).op("b").kind("k").priority(2).plant(w)?;
    w.clock().advance(LEASE)?;
    w.tx(|tx| tx.promote(10))?;
    assert_eq!(w.view(planted.op("a"))?.due_at, Some(due));
    let claimed = w.tx(|tx| tx.claim_ready(&planted.claim(1)))?;
    let [op] = claimed.as_slice() else { panic!("two are ready") };
    assert_eq!((op.op_id.as_str(), op.due_at, op.lease.key.fence), ("a", due, Fence(9)));
    Ok(())
}
