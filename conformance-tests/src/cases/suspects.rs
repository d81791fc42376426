//! Ops that may be what killed their workers run apart from each other, so that none is lost with the one to blame (L8).

use crate::case::cases;
use crate::scenario::LEASE;
use crate::verbs::{claim_request, failure, giving_back, limit, rate};
use crate::{Outcome, Planted, Scenario, World};
use leasehold_core::model::{OpError, OpSeq};
use leasehold_core::state::OpStatus;
use leasehold_core::store::BoxError;
use leasehold_core::transitions::{ClaimCursor, ClaimRequest};
use std::collections::BTreeSet;

cases! {
    ops_that_were_lost_once_are_claimed_side_by_side proves ["L8", "Q2"];
    of_ops_that_were_lost_twice_a_worker_gets_one_at_a_time proves ["L8"];
    a_worker_that_runs_a_suspect_gets_no_other proves ["L8"];
    every_lane_of_suspects_gets_its_turn proves ["L8", "Q2"];
    a_suspect_stays_one_after_a_failure_and_a_release proves ["L8"];
    a_retry_by_hand_takes_the_suspicion_away proves ["L8", "S5"];
    a_suspect_counts_against_the_limit_of_its_queue proves ["L8", "Q1"];
    a_suspect_takes_a_token_of_its_queue proves ["L8", "Q1"];
    a_repeated_claim_tells_which_op_is_a_suspect proves ["L8", "L12"];
    an_op_that_kills_its_workers_takes_no_other_with_it proves ["L8", "L13"];
}

/// Everything that is ready is claimed, and lost, `times` times.
fn lose(w: &World, times: usize) -> Outcome {
    for _ in 0..times {
        // Those that are suspects already are lost with a worker each.
        while !w.claim("lost", 100)?.is_empty() {}
        w.clock().advance(LEASE)?;
        w.recover(100)?;
    }
    Ok(())
}

fn losses(w: &World, planted: &Planted, op: &str) -> Result<u32, BoxError> {
    Ok(w.view(planted.op(op))?.state.losses)
}

fn ops_that_were_lost_once_are_claimed_side_by_side(w: &mut World) -> Outcome {
    Scenario::new().ops("a", 3).build(w)?;
    lose(w, 1)?;
    let report = w.claim_with(&claim_request("w1", 10))?;
    assert_eq!((report.ops.len(), report.suspects), (3, Vec::new()), "a host that went away took them all along");
    Ok(())
}

fn of_ops_that_were_lost_twice_a_worker_gets_one_at_a_time(w: &mut World) -> Outcome {
    let planted = Scenario::new().ops("a", 3).build(w)?;
    lose(w, 2)?;
    Scenario::new().ops("b", 2).build(w)?;
    let report = w.claim_with(&claim_request("w1", 10))?;
    let suspects: BTreeSet<OpSeq> = ["a0", "a1", "a2"].map(|op| planted.op(op)).into();
    let [suspect] = report.suspects.as_slice() else { panic!("one of them is claimed: {:?}", report.suspects) };
    assert!(suspects.contains(suspect));
    assert_eq!(report.ops.len(), 3, "others are claimed beside it");
    assert_eq!(report.ops.iter().filter(|op| suspects.contains(&op.lease.key.op)).count(), 1);
    let other = w.claim_with(&claim_request("w2", 10))?;
    assert_eq!((other.ops.len(), other.suspects.len()), (1, 1), "another worker gets the next");
    Ok(())
}

fn a_worker_that_runs_a_suspect_gets_no_other(w: &mut World) -> Outcome {
    Scenario::new().ops("a", 2).build(w)?;
    lose(w, 2)?;
    let busy = ClaimRequest { suspects: false, ..claim_request("w1", 10) };
    assert_eq!(w.claim_with(&busy)?.ops, []);
    Scenario::new().op("b").build(w)?;
    let report = w.claim_with(&busy)?;
    assert_eq!(report.ops.iter().map(|op| op.op_id.as_str()).collect::<Vec<_>>(), ["b"]);
    assert_eq!(report.suspects, []);
    Ok(())
}

fn every_lane_of_suspects_gets_its_turn(w: &mut World) -> Outcome {
    Scenario::new().ops("a", 2).ops("b", 2).ops("c", 2).build(w)?;
    lose(w, 2)?;
    let mut cursor = ClaimCursor::default();
    let mut kinds = BTreeSet::new();
    for _ in 0..3 {
        let report = w.claim_with(&ClaimRequest { cursor, ..claim_request("w1", 1) })?;
        cursor = report.cursor;
        kinds.extend(report.ops.iter().map(|op| op.kind.as_str().to_owned()));
    }
    assert_eq!(kinds.len(), 3, "{kinds:?}");
    Ok(())
}

fn a_suspect_stays_one_after_a_failure_and_a_release(w: &mut World) -> Outcome {
    Scenario::new().op("a").build(w)?;
    lose(w, 2)?;
    let claimed = w.claim_one("w1")?;
    w.finish_one(giving_back(&claimed))?;
    let report = w.claim_with(&claim_request("w1", 1))?;
    let [claimed] = report.ops.as_slice() else { panic!("it is ready at once") };
    assert_eq!(report.suspects, [claimed.lease.key.op], "released");
    w.finish_one(failure(claimed))?;
    w.clock().advance(LEASE)?;
    let report = w.claim_with(&claim_request("w1", 1))?;
    assert_eq!(report.suspects.len(), 1, "failed");
    Ok(())
}

fn a_retry_by_hand_takes_the_suspicion_away(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").build(w)?;
    lose(w, 2)?;
    w.fail_for_good(&w.claim_one("w1")?)?;
    w.retry_op(&planted, "a")?;
    let report = w.claim_with(&claim_request("w1", 1))?;
    assert_eq!((report.ops.len(), report.suspects), (1, Vec::new()));
    Ok(())
}

fn a_suspect_counts_against_the_limit_of_its_queue(w: &mut World) -> Outcome {
    Scenario::new().op("a").queue("q").build(w)?;
    lose(w, 2)?;
    w.set_policies(&[limit("q", 1)])?;
    Scenario::new().op("b").queue("q").build(w)?;
    let report = w.claim_with(&claim_request("w1", 10))?;
    assert_eq!((report.ops.len(), report.suspects.len()), (1, 1), "one slot for both lanes");
    assert_eq!(w.claim("w2", 10)?, []);
    Ok(())
}

fn a_suspect_takes_a_token_of_its_queue(w: &mut World) -> Outcome {
    Scenario::new().op("a").queue("q").build(w)?;
    lose(w, 2)?;
    w.set_policies(&[rate("q", 0.001, 2)])?;
    Scenario::new().op("b").queue("q").op("c").queue("q").op("d").queue("q").build(w)?;
    let report = w.claim_with(&claim_request("w1", 10))?;
    assert_eq!((report.ops.len(), report.suspects.len()), (2, 1), "two tokens, one of them the suspect's");
    assert_eq!(w.claim("w2", 10)?, []);
    Ok(())
}

fn a_repeated_claim_tells_which_op_is_a_suspect(w: &mut World) -> Outcome {
    Scenario::new().op("a").build(w)?;
    lose(w, 2)?;
    Scenario::new().op("b").build(w)?;
    let request = claim_request("w1", 10);
    let first = w.claim_with(&request)?;
    let again = w.claim_with(&ClaimRequest { repeated: true, ..request })?;
    assert_eq!((again.ops.len(), again.suspects), (2, first.suspects));
    Ok(())
}

fn an_op_that_kills_its_workers_takes_no_other_with_it(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("poison").ops("good", 3).build(w)?;
    // One worker after the other: it dies of the poison with all it holds, and else completes what it has.
    for _ in 0..100 {
        let claimed = w.claim_with(&claim_request("w1", 10))?.ops;
        let dies = claimed.iter().any(|op| op.kind.as_str() == "poison");
        for op in claimed.iter().filter(|_| !dies) {
            w.complete_one(op, "1")?;
        }
        w.clock().advance(LEASE)?;
        w.recover(100)?;
    }
    assert_eq!(w.status(&planted, "poison")?, OpStatus::Failed);
    assert_eq!(w.view(planted.op("poison"))?.error.map(|error| error.code), Some(OpError::WORKER_LOST.to_owned()));
    for op in ["good0", "good1", "good2"] {
        assert_eq!((w.status(&planted, op)?, losses(w, &planted, op)?), (OpStatus::Succeeded, 2), "{op}");
    }
    Ok(())
}
