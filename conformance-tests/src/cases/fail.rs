//! Failing and releasing (L8, L9, L13, Q8).

use crate::case::cases;
use crate::scenario::{LEASE, json, microseconds, name};
use crate::verbs::{completion, failure, giving_back, permanent_failure};
use crate::{Outcome, Planted, Scenario, World};
use leasehold_core::model::{Backoff, Effect, ErrorClass, Fence, Jitter, Limits, Micros, OpError, RetryPolicy, Timestamp};
use leasehold_core::state::OpStatus;
use leasehold_core::store::BoxError;
use leasehold_core::store::rows::{AttemptOutcome, ClaimedOp};
use leasehold_core::transitions::{End, Ended, Finish};

cases! {
    a_retry_comes_when_its_policy_says_and_not_before proves ["Q8", "T5"];
    each_backoff_grows_as_its_name_says proves ["Q8"];
    a_delay_of_the_handlers_own_takes_the_policys_place proves ["Q8"];
    full_jitter_spreads_within_the_delay proves ["Q8"];
    a_delay_never_passes_its_cap proves ["Q8", "T4"];
    the_last_attempt_fails_the_op proves ["Q8", "L8"];
    a_permanent_error_fails_the_op_at_once proves ["Q8"];
    an_op_with_one_attempt_fails_at_its_first_failure proves ["Q8"];
    a_failure_is_kept_with_its_code_message_and_details proves ["L9", "Q8"];
    any_text_of_an_error_can_be_recorded proves ["L13", "B8"];
    failures_are_counted_and_told_to_the_next_attempt proves ["L8", "Q8"];
    the_policy_is_the_ops_own proves ["Q8"];
    a_retry_that_would_come_after_year_9999_fails_the_op proves ["T4", "Q8"];
    a_repeated_failure_gets_its_first_answer proves ["L12", "L1"];
    a_release_is_ready_at_once_and_counts_nothing proves ["L8", "L15"];
    a_repeated_release_gets_its_first_answer proves ["L12", "L1"];
    an_op_can_be_released_for_ever proves ["L8"];
    every_lease_has_a_higher_fence proves ["L6"];
    a_retried_op_holds_no_slot_while_it_waits proves ["Q1", "Q8"];
}

/// A policy without chance: the delays are known.
const EXACT: RetryPolicy = RetryPolicy {
    max_attempts: 10,
    backoff: Backoff::Exponential,
    base: Micros::from_secs(1),
    cap: Micros::from_secs(300),
    jitter: Jitter::None,
    max_lost: 5,
    effect: Effect::Repeatable,
};

/// Claims the only ready op and fails it; returns how long it is to wait.
fn fail_next(w: &World) -> Result<Option<Micros>, BoxError> {
    let claimed = w.claim_one("w1")?;
    match w.finish_one(failure(&claimed))? {
        Ended::Retried { due_at } => Ok(Some(Micros::new(due_at.as_micros() - w.now().as_micros())?)),
        Ended::Failed { .. } => Ok(None),
        other => panic!("a failure got {other:?}"),
    }
}

fn a_retry_comes_when_its_policy_says_and_not_before(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").retry(EXACT).build(w)?;
    let delay = fail_next(w)?.ok_or("attempts are left")?;
    assert_eq!(delay, Micros::from_secs(1));
    let due_at = w.now().after(delay)?;
    let view = w.view(planted.op("a"))?;
    assert_eq!((view.status, view.due_at, view.finished_at), (OpStatus::Ready, Some(due_at), None));
    for (by, claimed) in [(-1, 0), (0, 1)] {
        w.clock().set(Timestamp::from_micros(due_at.as_micros() + by)?)?;
        assert_eq!(w.claim("w1", 1)?.len(), claimed, "{by} µs from its instant");
    }
    Ok(())
}

fn delays(w: &World, retry: RetryPolicy, count: usize) -> Result<Vec<i64>, BoxError> {
    let planted = Scenario::new().op("a").retry(retry).build(w)?;
    let mut delays = Vec::new();
    for _ in 0..count {
        let delay = fail_next(w)?.ok_or("attempts are left")?;
        delays.push(delay.get() / 1_000_000);
        w.clock().advance(delay)?;
    }
    w.cancel(&planted)?;
    Ok(delays)
}

fn each_backoff_grows_as_its_name_says(w: &mut World) -> Outcome {
    for (backoff, expected) in [(Backoff::Fixed, [2, 2, 2, 2]), (Backoff::Linear, [2, 4, 6, 8]), (Backoff::Exponential, [2, 4, 8, 16])] {
        let retry = RetryPolicy { backoff, base: Micros::from_secs(2), ..EXACT };
        assert_eq!(delays(w, retry, 4)?, expected, "{backoff:?}");
    }
    Ok(())
}

fn a_delay_never_passes_its_cap(w: &mut World) -> Outcome {
    let retry = RetryPolicy { cap: Micros::from_secs(5), ..EXACT };
    assert_eq!(delays(w, retry, 6)?, [1, 2, 4, 5, 5, 5]);
    Ok(())
}

fn a_delay_of_the_handlers_own_takes_the_policys_place(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").retry(EXACT).leased_by("w1").build(w)?;
    let delay = microseconds(12_345);
    let end = End::Fail { error: OpError::new("busy", "later"), class: ErrorClass::Retryable, delay: Some(delay) };
    let outcome = w.finish_one(Finish { end, ..failure(&planted.claimed("a")) })?;
    assert_eq!(outcome, Ended::Retried { due_at: w.now().after(delay)? });
    assert_eq!(w.view(planted.op("a"))?.due_at, Some(w.now().after(delay)?));
    Ok(())
}

fn full_jitter_spreads_within_the_delay(w: &mut World) -> Outcome {
    const OPS: usize = 200;
    let retry = RetryPolicy { jitter: Jitter::Full, base: Micros::from_secs(100), ..EXACT };
    let mut scenario = Scenario::new();
    for at in 0..OPS {
        scenario = scenario.op(&at.to_string()).kind("k").retry(retry);
    }
    let planted = scenario.build(w)?;
    let batch: Vec<Finish> = w.claim("w1", 1_000)?.iter().map(failure).collect();
    let mut tenths = [0_usize; 10];
    for outcome in w.finish(&batch)? {
        let Ended::Retried { due_at } = outcome else { panic!("a failure got {outcome:?}") };
        let delay = due_at.as_micros() - w.now().as_micros();
        assert!((1..=100_000_000).contains(&delay), "{delay} µs");
        if let Some(tenth) = tenths.get_mut(usize::try_from((delay - 1) / 10_000_000)?) {
            *tenth += 1;
        }
    }
    assert_eq!(batch.len(), OPS);
    assert!(tenths.iter().all(|count| *count > 0), "what failed together does not come back together: {tenths:?}");
    w.cancel(&planted)?;
    Ok(())
}

fn the_last_attempt_fails_the_op(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").retry(RetryPolicy { max_attempts: 3, ..EXACT }).op("b").after(&["a"]).build(w)?;
    for attempt in 1..=3 {
        let delay = fail_next(w)?;
        assert_eq!(delay.is_some(), attempt < 3, "attempt {attempt}");
        if let Some(delay) = delay {
            assert_eq!(w.statuses(&planted, &["a", "b"])?, [OpStatus::Ready, OpStatus::Pending]);
            w.clock().advance(delay)?;
        }
    }
    assert_eq!(w.statuses(&planted, &["a", "b"])?, [OpStatus::Failed, OpStatus::Blocked]);
    let outcomes: Vec<AttemptOutcome> =
        w.read(|tx| tx.attempts(planted.op("a"), Fence::NONE, 10))?.iter().map(|attempt| attempt.outcome).collect();
    assert_eq!(outcomes, [AttemptOutcome::Retried, AttemptOutcome::Retried, AttemptOutcome::Failed]);
    Ok(())
}

fn a_permanent_error_fails_the_op_at_once(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").retry(EXACT).leased_by("w1").build(w)?;
    let outcome = w.finish_one(permanent_failure(&planted.claimed("a")))?;
    assert!(matches!(&outcome, Ended::Failed { error } if error.code == "broken"), "{outcome:?}");
    assert_eq!(w.status(&planted, "a")?, OpStatus::Failed);
    Ok(())
}

fn an_op_with_one_attempt_fails_at_its_first_failure(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").retry(RetryPolicy::once()).build(w)?;
    assert_eq!(fail_next(w)?, None);
    assert_eq!(w.status(&planted, "a")?, OpStatus::Failed);
    Ok(())
}

fn failing_with(w: &World, planted: &Planted, error: OpError) -> Result<OpError, BoxError> {
    let end = End::Fail { error, class: ErrorClass::Permanent, delay: None };
    match w.finish_one(Finish { end, ..failure(&planted.claimed("a")) })? {
        Ended::Failed { error } => {
            let view = w.view(planted.op("a"))?;
            assert_eq!(view.error.as_ref(), Some(&error), "the answer is what is stored");
            Ok(error)
        }
        other => panic!("a permanent failure got {other:?}"),
    }
}

fn a_failure_is_kept_with_its_code_message_and_details(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
    let error = OpError { details: json(r#"{ "status" : 503 }"#), ..OpError::new("http_503", "the provider said \"no\"\nü") };
    assert_eq!(failing_with(w, &planted, error.clone())?, error);
    let attempts = w.read(|tx| tx.attempts(planted.op("a"), Fence::NONE, 10))?;
    assert_eq!(attempts.iter().map(|attempt| attempt.error.clone()).collect::<Vec<_>>(), [Some(error)]);
    Ok(())
}

fn any_text_of_an_error_can_be_recorded(w: &mut World) -> Outcome {
    // Longer than any limit of an engine, which cuts what it reports.
    let long = "é".repeat(Limits::default().error_bytes);
    for message in ["a\0b\0".to_owned(), long, "\u{1}\u{7f}\u{feff}\u{202e}".to_owned(), String::new()] {
        let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
        let kept = failing_with(w, &planted, OpError::new("code\0", message.clone()))?;
        assert!(!kept.message.contains('\0') && !kept.code.contains('\0'), "{kept:?}");
        if !message.contains('\0') {
            assert_eq!(kept.message, message, "what can be stored is stored as it is");
        }
    }
    Ok(())
}

fn failures_are_counted_and_told_to_the_next_attempt(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").retry(EXACT).build(w)?;
    for failures in 0..4 {
        let claimed = w.claim_one("w1")?;
        assert_eq!(claimed.failures, failures);
        assert_eq!(w.view(planted.op("a"))?.state.failures, failures);
        let Ended::Retried { due_at } = w.finish_one(failure(&claimed))? else { panic!("attempts are left") };
        w.clock().set(due_at)?;
    }
    assert_eq!(w.view(planted.op("a"))?.state.losses, 0, "the classes never mix");
    Ok(())
}

fn the_policy_is_the_ops_own(w: &mut World) -> Outcome {
    let planted = Scenario::new()
        .op("a")
        .kind("k")
        .retry(RetryPolicy { base: Micros::from_secs(3), ..EXACT })
        .op("b")
        .kind("k")
        .retry(RetryPolicy { max_attempts: 1, ..EXACT })
        .build(w)?;
    let batch: Vec<Finish> = w.claim("w1", 2)?.iter().map(failure).collect();
    let outcomes = w.finish(&batch)?;
    let due_at = w.now().after(Micros::from_secs(3))?;
    assert!(matches!(outcomes.as_slice(), [Ended::Retried { due_at: due }, Ended::Failed { .. }] if *due == due_at), "{outcomes:?}");
    assert_eq!(w.view(planted.op("a"))?.state.retry.base, Micros::from_secs(3), "it is stored whole");
    Ok(())
}

fn a_retry_that_would_come_after_year_9999_fails_the_op(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").retry(EXACT).leased_by("w1").build(w)?;
    let end = End::Fail { error: OpError::new("busy", "later"), class: ErrorClass::Retryable, delay: Some(Micros::new(i64::MAX)?) };
    let outcome = w.finish_one(Finish { end, ..failure(&planted.claimed("a")) })?;
    assert!(matches!(outcome, Ended::Failed { .. }), "an instant that never comes is not waited for: {outcome:?}");
    Ok(())
}

fn a_repeated_failure_gets_its_first_answer(w: &mut World) -> Outcome {
    for end in [failure, permanent_failure] {
        let planted = Scenario::new().op("a").retry(EXACT).leased_by("w1").build(w)?;
        let claimed = planted.claimed("a");
        let first = w.finish_one(end(&claimed))?;
        let before = w.fingerprint(&planted)?;
        assert_eq!(w.finish_one(end(&claimed))?, first, "the whole answer, with its instant or error");
        assert_eq!(w.fingerprint(&planted)?, before);
        assert_eq!(w.view(planted.op("a"))?.state.failures, 1, "counted once");
        w.cancel(&planted)?;
    }
    Ok(())
}

fn a_release_is_ready_at_once_and_counts_nothing(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").retry(RetryPolicy::once()).leased_by("w1").build(w)?;
    let claimed = planted.claimed("a");
    w.clock().advance(microseconds(3))?;
    assert_eq!(w.finish_one(giving_back(&claimed))?, Ended::Released);
    let view = w.view(planted.op("a"))?;
    assert_eq!((view.status, view.due_at), (OpStatus::Ready, Some(w.now())));
    assert_eq!((view.state.failures, view.state.losses), (0, 0));
    let attempts = w.read(|tx| tx.attempts(planted.op("a"), Fence::NONE, 10))?;
    assert_eq!(attempts.iter().map(|attempt| attempt.outcome).collect::<Vec<_>>(), [AttemptOutcome::Released]);
    let again = w.claim_one("w2")?;
    w.complete_one(&again, "1")?;
    Ok(())
}

fn a_repeated_release_gets_its_first_answer(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
    let claimed = planted.claimed("a");
    assert_eq!(w.finish_one(giving_back(&claimed))?, Ended::Released);
    let before = w.fingerprint(&planted)?;
    assert_eq!(w.finish_one(giving_back(&claimed))?, Ended::Released);
    assert_eq!(w.fingerprint(&planted)?, before);
    let next = w.claim_one("w2")?;
    assert_eq!(w.finish_one(giving_back(&claimed))?, Ended::Released, "also when another holds it since");
    w.complete_one(&next, "1")?;
    Ok(())
}

fn an_op_can_be_released_for_ever(w: &mut World) -> Outcome {
    Scenario::new().op("a").retry(RetryPolicy { max_attempts: 2, max_lost: 1, ..EXACT }).build(w)?;
    for _ in 0..20 {
        let claimed = w.claim_one("w1")?;
        assert_eq!(w.finish_one(giving_back(&claimed))?, Ended::Released);
    }
    assert_eq!(fail_next(w)?, Some(Micros::from_secs(1)), "the first failure gets the first delay");
    w.clock().advance(Micros::from_secs(1))?;
    assert_eq!(w.drain("w1")?, 1);
    Ok(())
}

fn every_lease_has_a_higher_fence(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").retry(EXACT).build(w)?;
    let mut fences = Vec::new();
    let mut take = |w: &World| -> Result<ClaimedOp, BoxError> {
        let claimed = w.claim_one("w1")?;
        fences.push(claimed.lease.key.fence.0);
        Ok(claimed)
    };
    let released = take(w)?;
    w.finish_one(giving_back(&released))?;
    let failed = take(w)?;
    let Ended::Retried { due_at } = w.finish_one(failure(&failed))? else { panic!("attempts are left") };
    w.clock().set(due_at)?;
    take(w)?;
    w.clock().advance(LEASE)?;
    w.recover(10)?;
    let broken = take(w)?;
    w.finish_one(permanent_failure(&broken))?;
    w.retry_op(&planted, "a")?;
    let last = take(w)?;
    w.finish_one(completion(&last, "1"))?;
    assert_eq!(fences, [1, 2, 3, 4, 5], "whatever ends an attempt, the numbers go on");
    Ok(())
}

fn a_retried_op_holds_no_slot_while_it_waits(w: &mut World) -> Outcome {
    w.set_policies(&[crate::verbs::limit("q", 1)])?;
    let planted = Scenario::new().op("a").queue("q").retry(EXACT).leased_by("w1").op("b").queue("q").build(w)?;
    assert_eq!(w.claim("w1", 10)?.len(), 0);
    w.finish_one(failure(&planted.claimed("a")))?;
    let next = w.claim("w1", 10)?;
    assert_eq!(next.iter().map(|op| op.op_id.clone()).collect::<Vec<_>>(), [name("b")]);
    Ok(())
}
