//! Who keeps the store up, and what an old leader may still do: nothing (L7, L10).

use super::race::at_once;
use super::steps::time::{TERM, candidate};
use crate::case::cases;
use crate::scenario::LEASE;
use crate::verbs::IN_THE_WAY;
use crate::world::transact;
use crate::{Outcome, Scenario, World};
use leasehold_core::model::Epoch;
use leasehold_core::state::OpStatus;
use leasehold_core::store::{BoxError, Candidate, Leadership, TxKind};
use leasehold_core::transitions::{self, Pass, Upkeep};
use std::sync::mpsc;
use std::time::Duration;

cases! {
    of_two_that_stand_at_once_one_leads proves ["L10"];
    of_two_handles_that_stand_at_once_one_leads proves ["L10"] needs [SecondHandle];
    epochs_grow_from_leader_to_leader proves ["L10"];
    the_leaders_pass_recovers proves ["L10", "L7"];
    an_old_epoch_writes_nothing_however_often_it_tries proves ["L10", "L12"];
    nobody_is_elected_while_a_pass_writes proves ["L10"] needs [SecondHandle];
    work_recovers_without_any_leader proves ["L10", "L7"];
    the_leader_is_known_after_a_restart proves ["L10"] needs [Restart];
}

fn stand(w: &World, candidate: &Candidate) -> Result<Leadership, BoxError> {
    Ok(transact(w.store().as_ref(), TxKind::Maintenance, |tx| transitions::elect(tx, candidate))?)
}

const fn under(epoch: Epoch) -> Upkeep {
    Upkeep { epoch: Some(epoch), ..IN_THE_WAY }
}

fn elected_at_once(w: &World, other: &World) -> Outcome {
    for round in 1..=25 {
        let (a, b) = (candidate("w1"), candidate("w2"));
        let (first, second) = at_once(|| stand(w, &a), || stand(other, &b))?;
        assert_eq!([first.mine, second.mine].iter().filter(|mine| **mine).count(), 1, "{first:?} {second:?}");
        let leader = if first.mine { &first } else { &second };
        assert_eq!(leader.epoch, Epoch(round));
        w.clock().advance(TERM)?;
    }
    Ok(())
}

fn of_two_that_stand_at_once_one_leads(w: &mut World) -> Outcome {
    elected_at_once(w, w)
}

fn of_two_handles_that_stand_at_once_one_leads(w: &mut World) -> Outcome {
    elected_at_once(w, &w.second_handle()?)
}

fn epochs_grow_from_leader_to_leader(w: &mut World) -> Outcome {
    let mut last = Epoch(0);
    for round in 0..4 {
        let led = stand(w, &candidate(&format!("w{round}")))?;
        assert!(led.mine && led.epoch > last, "{led:?}");
        last = led.epoch;
        w.clock().advance(TERM)?;
    }
    Ok(())
}

fn the_leaders_pass_recovers(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
    w.clock().advance(LEASE)?;
    let led = stand(w, &candidate("w1"))?;
    let Pass::Done(recovered) = w.recover_by(under(led.epoch), 10)? else { panic!("it leads") };
    assert_eq!(recovered.ops.len(), 1);
    assert_eq!(w.status(&planted, "a")?, OpStatus::Ready);
    Ok(())
}

fn an_old_epoch_writes_nothing_however_often_it_tries(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
    let old = stand(w, &candidate("frozen"))?.epoch;
    w.clock().advance(LEASE)?;
    let new = stand(w, &candidate("w2"))?.epoch;
    let before = w.fingerprint(&planted)?;
    for _ in 0..3 {
        assert_eq!(w.recover_by(under(old), 10)?, Pass::NotLeader);
        assert_eq!(w.wake_by(under(old), 10)?, Pass::NotLeader);
        let promoted = transact(w.store().as_ref(), TxKind::Maintenance, |tx| transitions::promote(tx, 10, under(old)))?;
        assert_eq!(promoted, Pass::NotLeader);
    }
    assert_eq!(w.fingerprint(&planted)?, before);
    assert!(matches!(w.recover_by(under(new), 10)?, Pass::Done(recovered) if recovered.ops.len() == 1));
    assert_eq!(w.recover_by(under(old), 10)?, Pass::NotLeader, "also when there is nothing to do");
    Ok(())
}

/// Else a pass that has checked its epoch could still commit under an old one.
fn nobody_is_elected_while_a_pass_writes(w: &mut World) -> Outcome {
    let other = w.second_handle()?;
    let led = stand(w, &candidate("w1"))?;
    w.clock().advance(TERM)?;
    let (begun, may_begin) = mpsc::channel();
    let (elected, hears) = mpsc::channel();
    std::thread::scope(|scope| -> Outcome {
        let successor = scope.spawn(move || -> Result<Leadership, BoxError> {
            may_begin.recv()?;
            let led = stand(&other, &candidate("w2"))?;
            // The other end may be gone: then nobody was elected too early.
            let _ = elected.send(());
            Ok(led)
        });
        let mut begun = Some(begun);
        let pass = w.store().transact(TxKind::Maintenance, &mut |tx| {
            let pass = transitions::upkeep(tx, under(led.epoch), |_| {
                if let Some(begun) = begun.take() {
                    let _ = begun.send(());
                }
                // As long as a successor that is not held up needs many times over.
                let early = hears.recv_timeout(Duration::from_millis(300)).is_ok();
                assert!(!early, "another was elected while this pass was writing");
                Ok(())
            })?;
            assert_eq!(pass, Pass::Done(()));
            Ok(())
        });
        pass?;
        let successor = successor.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        assert!(successor.mine && successor.epoch > led.epoch, "{successor:?}");
        Ok(())
    })
}

fn work_recovers_without_any_leader(w: &mut World) -> Outcome {
    stand(w, &candidate("frozen"))?;
    let planted = Scenario::new().op("a").leased_by("frozen").build(w)?;
    w.clock().advance(LEASE)?;
    assert_eq!(w.recover(10)?.ops.len(), 1);
    assert_eq!(w.drain("w2")?, 1);
    assert_eq!(w.status(&planted, "a")?, OpStatus::Succeeded);
    Ok(())
}

fn the_leader_is_known_after_a_restart(w: &mut World) -> Outcome {
    let first = candidate("w1");
    let led = stand(w, &first)?;
    w.restart()?;
    assert!(!stand(w, &candidate("w2"))?.mine);
    assert_eq!(stand(w, &first)?.epoch, led.epoch);
    w.clock().advance(TERM)?;
    assert!(stand(w, &candidate("w2"))?.epoch > led.epoch, "epochs never begin anew");
    Ok(())
}
