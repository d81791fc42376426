//! Leases as the engine's verbs give and keep them (L4, L6, Q4).

use crate::case::cases;
use crate::scenario::{LEASE, microseconds};
use crate::verbs::{claim_request, completion};
use crate::{Outcome, Scenario, World};
use leasehold_core::model::Micros;
use leasehold_core::store::BoxError;
use leasehold_core::store::rows::{Lease, LeaseKey};
use leasehold_core::transitions::{ClaimRequest, Ended, HeartbeatOutcome};

cases! {
    heartbeats_keep_a_lease_alive_for_ever proves ["L4"];
    a_heartbeat_answers_for_each_lease_in_turn proves ["L4", "L13"];
    a_lease_named_twice_in_one_heartbeat_is_answered_alike proves ["L4", "L12"];
    a_heartbeat_never_shortens_a_lease proves ["L4", "T8"];
    a_heartbeat_that_was_lost_brings_nothing_back proves ["L4", "L5"];
    a_claim_gives_the_lease_it_was_asked_for proves ["L6", "Q1"];
    leases_of_one_claim_are_told_apart_by_their_op proves ["L1", "L6"];
    a_worker_of_the_same_name_proves_nothing proves ["L6", "L1"];
    what_waits_for_the_future_is_promoted_when_it_is_due proves ["T5", "Q10"];
    a_whole_graph_is_drained_in_the_order_of_its_edges proves ["S3", "Q2"];
}

fn held(outcome: &HeartbeatOutcome) -> Result<&Lease, BoxError> {
    match outcome {
        HeartbeatOutcome::Held(lease) => Ok(lease),
        other => Err(format!("the lease does not hold: {other:?}").into()),
    }
}

fn heartbeats_keep_a_lease_alive_for_ever(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
    for _ in 0..10 {
        w.clock().advance(microseconds(LEASE.get() - 1))?;
        let outcomes = w.heartbeat(&[planted.lease("a")])?;
        assert_eq!(held(outcomes.first().ok_or("one answer")?)?.expires_at, w.now().after(LEASE)?);
        assert_eq!(w.recover(10)?.ops, []);
    }
    w.complete_one(&planted.claimed("a"), "1")?;
    Ok(())
}

fn a_heartbeat_answers_for_each_lease_in_turn(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").op("b").leased_by("w1").op("c").leased_by("w1").build(w)?;
    w.complete_one(&planted.claimed("b"), "1")?;
    let (a, b, c) = (planted.lease("a"), planted.lease("b"), planted.lease("c"));
    w.clock().advance(microseconds(1))?;
    let outcomes = w.heartbeat(&[c, b, a])?;
    let keys: Vec<Option<LeaseKey>> = outcomes.iter().map(|outcome| held(outcome).ok().map(|lease| lease.key)).collect();
    assert_eq!(keys, [Some(c), None, Some(a)]);
    assert_eq!(outcomes.get(1), Some(&HeartbeatOutcome::Lost));
    Ok(())
}

fn a_lease_named_twice_in_one_heartbeat_is_answered_alike(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").op("b").leased_by("w1").build(w)?;
    w.complete_one(&planted.claimed("b"), "1")?;
    w.clock().advance(microseconds(1))?;
    let outcomes = w.heartbeat(&[planted.lease("a"), planted.lease("b"), planted.lease("a"), planted.lease("b")])?;
    let [first, lost, again, lost_again] = outcomes.as_slice() else { panic!("four leases, four answers: {outcomes:?}") };
    assert_eq!((held(first)?.key, first), (planted.lease("a"), again));
    assert_eq!((lost, lost_again), (&HeartbeatOutcome::Lost, &HeartbeatOutcome::Lost));
    Ok(())
}

fn a_heartbeat_never_shortens_a_lease(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
    let before = planted.claimed("a").lease;
    let outcomes = w.heartbeat_by(&[before.key], microseconds(1))?;
    assert_eq!(outcomes, [HeartbeatOutcome::Held(before.clone())]);
    assert_eq!(w.stored_lease(before.key)?, Some(before));
    Ok(())
}

fn a_heartbeat_that_was_lost_brings_nothing_back(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
    w.clock().advance(LEASE)?;
    let before = w.fingerprint(&planted)?;
    assert_eq!(w.heartbeat(&[planted.lease("a")])?, [HeartbeatOutcome::Lost], "before any clean-up ran");
    assert_eq!(w.fingerprint(&planted)?, before);
    assert_eq!(w.recover(10)?.ops.len(), 1);
    Ok(())
}

fn a_claim_gives_the_lease_it_was_asked_for(w: &mut World) -> Outcome {
    Scenario::new().op("a").build(w)?;
    let lease = Micros::from_secs(5);
    let request = ClaimRequest { lease, ..claim_request("w1", 1) };
    let ops = w.claim_with(&request)?.ops;
    let [op] = ops.as_slice() else { panic!("one was ready") };
    assert_eq!((op.lease.key.token, op.lease.worker.clone()), (request.token, request.worker));
    assert_eq!((op.lease.acquired_at, op.lease.expires_at), (w.now(), w.now().after(lease)?));
    Ok(())
}

fn leases_of_one_claim_are_told_apart_by_their_op(w: &mut World) -> Outcome {
    Scenario::new().ops("a", 2).build(w)?;
    let claimed = w.claim("w1", 2)?;
    let [first, second] = claimed.as_slice() else { panic!("two were ready") };
    assert_eq!(first.lease.key.token, second.lease.key.token);
    w.complete_one(first, "1")?;
    assert!(matches!(w.heartbeat(&[first.lease.key])?.as_slice(), [HeartbeatOutcome::Lost]));
    assert_eq!(w.finish_one(completion(second, "2"))?, Ended::Succeeded);
    Ok(())
}

/// The process was killed, and starts again under its name.
fn a_worker_of_the_same_name_proves_nothing(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("host-1").op("b").build(w)?;
    let dead = planted.claimed("a");
    let own = w.claim_one("host-1")?;
    assert_eq!(own.lease.worker, dead.lease.worker);
    let forged = LeaseKey { token: own.lease.key.token, ..dead.lease.key };
    assert_eq!(w.heartbeat(&[forged])?, [HeartbeatOutcome::Lost]);
    w.clock().advance(LEASE)?;
    let recovered = w.recover(10)?;
    assert_eq!(recovered.ops.len(), 2, "a name keeps no lease alive");
    Ok(())
}

fn what_waits_for_the_future_is_promoted_when_it_is_due(w: &mut World) -> Outcome {
    use crate::verbs::failure;
    let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
    let Ended::Retried { due_at } = w.finish_one(failure(&planted.claimed("a")))? else { panic!("attempts are left") };
    assert_eq!(w.claim("w1", 1)?, []);
    w.clock().set(due_at)?;
    let claimed = w.claim("w1", 1)?;
    assert_eq!(claimed.iter().map(|op| (op.lease.key.op, op.due_at)).collect::<Vec<_>>(), [(planted.op("a"), due_at)]);
    Ok(())
}

/// Layers with edges to all of the layer above: each op is claimed after all of them have ended.
fn a_whole_graph_is_drained_in_the_order_of_its_edges(w: &mut World) -> Outcome {
    const WIDTH: usize = 5;
    let mut scenario = Scenario::new();
    for layer in 0..6 {
        let above: Vec<String> = (0..WIDTH).filter(|_| layer > 0).map(|at| format!("{}.{at}", layer - 1)).collect();
        let above: Vec<&str> = above.iter().map(String::as_str).collect();
        for at in 0..WIDTH {
            scenario = scenario.op(&format!("{layer}.{at}")).kind("k").after(&above);
        }
    }
    scenario.build(w)?;
    let mut order = Vec::new();
    loop {
        let claimed = w.claim("w1", 3)?;
        if claimed.is_empty() {
            break;
        }
        for op in claimed {
            order.push(op.op_id.as_str().split('.').next().unwrap_or_default().to_owned());
            w.complete_one(&op, "null")?;
        }
    }
    assert_eq!(order.len(), 6 * WIDTH);
    assert!(order.is_sorted(), "{order:?}");
    Ok(())
}
