//! How fast ops may start (Q1, T8).

use super::admission::queued;
use crate::case::cases;
use crate::scenario::name;
use crate::verbs::{claim_request, limit, rate};
use crate::{Outcome, Scenario, World};
use leasehold_core::model::{Micros, QueuePolicy};
use leasehold_core::store::BoxError;

cases! {
    a_burst_starts_at_once_and_the_rest_as_tokens_flow proves ["Q1"];
    tokens_never_pile_up_above_the_burst proves ["Q1"];
    a_token_is_spent_by_a_start_and_not_by_an_empty_claim proves ["Q1"];
    fractions_of_a_token_are_not_lost proves ["Q1"];
    a_clock_that_goes_back_gives_no_token_and_takes_none proves ["Q1", "T8"];
    tokens_flow_again_after_the_clock_went_back proves ["Q1", "T8"];
    a_queue_without_tokens_is_told_of proves ["Q1", "O2"];
    limit_and_rate_hold_together proves ["Q1"];
}

/// Claims all it can; tells how many.
fn started(w: &World) -> Result<usize, BoxError> {
    Ok(w.claim("w1", 1_000)?.len())
}

fn a_burst_starts_at_once_and_the_rest_as_tokens_flow(w: &mut World) -> Outcome {
    w.set_policies(&[rate("q", 2.0, 5)])?;
    queued(Scenario::new(), "q", "a", 20).build(w)?;
    assert_eq!(started(w)?, 5);
    assert_eq!(started(w)?, 0);
    for (millis, expected) in [(499, 0), (1, 1), (500, 1), (1_000, 2)] {
        w.clock().advance(Micros::from_millis(millis))?;
        assert_eq!(started(w)?, expected, "{millis} ms later");
    }
    Ok(())
}

fn tokens_never_pile_up_above_the_burst(w: &mut World) -> Outcome {
    w.set_policies(&[rate("q", 1_000.0, 3)])?;
    queued(Scenario::new(), "q", "a", 20).build(w)?;
    assert_eq!(started(w)?, 3);
    for _ in 0..2 {
        w.clock().advance(Micros::from_secs(3_600))?;
        assert_eq!(started(w)?, 3);
    }
    Ok(())
}

fn a_token_is_spent_by_a_start_and_not_by_an_empty_claim(w: &mut World) -> Outcome {
    w.set_policies(&[rate("q", 0.001, 2)])?;
    for _ in 0..5 {
        assert_eq!(started(w)?, 0);
    }
    queued(Scenario::new(), "q", "a", 1).build(w)?;
    assert_eq!(started(w)?, 1);
    queued(Scenario::new(), "q", "b", 5).build(w)?;
    assert_eq!(started(w)?, 1, "one of two tokens is left");
    Ok(())
}

fn fractions_of_a_token_are_not_lost(w: &mut World) -> Outcome {
    w.set_policies(&[rate("q", 1.0, 1)])?;
    queued(Scenario::new(), "q", "a", 20).build(w)?;
    assert_eq!(started(w)?, 1);
    let mut total = 0;
    for _ in 0..30 {
        w.clock().advance(Micros::from_millis(300))?;
        total += started(w)?;
    }
    assert!((7..=9).contains(&total), "nine seconds bring nine tokens, and what a claim looks at is not thrown away: {total}");
    Ok(())
}

fn a_clock_that_goes_back_gives_no_token_and_takes_none(w: &mut World) -> Outcome {
    w.set_policies(&[rate("q", 1.0, 4)])?;
    queued(Scenario::new(), "q", "a", 3).build(w)?;
    w.clock().advance(Micros::from_secs(100))?;
    assert_eq!(started(w)?, 3);
    w.clock().go_back(Micros::from_secs(50))?;
    queued(Scenario::new(), "q", "b", 9).build(w)?;
    assert_eq!(started(w)?, 1, "the one that was left");
    Ok(())
}

fn tokens_flow_again_after_the_clock_went_back(w: &mut World) -> Outcome {
    w.set_policies(&[rate("q", 1.0, 2)])?;
    w.clock().advance(Micros::from_secs(3_600))?;
    queued(Scenario::new(), "q", "a", 2).build(w)?;
    assert_eq!(started(w)?, 2);
    // An hour back, as after a clock was set right: the queue must not stand still for an hour.
    w.clock().go_back(Micros::from_secs(3_600))?;
    queued(Scenario::new(), "q", "b", 9).build(w)?;
    assert_eq!(started(w)?, 0);
    w.clock().advance(Micros::from_secs(2))?;
    assert_eq!(started(w)?, 2);
    Ok(())
}

fn a_queue_without_tokens_is_told_of(w: &mut World) -> Outcome {
    w.set_policies(&[rate("q", 0.5, 1), limit("full", 0)])?;
    let scenario = queued(queued(queued(Scenario::new(), "q", "a", 2), "full", "b", 2), "free", "c", 1);
    scenario.build(w)?;
    let first = w.claim_with(&claim_request("w1", 100))?;
    assert_eq!((first.ops.len(), first.rate_limited.as_slice()), (2, [].as_slice()));
    let second = w.claim_with(&claim_request("w1", 100))?;
    assert_eq!(second.ops, []);
    assert_eq!(second.rate_limited, [(name("default"), name("q"))], "a full queue is no rate");
    Ok(())
}

fn limit_and_rate_hold_together(w: &mut World) -> Outcome {
    w.set_policies(&[QueuePolicy { max_in_flight: Some(2), ..rate("q", 1.0, 3) }])?;
    queued(Scenario::new(), "q", "a", 10).build(w)?;
    let running = w.claim("w1", 100)?;
    assert_eq!(running.len(), 2, "the limit");
    for op in &running {
        w.complete_one(op, "1")?;
    }
    assert_eq!(started(w)?, 1, "the tokens");
    w.clock().advance(Micros::from_secs(10))?;
    assert_eq!(started(w)?, 1, "the limit again");
    Ok(())
}
