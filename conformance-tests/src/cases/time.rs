//! A clock that goes back or jumps (T7, T8).

use super::steps::time::candidate;
use crate::case::cases;
use crate::scenario::{LEASE, microseconds};
use crate::verbs::{IN_THE_WAY, claim_request, failure, rate};
use crate::world::transact;
use crate::{Outcome, Planted, Scenario, World};
use leasehold_core::model::{Fence, Micros, RequestId, Timestamp};
use leasehold_core::state::OpStatus;
use leasehold_core::store::rows::{EventKind, EventRow};
use leasehold_core::store::{BoxError, ClockReading, PulledBack, TxKind};
use leasehold_core::transitions::{
    self, Actor, CLOCK_TOLERANCE, CancelWorkflow, ClaimRequest, ClockTrusted, Ended, HeartbeatOutcome, Pass, TransitionError, TrustClock,
    Until,
};

cases! {
    heartbeats_remember_how_far_time_has_come proves ["T7"];
    an_election_remembers_how_far_time_has_come proves ["T7", "L10"];
    the_mark_never_moves_back_by_itself proves ["T7"];
    a_clock_that_is_far_behind_holds_claims_promotion_recovery_and_wake_ups proves ["T7", "W2"];
    a_clock_that_is_behind_by_the_tolerance_holds_nothing proves ["T7"];
    what_held_goes_on_by_itself_when_the_clock_is_right_again proves ["T7"];
    the_mark_is_known_after_a_restart proves ["T7"] needs [Restart];
    an_anomaly_is_recorded_once_while_it_lasts proves ["T7", "O2"];
    an_anomaly_that_comes_again_is_recorded_again proves ["T7", "O2"];
    owners_that_are_alive_go_on_while_the_clock_is_behind proves ["T7", "L4"];
    trusting_the_clock_ends_the_hold proves ["T7", "P8"];
    a_repeated_trust_gets_its_first_answer proves ["T7", "L12"];
    trusting_a_clock_that_is_right_changes_nothing_else proves ["T7"];
    a_lost_owners_lease_does_not_outlive_the_mistaken_clock proves ["T7", "L7"];
    a_clock_30_seconds_back_fires_nothing_twice proves ["T7", "T8", "Q1"];
    a_clock_5_minutes_back_fires_nothing_twice proves ["T7", "T8", "Q1"];
    a_clock_10_years_back_fires_nothing_twice proves ["T7", "T8", "Q1"];
    a_clock_2_hours_forward_fires_everything_once proves ["T7", "T8", "Q1"];
}

fn clock(w: &World) -> Result<ClockReading, BoxError> {
    Ok(w.read(|tx| tx.clock())?)
}

fn seconds(n: u32) -> Micros {
    Micros::from_secs(n)
}

/// A lease that was renewed, so that the mark stands at now.
fn marked(w: &World) -> Result<Planted, BoxError> {
    let planted = Scenario::new().op("held").leased_by("w1").build(w)?;
    w.clock().advance(seconds(2))?;
    assert!(matches!(w.heartbeat(&[planted.lease("held")])?.as_slice(), [HeartbeatOutcome::Held(_)]));
    assert_eq!(clock(w)?.mark, Some(w.now()));
    Ok(planted)
}

fn trust(w: &World) -> Result<ClockTrusted, TransitionError> {
    trust_with(w, &TrustClock { request: RequestId::random(), actor: Actor::new("ann"), leases_within: seconds(60) })
}

fn trust_with(w: &World, call: &TrustClock) -> Result<ClockTrusted, TransitionError> {
    transact(w.store().as_ref(), TxKind::Client, |tx| transitions::trust_clock(tx, call))
}

fn note(w: &World) -> Result<usize, BoxError> {
    let noted = transact(w.store().as_ref(), TxKind::Maintenance, |tx| transitions::note_anomaly(tx, CLOCK_TOLERANCE))?;
    Ok(noted.len())
}

fn events(w: &World, kind: EventKind) -> Result<Vec<EventRow>, BoxError> {
    let all = w.read(|tx| tx.events_since(None, None, 1_000))?;
    Ok(all.into_iter().filter(|row| row.event.kind == kind).collect())
}

fn promote(w: &World) -> Result<Pass<u32>, BoxError> {
    Ok(transact(w.store().as_ref(), TxKind::Claim, |tx| transitions::promote(tx, 100, IN_THE_WAY))?)
}

fn heartbeats_remember_how_far_time_has_come(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
    let key = [planted.lease("a")];
    assert_eq!(clock(w)?.mark, None, "a claim does not");
    let begin = w.now();
    w.heartbeat(&key)?;
    assert_eq!(clock(w)?.mark, Some(begin));
    w.clock().advance(Micros::from_millis(999))?;
    w.heartbeat(&key)?;
    assert_eq!(clock(w)?.mark, Some(begin), "at most once a second");
    w.clock().advance(Micros::from_millis(1))?;
    w.heartbeat(&key)?;
    assert_eq!(clock(w)?.mark, Some(w.now()));
    Ok(())
}

fn an_election_remembers_how_far_time_has_come(w: &mut World) -> Outcome {
    let stand = |who| transact(w.store().as_ref(), TxKind::Maintenance, |tx| transitions::elect(tx, &candidate(who)));
    let begin = w.now();
    assert!(stand("w1")?.mine);
    assert_eq!(clock(w)?.mark, Some(begin));
    w.clock().advance(seconds(3))?;
    assert!(!stand("w2")?.mine);
    assert_eq!(clock(w)?.mark, Some(begin), "only who keeps the store up does");
    Ok(())
}

fn the_mark_never_moves_back_by_itself(w: &mut World) -> Outcome {
    let planted = marked(w)?;
    let mark = w.now();
    for back in [1, 600_000, 500_000] {
        w.clock().go_back(microseconds(back))?;
        w.heartbeat(&[planted.lease("held")])?;
        transact(w.store().as_ref(), TxKind::Maintenance, |tx| transitions::elect(tx, &candidate("w1")))?;
        assert_eq!(clock(w)?.mark, Some(mark));
    }
    Ok(())
}

fn a_clock_that_is_far_behind_holds_claims_promotion_recovery_and_wake_ups(w: &mut World) -> Outcome {
    let scenario = Scenario::new().op("dead").leased_by("w0").op("later").leased_by("w0").op("waits").leased_by("w0").op("ready");
    let planted = scenario.build(w)?;
    w.finish_one(failure(&planted.claimed("later")))?;
    w.suspend_one(&planted.claimed("waits"), Until::For(seconds(10)))?;
    w.clock().advance(seconds(60))?;
    marked(w)?;
    w.clock().go_back(microseconds(6_000_000))?;
    // Behind, and still later than the expiry, the instant of the retry, and that of the wake-up.
    let before = w.fingerprint(&planted)?;
    let request = claim_request("w1", 10);
    let report = transact(w.store().as_ref(), TxKind::Claim, |tx| transitions::claim(tx, &request))?;
    let behind = report.held.ok_or("the claim holds")?;
    assert_eq!((report.ops.len(), behind.now, behind.noted), (0, w.now(), false));
    assert_eq!(promote(w)?, Pass::ClockBehind(behind));
    assert_eq!(w.recover_by(IN_THE_WAY, 10)?, Pass::ClockBehind(behind));
    assert_eq!(w.wake_by(IN_THE_WAY, 10)?, Pass::ClockBehind(behind));
    assert_eq!(w.fingerprint(&planted)?, before, "nothing was written");
    Ok(())
}

fn a_clock_that_is_behind_by_the_tolerance_holds_nothing(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("dead").leased_by("w0").build(w)?;
    w.clock().advance(seconds(60))?;
    marked(w)?;
    w.clock().go_back(seconds(5))?;
    Scenario::new().op("ready").build(w)?;
    w.clock().go_back(microseconds(1))?;
    assert!(w.claim_with(&claim_request("w1", 1))?.held.is_some(), "one microsecond more does");
    w.clock().advance(microseconds(1))?;
    assert_eq!(promote(w)?, Pass::Done(0));
    assert_eq!(w.claim("w1", 1)?.len(), 1);
    assert_eq!(w.recover(10)?.ops.len(), 1);
    assert_eq!(w.status(&planted, "dead")?, OpStatus::Ready);
    assert_eq!(note(w)?, 0, "that is no anomaly");
    Ok(())
}

fn what_held_goes_on_by_itself_when_the_clock_is_right_again(w: &mut World) -> Outcome {
    Scenario::new().op("ready").build(w)?;
    marked(w)?;
    w.clock().go_back(seconds(60))?;
    assert_eq!(w.claim("w1", 10)?, []);
    w.clock().advance(seconds(60))?;
    assert_eq!(w.claim("w1", 10)?.len(), 1);
    Ok(())
}

fn the_mark_is_known_after_a_restart(w: &mut World) -> Outcome {
    Scenario::new().op("ready").build(w)?;
    marked(w)?;
    w.clock().go_back(seconds(60))?;
    w.restart()?;
    assert!(w.claim_with(&claim_request("w1", 1))?.held.is_some());
    assert_eq!(w.recover_by(IN_THE_WAY, 10)?.map(drop), Pass::ClockBehind(clock(w)?.trusted(CLOCK_TOLERANCE).err().ok_or("behind")?));
    Ok(())
}

fn an_anomaly_is_recorded_once_while_it_lasts(w: &mut World) -> Outcome {
    marked(w)?;
    let mark = w.now();
    assert_eq!(note(w)?, 0, "there is none");
    w.clock().go_back(seconds(60))?;
    let since = w.now();
    assert_eq!(note(w)?, 1);
    for _ in 0..3 {
        w.clock().advance(seconds(1))?;
        assert_eq!(note(w)?, 0);
    }
    let recorded = events(w, EventKind::ClockAnomaly)?;
    let [event] = recorded.as_slice() else { panic!("once: {recorded:?}") };
    assert_eq!((event.event.at, &event.workflow_id, event.event.workflow), (since, &None, None));
    assert!(event.event.detail.as_ref().is_some_and(|detail| detail.contains(&mark.to_string())), "{event:?}");
    assert_eq!(clock(w)?, ClockReading { now: w.now(), mark: Some(mark), anomaly_since: Some(since) });
    let report = {
        Scenario::new().op("ready").build(w)?;
        w.claim_with(&claim_request("w1", 1))?
    };
    assert!(report.held.is_some_and(|behind| behind.noted), "who is held knows that it is recorded");
    Ok(())
}

fn an_anomaly_that_comes_again_is_recorded_again(w: &mut World) -> Outcome {
    let planted = marked(w)?;
    for _ in 0..2 {
        w.clock().go_back(seconds(20))?;
        assert_eq!(note(w)?, 1);
        w.clock().advance(seconds(21))?;
        w.heartbeat(&[planted.lease("held")])?;
        assert_eq!(clock(w)?.anomaly_since, None, "time has come past the mark");
    }
    assert_eq!(events(w, EventKind::ClockAnomaly)?.len(), 2);
    Ok(())
}

fn owners_that_are_alive_go_on_while_the_clock_is_behind(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").op("b").leased_by("w1").op("c").after(&["a"]).build(w)?;
    w.clock().advance(seconds(20))?;
    let keys = [planted.lease("a"), planted.lease("b")];
    let expiry = w.now().after(LEASE)?;
    w.heartbeat(&keys)?;
    // Behind the mark, and not behind the leases' beginning.
    w.clock().go_back(seconds(10))?;
    let beats = w.heartbeat(&keys)?;
    assert!(
        beats.iter().all(|beat| matches!(beat, HeartbeatOutcome::Held(lease) if lease.expires_at == expiry)),
        "none is shortened: {beats:?}"
    );
    w.complete_one(&planted.claimed("a"), "1")?;
    w.fail_for_good(&planted.claimed("b"))?;
    assert_eq!(w.statuses(&planted, &["a", "b", "c"])?, [OpStatus::Succeeded, OpStatus::Failed, OpStatus::Ready]);
    assert!(w.claim_with(&claim_request("w1", 1))?.held.is_some(), "what they made ready waits");
    Ok(())
}

fn trusting_the_clock_ends_the_hold(w: &mut World) -> Outcome {
    Scenario::new().op("ready").build(w)?;
    marked(w)?;
    let before = w.now();
    w.clock().go_back(seconds(3_600))?;
    note(w)?;
    assert!(w.claim_with(&claim_request("w1", 1))?.held.is_some());
    let actor = Actor { name: "ann".to_owned(), reason: Some("the old time was wrong".to_owned()) };
    let call = TrustClock { request: RequestId::random(), actor, leases_within: seconds(60) };
    let trusted = trust_with(w, &call)?;
    assert_eq!((trusted.now, trusted.before, trusted.notices.len()), (w.now(), Some(before), 1));
    assert_eq!((trusted.pulled_back.ready, trusted.pulled_back.leases), (1, 1));
    assert_eq!(clock(w)?, ClockReading { now: w.now(), mark: Some(w.now()), anomaly_since: None });
    assert_eq!(w.claim("w1", 10)?.len(), 1, "also what had become ready by the mistaken clock");
    let recorded = events(w, EventKind::ClockTrusted)?;
    let [event] = recorded.as_slice() else { panic!("once: {recorded:?}") };
    assert_eq!((event.event.actor.as_deref(), event.event.detail.as_deref()), (Some("ann"), Some("the old time was wrong")));
    Ok(())
}

fn a_repeated_trust_gets_its_first_answer(w: &mut World) -> Outcome {
    Scenario::new().op("ready").build(w)?;
    let planted = marked(w)?;
    w.clock().go_back(seconds(3_600))?;
    let call = TrustClock { request: RequestId::random(), actor: Actor::new("ann"), leases_within: seconds(60) };
    let first = trust_with(w, &call)?;
    w.clock().go_back(seconds(3_600))?;
    let again = trust_with(w, &call)?;
    assert_eq!((again.now, again.before, again.pulled_back), (first.now, first.before, first.pulled_back));
    assert_eq!(clock(w)?.mark, Some(first.now), "the clock that went wrong since is not trusted by it");
    assert_eq!(events(w, EventKind::ClockTrusted)?.len(), 1);
    let reused = CancelWorkflow { request: call.request, actor: Actor::new("ann"), workflow: planted.id.clone() };
    assert!(matches!(w.cancel_with(&reused), Err(TransitionError::RequestReused(_))));
    Ok(())
}

fn trusting_a_clock_that_is_right_changes_nothing_else(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").op("b").build(w)?;
    let long = w.claim_with(&ClaimRequest { lease: seconds(86_400), ..claim_request("w1", 1) })?;
    w.clock().advance(seconds(1))?;
    let before = w.fingerprint(&planted)?;
    let trusted = trust(w)?;
    assert_eq!((trusted.now, trusted.before, trusted.pulled_back), (w.now(), None, PulledBack::default()));
    assert_eq!(w.fingerprint(&planted)?, before);
    assert_eq!(long.ops.len(), 1, "a day's lease is a day's lease");
    assert_eq!(clock(w)?.mark, Some(w.now()));
    Ok(())
}

fn a_lost_owners_lease_does_not_outlive_the_mistaken_clock(w: &mut World) -> Outcome {
    const TEN_YEARS: u32 = 315_360_000;
    w.clock().advance(seconds(TEN_YEARS))?;
    let planted = marked(w)?;
    w.clock().go_back(seconds(TEN_YEARS))?;
    trust(w)?;
    assert_eq!(w.recover(10)?.ops.len(), 0, "its owner may be alive");
    w.clock().advance(seconds(60))?;
    assert_eq!(w.recover(10)?.ops.len(), 1, "and has had time to say so");
    assert_eq!(w.status(&planted, "held")?, OpStatus::Ready);
    Ok(())
}

// ---- a store with live leases, delayed ops, a token bucket and retries ----

struct Busy {
    planted: Planted,
    /// When the retry is due.
    due_at: Timestamp,
    /// When the one that waits is to be woken.
    wakes_at: Timestamp,
}

/// One op that runs and is renewed, one that ran out, one that waits for its retry, one for an instant, and a queue with a rate.
fn busy(w: &World) -> Result<Busy, BoxError> {
    w.set_policies(&[rate("q", 1.0, 2)])?;
    let queued = |scenario: Scenario, at: usize| scenario.op(&format!("q{at}")).kind("q").queue("q");
    let scenario = (0..6).fold(Scenario::new().op("live").op("dead").op("retried").op("waits"), queued);
    let mut planted = scenario.build(w)?;
    for op in ["dead", "live", "retried", "waits"] {
        let claimed = w.claim_kind("w1", op, 1)?.pop().ok_or("it is ready")?;
        planted.claimed.insert(op.to_owned(), claimed);
    }
    assert_eq!(w.claim_kind("w1", "q", 10)?.len(), 2, "the burst");
    w.clock().advance(seconds(25))?;
    w.heartbeat(&[planted.lease("live")])?;
    // Due 5 minutes from now by the policy's longest delay at most; its instant is what counts.
    let Ended::Retried { due_at } = w.finish_one(failure(&planted.claimed("retried")))? else { panic!("attempts are left") };
    let wakes_at = w.suspend_one(&planted.claimed("waits"), Until::For(seconds(60)))?;
    Ok(Busy { planted, due_at, wakes_at })
}

/// The fence of every op: how many leases it has had.
fn fences(w: &World, of: &Planted) -> Result<Vec<(String, i64)>, BoxError> {
    let views = w.all_ops(of.workflow)?;
    Ok(views
        .iter()
        .map(|view| (view.state.id.to_string(), view.lease.as_ref().map_or(view.state.fence, |lease| lease.key.fence).0))
        .collect())
}

fn goes_back(w: &World, by: Micros) -> Outcome {
    let Busy { planted, due_at, wakes_at } = busy(w)?;
    let (right, before, known) = (w.now(), w.fingerprint(&planted)?, fences(w, &planted)?);
    w.clock().go_back(by)?;
    // Nothing is dispatched, recovered or promoted, however often it is tried.
    for _ in 0..3 {
        assert_eq!(w.claim("w2", 10)?, []);
        assert!(matches!(promote(w)?, Pass::ClockBehind(_)));
        assert!(matches!(w.recover_by(IN_THE_WAY, 10)?, Pass::ClockBehind(_)));
        assert!(matches!(w.wake_by(IN_THE_WAY, 10)?, Pass::ClockBehind(_)));
        note(w)?;
        w.clock().advance(microseconds(1))?;
    }
    assert_eq!(w.fingerprint(&planted)?, before);
    // Before its lease began the live one is told so, and that it is not lost; the expiry stands.
    let live = planted.claimed("live");
    let beat = w.heartbeat(&[live.lease.key])?;
    let began = live.lease.acquired_at <= w.now();
    match beat.as_slice() {
        [HeartbeatOutcome::Held(lease)] if began => assert_eq!(Some(lease.expires_at), Some(right.after(LEASE)?)),
        [HeartbeatOutcome::ClockBehind] if !began => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(clock(w)?.mark, Some(right));
    // Trusted, the store goes on from the earlier time.
    trust(w)?;
    assert_eq!(w.view(planted.op("retried"))?.due_at, Some(due_at), "what is pending waits for its stored instant");
    assert_eq!(w.wake(10)?.ops, []);
    let waits = w.read(|tx| tx.waits_of(&[planted.op("waits")]))?;
    assert_eq!(waits.iter().map(|wait| wait.due_at).collect::<Vec<_>>(), [Some(wakes_at)]);
    w.complete_one(&live, "1")?;
    let more = w.claim_kind("w2", "q", 10)?;
    assert!(more.len() <= 2, "the bucket stays within its burst: {}", more.len());
    w.clock().advance(seconds(2))?;
    let more = more.len() + w.claim_kind("w2", "q", 10)?.len();
    assert!((2..=4).contains(&more), "tokens flow again: {more}");
    let now = fences(w, &planted)?;
    let twice: Vec<_> = now.iter().zip(&known).filter(|((id, after), (_, before))| after > before && !id.starts_with('q')).collect();
    assert!(twice.is_empty(), "{twice:?} ran again");
    assert_eq!(w.read(|tx| tx.attempts(planted.op("live"), Fence::NONE, 10))?.len(), 1);
    assert_eq!(events(w, EventKind::ClockAnomaly)?.len(), 1);
    // And in the end everything has run.
    w.clock().set(due_at.max(wakes_at).after(seconds(120))?)?;
    assert_eq!((w.wake(10)?.ops.len(), w.wake(10)?.ops.len()), (1, 0), "once");
    for _ in 0..8 {
        while !w.recover(10)?.ops.is_empty() {}
        w.drain("w3")?;
        w.clock().advance(seconds(2))?;
    }
    let row = w.workflow(&planted.id)?;
    assert_eq!(row.counters.succeeded, 10, "{:?}", row.counters);
    Ok(())
}

fn a_clock_30_seconds_back_fires_nothing_twice(w: &mut World) -> Outcome {
    goes_back(w, seconds(30))
}

fn a_clock_5_minutes_back_fires_nothing_twice(w: &mut World) -> Outcome {
    goes_back(w, seconds(300))
}

fn a_clock_10_years_back_fires_nothing_twice(w: &mut World) -> Outcome {
    goes_back(w, seconds(315_360_000))
}

fn a_clock_2_hours_forward_fires_everything_once(w: &mut World) -> Outcome {
    let Busy { planted, due_at, wakes_at } = busy(w)?;
    w.clock().advance(seconds(7_200))?;
    assert!(due_at < w.now() && wakes_at < w.now());
    assert_eq!((w.wake(10)?.ops.len(), w.wake(10)?.ops.len()), (1, 0));
    let lost = w.heartbeat(&[planted.lease("live")])?;
    assert_eq!(lost, [HeartbeatOutcome::Lost], "by the store's clock it has expired");
    let mut recovered: Vec<String> = w.recover(100)?.ops.iter().map(|op| op.op.to_string()).collect();
    recovered.sort();
    assert_eq!(recovered, ["dead", "live", "q0", "q1"]);
    assert_eq!(w.recover(100)?.ops, []);
    assert_eq!((promote(w)?, promote(w)?), (Pass::Done(1), Pass::Done(0)));
    assert_eq!(w.claim_kind("w2", "q", 10)?.len(), 2, "two hours bring no more than the burst");
    assert_eq!(w.claim_kind("w2", "q", 10)?.len(), 0);
    let others: usize =
        ["dead", "live", "retried", "waits"].iter().map(|kind| w.claim_kind("w2", kind, 10).map_or(0, |ops| ops.len())).sum();
    assert_eq!(others, 4);
    assert_eq!(w.read(|tx| tx.expired_leases(10))?, []);
    Ok(())
}
