//! What clients see of running workflows (O3, P2).

use crate::case::cases;
use crate::scenario::LEASE;
use crate::verbs::failure;
use crate::{Outcome, Planted, Scenario, World};
use leasehold_core::model::{Timestamp, WorkflowId};
use leasehold_core::store::BoxError;
use leasehold_core::store::rows::UpdateCursor;
use leasehold_core::transitions::Ended;
use std::collections::BTreeSet;

cases! {
    every_transition_moves_its_workflow_behind_the_cursor proves ["O3"];
    claims_and_heartbeats_do_not_move_a_workflow proves ["O3"];
    a_reader_of_updates_skips_nothing_while_writers_commit proves ["O3"];
    an_update_is_seen_although_the_clock_went_back proves ["O3", "T8"];
    counters_are_right_after_every_transition proves ["O3", "P2"];
}

/// The workflows behind the cursor, which moves.
fn updates(w: &World, cursor: &mut Option<UpdateCursor>) -> Result<Vec<WorkflowId>, BoxError> {
    let rows = w.read(|tx| tx.workflows_since(*cursor, 100))?;
    if let Some(row) = rows.last() {
        *cursor = Some(UpdateCursor { updated_at: row.updated_at, seq: row.seq });
    }
    Ok(rows.into_iter().map(|row| row.id).collect())
}

fn every_transition_moves_its_workflow_behind_the_cursor(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").op("b").after(&["a"]).build(w)?;
    let other = Scenario::new().op("other").build(w)?;
    let mut cursor = None;
    assert_eq!(updates(w, &mut cursor)?, [planted.id.clone(), other.id.clone()]);
    let mut moved = |what: &str| -> Outcome {
        assert_eq!(updates(w, &mut cursor)?, std::slice::from_ref(&planted.id), "{what}");
        Ok(())
    };
    let claim = || w.claim_kind("w1", "a", 1)?.pop().ok_or_else(|| BoxError::from("it is ready"));
    let Ended::Retried { due_at } = w.finish_one(failure(&claim()?))? else { panic!("attempts are left") };
    moved("a failure")?;
    w.clock().set(due_at)?;
    claim()?;
    w.clock().advance(LEASE)?;
    w.recover(10)?;
    moved("recovery")?;
    w.fail_for_good(&claim()?)?;
    moved("the last failure")?;
    w.retry_op(&planted, "a")?;
    moved("retry")?;
    w.add(&planted, &Scenario::new().op("c"))?;
    moved("add")?;
    w.complete_one(&claim()?, "1")?;
    moved("completion")?;
    w.cancel(&planted)?;
    moved("cancel")
}

fn claims_and_heartbeats_do_not_move_a_workflow(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").build(w)?;
    let before = w.workflow(&planted.id)?;
    w.clock().advance(LEASE)?;
    let claimed = w.claim_one("w1")?;
    w.heartbeat(&[claimed.lease.key])?;
    assert_eq!(w.workflow(&planted.id)?, before);
    let running = w.read(|tx| tx.running_counts(&[planted.workflow]))?;
    assert_eq!(running, [(planted.workflow, 1)], "what runs is counted apart");
    Ok(())
}

fn a_reader_of_updates_skips_nothing_while_writers_commit(w: &mut World) -> Outcome {
    const WRITERS: usize = 3;
    const ROUNDS: usize = 12;
    let world = &*w;
    let mut seen: BTreeSet<WorkflowId> = BTreeSet::new();
    std::thread::scope(|scope| -> Outcome {
        let writers: Vec<_> =
            (0..WRITERS).map(|_| scope.spawn(|| (0..ROUNDS).try_for_each(|_| Scenario::new().op("a").build(world).map(drop)))).collect();
        let mut cursor = None;
        loop {
            let ended = writers.iter().all(std::thread::ScopedJoinHandle::is_finished);
            let before = cursor;
            seen.extend(updates(world, &mut cursor)?);
            assert!(cursor >= before, "the cursor never goes back");
            if ended && before == cursor {
                break;
            }
        }
        writers.into_iter().try_for_each(|writer| writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    assert_eq!(seen.len(), WRITERS * ROUNDS);
    Ok(())
}

fn an_update_is_seen_although_the_clock_went_back(w: &mut World) -> Outcome {
    let planted: Vec<Planted> = (0..3).map(|_| Scenario::new().op("a").build(w)).collect::<Result<_, _>>()?;
    let mut cursor = None;
    updates(w, &mut cursor)?;
    w.clock().set(Timestamp::from_micros(w.now().as_micros() - 3_600_000_000)?)?;
    for planted in planted.iter().rev() {
        w.cancel(planted)?;
        assert_eq!(updates(w, &mut cursor)?, std::slice::from_ref(&planted.id));
    }
    Ok(())
}

fn counters_are_right_after_every_transition(w: &mut World) -> Outcome {
    let planted = Scenario::new().ops("a", 4).op("join").after(&["a0", "a1", "a2", "a3"]).op("below").after(&["join"]).build(w)?;
    let ends: [fn(&World, &Planted) -> Outcome; 7] = [
        |w, _| w.complete_one(&w.claim_one("w1")?, "1"),
        |w, _| w.fail_for_good(&w.claim_one("w1")?),
        |w, planted| w.retry(planted, leasehold_core::transitions::RetryTarget::AllFailed).map(drop).map_err(Into::into),
        |w, planted| w.add(planted, &Scenario::new().op("x").after(&["join"])).map(drop).map_err(Into::into),
        |w, _| w.claim("w1", 2).map(drop).map_err(Into::into),
        |w, _| {
            w.clock().advance(LEASE)?;
            w.recover(10).map(drop)
        },
        |w, planted| w.cancel(planted).map(drop).map_err(Into::into),
    ];
    for end in ends {
        end(w, &planted)?;
        crate::recount(w)?;
    }
    Ok(())
}
