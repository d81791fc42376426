//! The contract of `transact`.

use crate::case::cases;
use crate::scenario::name;
use crate::{Outcome, Scenario, World};
use leasehold_core::model::{OpSeq, QueueName, QueuePolicy, WorkflowSeq};
use leasehold_core::store::rows::{Edge, WriteSet};
use leasehold_core::store::{StoreError, TxKind, Wait};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc;

cases! { steps:
    a_body_that_fails_leaves_no_trace proves ["L2", "B1"];
    a_body_that_panics_leaves_no_trace_and_the_panic_goes_on proves ["L2", "B1"];
    after_the_first_failed_step_every_step_fails proves ["L2", "B1"];
    a_body_that_swallows_a_failed_step_commits_nothing proves ["L2", "B1"];
    a_transaction_sees_its_own_writes proves ["L2"];
    no_reader_sees_half_a_transaction proves ["L2"];
    what_is_committed_is_seen_by_the_next_transaction proves ["L2"];
    empty_sets_are_fine_everywhere proves ["B1"];
    empty_sets_send_no_statement proves ["S12", "B1"] needs [Statements];
    the_store_says_what_it_is proves ["P2"];
    what_is_stored_survives_a_restart proves ["P1", "L7"] needs [Restart];
    a_second_handle_sees_the_same_store proves ["B1"] needs [SecondHandle];
    many_handles_open_one_store_at_once proves ["P1"] needs [SecondHandle];
}

fn policy(queue: &str) -> [QueuePolicy; 1] {
    [QueuePolicy::unlimited(name::<QueueName>(queue))]
}

fn queues(w: &World) -> Result<Vec<String>, StoreError> {
    Ok(w.read(|tx| tx.policies())?.into_iter().map(|policy| policy.queue.to_string()).collect())
}

fn a_body_that_fails_leaves_no_trace(w: &mut World) -> Outcome {
    let kept = Scenario::new().op("a").plant(w)?;
    let outcome = w.store().transact(TxKind::Client, &mut |tx| {
        tx.set_policies(&policy("q"))?;
        tx.lock_workflows(&[kept.workflow], Wait::Block)?;
        tx.claim_ready(&kept.claim(1))?;
        Err(StoreError::RolledBack)
    });
    assert!(matches!(outcome, Err(StoreError::RolledBack)), "the body's own error comes back: {outcome:?}");
    assert_eq!(queues(w)?, [""; 0]);
    assert_eq!(w.read(|tx| tx.leases_of(&[kept.op("a")]))?, []);
    assert_eq!(w.tx(|tx| tx.claim_ready(&kept.claim(1)))?.len(), 1, "the op is still ready");
    Ok(())
}

fn a_body_that_panics_leaves_no_trace_and_the_panic_goes_on(w: &mut World) -> Outcome {
    struct OnPurpose;
    let caught = catch_unwind(AssertUnwindSafe(|| {
        w.store().transact(TxKind::Client, &mut |tx| {
            tx.set_policies(&policy("q"))?;
            // Without the hook, which would print a trace.
            resume_unwind(Box::new(OnPurpose))
        })
    }));
    match caught {
        Ok(returned) => return Err(format!("the panic ended in the store: {returned:?}").into()),
        Err(payload) => assert!(payload.is::<OnPurpose>(), "the panic goes on as it was"),
    }
    assert_eq!(queues(w)?, [""; 0]);
    w.tx(|tx| tx.set_policies(&policy("after")))?;
    assert_eq!(queues(w)?, ["after"], "the store goes on");
    Ok(())
}

/// A step that every store refuses: one edge twice.
fn twice() -> WriteSet {
    let edge = Edge { child: OpSeq(1), parent: OpSeq(2), required: true };
    WriteSet { edges: vec![edge, edge], ..WriteSet::default() }
}

fn after_the_first_failed_step_every_step_fails(w: &mut World) -> Outcome {
    let outcome = w.store().transact(TxKind::Client, &mut |tx| {
        let Err(first) = tx.write(&twice()) else { panic!("an edge was stored twice") };
        assert!(tx.now().is_err(), "the time");
        assert!(tx.policies().is_err(), "a read");
        assert!(tx.reserve_ops(1).is_err(), "a reservation");
        assert!(tx.set_policies(&policy("q")).is_err(), "a write");
        Err(first)
    });
    assert!(matches!(outcome, Err(StoreError::Rejected(_))), "a taken unique key is a rejection: {outcome:?}");
    assert_eq!(queues(w)?, [""; 0]);
    Ok(())
}

fn a_body_that_swallows_a_failed_step_commits_nothing(w: &mut World) -> Outcome {
    let outcome = w.store().transact(TxKind::Client, &mut |tx| {
        tx.set_policies(&policy("q"))?;
        assert!(tx.write(&twice()).is_err(), "an edge was stored twice");
        Ok(())
    });
    assert!(outcome.is_err(), "a transaction with a failed step cannot commit");
    assert_eq!(queues(w)?, [""; 0]);
    Ok(())
}

fn a_transaction_sees_its_own_writes(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").plant(w)?;
    let (leases, queues) = w.tx(|tx| {
        tx.claim_ready(&planted.claim(1))?;
        tx.set_policies(&policy("q"))?;
        Ok((tx.leases_of(&[planted.op("a")])?, tx.policies()?))
    })?;
    assert_eq!((leases.len(), queues.len()), (1, 1));
    Ok(())
}

/// One side moves two rows together, the other reads both in one transaction: they never differ.
fn no_reader_sees_half_a_transaction(w: &mut World) -> Outcome {
    const ROUNDS: u32 = 40;
    let world = &*w;
    let (stop, stopped) = mpsc::channel::<()>();
    std::thread::scope(|scope| -> Outcome {
        let writer = scope.spawn(move || -> Result<(), StoreError> {
            for round in 1..=ROUNDS {
                world.tx(|tx| {
                    for queue in ["a", "b"] {
                        tx.set_policies(&[QueuePolicy { max_in_flight: Some(round), ..QueuePolicy::unlimited(name(queue)) }])?;
                    }
                    Ok(())
                })?;
            }
            drop(stop);
            Ok(())
        });
        let mut seen = 0;
        while stopped.try_recv() != Err(mpsc::TryRecvError::Disconnected) || seen == 0 {
            let policies = world.read(|tx| tx.policies())?;
            let limits: Vec<Option<u32>> = policies.iter().map(|policy| policy.max_in_flight).collect();
            assert!(limits.len() != 1 && limits.first() == limits.last(), "half of a transaction was seen: {limits:?}");
            seen += 1;
        }
        match writer.join() {
            Ok(result) => Ok(result?),
            Err(panic) => resume_unwind(panic),
        }
    })
}

fn what_is_committed_is_seen_by_the_next_transaction(w: &mut World) -> Outcome {
    for round in 0..20 {
        let planted = Scenario::new().id(&format!("w{round}")).op("a").plant(w)?;
        let (rows, ops) = w.read(|tx| Ok((tx.workflows(std::slice::from_ref(&planted.id))?, tx.ops(&[planted.op("a")])?)))?;
        assert_eq!((rows.len(), ops.len()), (1, 1), "round {round}");
    }
    Ok(())
}

fn with_empty_sets(w: &World) -> Outcome {
    w.tx(|tx| {
        assert_eq!(tx.insert_workflows(&[])?, []);
        assert_eq!(tx.workflows(&[])?, []);
        assert_eq!(tx.lock_workflows(&[], Wait::Block)?, []);
        assert_eq!(tx.reserve_ops(0)?, []);
        assert_eq!(tx.ops(&[])?, []);
        assert_eq!(tx.ops_by_id(&[])?, []);
        assert_eq!(tx.ops_by_dedup_key(&[])?, []);
        assert_eq!(tx.ops_with_status(WorkflowSeq(1), &[])?, []);
        assert_eq!(tx.downstream(&[], leasehold_core::store::rows::Reach::Descendants)?, []);
        assert_eq!(tx.upstream(&[])?, []);
        assert_eq!(tx.write(&WriteSet::default())?, []);
        tx.unqueue(&[])?;
        tx.set_policies(&[])?;
        assert_eq!(tx.lock_gates(&[])?, []);
        tx.set_buckets(&[])?;
        assert_eq!(tx.clear_hot(&[])?, []);
        assert_eq!(tx.leases_of(&[])?, []);
        assert_eq!(tx.attempts_by_lease(&[])?, []);
        assert_eq!(tx.extend_leases(&[], crate::scenario::LEASE)?, []);
        assert_eq!(tx.running_counts(&[])?, []);
        assert_eq!(tx.op_views(&[])?, []);
        assert_eq!(tx.results(&[])?, []);
        Ok(())
    })?;
    Ok(())
}

fn empty_sets_are_fine_everywhere(w: &mut World) -> Outcome {
    with_empty_sets(w)
}

fn empty_sets_send_no_statement(w: &mut World) -> Outcome {
    let (statements, ()) = w.statements(|| with_empty_sets(w))?;
    assert_eq!(statements, 0);
    Ok(())
}

fn the_store_says_what_it_is(w: &mut World) -> Outcome {
    let info = w.store().describe()?;
    assert!(!info.backend.is_empty() && !info.location.is_empty() && !info.version.is_empty(), "{info:?}");
    assert!(info.schema >= 0, "{info:?}");
    Ok(())
}

fn what_is_stored_survives_a_restart(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").op("b").op("c").after(&["a"]).plant(w)?;
    let before = (w.workflow(&planted.id)?, w.all_ops(planted.workflow)?);
    w.restart()?;
    assert_eq!((w.workflow(&planted.id)?, w.all_ops(planted.workflow)?), before);
    let mut next = w.tx(|tx| tx.reserve_ops(1))?;
    assert!(next.pop() > planted.ops.values().max().copied(), "no key is given out twice");
    Ok(())
}

fn a_second_handle_sees_the_same_store(w: &mut World) -> Outcome {
    let other = w.second_handle()?;
    let planted = Scenario::new().op("a").plant(w)?;
    assert_eq!(other.workflow(&planted.id)?, w.workflow(&planted.id)?);
    assert_eq!(other.tx(|tx| tx.claim_ready(&planted.claim(1)))?.len(), 1);
    assert_eq!(w.tx(|tx| tx.claim_ready(&planted.claim(1)))?.len(), 0, "what one handle leased the other cannot");
    Ok(())
}

/// Each of them migrates first, if that is still to do.
fn many_handles_open_one_store_at_once(w: &mut World) -> Outcome {
    const HANDLES: usize = 5;
    let planted = Scenario::new().op("a").plant(w)?;
    let expected = w.workflow(&planted.id)?;
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..HANDLES)
            .map(|_| scope.spawn(|| -> Result<_, leasehold_core::store::BoxError> { w.second_handle()?.workflow(&planted.id) }))
            .collect();
        handles.into_iter().try_for_each(|handle| {
            assert_eq!(handle.join().unwrap_or_else(|panic| resume_unwind(panic))?, expected);
            Ok(())
        })
    })
}
