//! Every verb of a worker at every border of its lease.

use crate::case::cases;
use crate::scenario::{LEASE, json, microseconds, name};
use crate::verbs::{completion, failure, giving_back, permanent_failure, plan, suspension};
use crate::{Outcome, Planted, Scenario, World};
use leasehold_core::model::{Artifact, ArtifactKind, LeaseToken, Record, Timestamp};
use leasehold_core::state::OpStatus;
use leasehold_core::store::BoxError;
use leasehold_core::store::rows::{ClaimedOp, LeaseKey};
use leasehold_core::transitions::{DispatchOutcome, End, Ended, Finish, HeartbeatOutcome, Until};

/// What a worker tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Heartbeat,
    Complete,
    Fail,
    Suspend,
    Dispatch,
    Release,
}

/// When it tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    JustBeforeExpiry,
    AtExpiry,
    JustAfterExpiry,
    BeforeAcquired,
    AtAcquired,
    WithAnotherToken,
    OpRecovered,
    OpLeasedAgain,
    OpCanceled,
    OpRetried,
}

/// What must come of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Holds,
    Lost,
    ClockBehind,
    /// The same lease made this very transition before.
    FirstAnswer,
}

macro_rules! borders {
    ($($name:ident: $verb:ident $moment:ident $expected:ident proves [$($proves:literal),*];)*) => {
        $(fn $name(w: &mut World) -> Outcome {
            check(w, Verb::$verb, Moment::$moment, Expected::$expected)
        })*
        cases! { $($name proves [$($proves),*];)* }
    };
}

borders! {
    a_heartbeat_just_before_expiry_holds: Heartbeat JustBeforeExpiry Holds proves ["L4", "T5"];
    a_heartbeat_at_expiry_is_lost: Heartbeat AtExpiry Lost proves ["L4", "T5"];
    a_heartbeat_just_after_expiry_is_lost: Heartbeat JustAfterExpiry Lost proves ["L4", "T5"];
    a_heartbeat_before_the_lease_began_is_behind: Heartbeat BeforeAcquired ClockBehind proves ["T8"];
    a_heartbeat_as_the_lease_begins_holds: Heartbeat AtAcquired Holds proves ["T8", "L4"];
    a_heartbeat_with_another_token_is_lost: Heartbeat WithAnotherToken Lost proves ["L4", "L6"];
    a_heartbeat_of_a_recovered_op_is_lost: Heartbeat OpRecovered Lost proves ["L4", "L7"];
    a_heartbeat_of_a_replaced_lease_is_lost: Heartbeat OpLeasedAgain Lost proves ["L4", "L6"];
    a_heartbeat_of_a_canceled_op_is_lost: Heartbeat OpCanceled Lost proves ["L4", "S6"];
    a_heartbeat_of_a_retried_op_is_lost: Heartbeat OpRetried Lost proves ["L4", "S5"];

    a_completion_just_before_expiry_holds: Complete JustBeforeExpiry Holds proves ["L1", "T5"];
    a_completion_at_expiry_is_lost: Complete AtExpiry Lost proves ["L1", "L3", "T5"];
    a_completion_just_after_expiry_is_lost: Complete JustAfterExpiry Lost proves ["L1", "L3", "T5"];
    a_completion_before_the_lease_began_is_behind: Complete BeforeAcquired ClockBehind proves ["T8"];
    a_completion_as_the_lease_begins_holds: Complete AtAcquired Holds proves ["T8", "L1"];
    a_completion_with_another_token_is_lost: Complete WithAnotherToken Lost proves ["L1", "L6"];
    a_completion_of_a_recovered_op_is_lost: Complete OpRecovered Lost proves ["L1", "L7"];
    a_completion_of_a_replaced_lease_is_lost: Complete OpLeasedAgain Lost proves ["L1", "L6"];
    a_completion_of_a_canceled_op_is_lost: Complete OpCanceled Lost proves ["L1", "S6"];
    a_completion_of_a_retried_op_is_lost: Complete OpRetried Lost proves ["L1", "S5"];

    a_failure_just_before_expiry_holds: Fail JustBeforeExpiry Holds proves ["L1", "T5"];
    a_failure_at_expiry_is_lost: Fail AtExpiry Lost proves ["L1", "L3", "T5"];
    a_failure_just_after_expiry_is_lost: Fail JustAfterExpiry Lost proves ["L1", "L3", "T5"];
    a_failure_before_the_lease_began_is_behind: Fail BeforeAcquired ClockBehind proves ["T8"];
    a_failure_as_the_lease_begins_holds: Fail AtAcquired Holds proves ["T8", "L1"];
    a_failure_with_another_token_is_lost: Fail WithAnotherToken Lost proves ["L1", "L6"];
    a_failure_of_a_recovered_op_is_lost: Fail OpRecovered Lost proves ["L1", "L7"];
    a_failure_of_a_replaced_lease_is_lost: Fail OpLeasedAgain Lost proves ["L1", "L6"];
    a_failure_of_a_canceled_op_is_lost: Fail OpCanceled Lost proves ["L1", "S6"];
    a_failure_of_a_retried_op_gets_its_first_answer: Fail OpRetried FirstAnswer proves ["L1", "L12", "S5"];

    a_suspension_just_before_expiry_holds: Suspend JustBeforeExpiry Holds proves ["L1", "T5", "W1"];
    a_suspension_at_expiry_is_lost: Suspend AtExpiry Lost proves ["L1", "L3", "T5", "W1"];
    a_suspension_just_after_expiry_is_lost: Suspend JustAfterExpiry Lost proves ["L1", "L3", "T5"];
    a_suspension_before_the_lease_began_is_behind: Suspend BeforeAcquired ClockBehind proves ["T8"];
    a_suspension_as_the_lease_begins_holds: Suspend AtAcquired Holds proves ["T8", "L1"];
    a_suspension_with_another_token_is_lost: Suspend WithAnotherToken Lost proves ["L1", "L6"];
    a_suspension_of_a_recovered_op_is_lost: Suspend OpRecovered Lost proves ["L1", "L7"];
    a_suspension_of_a_replaced_lease_is_lost: Suspend OpLeasedAgain Lost proves ["L1", "L6"];
    a_suspension_of_a_canceled_op_is_lost: Suspend OpCanceled Lost proves ["L1", "S6"];
    a_suspension_of_a_retried_op_is_lost: Suspend OpRetried Lost proves ["L1", "S5"];

    a_dispatch_just_before_expiry_holds: Dispatch JustBeforeExpiry Holds proves ["L16", "T5"];
    a_dispatch_at_expiry_is_lost: Dispatch AtExpiry Lost proves ["L16", "T5"];
    a_dispatch_just_after_expiry_is_lost: Dispatch JustAfterExpiry Lost proves ["L16", "T5"];
    a_dispatch_before_the_lease_began_is_behind: Dispatch BeforeAcquired ClockBehind proves ["T8", "L16"];
    a_dispatch_as_the_lease_begins_holds: Dispatch AtAcquired Holds proves ["T8", "L16"];
    a_dispatch_with_another_token_is_lost: Dispatch WithAnotherToken Lost proves ["L16", "L6"];
    a_dispatch_of_a_recovered_op_is_lost: Dispatch OpRecovered Lost proves ["L16", "L7"];
    a_dispatch_of_a_replaced_lease_is_lost: Dispatch OpLeasedAgain Lost proves ["L16", "L6"];
    a_dispatch_of_a_canceled_op_is_lost: Dispatch OpCanceled Lost proves ["L16", "S6"];
    a_dispatch_of_a_retried_op_is_lost: Dispatch OpRetried Lost proves ["L16", "S5"];

    a_release_just_before_expiry_holds: Release JustBeforeExpiry Holds proves ["L1", "T5"];
    a_release_at_expiry_is_lost: Release AtExpiry Lost proves ["L1", "L3", "T5"];
    a_release_just_after_expiry_is_lost: Release JustAfterExpiry Lost proves ["L1", "L3", "T5"];
    a_release_before_the_lease_began_is_behind: Release BeforeAcquired ClockBehind proves ["T8"];
    a_release_as_the_lease_begins_holds: Release AtAcquired Holds proves ["T8", "L1"];
    a_release_with_another_token_is_lost: Release WithAnotherToken Lost proves ["L1", "L6"];
    a_release_of_a_recovered_op_is_lost: Release OpRecovered Lost proves ["L1", "L7"];
    a_release_of_a_replaced_lease_is_lost: Release OpLeasedAgain Lost proves ["L1", "L6"];
    a_release_of_a_canceled_op_is_lost: Release OpCanceled Lost proves ["L1", "S6"];
    a_release_of_a_retried_op_is_lost: Release OpRetried Lost proves ["L1", "S5"];
}

/// A completion that leaves all a completion can: a result, an artifact, a record and a further op.
fn full_completion(w: &World, claimed: &ClaimedOp) -> Result<Finish, BoxError> {
    let artifact = Artifact {
        name: name("report"),
        kind: ArtifactKind::Text,
        content_type: "text/plain".to_owned(),
        metadata: json("null"),
        content: b"done".to_vec(),
    };
    let record = Record { collection: name("c"), key: name("k"), value: json("1") };
    let emitted = Some(plan(w, &Scenario::new().op("emitted"))?);
    let end = End::Complete { result: json("42"), artifacts: vec![artifact], records: vec![record], emitted };
    Ok(Finish { end, ..completion(claimed, "0") })
}

/// What the verb answered, as far as the border is concerned.
fn attempt(w: &World, verb: Verb, claimed: &ClaimedOp) -> Result<Expected, BoxError> {
    let item = match verb {
        Verb::Heartbeat => {
            let outcomes = w.heartbeat(&[claimed.lease.key])?;
            return Ok(match outcomes.as_slice() {
                [HeartbeatOutcome::Held(lease)] => {
                    assert_eq!(w.stored_lease(claimed.lease.key)?.as_ref(), Some(lease), "the answer is what is stored");
                    Expected::Holds
                }
                [HeartbeatOutcome::Lost] => Expected::Lost,
                [HeartbeatOutcome::ClockBehind] => Expected::ClockBehind,
                other => panic!("one lease got the answers {other:?}"),
            });
        }
        Verb::Dispatch => {
            let outcomes = w.dispatch(&[claimed.lease.key])?;
            return Ok(match outcomes.as_slice() {
                [DispatchOutcome::Dispatched] => {
                    let stored = w.stored_lease(claimed.lease.key)?;
                    assert_eq!(stored.and_then(|lease| lease.dispatched_at), Some(w.now()), "the answer is what is stored");
                    Expected::Holds
                }
                [DispatchOutcome::Lost] => Expected::Lost,
                [DispatchOutcome::ClockBehind] => Expected::ClockBehind,
                other => panic!("one lease got the answers {other:?}"),
            });
        }
        Verb::Complete => full_completion(w, claimed)?,
        Verb::Fail => failure(claimed),
        Verb::Suspend => suspension(claimed, Until::For(LEASE)),
        Verb::Release => giving_back(claimed),
    };
    Ok(match (verb, w.finish_one(item)?) {
        (_, Ended::LeaseLost) => Expected::Lost,
        (_, Ended::ClockBehind) => Expected::ClockBehind,
        (Verb::Complete, Ended::Succeeded)
        | (Verb::Fail, Ended::Retried { .. })
        | (Verb::Suspend, Ended::Suspended { .. })
        | (Verb::Release, Ended::Released) => Expected::Holds,
        (Verb::Fail, Ended::Failed { error }) if error.code == "broken" => Expected::FirstAnswer,
        (verb, other) => panic!("{verb:?} got the answer of another verb: {other:?}"),
    })
}

/// Brings the moment about; returns the lease that the worker believes in.
fn come(w: &World, planted: &Planted, moment: Moment) -> Result<ClaimedOp, BoxError> {
    let claimed = planted.claimed("a");
    let lease = &claimed.lease;
    let set = |instant: Timestamp, by: i64| w.clock().set(Timestamp::from_micros(instant.as_micros() + by)?);
    match moment {
        Moment::JustBeforeExpiry => set(lease.expires_at, -1)?,
        Moment::AtExpiry => set(lease.expires_at, 0)?,
        Moment::JustAfterExpiry => set(lease.expires_at, 1)?,
        Moment::BeforeAcquired => set(lease.acquired_at, -1)?,
        Moment::AtAcquired => {}
        Moment::WithAnotherToken => {
            let key = LeaseKey { token: LeaseToken::random(), ..lease.key };
            return Ok(ClaimedOp { lease: leasehold_core::store::rows::Lease { key, ..lease.clone() }, ..claimed });
        }
        Moment::OpRecovered | Moment::OpLeasedAgain => {
            set(lease.expires_at, 0)?;
            assert_eq!(w.recover(10)?.ops.len(), 1);
            if moment == Moment::OpLeasedAgain {
                assert_eq!(w.claim_one("w2")?.lease.key.op, lease.key.op);
            }
        }
        Moment::OpCanceled => {
            w.clock().advance(microseconds(1))?;
            w.cancel(planted)?;
        }
        Moment::OpRetried => {
            w.finish_one(permanent_failure(&claimed))?;
            w.retry_op(planted, "a")?;
        }
    }
    Ok(claimed)
}

fn check(w: &World, verb: Verb, moment: Moment, expected: Expected) -> Outcome {
    let planted = Scenario::new().op("a").effect_once().leased_by("w1").op("b").after(&["a"]).build(w)?;
    let claimed = come(w, &planted, moment)?;
    let before = w.fingerprint(&planted)?;
    assert_eq!(attempt(w, verb, &claimed)?, expected);
    if expected != Expected::Holds {
        assert_eq!(w.fingerprint(&planted)?, before, "nothing was written");
        return Ok(());
    }
    let status = match verb {
        Verb::Heartbeat | Verb::Dispatch => OpStatus::Running,
        Verb::Complete => OpStatus::Succeeded,
        Verb::Suspend => OpStatus::Waiting,
        Verb::Fail | Verb::Release => OpStatus::Ready,
    };
    assert_eq!(w.status(&planted, "a")?, status);
    if verb == Verb::Complete {
        let planted = Planted::find(w, &planted.id)?;
        assert_eq!(w.statuses(&planted, &["b", "emitted"])?, [OpStatus::Ready, OpStatus::Ready]);
        let (artifacts, records) =
            w.read(|tx| Ok((tx.artifacts(planted.workflow, None, None, 10)?, tx.records(planted.workflow, &name("c"), None, 10)?)))?;
        assert_eq!((artifacts.len(), records.len()), (1, 1));
    }
    Ok(())
}
