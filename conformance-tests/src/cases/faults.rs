//! A store that fails at any step, or loses a reply: all or nothing, and every verb can be repeated (L2, L12).

use crate::case::cases;
use crate::scenario::{LEASE, json, name};
use crate::verbs::{abandonment, claim_request, completion, failure, giving_back, permanent_failure, plan, settling, suspension};
use crate::world::{Fingerprint, transact};
use crate::{Fault, FaultyStore, Outcome, Planted, Scenario, World};
use leasehold_core::model::{Artifact, ArtifactKind, Limits, Record, RequestId};
use leasehold_core::store::{BoxError, Store, StoreError, TxKind, Wait};
use leasehold_core::transitions::{
    self, Actor, AddOps, BatchLimit, CancelWorkflow, ClaimRequest, CreateMode, CreateRequest, End, Finish, OpVerdict, RetryOps,
    RetryTarget, TransitionError, Until,
};
use std::sync::Arc;

cases! {
    a_create_that_fails_at_any_step_leaves_nothing_and_can_be_repeated proves ["L2", "L12", "S9"];
    an_addition_that_fails_at_any_step_leaves_nothing_and_can_be_repeated proves ["L2", "L12", "S9"];
    a_claim_that_fails_at_any_step_leaves_nothing_and_can_be_repeated proves ["L2", "L12", "Q1"];
    a_heartbeat_that_fails_at_any_step_leaves_nothing_and_can_be_repeated proves ["L4", "L12"];
    a_completion_that_fails_at_any_step_leaves_nothing_and_can_be_repeated proves ["L2", "L12"];
    a_failure_that_fails_at_any_step_leaves_nothing_and_can_be_repeated proves ["L2", "L12", "Q8"];
    a_last_failure_that_fails_at_any_step_leaves_nothing_and_can_be_repeated proves ["L2", "L12", "S2"];
    a_release_that_fails_at_any_step_leaves_nothing_and_can_be_repeated proves ["L2", "L12", "L8"];
    a_suspension_that_fails_at_any_step_leaves_nothing_and_can_be_repeated proves ["L2", "L12", "W1"];
    a_wake_up_that_fails_at_any_step_leaves_nothing_and_can_be_repeated proves ["W2", "L12"];
    a_dispatch_that_fails_at_any_step_leaves_nothing_and_can_be_repeated proves ["L16", "L12"];
    an_abandonment_that_fails_at_any_step_leaves_nothing_and_can_be_repeated proves ["L9", "L12"];
    a_verdict_that_fails_at_any_step_leaves_nothing_and_can_be_repeated proves ["S11", "L12"];
    a_recovery_that_fails_at_any_step_leaves_nothing_and_can_be_repeated proves ["L7", "L8", "L12"];
    a_retry_that_fails_at_any_step_leaves_nothing_and_can_be_repeated proves ["S5", "L12"];
    a_cancel_that_fails_at_any_step_leaves_nothing_and_can_be_repeated proves ["S6", "L12"];
    an_election_that_fails_at_any_step_leaves_nothing_and_can_be_repeated proves ["L10", "L12"];
    a_trust_in_the_clock_that_fails_at_any_step_leaves_nothing_and_can_be_repeated proves ["T7", "L12"];
}

/// One call of a verb, under ids that were made before its first try.
type Call = Box<dyn Fn(&dyn Store, Try) -> Result<String, TransitionError>>;

/// Whether an earlier try may have committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Try {
    First,
    Again,
}

/// What a verb is called on, and the call.
struct Prepared {
    /// The workflow, if it is there before the call.
    on: Option<Planted>,
    call: Call,
}

/// What stands in the store: the workflow whole, and how much there is of everything.
fn state(w: &World, on: Option<&Planted>) -> Result<(Option<Fingerprint>, String), BoxError> {
    let totals = w.read(|tx| tx.totals())?;
    let queues = w.read(|tx| tx.queue_statuses())?;
    let mark = w.read(|tx| tx.clock())?.mark;
    let fingerprint = on.map(|planted| w.fingerprint(planted)).transpose()?;
    Ok((
        fingerprint,
        format!("{totals:?} {mark:?} {:?}", queues.iter().map(|queue| (queue.ready, queue.delayed, queue.in_flight)).collect::<Vec<_>>()),
    ))
}

/// Runs the call once in peace; then on fresh ground for every fault there is.
fn at_every_step(w: &World, prepare: impl Fn() -> Result<Prepared, BoxError>) -> Outcome {
    let faulty = Arc::new(FaultyStore::new(Arc::clone(w.store())));
    let peace = prepare()?;
    let expected = (peace.call)(faulty.as_ref(), Try::First)?;
    let steps = faulty.steps();
    assert!(steps > 0);
    let faults = (1..=steps).flat_map(|step| [Fault::BeforeStep(step), Fault::AfterStep(step)]).chain([Fault::CommitReplyLost]);
    for fault in faults {
        clear(w)?;
        let Prepared { on, call } = prepare()?;
        let before = state(w, on.as_ref())?;
        faulty.plan(fault);
        match call(faulty.as_ref(), Try::First) {
            Err(TransitionError::Store(StoreError::Unavailable(_))) => {}
            other => panic!("{fault:?} was answered with {other:?}"),
        }
        assert!(!faulty.forget(), "{fault:?} was met");
        if fault != Fault::CommitReplyLost {
            assert_eq!(state(w, on.as_ref())?, before, "{fault:?}: nothing was written");
        }
        let committed = state(w, on.as_ref())?;
        assert_eq!(call(faulty.as_ref(), Try::Again)?, expected, "{fault:?}: the repetition gets the first answer");
        if fault == Fault::CommitReplyLost {
            assert_eq!(state(w, on.as_ref())?, committed, "the repetition did nothing a second time");
        }
        assert_eq!(call(faulty.as_ref(), Try::Again)?, expected, "{fault:?}: and so does the next");
        crate::recount(w)?;
    }
    Ok(())
}

/// Cancels what still moves, so that each round claims its own ops.
fn clear(w: &World) -> Outcome {
    let page = leasehold_core::store::rows::WorkflowPage {
        status: Some(leasehold_core::state::WorkflowStatus::Running),
        limit: 1_000,
        ..Default::default()
    };
    for row in w.read(|tx| tx.list_workflows(&page))? {
        w.cancel(&Planted::find(w, &row.id)?)?;
    }
    Ok(())
}

fn kept<T: std::fmt::Debug>(answer: T) -> String {
    format!("{answer:?}")
}

fn a_create_that_fails_at_any_step_leaves_nothing_and_can_be_repeated(w: &mut World) -> Outcome {
    at_every_step(w, || {
        let spec = Scenario::new().identity("x").op("a").op("b").after(&["a"]).spec(w);
        let request = CreateRequest::new(spec, RequestId::random(), CreateMode::Ensure, &Limits::default())?;
        let call: Call = Box::new(move |store, _| {
            let report = transact(store, TxKind::Client, |tx| {
                transitions::create(tx, std::slice::from_ref(&request)).map_err(TransitionError::from)
            })?;
            Ok(kept(report.outcomes.into_iter().map(|outcome| outcome.map(|created| created.outcome)).collect::<Vec<_>>()))
        });
        Ok(Prepared { on: None, call })
    })
}

fn an_addition_that_fails_at_any_step_leaves_nothing_and_can_be_repeated(w: &mut World) -> Outcome {
    at_every_step(w, || {
        let planted = Scenario::new().op("a").op("bad").failed().op("end").after(&["a", "bad"]).build(w)?;
        let added = Scenario::new().op("x").after(&["a"]).op("y").after(&["x"]).op("z").before(&["end"]);
        let call = AddOps { request: RequestId::random(), actor: Actor::new("ann"), workflow: planted.id.clone(), plan: plan(w, &added)? };
        let call: Call = Box::new(move |store, _| Ok(kept(transact(store, TxKind::Client, |tx| transitions::add_ops(tx, &call))?.ops)));
        Ok(Prepared { on: Some(planted), call })
    })
}

fn a_claim_that_fails_at_any_step_leaves_nothing_and_can_be_repeated(w: &mut World) -> Outcome {
    w.set_policies(&[crate::verbs::limit("q", 100), crate::verbs::rate("r", 1_000.0, 1_000)])?;
    at_every_step(w, || {
        let planted = Scenario::new().op("a").queue("q").op("b").queue("r").op("c").build(w)?;
        let request = claim_request("w1", 10);
        let call: Call = Box::new(move |store, attempt| {
            let request = ClaimRequest { repeated: attempt == Try::Again, ..request.clone() };
            let report = transact(store, TxKind::Claim, |tx| transitions::claim(tx, &request).map_err(TransitionError::from))?;
            let mut ids: Vec<String> = report.ops.iter().map(|op| op.op_id.to_string()).collect();
            ids.sort();
            Ok(kept(ids))
        });
        Ok(Prepared { on: Some(planted), call })
    })
}

fn a_heartbeat_that_fails_at_any_step_leaves_nothing_and_can_be_repeated(w: &mut World) -> Outcome {
    at_every_step(w, || {
        let planted = Scenario::new().op("a").leased_by("w1").build(w)?;
        w.clock().advance(crate::scenario::microseconds(1))?;
        let key = planted.lease("a");
        let call: Call = Box::new(move |store, _| {
            let outcomes =
                transact(store, TxKind::Heartbeat, |tx| transitions::heartbeat(tx, &[key], LEASE).map_err(TransitionError::from))?;
            let held = outcomes.iter().map(|outcome| matches!(outcome, transitions::HeartbeatOutcome::Held(_)));
            Ok(kept(held.collect::<Vec<_>>()))
        });
        Ok(Prepared { on: Some(planted), call })
    })
}

fn finishing(w: &World, item: impl Fn(&Planted) -> Result<Finish, BoxError>) -> Outcome {
    at_every_step(w, || {
        let planted = Scenario::new().op("a").leased_by("w1").op("b").after(&["a"]).op("c").after_settled(&["a"]).build(w)?;
        let item = item(&planted)?;
        let call: Call = Box::new(move |store, _| {
            let report = transact(store, TxKind::Commit, |tx| {
                transitions::finish(tx, std::slice::from_ref(&item), Wait::Block).map_err(TransitionError::from)
            })?;
            // The instant of a retry differs from round to round with the op's key.
            Ok(kept(report.outcomes.iter().map(std::mem::discriminant).collect::<Vec<_>>()))
        });
        Ok(Prepared { on: Some(planted), call })
    })
}

fn a_completion_that_fails_at_any_step_leaves_nothing_and_can_be_repeated(w: &mut World) -> Outcome {
    finishing(w, |planted| {
        let artifact = Artifact {
            name: name("report"),
            kind: ArtifactKind::Text,
            content_type: "text/plain".to_owned(),
            metadata: json("null"),
            content: b"done".to_vec(),
        };
        let record = Record { collection: name("c"), key: name("k"), value: json("1") };
        let emitted = Some(plan(w, &Scenario::new().op("x").before(&["b"]))?);
        let end = End::Complete { result: json("42"), artifacts: vec![artifact], records: vec![record], emitted };
        Ok(Finish { end, ..completion(&planted.claimed("a"), "0") })
    })
}

fn a_failure_that_fails_at_any_step_leaves_nothing_and_can_be_repeated(w: &mut World) -> Outcome {
    finishing(w, |planted| Ok(failure(&planted.claimed("a"))))
}

fn a_last_failure_that_fails_at_any_step_leaves_nothing_and_can_be_repeated(w: &mut World) -> Outcome {
    finishing(w, |planted| Ok(permanent_failure(&planted.claimed("a"))))
}

fn a_release_that_fails_at_any_step_leaves_nothing_and_can_be_repeated(w: &mut World) -> Outcome {
    finishing(w, |planted| Ok(giving_back(&planted.claimed("a"))))
}

fn a_suspension_that_fails_at_any_step_leaves_nothing_and_can_be_repeated(w: &mut World) -> Outcome {
    finishing(w, |planted| Ok(suspension(&planted.claimed("a"), Until::For(LEASE))))
}

/// A pass that is repeated finds nobody more to wake, so its answer is what stands in the store.
fn a_wake_up_that_fails_at_any_step_leaves_nothing_and_can_be_repeated(w: &mut World) -> Outcome {
    at_every_step(w, || {
        let planted = Scenario::new().op("a").leased_by("w1").op("b").after(&["a"]).build(w)?;
        w.suspend_one(&planted.claimed("a"), Until::For(LEASE))?;
        w.clock().advance(LEASE)?;
        let op = planted.op("a");
        let call: Call = Box::new(move |store, _| {
            transact(store, TxKind::Maintenance, |tx| transitions::wake(tx, BatchLimit::DEFAULT).map_err(TransitionError::from))?;
            let (views, wakes) = transact(store, TxKind::Read, |tx| Ok::<_, StoreError>((tx.op_views(&[op])?, tx.wakes_of(&[op])?.len())))?;
            Ok(kept(views.iter().map(|view| (view.status, view.wait.is_some(), wakes)).collect::<Vec<_>>()))
        });
        Ok(Prepared { on: Some(planted), call })
    })
}

fn a_dispatch_that_fails_at_any_step_leaves_nothing_and_can_be_repeated(w: &mut World) -> Outcome {
    at_every_step(w, || {
        let planted = Scenario::new().op("a").effect_once().leased_by("w1").build(w)?;
        let key = planted.lease("a");
        let call: Call = Box::new(move |store, _| {
            Ok(kept(transact(store, TxKind::Heartbeat, |tx| transitions::dispatch(tx, &[key]).map_err(TransitionError::from))?))
        });
        Ok(Prepared { on: Some(planted), call })
    })
}

fn an_abandonment_that_fails_at_any_step_leaves_nothing_and_can_be_repeated(w: &mut World) -> Outcome {
    at_every_step(w, || {
        let planted = Scenario::new().op("a").effect_once().leased_by("w1").op("b").after(&["a"]).build(w)?;
        w.dispatch(&[planted.lease("a")])?;
        let item = abandonment(&planted.claimed("a"));
        let call: Call = Box::new(move |store, _| {
            let report = transact(store, TxKind::Commit, |tx| {
                transitions::finish(tx, std::slice::from_ref(&item), Wait::Block).map_err(TransitionError::from)
            })?;
            Ok(kept(report.outcomes))
        });
        Ok(Prepared { on: Some(planted), call })
    })
}

fn a_verdict_that_fails_at_any_step_leaves_nothing_and_can_be_repeated(w: &mut World) -> Outcome {
    let verdicts =
        [OpVerdict::Retry, OpVerdict::Succeed { result: json("1") }, OpVerdict::Fail { message: "it was never sent".to_owned() }];
    for verdict in verdicts {
        clear(w)?;
        at_every_step(w, || {
            let planted = Scenario::new().op("a").effect_once().leased_by("w1").op("b").after(&["a"]).build(w)?;
            w.dispatch(&[planted.lease("a")])?;
            w.finish_one(abandonment(&planted.claimed("a")))?;
            let call = settling(&planted, "a", planted.lease("a").fence, verdict.clone());
            let call: Call =
                Box::new(move |store, _| Ok(kept(transact(store, TxKind::Client, |tx| transitions::settle(tx, &call))?.status)));
            Ok(Prepared { on: Some(planted), call })
        })?;
    }
    Ok(())
}

/// A recovery that is repeated finds nothing more to do, so its answer is what stands in the store.
fn a_recovery_that_fails_at_any_step_leaves_nothing_and_can_be_repeated(w: &mut World) -> Outcome {
    let leader = super::steps::time::candidate("w1");
    let epoch = transact(w.store().as_ref(), TxKind::Maintenance, |tx| transitions::elect(tx, &leader))?.epoch;
    let door = transitions::Upkeep { epoch: Some(epoch), ..crate::verbs::IN_THE_WAY };
    at_every_step(w, || {
        let planted = Scenario::new().op("a").leased_by("w1").op("b").after(&["a"]).build(w)?;
        w.clock().advance(LEASE)?;
        let op = planted.op("a");
        let call: Call = Box::new(move |store, _| {
            transact(store, TxKind::Maintenance, |tx| {
                let pass = transitions::upkeep(tx, door, |tx| transitions::recover(tx, BatchLimit::DEFAULT));
                pass.map_err(TransitionError::from)
            })?;
            let views = transact(store, TxKind::Read, |tx| tx.op_views(&[op]))?;
            Ok(kept(views.iter().map(|view| (view.status, view.state.losses)).collect::<Vec<_>>()))
        });
        Ok(Prepared { on: Some(planted), call })
    })
}

fn a_retry_that_fails_at_any_step_leaves_nothing_and_can_be_repeated(w: &mut World) -> Outcome {
    at_every_step(w, || {
        let planted = Scenario::new().op("a").failed().op("b").after(&["a"]).op("c").after(&["b"]).build(w)?;
        let call = RetryOps {
            request: RequestId::random(),
            actor: Actor::new("ann"),
            workflow: planted.id.clone(),
            target: RetryTarget::AllFailed,
        };
        let call: Call = Box::new(move |store, _| Ok(kept(transact(store, TxKind::Client, |tx| transitions::retry(tx, &call))?.ops)));
        Ok(Prepared { on: Some(planted), call })
    })
}

fn a_cancel_that_fails_at_any_step_leaves_nothing_and_can_be_repeated(w: &mut World) -> Outcome {
    at_every_step(w, || {
        let planted = Scenario::new().op("a").leased_by("w1").op("b").after(&["a"]).op("c").build(w)?;
        let call = CancelWorkflow { request: RequestId::random(), actor: Actor::new("ann"), workflow: planted.id.clone() };
        let call: Call = Box::new(move |store, _| {
            let canceled = transact(store, TxKind::Client, |tx| transitions::cancel_workflow(tx, &call))?;
            Ok(kept((canceled.ops, canceled.running)))
        });
        Ok(Prepared { on: Some(planted), call })
    })
}

/// One term after the other, so that each round stands for a new one.
fn an_election_that_fails_at_any_step_leaves_nothing_and_can_be_repeated(w: &mut World) -> Outcome {
    at_every_step(w, || {
        w.clock().advance(super::steps::time::TERM)?;
        let leader = super::steps::time::candidate("w1");
        let call: Call = Box::new(move |store, _| {
            let led = transact(store, TxKind::Maintenance, |tx| transitions::elect(tx, &leader).map_err(TransitionError::from))?;
            Ok(kept((led.mine, led.leader)))
        });
        Ok(Prepared { on: None, call })
    })
}

fn a_trust_in_the_clock_that_fails_at_any_step_leaves_nothing_and_can_be_repeated(w: &mut World) -> Outcome {
    at_every_step(w, || {
        let planted = Scenario::new().op("a").leased_by("w1").op("b").build(w)?;
        w.clock().advance(LEASE)?;
        w.tx(|tx| tx.raise_mark(LEASE))?;
        w.clock().go_back(crate::scenario::microseconds(LEASE.get() + 1))?;
        let call = transitions::TrustClock { request: RequestId::random(), actor: Actor::new("ann"), leases_within: LEASE };
        let call: Call = Box::new(move |store, _| {
            let trusted = transact(store, TxKind::Client, |tx| transitions::trust_clock(tx, &call))?;
            Ok(kept(trusted.pulled_back))
        });
        Ok(Prepared { on: Some(planted), call })
    })
}
