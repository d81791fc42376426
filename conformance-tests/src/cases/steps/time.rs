//! The steps on the store's clock and on its maintenance.

use crate::case::cases;
use crate::scenario::{LEASE, microseconds, name};
use crate::{Outcome, Planted, Scenario, World};
use leasehold_core::model::{Epoch, LeaseToken, Micros, Timestamp, WorkerName};
use leasehold_core::store::rows::{EventKind, LaneScan, NewEvent, WriteSet};
use leasehold_core::store::{BoxError, Candidate, ClockReading, Leadership, PulledBack, Spare};

cases! { steps:
    a_new_store_has_seen_no_time_and_no_leader proves ["T7", "L10"];
    the_mark_is_raised_by_a_whole_step_and_never_lowered proves ["T7"];
    raising_the_mark_ends_an_anomaly proves ["T7"];
    the_clock_is_kept_as_it_is_set proves ["T7"];
    a_look_at_lanes_reads_the_clock proves ["T7", "Q10"];
    an_event_about_the_store_is_in_no_workflow proves ["O4", "T7"];
    what_lies_ahead_is_brought_back_and_nothing_else proves ["T7"];
    leases_that_held_before_a_jump_are_spared_and_no_others proves ["T7", "L4"];
    sparing_is_bounded_and_begins_with_the_first_to_expire proves ["T7", "L7"];
    who_stands_first_leads_until_its_term_ends proves ["L10", "T5"];
    a_leader_that_renews_keeps_its_epoch proves ["L10"];
    a_leader_that_comes_too_late_to_renew_gets_a_new_epoch proves ["L10"];
    only_the_leader_itself_resigns proves ["L10"];
    an_epoch_is_held_while_it_is_the_present_one proves ["L10"];
}

/// How long a term is here.
pub(crate) const TERM: Micros = Micros::from_secs(10);

/// One who stands for the lead.
pub(crate) fn candidate(who: &str) -> Candidate {
    Candidate { token: LeaseToken::random(), name: name::<WorkerName>(who), term: TERM }
}

fn elect(w: &World, candidate: &Candidate) -> Result<Leadership, BoxError> {
    Ok(w.tx(|tx| tx.elect(candidate))?)
}

fn clock(w: &World) -> Result<ClockReading, BoxError> {
    Ok(w.read(|tx| tx.clock())?)
}

fn a_new_store_has_seen_no_time_and_no_leader(w: &mut World) -> Outcome {
    assert_eq!(clock(w)?, ClockReading { now: w.now(), mark: None, anomaly_since: None });
    for epoch in [0, 1] {
        let held = w.tx(|tx| tx.hold_epoch(Epoch(epoch)))?;
        assert!(!held || epoch == 0, "nobody was elected");
    }
    assert_eq!(elect(w, &candidate("w1"))?.epoch, Epoch(1));
    Ok(())
}

fn the_mark_is_raised_by_a_whole_step_and_never_lowered(w: &mut World) -> Outcome {
    let step = Micros::from_secs(1);
    let begin = w.now();
    let raise = |by: i64, expected: i64| -> Outcome {
        w.clock().set(Timestamp::from_micros(begin.as_micros() + by)?)?;
        w.tx(|tx| tx.raise_mark(step))?;
        assert_eq!(clock(w)?.mark, Some(Timestamp::from_micros(begin.as_micros() + expected)?), "{by} µs later");
        Ok(())
    };
    raise(0, 0)?;
    raise(999_999, 0)?;
    raise(1_000_000, 1_000_000)?;
    raise(1_000_001, 1_000_000)?;
    raise(-60_000_000, 1_000_000)?;
    raise(1_999_999, 1_000_000)?;
    raise(7_200_000_000, 7_200_000_000)
}

fn raising_the_mark_ends_an_anomaly(w: &mut World) -> Outcome {
    let since = Some(w.now());
    let set = ClockReading { mark: Some(w.now()), anomaly_since: since, now: w.now() };
    w.tx(|tx| {
        tx.lock_clock()?;
        tx.set_clock(&set)
    })?;
    w.tx(|tx| tx.raise_mark(Micros::from_secs(1)))?;
    assert_eq!(clock(w)?.anomaly_since, since, "nothing was raised");
    w.clock().advance(Micros::from_secs(1))?;
    w.tx(|tx| tx.raise_mark(Micros::from_secs(1)))?;
    assert_eq!(clock(w)?, ClockReading { now: w.now(), mark: Some(w.now()), anomaly_since: None });
    Ok(())
}

fn the_clock_is_kept_as_it_is_set(w: &mut World) -> Outcome {
    let earlier = Timestamp::from_micros(w.now().as_micros() - 17)?;
    for (mark, anomaly_since) in
        [(Some(Timestamp::MAX), Some(earlier)), (Some(earlier), None), (None, None), (Some(w.now()), Some(w.now()))]
    {
        let locked = w.tx(|tx| {
            let clock = tx.lock_clock()?;
            tx.set_clock(&ClockReading { mark, anomaly_since, ..clock })?;
            tx.lock_clock()
        })?;
        let expected = ClockReading { now: w.now(), mark, anomaly_since };
        assert_eq!((locked, clock(w)?), (expected, expected));
    }
    Ok(())
}

fn a_look_at_lanes_reads_the_clock(w: &mut World) -> Outcome {
    let scan = LaneScan { after: None, kinds: None, agents: Vec::new(), limit: 10 };
    assert_eq!(w.read(|tx| tx.open_lanes(&scan))?.clock, None, "there is nothing to claim");
    Scenario::new().op("a").op("b").plant(w)?;
    w.tx(|tx| tx.raise_mark(Micros::from_secs(1)))?;
    let mark = w.now();
    w.clock().advance(microseconds(7))?;
    let expected = ClockReading { now: w.now(), mark: Some(mark), anomaly_since: None };
    assert_eq!(w.tx(|tx| tx.open_lanes(&scan))?.clock, Some(expected));
    let expected = ClockReading { anomaly_since: Some(mark), ..expected };
    w.tx(|tx| {
        tx.lock_clock()?;
        tx.set_clock(&expected)
    })?;
    assert_eq!(w.read(|tx| tx.open_lanes(&scan))?.clock, Some(expected));
    Ok(())
}

fn an_event_about_the_store_is_in_no_workflow(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").plant(w)?;
    let event = NewEvent {
        at: w.now(),
        kind: EventKind::ClockAnomaly,
        workflow: None,
        op: None,
        fence: None,
        actor: None,
        detail: Some("ü".to_owned()),
    };
    let of_workflow = super::write::event(&planted, "of the workflow");
    let events = vec![of_workflow.clone(), event.clone(), of_workflow.clone()];
    w.tx(|tx| tx.write(&WriteSet { events: events.clone(), ..WriteSet::default() }))?;
    let all = w.read(|tx| tx.events_since(None, None, 10))?;
    assert_eq!(all.iter().map(|row| &row.event).collect::<Vec<_>>(), [&of_workflow, &event, &of_workflow]);
    let ids: Vec<bool> = all.iter().map(|row| row.workflow_id.is_some()).collect();
    assert_eq!(ids, [true, false, true]);
    let of_one = w.read(|tx| tx.events_since(None, Some(planted.workflow), 10))?;
    assert_eq!(of_one.len(), 2);
    Ok(())
}

/// `count` ops leased one second after the other, for 30 s each.
fn leased(w: &World, count: usize) -> Result<Planted, BoxError> {
    let planted = Scenario::new().ops("a", count).plant(w)?;
    for _ in 0..count {
        assert_eq!(w.tx(|tx| tx.claim_ready(&planted.claim(1)))?.len(), 1);
        w.clock().advance(Micros::from_secs(1))?;
    }
    Ok(planted)
}

/// Begin and end of every lease, in microseconds from the suite's start.
fn leases(w: &World, planted: &Planted) -> Result<Vec<(i64, i64)>, BoxError> {
    let ops: Vec<_> = planted.ops.values().copied().collect();
    let mut leases = w.read(|tx| tx.leases_of(&ops))?;
    leases.sort_by_key(|lease| lease.key.op);
    let from_start = |at: Timestamp| at.as_micros() - crate::start().as_micros();
    Ok(leases.iter().map(|lease| (from_start(lease.acquired_at), from_start(lease.expires_at))).collect())
}

const SECOND: i64 = 1_000_000;

fn what_lies_ahead_is_brought_back_and_nothing_else(w: &mut World) -> Outcome {
    let planted = leased(w, 3)?;
    let queued = Scenario::new().op("early").kind("r").op("now").kind("r").op("late").kind("r").plant(w)?;
    // A claim of what is due at 0, 3 and 3 s; the clock then stands at 1 s.
    w.clock().set(Timestamp::from_micros(crate::start().as_micros() + SECOND)?)?;
    let term = candidate("w1");
    w.clock().advance(Micros::from_secs(100))?;
    elect(w, &term)?;
    w.clock().set(Timestamp::from_micros(crate::start().as_micros() + SECOND)?)?;
    let back = w.tx(|tx| tx.pull_back(Micros::from_secs(31)))?;
    assert_eq!(back, PulledBack { ready: 3, leases: 1 }, "three ops are due later, and one lease begins later");
    assert_eq!(leases(w, &planted)?, [(0, 30 * SECOND), (SECOND, 31 * SECOND), (SECOND, 32 * SECOND)]);
    let due = w.read(|tx| tx.op_views(&queued.ops.values().copied().collect::<Vec<_>>()))?;
    assert!(due.iter().all(|view| view.due_at == Some(w.now())), "{due:?}");
    assert_eq!(elect(w, &candidate("w2"))?.epoch, Epoch(2), "the term that would have ended much later has ended");
    let again = w.tx(|tx| tx.pull_back(Micros::from_secs(31)))?;
    assert_eq!(again, PulledBack::default());
    assert_eq!(w.tx(|tx| tx.pull_back(Micros::from_secs(30)))?, PulledBack { ready: 0, leases: 1 });
    assert_eq!(leases(w, &planted)?, [(0, 30 * SECOND), (SECOND, 31 * SECOND), (SECOND, 31 * SECOND)]);
    Ok(())
}

fn leases_that_held_before_a_jump_are_spared_and_no_others(w: &mut World) -> Outcome {
    // They expire at 30, 31, 32, 33 and 34 s.
    let planted = leased(w, 5)?;
    let at = |seconds: i64| Timestamp::from_micros(crate::start().as_micros() + seconds * SECOND);
    w.clock().set(at(7_200)?)?;
    let spare = Spare { live_at: at(31)?, until: at(34)?, limit: 10 };
    assert_eq!(w.tx(|tx| tx.spare_leases(&spare))?, 2, "what had expired stays so, and none is shortened");
    let ends: Vec<i64> = leases(w, &planted)?.iter().map(|(_, end)| end / SECOND).collect();
    assert_eq!(ends, [30, 31, 34, 34, 34]);
    let spare = Spare { until: at(7_210)?, ..spare };
    assert_eq!(w.tx(|tx| tx.spare_leases(&spare))?, 3);
    assert_eq!(w.read(|tx| tx.expired_leases(10))?.len(), 2);
    Ok(())
}

fn sparing_is_bounded_and_begins_with_the_first_to_expire(w: &mut World) -> Outcome {
    let planted = leased(w, 5)?;
    let begin = w.now();
    w.clock().advance(LEASE)?;
    let until = w.now().after(LEASE)?;
    let mut spared = Vec::new();
    for _ in 0..4 {
        spared.push(w.tx(|tx| tx.spare_leases(&Spare { live_at: begin, until, limit: 2 }))?);
    }
    assert_eq!(spared, [2, 2, 1, 0]);
    assert!(leases(w, &planted)?.windows(2).all(|pair| pair.iter().all(|(_, end)| *end == until.as_micros() - crate::start().as_micros())));
    Ok(())
}

fn who_stands_first_leads_until_its_term_ends(w: &mut World) -> Outcome {
    let (first, second) = (candidate("w1"), candidate("w2"));
    let ends_at = w.now().after(TERM)?;
    let led = Leadership { epoch: Epoch(1), leader: name("w1"), ends_at, now: w.now(), mine: true };
    assert_eq!(elect(w, &first)?, led);
    assert_eq!(elect(w, &second)?, Leadership { mine: false, ..led.clone() });
    w.clock().advance(microseconds(TERM.get() - 1))?;
    assert_eq!(elect(w, &second)?, Leadership { mine: false, now: w.now(), ..led });
    w.clock().advance(microseconds(1))?;
    let ends_at = w.now().after(TERM)?;
    let expected = Leadership { epoch: Epoch(2), leader: name("w2"), ends_at, now: w.now(), mine: true };
    assert_eq!(elect(w, &second)?, expected, "a term that ends now has ended");
    assert_eq!(elect(w, &first)?, Leadership { mine: false, ..expected });
    Ok(())
}

fn a_leader_that_renews_keeps_its_epoch(w: &mut World) -> Outcome {
    let first = candidate("w1");
    for _ in 0..3 {
        let led = elect(w, &first)?;
        assert_eq!((led.epoch, led.ends_at, led.mine), (Epoch(1), w.now().after(TERM)?, true));
        w.clock().advance(microseconds(TERM.get() - 1))?;
    }
    // The same name proves nothing.
    assert!(!elect(w, &candidate("w1"))?.mine);
    Ok(())
}

fn a_leader_that_comes_too_late_to_renew_gets_a_new_epoch(w: &mut World) -> Outcome {
    let first = candidate("w1");
    elect(w, &first)?;
    w.clock().advance(TERM)?;
    assert_eq!(elect(w, &first)?.epoch, Epoch(2), "another may have led in between");
    Ok(())
}

fn only_the_leader_itself_resigns(w: &mut World) -> Outcome {
    let (first, second) = (candidate("w1"), candidate("w2"));
    elect(w, &first)?;
    w.tx(|tx| tx.resign(second.token, Epoch(1)))?;
    w.tx(|tx| tx.resign(first.token, Epoch(2)))?;
    assert!(!elect(w, &second)?.mine);
    w.tx(|tx| tx.resign(first.token, Epoch(1)))?;
    assert_eq!(elect(w, &second)?.epoch, Epoch(2), "at once");
    w.tx(|tx| tx.resign(first.token, Epoch(1)))?;
    assert!(!elect(w, &first)?.mine);
    Ok(())
}

fn an_epoch_is_held_while_it_is_the_present_one(w: &mut World) -> Outcome {
    let hold = |epoch: i64| w.tx(|tx| tx.hold_epoch(Epoch(epoch)));
    elect(w, &candidate("w1"))?;
    assert_eq!((hold(1)?, hold(2)?), (true, false));
    w.clock().advance(TERM)?;
    assert!(hold(1)?, "nobody else was elected");
    elect(w, &candidate("w2"))?;
    assert_eq!((hold(1)?, hold(2)?, hold(3)?), (false, true, false));
    Ok(())
}
