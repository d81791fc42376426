//! The application's own transaction: its rows and the engine's commit or roll back together (B5).

use super::overlap::{LONG, Meeting, Met, PATIENCE, beside};
use crate::case::cases;
use crate::scenario::LEASE;
use crate::verbs::{completion, permanent_failure};
use crate::{Door, Outcome, OwnTx, Planted, Scenario, World};
use leasehold_core::model::{Limits, RequestId, WorkflowSpec};
use leasehold_core::state::{OpStatus, WorkflowStatus};
use leasehold_core::store::{BoxError, Wait};
use leasehold_core::transitions::{self, CreateMode, CreateOutcome, CreateRequest, Ended, Finish, TransitionError};
use std::time::Duration;

cases! {
    rows_of_the_application_and_a_new_workflow_commit_together proves ["B5"] needs [OwnTransactions];
    rows_of_the_application_and_a_new_workflow_roll_back_together proves ["B5"] needs [OwnTransactions];
    rows_of_the_application_and_a_completion_commit_together proves ["B5", "L2"] needs [OwnTransactions];
    rows_of_the_application_and_a_completion_roll_back_together proves ["B5", "L12"] needs [OwnTransactions];
    a_lost_lease_takes_the_applications_rows_back_with_it proves ["B5", "L1"] needs [OwnTransactions];
    an_identity_conflict_takes_the_applications_rows_back_with_it proves ["B5", "I2"] needs [OwnTransactions];
    an_application_may_go_on_where_the_engines_part_was_undone proves ["B5"] needs [OwnTransactions];
    ownership_is_judged_at_the_call_and_kept_until_the_commit proves ["B5", "L1", "L7"] needs [OwnTransactions];
    nobody_sees_what_an_application_has_not_committed proves ["B5", "O3"] needs [OwnTransactions];
    an_ensure_waits_for_an_application_that_creates_the_same_and_attaches proves ["B5", "I2"] needs [OwnTransactions];
    neighbours_of_an_application_may_wait_for_it_and_lose_nothing proves ["B5", "B3"] needs [OwnTransactions];
    neighbours_go_on_while_an_application_holds_a_workflow proves ["B5", "B3"] needs [OwnTransactions, OverlappingWriters];
}

/// What an application's code fails with.
const NO_FUNDS: &str = "no funds";

/// Creates or attaches, inside the application's transaction; a refusal is an error.
fn ensure(own: &mut dyn OwnTx, spec: &WorkflowSpec) -> Result<CreateOutcome, BoxError> {
    let request = [CreateRequest::new(spec.clone(), RequestId::random(), CreateMode::Ensure, &Limits::default())?];
    let mut answer = None;
    own.lend(&mut |tx| {
        let created = transitions::create(tx, &request)?.outcomes.pop().ok_or("create answers each request")??;
        answer = Some(created.outcome);
        Ok(())
    })?;
    answer.ok_or_else(|| "the store did not run the body".into())
}

/// Ends an attempt inside the application's transaction; a lost lease is an error.
fn complete(own: &mut dyn OwnTx, item: &Finish) -> Result<(), BoxError> {
    own.lend(&mut |tx| match transitions::finish(tx, std::slice::from_ref(item), Wait::Block)?.outcomes.as_slice() {
        [Ended::Succeeded] => Ok(()),
        other => Err(format!("{other:?}").into()),
    })
}

/// The error of a transaction that must have failed.
fn failure(outcome: Outcome) -> String {
    match outcome {
        Ok(()) => panic!("the transaction was committed"),
        Err(error) => error.to_string(),
    }
}

fn rows_of_the_application_and_a_new_workflow_commit_together(w: &mut World) -> Outcome {
    for (door, id) in Door::ALL.into_iter().zip(["lent", "borrowed"]) {
        let spec = Scenario::new().id(id).identity(id).op("a").op("b").after(&["a"]).spec(w);
        w.own_transaction(door, |own| {
            own.insert(id)?;
            assert_eq!(ensure(own, &spec)?, CreateOutcome::Created);
            Ok(())
        })?;
        assert!(w.own_rows()?.contains(&id.to_owned()));
        assert_eq!(w.drain("w1")?, 2);
        assert_eq!(w.workflow(&spec.id)?.status, WorkflowStatus::Succeeded);
    }
    Ok(())
}

fn rows_of_the_application_and_a_new_workflow_roll_back_together(w: &mut World) -> Outcome {
    let spec = Scenario::new().id("w").identity("x").op("a").spec(w);
    for door in Door::ALL {
        let outcome = w.own_transaction(door, |own| {
            own.insert("order")?;
            ensure(own, &spec)?;
            Err(NO_FUNDS.into())
        });
        assert_eq!(failure(outcome), NO_FUNDS);
        assert_eq!(w.own_rows()?, [""; 0]);
        assert!(w.read(|tx| tx.workflows(std::slice::from_ref(&spec.id)))?.is_empty());
        assert_eq!(w.claim("w1", 10)?, []);
    }
    assert_eq!(w.ensure(spec)?, CreateOutcome::Created);
    Ok(())
}

fn rows_of_the_application_and_a_completion_commit_together(w: &mut World) -> Outcome {
    for (door, row) in Door::ALL.into_iter().zip(["lent", "borrowed"]) {
        let planted = Scenario::new().op("a").leased_by("w1").op("b").after(&["a"]).build(w)?;
        let item = completion(&planted.claimed("a"), "1");
        w.own_transaction(door, |own| {
            own.insert(row)?;
            complete(own, &item)
        })?;
        assert!(w.own_rows()?.contains(&row.to_owned()));
        assert_eq!(w.statuses(&planted, &["a", "b"])?, [OpStatus::Succeeded, OpStatus::Ready]);
        assert_eq!(w.finish_one(item)?, Ended::Succeeded, "a repetition gets the first answer");
        w.drain("w1")?;
    }
    Ok(())
}

fn rows_of_the_application_and_a_completion_roll_back_together(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").op("b").after(&["a"]).build(w)?;
    let claimed = planted.claimed("a");
    let item = completion(&claimed, "1");
    let before = w.fingerprint(&planted)?;
    for door in Door::ALL {
        let outcome = w.own_transaction(door, |own| {
            own.insert("paid")?;
            complete(own, &item)?;
            Err(NO_FUNDS.into())
        });
        assert_eq!(failure(outcome), NO_FUNDS);
        assert_eq!(w.own_rows()?, [""; 0]);
        assert_eq!(w.fingerprint(&planted)?, before);
    }
    assert!(matches!(w.finish_one(permanent_failure(&claimed))?, Ended::Failed { .. }), "its lease holds, and another end is free");
    Ok(())
}

fn a_lost_lease_takes_the_applications_rows_back_with_it(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
    let item = completion(&planted.claimed("a"), "1");
    w.clock().advance(LEASE)?;
    let before = w.fingerprint(&planted)?;
    for door in Door::ALL {
        let outcome = w.own_transaction(door, |own| {
            own.insert("paid")?;
            complete(own, &item)
        });
        assert_eq!(failure(outcome), "[LeaseLost]");
        assert_eq!(w.own_rows()?, [""; 0]);
        assert_eq!(w.fingerprint(&planted)?, before);
    }
    Ok(())
}

fn an_identity_conflict_takes_the_applications_rows_back_with_it(w: &mut World) -> Outcome {
    w.ensure(Scenario::new().id("w").identity("x").op("a").spec(w))?;
    let other = Scenario::new().id("w").identity("y").op("b").spec(w);
    for door in Door::ALL {
        let mut refusal = None;
        let outcome = w.own_transaction(door, |own| {
            own.insert("order")?;
            ensure(own, &other).map(drop).inspect_err(|error| {
                refusal = error.downcast_ref().map(|error| matches!(error, TransitionError::IdentityConflict { .. }));
            })
        });
        assert!(outcome.is_err() && refusal == Some(true), "{outcome:?}");
        assert_eq!(w.own_rows()?, [""; 0]);
    }
    Ok(())
}

fn an_application_may_go_on_where_the_engines_part_was_undone(w: &mut World) -> Outcome {
    let planted = Scenario::new().op("a").leased_by("w1").op("b").after(&["a"]).build(w)?;
    let item = completion(&planted.claimed("a"), "1");
    let before = w.fingerprint(&planted)?;
    for (door, row) in Door::ALL.into_iter().zip(["lent", "borrowed"]) {
        w.own_transaction(door, |own| {
            let refused = own.lend(&mut |tx| {
                transitions::finish(tx, std::slice::from_ref(&item), Wait::Block)?;
                Err(NO_FUNDS.into())
            });
            assert_eq!(failure(refused), NO_FUNDS);
            own.insert(row)
        })?;
        assert!(w.own_rows()?.contains(&row.to_owned()));
        assert_eq!(w.fingerprint(&planted)?, before, "all that the engine did in there is undone");
    }
    Ok(())
}

/// From the call on the lease is the transaction's: neither time nor a recovery can take it away.
fn ownership_is_judged_at_the_call_and_kept_until_the_commit(w: &mut World) -> Outcome {
    for door in Door::ALL {
        let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
        let item = completion(&planted.claimed("a"), "1");
        let completing = |meeting: &Meeting| {
            w.own_transaction(door, |own| {
                complete(own, &item)?;
                w.clock().advance(LEASE)?;
                meeting.meet();
                Ok(())
            })
        };
        let met = beside(PATIENCE, completing, || Ok(w.recover(10)?.ops.len()))?;
        assert_eq!(met.other + w.recover(10)?.ops.len(), 0);
        assert_eq!(w.status(&planted, "a")?, OpStatus::Succeeded);
    }
    Ok(())
}

fn nobody_sees_what_an_application_has_not_committed(w: &mut World) -> Outcome {
    for door in Door::ALL {
        let planted = Scenario::new().op("a").leased_by("w1").op("b").after(&["a"]).build(w)?;
        let item = completion(&planted.claimed("a"), "1");
        let before = w.fingerprint(&planted)?;
        w.own_transaction(door, |own| {
            complete(own, &item)?;
            // A reader waits for nobody.
            assert_eq!(w.fingerprint(&planted)?, before);
            Ok(())
        })?;
        assert_eq!(w.drain("w1")?, 1);
    }
    Ok(())
}

fn an_ensure_waits_for_an_application_that_creates_the_same_and_attaches(w: &mut World) -> Outcome {
    for (door, id) in Door::ALL.into_iter().zip(["lent", "borrowed"]) {
        let spec = Scenario::new().id(id).identity(id).op("a").spec(w);
        let creating = |meeting: &Meeting| {
            w.own_transaction(door, |own| {
                assert_eq!(ensure(own, &spec)?, CreateOutcome::Created);
                meeting.meet();
                Ok(())
            })
        };
        let met = beside(PATIENCE, creating, || Ok(w.ensure(spec.clone())?))?;
        assert_eq!(met.other, CreateOutcome::Attached { status: WorkflowStatus::Running, input_differs: false });
        assert_eq!(Planted::find(w, &spec.id)?.ops.len(), 1);
    }
    Ok(())
}

/// What an engine does besides, from its claim to its end.
fn neighbours(w: &World) -> Result<usize, BoxError> {
    let fresh = Scenario::new().ops("n", 20).build(w)?;
    let first = w.claim_one("w2")?;
    w.heartbeat(&[first.lease.key])?;
    w.complete_one(&first, "1")?;
    let drained = w.drain("w2")?;
    assert_eq!(w.workflow(&fresh.id)?.status, WorkflowStatus::Succeeded);
    w.recover(10)?;
    Ok(1 + drained)
}

/// An application that holds a workflow, beside which `neighbours` begin; how they ended.
fn beside_an_application(w: &World, door: Door, patience: Duration) -> Result<Met<(), usize>, BoxError> {
    let held = Scenario::new().op("a").leased_by("w1").op("b").after(&["a"]).build(w)?;
    let item = completion(&held.claimed("a"), "1");
    let holding = |meeting: &Meeting| {
        w.own_transaction(door, |own| {
            own.insert("held")?;
            complete(own, &item)?;
            meeting.meet();
            Ok(())
        })
    };
    let met = beside(patience, holding, || neighbours(w))?;
    w.drain("w1")?;
    assert_eq!(w.statuses(&held, &["a", "b"])?, [OpStatus::Succeeded, OpStatus::Succeeded]);
    Ok(met)
}

fn neighbours_of_an_application_may_wait_for_it_and_lose_nothing(w: &mut World) -> Outcome {
    for door in Door::ALL {
        let neighbours = beside_an_application(w, door, PATIENCE)?.other;
        // Where they come after it they also do what it made ready.
        assert!(neighbours == 20 || neighbours == 21, "{neighbours}");
    }
    Ok(())
}

fn neighbours_go_on_while_an_application_holds_a_workflow(w: &mut World) -> Outcome {
    for door in Door::ALL {
        let met = beside_an_application(w, door, LONG)?;
        assert_eq!((met.other, met.beside), (20, true), "all of it while the transaction stood open");
    }
    Ok(())
}
