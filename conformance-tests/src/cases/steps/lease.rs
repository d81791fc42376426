//! Taking, extending and finding leases; the instants at which a lease holds.

use crate::case::cases;
use crate::scenario::{LEASE, microseconds};
use crate::{Outcome, Planted, Scenario, World};
use leasehold_core::model::{Fence, LeaseToken, Micros, OpSeq, Timestamp};
use leasehold_core::store::BoxError;
use leasehold_core::store::Wait;
use leasehold_core::store::rows::{Lease, LeaseKey, Take};

cases! { steps:
    a_live_take_ends_at_the_expiry_exactly proves ["T5", "L1"];
    an_expired_take_begins_at_the_expiry_exactly proves ["T5", "L7"];
    a_take_before_the_lease_began_takes_nothing proves ["T8"];
    a_take_needs_the_exact_op_token_and_fence proves ["L1"];
    a_lease_is_taken_once proves ["L1"];
    a_take_that_rolls_back_took_nothing proves ["L2"];
    an_empty_take_still_tells_the_time proves ["T6"];
    a_take_of_many_takes_those_that_stand proves ["L1"];
    an_extension_ends_at_the_expiry_exactly proves ["L4", "T5"];
    an_extension_before_the_lease_began_extends_nothing proves ["T8"];
    an_extension_needs_the_exact_op_token_and_fence proves ["L4"];
    an_extension_never_shortens proves ["L4", "T8"];
    extensions_count_from_now proves ["L4"];
    expired_leases_are_listed_longest_expired_first_and_bounded proves ["L7", "T5"];
    clearing_a_workflow_takes_everything_hot_of_it_and_nothing_else proves ["S6"];
    the_ledger_is_asked_by_the_exact_lease proves ["L1", "L12"];
}

fn leased(w: &World) -> Result<(Planted, Lease), BoxError> {
    let planted = Scenario::new().op("a").leased_by("w1").plant(w)?;
    let lease = planted.claimed("a").lease;
    Ok((planted, lease))
}

fn moved(instant: Timestamp, by: i64) -> Result<Timestamp, BoxError> {
    Ok(Timestamp::from_micros(instant.as_micros() + by)?)
}

/// How many leases a take at `instant` takes; what it took is put back.
fn takes_at(w: &World, instant: Timestamp, key: LeaseKey, take: Take) -> Result<usize, BoxError> {
    w.clock().set(instant)?;
    let mut taken = 0;
    let outcome = w.store().transact(leasehold_core::store::TxKind::Commit, &mut |tx| {
        let answer = tx.take_leases(&[key], take)?;
        assert_eq!(answer.now, instant, "the transition's own time");
        taken = answer.leases.len();
        Err(leasehold_core::store::StoreError::RolledBack)
    });
    assert!(outcome.is_err());
    Ok(taken)
}

fn a_live_take_ends_at_the_expiry_exactly(w: &mut World) -> Outcome {
    let (_, lease) = leased(w)?;
    for (by, taken) in [(-1, 1), (0, 0), (1, 0)] {
        assert_eq!(takes_at(w, moved(lease.expires_at, by)?, lease.key, Take::Live)?, taken, "{by} µs from the expiry");
    }
    Ok(())
}

fn an_expired_take_begins_at_the_expiry_exactly(w: &mut World) -> Outcome {
    let (_, lease) = leased(w)?;
    for (by, taken) in [(-1, 0), (0, 1), (1, 1)] {
        assert_eq!(takes_at(w, moved(lease.expires_at, by)?, lease.key, Take::Expired)?, taken, "{by} µs from the expiry");
    }
    Ok(())
}

fn a_take_before_the_lease_began_takes_nothing(w: &mut World) -> Outcome {
    let (_, lease) = leased(w)?;
    for (by, live) in [(-1, 0), (0, 1)] {
        let instant = moved(lease.acquired_at, by)?;
        assert_eq!(takes_at(w, instant, lease.key, Take::Live)?, live, "{by} µs from its beginning");
        assert_eq!(takes_at(w, instant, lease.key, Take::Expired)?, 0);
    }
    Ok(())
}

/// The lease's key with each part wrong in turn.
fn near_misses(key: LeaseKey) -> [LeaseKey; 4] {
    [
        LeaseKey { token: LeaseToken::random(), ..key },
        LeaseKey { fence: Fence(key.fence.0 + 1), ..key },
        LeaseKey { fence: Fence(key.fence.0 - 1), ..key },
        LeaseKey { op: OpSeq(key.op.0 + 1_000), ..key },
    ]
}

fn a_take_needs_the_exact_op_token_and_fence(w: &mut World) -> Outcome {
    let (_, lease) = leased(w)?;
    for key in near_misses(lease.key) {
        assert_eq!(w.tx(|tx| tx.take_leases(&[key], Take::Live))?.leases, [], "{key:?}");
    }
    w.clock().set(lease.expires_at)?;
    for key in near_misses(lease.key) {
        assert_eq!(w.tx(|tx| tx.take_leases(&[key], Take::Expired))?.leases, [], "{key:?}");
    }
    assert_eq!(w.tx(|tx| tx.take_leases(&[lease.key], Take::Expired))?.leases, [lease]);
    Ok(())
}

fn a_lease_is_taken_once(w: &mut World) -> Outcome {
    let (_, lease) = leased(w)?;
    assert_eq!(w.tx(|tx| tx.take_leases(&[lease.key], Take::Live))?.leases, std::slice::from_ref(&lease));
    assert_eq!(w.tx(|tx| tx.take_leases(&[lease.key], Take::Live))?.leases, []);
    assert_eq!(w.read(|tx| tx.leases_of(&[lease.key.op]))?, []);
    Ok(())
}

fn a_take_that_rolls_back_took_nothing(w: &mut World) -> Outcome {
    let (_, lease) = leased(w)?;
    assert_eq!(takes_at(w, w.now(), lease.key, Take::Live)?, 1);
    assert_eq!(w.read(|tx| tx.leases_of(&[lease.key.op]))?, [lease]);
    Ok(())
}

fn an_empty_take_still_tells_the_time(w: &mut World) -> Outcome {
    let taken = w.tx(|tx| tx.take_leases(&[], Take::Live))?;
    assert_eq!((taken.now, taken.leases), (w.now(), Vec::new()));
    Ok(())
}

fn a_take_of_many_takes_those_that_stand(w: &mut World) -> Outcome {
    let planted = Scenario::new().ops("a", 6).plant(w)?;
    let early = w.tx(|tx| tx.claim_ready(&planted.claim(3)))?;
    w.clock().advance(microseconds(1))?;
    let late = w.tx(|tx| tx.claim_ready(&planted.claim(3)))?;
    let keys: Vec<LeaseKey> = early.iter().chain(&late).map(|op| op.lease.key).collect();
    w.clock().advance(Micros::new(LEASE.get() - 1)?)?;
    let mut taken: Vec<OpSeq> = w.tx(|tx| tx.take_leases(&keys, Take::Live))?.leases.iter().map(|lease| lease.key.op).collect();
    taken.sort_unstable();
    assert_eq!(taken, late.iter().map(|op| op.lease.key.op).collect::<Vec<_>>(), "the early ones expire at this instant");
    assert_eq!(w.tx(|tx| tx.take_leases(&keys, Take::Expired))?.leases.len(), early.len());
    Ok(())
}

fn an_extension_ends_at_the_expiry_exactly(w: &mut World) -> Outcome {
    for (by, extended) in [(-1, 1), (0, 0), (1, 0)] {
        let (_, lease) = leased(w)?;
        w.clock().set(moved(lease.expires_at, by)?)?;
        let answer = w.tx(|tx| tx.extend_leases(&[lease.key], LEASE))?;
        assert_eq!(answer.len(), extended, "{by} µs from the expiry");
        let stored = w.read(|tx| tx.leases_of(&[lease.key.op]))?;
        let expected = if extended == 1 { Lease { expires_at: w.now().after(LEASE)?, ..lease } } else { lease };
        assert_eq!(stored, [expected]);
    }
    Ok(())
}

fn an_extension_before_the_lease_began_extends_nothing(w: &mut World) -> Outcome {
    let (_, lease) = leased(w)?;
    w.clock().set(moved(lease.acquired_at, -1)?)?;
    assert_eq!(w.tx(|tx| tx.extend_leases(&[lease.key], LEASE))?, []);
    assert_eq!(w.read(|tx| tx.leases_of(&[lease.key.op]))?, [lease]);
    Ok(())
}

fn an_extension_needs_the_exact_op_token_and_fence(w: &mut World) -> Outcome {
    let (_, lease) = leased(w)?;
    w.clock().advance(microseconds(1))?;
    assert_eq!(w.tx(|tx| tx.extend_leases(&near_misses(lease.key), LEASE))?, []);
    assert_eq!(w.read(|tx| tx.leases_of(&[lease.key.op]))?, [lease]);
    Ok(())
}

fn an_extension_never_shortens(w: &mut World) -> Outcome {
    let (_, lease) = leased(w)?;
    w.clock().advance(microseconds(1))?;
    assert_eq!(w.tx(|tx| tx.extend_leases(&[lease.key], microseconds(1)))?, std::slice::from_ref(&lease), "it is returned as it was");
    assert_eq!(w.read(|tx| tx.leases_of(&[lease.key.op]))?, [lease]);
    Ok(())
}

fn extensions_count_from_now(w: &mut World) -> Outcome {
    let (_, lease) = leased(w)?;
    for _ in 0..3 {
        w.clock().advance(Micros::from_secs(20))?;
        let expected = Lease { expires_at: w.now().after(LEASE)?, ..lease.clone() };
        assert_eq!(w.tx(|tx| tx.extend_leases(&[lease.key], LEASE))?, std::slice::from_ref(&expected));
        assert_eq!(w.read(|tx| tx.leases_of(&[lease.key.op]))?, [expected]);
    }
    Ok(())
}

fn expired_leases_are_listed_longest_expired_first_and_bounded(w: &mut World) -> Outcome {
    let planted = Scenario::new().ops("a", 5).plant(w)?;
    let mut order = Vec::new();
    for _ in 0..5 {
        order.extend(w.tx(|tx| tx.claim_ready(&planted.claim(1)))?.into_iter().map(|op| op.lease));
        w.clock().advance(microseconds(1))?;
    }
    let [first, second, third, ..] = order.as_slice() else { panic!("five were claimed") };
    w.clock().set(third.expires_at)?;
    assert_eq!(w.read(|tx| tx.expired_leases(10))?, [first.clone(), second.clone(), third.clone()], "at its expiry a lease is expired");
    assert_eq!(w.read(|tx| tx.expired_leases(2))?, [first.clone(), second.clone()]);
    w.clock().set(moved(first.expires_at, -1)?)?;
    assert_eq!(w.read(|tx| tx.expired_leases(10))?, []);
    Ok(())
}

fn clearing_a_workflow_takes_everything_hot_of_it_and_nothing_else(w: &mut World) -> Outcome {
    let later = w.now().after(LEASE)?;
    let hot = |id: &str| Scenario::new().id(id).op("run").leased_by("w1").op("ready").op("later").due(later).plant(w);
    let (gone, kept) = (hot("gone")?, hot("kept")?);
    let leases = w.tx(|tx| {
        tx.lock_workflows(&[gone.workflow], Wait::Block)?;
        tx.clear_hot(&[gone.workflow])
    })?;
    assert_eq!(leases, [gone.claimed("run").lease]);
    for op in w.all_ops(gone.workflow)? {
        assert!(op.lease.is_none() && op.due_at.is_none(), "{op:?}");
    }
    for op in w.all_ops(kept.workflow)? {
        assert!(op.lease.is_some() != op.due_at.is_some(), "{op:?}");
    }
    Ok(())
}

fn the_ledger_is_asked_by_the_exact_lease(w: &mut World) -> Outcome {
    let (planted, lease) = leased(w)?;
    let attempt = super::write::attempt(&planted, lease.key, leasehold_core::store::rows::AttemptOutcome::Released);
    w.tx(|tx| {
        tx.lock_workflows(&[planted.workflow], Wait::Block)?;
        tx.write(&leasehold_core::store::rows::WriteSet { attempts: vec![attempt.clone()], ..Default::default() })
    })?;
    assert_eq!(w.read(|tx| tx.attempts_by_lease(&near_misses(lease.key)))?, []);
    assert_eq!(w.read(|tx| tx.attempts_by_lease(&[lease.key]))?, [attempt]);
    Ok(())
}
