//! Claims race, and never take more than they may (Q1, B3).

use crate::common::{World, claim, claim_of, lane, ready_in};
use diesel::connection::SimpleConnection;
use leasehold_core::model::{GateKey, OpSeq};
use leasehold_core::store::rows::LaneScan;
use leasehold_core::store::{StoreExt, TxKind};
use std::collections::BTreeSet;
use std::sync::Barrier;
use std::thread;

/// Plans under which an inlined LIMIT would run once a row.
const HARD_PLANS: [&str; 3] = [
    "options=-c%20enable_hashjoin%3Doff%20-c%20enable_mergejoin%3Doff",
    "options=-c%20enable_nestloop%3Doff",
    "options=-c%20plan_cache_mode%3Dforce_generic_plan%20-c%20enable_hashjoin%3Doff",
];

#[test]
fn a_claim_takes_exactly_its_limit_under_any_plan() {
    let world = World::new();
    let workflow = world.workflow("w");
    let queues: Vec<String> = (0..20).map(|queue| format!("q{queue}")).collect();
    for queue in &queues {
        drop(world.ready(workflow, queue, 10));
    }
    world.schema.connect().unwrap().batch_execute("ANALYZE ready, ops, workflows, lanes").unwrap();
    for settings in HARD_PLANS {
        let store = world.another(settings);
        let takes: Vec<(&str, &str, u32)> = queues.iter().map(|queue| (queue.as_str(), "k", 1)).collect();
        let claimed = claim(&store, &takes).unwrap();
        let gates: BTreeSet<GateKey> = claimed.iter().map(|op| op.lease.gate).collect();
        assert_eq!((claimed.len(), gates.len()), (20, 20), "one of each lane, {settings}");
        assert_eq!(claim(&store, &takes[..1]).unwrap().len(), 1, "{settings}");
    }
}

#[test]
fn racing_claims_take_every_op_once() {
    const CLAIMERS: usize = 8;
    let world = World::new();
    let workflow = world.workflow("w");
    world.ready(workflow, "q", 400);
    let start = Barrier::new(CLAIMERS);
    let claimed: Vec<OpSeq> = thread::scope(|scope| {
        let claimers: Vec<_> = (0..CLAIMERS)
            .map(|_| {
                scope.spawn(|| {
                    let store = world.another("pool_size=1");
                    start.wait();
                    let mut mine = Vec::new();
                    // Rows that others hold are skipped, so an empty claim does not say that none are left.
                    while world.store.with(TxKind::Read, |tx| tx.queue_statuses()).unwrap()[0].ready > 0 {
                        let got = claim(&store, &[("q", "k", 7)]).unwrap();
                        assert!(got.len() <= 7);
                        mine.extend(got.iter().map(|op| op.lease.key.op));
                    }
                    mine
                })
            })
            .collect();
        claimers.into_iter().flat_map(|claimer| claimer.join().unwrap()).collect()
    });
    assert_eq!(claimed.len(), 400);
    assert_eq!(claimed.iter().collect::<BTreeSet<_>>().len(), 400);
}

#[test]
fn a_gate_with_several_lanes_gives_its_best_ops_and_no_more_than_its_limit() {
    let world = World::new();
    let workflow = world.workflow("w");
    let (low, high) = world
        .store
        .with(TxKind::Client, |tx| {
            Ok::<_, leasehold_core::store::StoreError>((ready_in(tx, workflow, "q", "a", 5, 1)?, ready_in(tx, workflow, "q", "b", 2, 9)?))
        })
        .unwrap();
    let claimed = claim(&world.store, &[("q", "a", 4), ("q", "b", 4)]).unwrap();
    let mut claimed: Vec<OpSeq> = claimed.iter().map(|op| op.lease.key.op).collect();
    claimed.sort_unstable();
    assert_eq!(claimed, [&low[..2], &high[..]].concat());
}

#[test]
fn a_claim_passes_over_what_another_holds() {
    let world = World::new();
    let workflow = world.workflow("w");
    let ops = world.ready(workflow, "q", 3);
    let mut holder = world.schema.connect().unwrap();
    holder
        .batch_execute(&format!("BEGIN; SELECT op FROM ready WHERE op = {} FOR UPDATE; SELECT key FROM gates FOR UPDATE", ops[0].0))
        .unwrap();
    let claim = claim_of(&[("q", "k", 2)]);
    let (gates, claimed) = world
        .store
        .with(TxKind::Claim, |tx| {
            Ok::<_, leasehold_core::store::StoreError>((tx.lock_gates(&[lane("q", "k").gate])?, tx.claim_ready(&claim)?))
        })
        .unwrap();
    assert_eq!(gates, []);
    let claimed: Vec<OpSeq> = claimed.iter().map(|op| op.lease.key.op).collect();
    assert_eq!(claimed, ops[1..]);
    holder.batch_execute("ROLLBACK").unwrap();
}

#[test]
fn a_walk_over_lanes_stops_at_its_limit_and_goes_on_behind_it() {
    let world = World::new();
    let workflow = world.workflow("w");
    (0..30).for_each(|queue| drop(world.ready(workflow, &format!("q{queue}"), 2)));
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let scan = LaneScan { after, kinds: None, agents: Vec::new(), limit: 7 };
        let lanes = world.store.with(TxKind::Claim, |tx| tx.open_lanes(&scan)).unwrap().lanes;
        let Some(last) = lanes.last() else { break };
        after = Some(last.lane.key);
        seen.extend(lanes.iter().map(|open| open.lane.key));
    }
    assert_eq!(seen.len(), 30);
    assert!(seen.is_sorted());
}
