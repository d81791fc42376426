//! What happens at the same moment (S6, S7, L1, L7, Q1, I2).

use crate::case::cases;
use crate::scenario::LEASE;
use crate::verbs::{completion, failure, permanent_failure};
use crate::{Outcome, Planted, Scenario, World};
use leasehold_core::model::RetryPolicy;
use leasehold_core::state::{OpStatus, WorkflowStatus};
use leasehold_core::store::{BoxError, StoreError, StoreResult};
use leasehold_core::transitions::{CreateOutcome, Ended, HeartbeatOutcome, TransitionError};
use std::sync::Barrier;

cases! {
    of_many_creators_one_creates_and_the_others_attach proves ["I2", "S9"];
    a_creator_that_rolls_back_hides_nobodys_workflow proves ["I2", "L2"];
    of_many_claims_each_op_goes_to_one proves ["L1", "Q1"];
    of_a_completion_and_a_recovery_one_wins proves ["L1", "L7"];
    of_a_heartbeat_and_a_recovery_one_wins proves ["L4", "L7"];
    of_two_ends_of_one_lease_one_is_written proves ["L1", "L12"];
    two_parents_that_end_at_once_leave_their_child_ready proves ["S7"];
    two_parents_that_end_at_once_through_two_handles_leave_their_child_ready proves ["S7"] needs [SecondHandle];
    an_op_added_as_its_parent_ends_is_woken proves ["S7", "S9"];
    an_op_added_before_the_finaliser_as_its_parent_ends_is_waited_for_or_refused proves ["S7", "S9"];
    two_failures_above_one_subtree_and_both_repairs_meet proves ["S2", "S5", "S7"];
    of_a_cancel_and_a_completion_one_wins_and_all_agree proves ["S6"];
    nothing_survives_a_cancel_that_races_a_claim proves ["S6"];
    nothing_added_or_emitted_survives_a_cancel proves ["S6"];
    two_repairs_of_one_op_retry_it_once proves ["S5", "L12"];
}

/// How often each pair of calls meets.
const ROUNDS: usize = 25;

/// Runs both at the same moment.
pub(super) fn at_once<A: Send, B: Send>(
    first: impl FnOnce() -> Result<A, BoxError> + Send,
    second: impl FnOnce() -> Result<B, BoxError> + Send,
) -> Result<(A, B), BoxError> {
    let start = &Barrier::new(2);
    std::thread::scope(|scope| {
        let other = scope.spawn(move || {
            start.wait();
            second()
        });
        start.wait();
        let mine = first();
        let other = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((mine?, other?))
    })
}

fn of_many_creators_one_creates_and_the_others_attach(w: &mut World) -> Outcome {
    const CREATORS: usize = 4;
    for round in 0..ROUNDS {
        let spec = Scenario::new().id(&format!("w{round}")).identity("x").op("a").op("b").after(&["a"]).spec(w);
        let start = Barrier::new(CREATORS);
        let outcomes: Result<Vec<CreateOutcome>, TransitionError> = std::thread::scope(|scope| {
            let creators: Vec<_> = (0..CREATORS)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        w.ensure(spec.clone())
                    })
                })
                .collect();
            creators.into_iter().map(|creator| creator.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        });
        let outcomes = outcomes?;
        let created = outcomes.iter().filter(|outcome| **outcome == CreateOutcome::Created).count();
        assert_eq!(created, 1, "{outcomes:?}");
        let attached = CreateOutcome::Attached { status: WorkflowStatus::Running, input_differs: false };
        assert_eq!(outcomes.iter().filter(|outcome| **outcome == attached).count(), CREATORS - 1, "{outcomes:?}");
        assert_eq!(Planted::find(w, &spec.id)?.ops.len(), 2);
    }
    Ok(())
}

/// "It is there already" is only said of a committed row.
fn a_creator_that_rolls_back_hides_nobodys_workflow(w: &mut World) -> Outcome {
    for round in 0..ROUNDS {
        let spec = Scenario::new().id(&format!("w{round}")).identity("x").op("a").spec(w);
        let row = crate::plant::new_workflow(&spec, w.now());
        let giving_up = || -> Result<(), BoxError> {
            let outcome = w.tx(|tx| -> StoreResult<()> {
                tx.insert_workflows(std::slice::from_ref(&row))?;
                Err(StoreError::RolledBack)
            });
            assert!(matches!(outcome, Err(StoreError::RolledBack)), "{outcome:?}");
            Ok(())
        };
        let ((), outcome) = at_once(giving_up, || Ok(w.ensure(spec.clone())?))?;
        assert_eq!(outcome, CreateOutcome::Created);
        assert_eq!(Planted::find(w, &spec.id)?.ops.len(), 1);
    }
    Ok(())
}

fn of_many_claims_each_op_goes_to_one(w: &mut World) -> Outcome {
    for _ in 0..ROUNDS {
        let planted = Scenario::new().op("a").build(w)?;
        let (first, second) = at_once(|| Ok(w.claim("w1", 1)?), || Ok(w.claim("w2", 1)?))?;
        let claimed: Vec<_> = first.iter().chain(&second).collect();
        let [op] = claimed.as_slice() else { panic!("one op went to {}", claimed.len()) };
        assert_eq!(w.stored_lease(op.lease.key)?.as_ref(), Some(&op.lease));
        w.complete_one(op, "1")?;
        assert_eq!(w.status(&planted, "a")?, OpStatus::Succeeded);
    }
    Ok(())
}

fn of_a_completion_and_a_recovery_one_wins(w: &mut World) -> Outcome {
    for round in 0..ROUNDS {
        let planted = Scenario::new().op("a").leased_by("w1").op("b").after(&["a"]).build(w)?;
        let item = completion(&planted.claimed("a"), "1");
        let late = round % 2 == 0;
        if late {
            w.clock().advance(LEASE)?;
        }
        let (ended, recovered) = at_once(|| Ok(w.finish_one(item)?), || Ok(w.recover(10)?.ops.len()))?;
        // A recovery passes over a workflow that is held, and finds the lease in its next pass.
        let recovered = recovered + w.recover(10)?.ops.len();
        let expected = if late { (Ended::LeaseLost, 1) } else { (Ended::Succeeded, 0) };
        assert_eq!((ended, recovered), expected, "the lease's time decides");
        w.drain("w1")?;
        assert_eq!(w.workflow(&planted.id)?.status, WorkflowStatus::Succeeded);
    }
    Ok(())
}

fn of_a_heartbeat_and_a_recovery_one_wins(w: &mut World) -> Outcome {
    for round in 0..ROUNDS {
        let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
        let late = round % 2 == 0;
        if late {
            w.clock().advance(LEASE)?;
        }
        let (beat, recovered) = at_once(|| Ok(w.heartbeat(&[planted.lease("a")])?), || Ok(w.recover(10)?.ops.len()))?;
        let held = matches!(beat.as_slice(), [HeartbeatOutcome::Held(_)]);
        assert_eq!((held, recovered), (!late, usize::from(late)));
        w.cancel(&planted)?;
    }
    Ok(())
}

fn of_two_ends_of_one_lease_one_is_written(w: &mut World) -> Outcome {
    for _ in 0..ROUNDS {
        let planted = Scenario::new().op("a").retry(RetryPolicy::once()).leased_by("w1").op("b").after(&["a"]).build(w)?;
        let claimed = planted.claimed("a");
        let (done, failed) = at_once(|| Ok(w.finish_one(completion(&claimed, "1"))?), || Ok(w.finish_one(failure(&claimed))?))?;
        let status = match (done, failed) {
            (Ended::Succeeded, Ended::LeaseLost) => OpStatus::Succeeded,
            (Ended::LeaseLost, Ended::Failed { .. }) => OpStatus::Failed,
            both => panic!("one lease ended twice: {both:?}"),
        };
        assert_eq!(w.status(&planted, "a")?, status, "the answers say what is stored");
        w.drain("w1")?;
    }
    Ok(())
}

fn diamonds(w: &World, other: &World, rounds: usize) -> Outcome {
    for _ in 0..rounds {
        let planted = Scenario::new().op("a").leased_by("w1").op("b").leased_by("w2").op("join").after(&["a", "b"]).build(w)?;
        let (a, b) = (completion(&planted.claimed("a"), "1"), completion(&planted.claimed("b"), "2"));
        let ends = at_once(|| Ok(w.finish_one(a)?), || Ok(other.finish_one(b)?))?;
        assert_eq!(ends, (Ended::Succeeded, Ended::Succeeded));
        let claimed = w.claim("w1", 10)?;
        let [join] = claimed.as_slice() else { panic!("the join is ready, once: {claimed:?}") };
        w.complete_one(join, "3")?;
    }
    Ok(())
}

fn two_parents_that_end_at_once_leave_their_child_ready(w: &mut World) -> Outcome {
    diamonds(w, w, 2 * ROUNDS)
}

fn two_parents_that_end_at_once_through_two_handles_leave_their_child_ready(w: &mut World) -> Outcome {
    let other = w.second_handle()?;
    diamonds(w, &other, 2 * ROUNDS)
}

fn an_op_added_as_its_parent_ends_is_woken(w: &mut World) -> Outcome {
    for round in 0..ROUNDS {
        let planted = Scenario::new().op("parent").leased_by("w1").op("open").build(w)?;
        let claimed = planted.claimed("parent");
        let end = if round % 2 == 0 { completion(&claimed, "1") } else { permanent_failure(&claimed) };
        let (_, added) = at_once(
            || Ok(w.finish_one(end)?),
            || Ok(w.add(&planted, &Scenario::new().op("hard").after(&["parent"]).op("soft").after_settled(&["parent"]))?),
        )?;
        assert_eq!(added.len(), 2);
        let now = Planted::find(w, &planted.id)?;
        let expected = if round % 2 == 0 { OpStatus::Ready } else { OpStatus::Blocked };
        assert_eq!(w.statuses(&now, &["hard", "soft"])?, [expected, OpStatus::Ready], "either side saw the other");
        w.drain("w1")?;
    }
    Ok(())
}

fn an_op_added_before_the_finaliser_as_its_parent_ends_is_waited_for_or_refused(w: &mut World) -> Outcome {
    for _ in 0..ROUNDS {
        let planted = Scenario::new().op("last").leased_by("w1").op("end").after(&["last"]).build(w)?;
        let end = completion(&planted.claimed("last"), "1");
        let (_, added) = at_once(|| Ok(w.finish_one(end)?), || Ok(w.add(&planted, &Scenario::new().op("x").before(&["end"])).is_ok()))?;
        let expected = if added { OpStatus::Pending } else { OpStatus::Ready };
        assert_eq!(w.status(&planted, "end")?, expected);
        assert_eq!(w.drain("w1")?, 1 + usize::from(added));
    }
    Ok(())
}

fn two_failures_above_one_subtree_and_both_repairs_meet(w: &mut World) -> Outcome {
    for _ in 0..ROUNDS {
        let planted = Scenario::new()
            .op("a")
            .leased_by("w1")
            .op("b")
            .leased_by("w2")
            .op("x")
            .after(&["a", "b"])
            .op("y")
            .after(&["x", "a"])
            .op("z")
            .after_settled(&["y"])
            .op("hold")
            .leased_by("w3")
            .op("held")
            .after(&["hold", "z"])
            .build(w)?;
        let (a, b) = (permanent_failure(&planted.claimed("a")), permanent_failure(&planted.claimed("b")));
        at_once(|| Ok(w.finish_one(a)?), || Ok(w.finish_one(b)?))?;
        assert_eq!(w.statuses(&planted, &["x", "y", "z"])?, [OpStatus::Blocked, OpStatus::Blocked, OpStatus::Ready]);
        at_once(|| Ok(w.retry_op(&planted, "a")?), || Ok(w.retry_op(&planted, "b")?))?;
        assert_eq!(w.statuses(&planted, &["a", "b", "x", "y"])?, [OpStatus::Ready, OpStatus::Ready, OpStatus::Pending, OpStatus::Pending]);
        w.complete_one(&planted.claimed("hold"), "1")?;
        assert_eq!(w.drain("w1")?, 6, "each once");
    }
    Ok(())
}

fn of_a_cancel_and_a_completion_one_wins_and_all_agree(w: &mut World) -> Outcome {
    for _ in 0..ROUNDS {
        let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
        let item = completion(&planted.claimed("a"), "1");
        let (ended, canceled) = at_once(|| Ok(w.finish_one(item)?), || Ok(w.cancel(&planted)))?;
        let row = w.workflow(&planted.id)?;
        match (ended, canceled) {
            (Ended::Succeeded, Err(TransitionError::WorkflowStatus { status: WorkflowStatus::Succeeded, .. })) => {
                assert_eq!((w.status(&planted, "a")?, row.status), (OpStatus::Succeeded, WorkflowStatus::Succeeded));
            }
            (Ended::LeaseLost, Ok(answer)) => {
                assert_eq!(answer.running, 1);
                assert_eq!((w.status(&planted, "a")?, row.status), (OpStatus::Canceled, WorkflowStatus::Canceled));
            }
            both => panic!("both or neither won: {both:?}"),
        }
        let events = w.fingerprint(&planted)?.events;
        let told: Vec<_> = events.iter().filter(|row| row.event.op.is_some()).map(|row| row.event.kind).collect();
        assert_eq!(told.len(), 1, "the history tells of one end: {told:?}");
    }
    Ok(())
}

fn nothing_survives_a_cancel_that_races_a_claim(w: &mut World) -> Outcome {
    for _ in 0..ROUNDS {
        let planted = Scenario::new().ops("a", 5).op("later").leased_by("w1").build(w)?;
        w.finish_one(failure(&planted.claimed("later")))?;
        w.clock().advance(LEASE)?;
        let (claimed, canceled) = at_once(|| Ok(w.claim("w2", 10)?), || Ok(w.cancel(&planted)?))?;
        assert_eq!(canceled.ops, 6);
        for op in &claimed {
            assert_eq!(w.finish_one(completion(op, "1"))?, Ended::LeaseLost);
        }
        let ops = w.all_ops(planted.workflow)?;
        assert!(ops.iter().all(|op| op.status == OpStatus::Canceled && op.lease.is_none() && op.due_at.is_none()), "{ops:?}");
        assert_eq!(w.claim("w2", 10)?, []);
    }
    Ok(())
}

fn nothing_added_or_emitted_survives_a_cancel(w: &mut World) -> Outcome {
    for round in 0..ROUNDS {
        let planted = Scenario::new().op("a").leased_by("w1").op("open").build(w)?;
        let emit = super::emit::emitting(w, &planted.claimed("a"), &Scenario::new().op("x").op("y").after(&["x"]))?;
        let adding = || -> Result<(), BoxError> {
            if round % 2 == 0 {
                w.finish_one(emit)?;
            } else if let Err(error) = w.add(&planted, &Scenario::new().op("x").op("y").after(&["x"])) {
                assert!(matches!(error, TransitionError::WorkflowStatus { status: WorkflowStatus::Canceled, .. }), "{error:?}");
            }
            Ok(())
        };
        at_once(adding, || Ok(w.cancel(&planted)?))?;
        let moving =
            w.all_ops(planted.workflow)?.iter().filter(|op| !matches!(op.status, OpStatus::Canceled | OpStatus::Succeeded)).count();
        assert_eq!(moving, 0);
        assert_eq!(w.claim("w1", 10)?, []);
        assert_eq!(w.workflow(&planted.id)?.status, WorkflowStatus::Canceled);
    }
    Ok(())
}

fn two_repairs_of_one_op_retry_it_once(w: &mut World) -> Outcome {
    for _ in 0..ROUNDS {
        let planted = Scenario::new().op("a").failed().op("b").after(&["a"]).build(w)?;
        let (first, second) = at_once(|| Ok(w.retry_op(&planted, "a").is_ok()), || Ok(w.retry_op(&planted, "a").is_ok()))?;
        assert!(first != second, "one retries it, the other finds it ready");
        assert_eq!(w.drain("w1")?, 2);
    }
    Ok(())
}
