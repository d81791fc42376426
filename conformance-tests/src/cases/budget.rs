//! What a verb may cost (S12, Q10): statements do not grow with sets, depth, backlog or history.

use crate::case::cases;
use crate::scenario::LEASE;
use crate::verbs::{completion, failure, giving_back, limit, permanent_failure, suspension};
use crate::{Outcome, Planted, Scenario, World};
use leasehold_core::state::{OpStatus, WorkflowStatus};
use leasehold_core::store::BoxError;
use leasehold_core::store::rows::{ClaimedOp, LeaseKey};
use leasehold_core::transitions::{Finish, RetryTarget, Until};
use std::time::{Duration, Instant};

cases! {
    creating_1000_ops_costs_as_many_statements_as_creating_10 proves ["S12"] needs [Statements];
    claiming_1000_ops_costs_as_many_statements_as_claiming_10 proves ["S12", "Q10"] needs [Statements];
    claiming_from_many_queues_costs_no_statement_a_queue proves ["Q10"] needs [Statements];
    extending_1000_leases_costs_one_statement proves ["L5", "S12"] needs [Statements];
    dispatching_1000_leases_costs_one_statement proves ["L16", "S12"] needs [Statements];
    completing_1000_ops_costs_as_many_statements_as_completing_10 proves ["S12"] needs [Statements];
    failing_1000_ops_costs_as_many_statements_as_failing_10 proves ["S12"] needs [Statements];
    releasing_1000_ops_costs_as_many_statements_as_releasing_10 proves ["S12"] needs [Statements];
    suspending_1000_ops_costs_as_many_statements_as_suspending_10 proves ["S12", "W1"] needs [Statements];
    waking_1000_ops_costs_as_many_statements_as_waking_10 proves ["S12", "W2"] needs [Statements];
    recovering_1000_leases_costs_as_many_statements_as_recovering_10 proves ["S12", "L7"] needs [Statements];
    emitting_1000_ops_costs_as_many_statements_as_emitting_10 proves ["S12", "Q4"] needs [Statements];
    blocking_a_chain_of_1000_costs_as_many_statements_as_one_of_10 proves ["S12", "S2"] needs [Statements];
    reopening_a_chain_of_1000_costs_as_many_statements_as_one_of_10 proves ["S12", "S5"] needs [Statements];
    canceling_1000_ops_costs_as_many_statements_as_canceling_10 proves ["S12", "S6"] needs [Statements];
    waking_the_join_of_1000_parents_costs_as_many_statements_as_of_10 proves ["S12"] needs [Statements];
    claim_statements_do_not_grow_with_backlog_or_history proves ["Q10"] needs [Statements];
    a_claim_stays_within_its_budget_whatever_is_in_the_store proves ["Q10"] needs [LatencyBudget];
    a_completion_stays_within_its_budget_whatever_is_in_the_store proves ["S12"] needs [LatencyBudget];
    a_fan_in_of_10000_is_created_and_drained proves ["S12"];
    a_chain_of_10000_is_created_blocked_and_repaired proves ["S12", "S2", "S5"];
}

/// The same work on sets of this many, in turn: the first time warms up what is prepared once.
const SIZES: [usize; 3] = [10, 10, 1_000];

/// Runs `work` for each size on what `prepare` makes; the statements of the last two must be equal.
fn flat<T>(w: &World, prepare: impl Fn(usize) -> Result<T, BoxError>, work: impl Fn(T) -> Outcome) -> Outcome {
    let mut costs = Vec::new();
    for size in SIZES {
        let prepared = prepare(size)?;
        let (cost, ()) = w.statements(|| work(prepared))?;
        costs.push(cost);
    }
    let [_, small, large] = costs.as_slice() else { unreachable!("there are three sizes") };
    // A store may cut a set into a few parts; that is no growth with the set.
    assert!(*large <= small + 8, "{small} statements for 10, {large} for 1,000");
    Ok(())
}

fn many(count: usize) -> Scenario {
    Scenario::new().ops("a", count)
}

/// That many ops of a workflow, leased.
fn leased(w: &World, count: usize) -> Result<Vec<ClaimedOp>, BoxError> {
    many(count).build(w)?;
    let claimed = w.claim("w1", u32::try_from(count)?)?;
    assert_eq!(claimed.len(), count);
    Ok(claimed)
}

fn finish(w: &World, batch: &[Finish]) -> Outcome {
    let outcomes = w.finish(batch)?;
    assert!(outcomes.iter().all(|outcome| !matches!(outcome, leasehold_core::transitions::Ended::LeaseLost)));
    Ok(())
}

fn creating_1000_ops_costs_as_many_statements_as_creating_10(w: &mut World) -> Outcome {
    flat(
        w,
        |size| Ok((1..size).fold(Scenario::new().op("0"), |scenario, at| scenario.op(&at.to_string()).kind("k").after(&["0"])).spec(w)),
        |spec| {
            w.create(spec)?;
            Ok(())
        },
    )
}

fn claiming_1000_ops_costs_as_many_statements_as_claiming_10(w: &mut World) -> Outcome {
    flat(
        w,
        |size| {
            many(size).build(w)?;
            Ok(size)
        },
        |size| {
            assert_eq!(w.claim("w1", u32::try_from(size)?)?.len(), size);
            Ok(())
        },
    )
}

fn claiming_from_many_queues_costs_no_statement_a_queue(w: &mut World) -> Outcome {
    let queues: Vec<_> = (0..60).map(|at| limit(&format!("q{at}"), 1_000)).collect();
    w.set_policies(&queues)?;
    let prepare = |queues: usize| -> Outcome {
        (0..60)
            .fold(Scenario::new(), |scenario, at| scenario.op(&at.to_string()).kind("k").queue(&format!("q{}", at % queues)))
            .build(w)?;
        Ok(())
    };
    let mut costs = Vec::new();
    for queues in [2, 2, 60] {
        prepare(queues)?;
        let (cost, claimed) = w.statements(|| Ok(w.claim("w1", 60)?.len()))?;
        assert_eq!(claimed, 60);
        costs.push(cost);
    }
    assert!(costs.get(2) <= costs.get(1), "{costs:?} statements for 2, 2 and 60 queues");
    Ok(())
}

fn extending_1000_leases_costs_one_statement(w: &mut World) -> Outcome {
    for size in SIZES {
        let keys: Vec<LeaseKey> = leased(w, size)?.iter().map(|op| op.lease.key).collect();
        let (cost, held) = w.statements(|| Ok(w.tx(|tx| tx.extend_leases(&keys, LEASE))?.len()))?;
        assert_eq!(held, size);
        assert_eq!(cost, 1, "for {size} leases");
    }
    Ok(())
}

fn dispatching_1000_leases_costs_one_statement(w: &mut World) -> Outcome {
    for size in SIZES {
        let keys: Vec<LeaseKey> = leased(w, size)?.iter().map(|op| op.lease.key).collect();
        let (cost, outcomes) = w.statements(|| Ok(w.dispatch(&keys)?))?;
        assert_eq!(outcomes.len(), size);
        assert_eq!(cost, 1, "for {size} leases");
    }
    Ok(())
}

fn completing_1000_ops_costs_as_many_statements_as_completing_10(w: &mut World) -> Outcome {
    flat(w, |size| Ok(leased(w, size)?.iter().map(|op| completion(op, "1")).collect::<Vec<_>>()), |batch| finish(w, &batch))
}

fn failing_1000_ops_costs_as_many_statements_as_failing_10(w: &mut World) -> Outcome {
    flat(w, |size| Ok(leased(w, size)?.iter().map(failure).collect::<Vec<_>>()), |batch| finish(w, &batch))
}

fn releasing_1000_ops_costs_as_many_statements_as_releasing_10(w: &mut World) -> Outcome {
    flat(
        w,
        |size| {
            // What was released is ready again, and would be claimed by the next size.
            w.drain("w1")?;
            Ok(leased(w, size)?.iter().map(giving_back).collect::<Vec<_>>())
        },
        |batch| finish(w, &batch),
    )
}

fn suspending_1000_ops_costs_as_many_statements_as_suspending_10(w: &mut World) -> Outcome {
    let batch = |size| Ok(leased(w, size)?.iter().map(|op| suspension(op, Until::For(LEASE))).collect::<Vec<_>>());
    flat(w, batch, |batch| finish(w, &batch))
}

fn waking_1000_ops_costs_as_many_statements_as_waking_10(w: &mut World) -> Outcome {
    flat(
        w,
        |size| {
            w.drain("w1")?;
            let batch: Vec<Finish> = leased(w, size)?.iter().map(|op| suspension(op, Until::For(LEASE))).collect();
            finish(w, &batch)?;
            w.clock().advance(LEASE)?;
            Ok(size)
        },
        |size| {
            assert_eq!(w.wake(10_000)?.ops.len(), size);
            Ok(())
        },
    )
}

fn recovering_1000_leases_costs_as_many_statements_as_recovering_10(w: &mut World) -> Outcome {
    flat(
        w,
        |size| {
            w.drain("w1")?;
            leased(w, size)?;
            w.clock().advance(LEASE)?;
            Ok(size)
        },
        |size| {
            assert_eq!(w.recover(10_000)?.ops.len(), size);
            Ok(())
        },
    )
}

fn emitting_1000_ops_costs_as_many_statements_as_emitting_10(w: &mut World) -> Outcome {
    flat(
        w,
        |size| {
            let planted = Scenario::new().op("a").leased_by("w1").op("end").after(&["a"]).build(w)?;
            let emitted = (0..size).fold(Scenario::new(), |scenario, at| scenario.op(&format!("x{at}")).kind("x").before(&["end"]));
            let item = super::emit::emitting(w, &planted.claimed("a"), &emitted)?;
            Ok(vec![item])
        },
        |batch| finish(w, &batch),
    )
}

/// A chain of that many ops, the first of them as `begin` leaves it.
fn chain(length: usize, begin: impl Fn(Scenario) -> Scenario) -> Scenario {
    let first = begin(Scenario::new().op("0"));
    (1..length).fold(first, |scenario, at| scenario.op(&at.to_string()).kind("link").after(&[&(at - 1).to_string()]))
}

fn blocking_a_chain_of_1000_costs_as_many_statements_as_one_of_10(w: &mut World) -> Outcome {
    flat(
        w,
        |size| Ok(vec![permanent_failure(&chain(size, |first| first.leased_by("w1")).build(w)?.claimed("0"))]),
        |batch| finish(w, &batch),
    )
}

fn reopening_a_chain_of_1000_costs_as_many_statements_as_one_of_10(w: &mut World) -> Outcome {
    flat(
        w,
        |size| chain(size, Scenario::failed).build(w),
        |planted| {
            w.retry(&planted, RetryTarget::AllFailed)?;
            // Taken away, so that the next chain's first op is the only one that is ready.
            w.cancel(&planted)?;
            Ok(())
        },
    )
}

fn canceling_1000_ops_costs_as_many_statements_as_canceling_10(w: &mut World) -> Outcome {
    flat(
        w,
        |size| {
            let planted = chain(size, |first| first).build(w)?;
            w.add(&planted, &Scenario::new().ops("more", size))?;
            Ok(planted)
        },
        |planted| {
            w.cancel(&planted)?;
            Ok(())
        },
    )
}

fn waking_the_join_of_1000_parents_costs_as_many_statements_as_of_10(w: &mut World) -> Outcome {
    flat(
        w,
        |size| {
            w.drain("w1")?;
            let ids: Vec<String> = (0..size).map(|at| format!("a{at}")).collect();
            let parents: Vec<&str> = ids.iter().map(String::as_str).collect();
            let planted = many(size).op("join").after(&parents).build(w)?;
            let claimed = w.claim_kind("w1", "a", u32::try_from(size)?)?;
            Ok((planted, claimed.iter().map(|op| completion(op, "1")).collect::<Vec<_>>()))
        },
        |(planted, batch)| {
            finish(w, &batch)?;
            // One more read than the completion itself; the same for every size.
            assert_eq!(w.status(&planted, "join")?, OpStatus::Ready);
            Ok(())
        },
    )
}

/// Much of everything that a claim must not look at: ops that are done, blocked, pending, delayed, of a kind that the
/// worker does not serve, and in a queue that is full.
fn ballast(w: &World, count: usize) -> Outcome {
    w.set_policies(&[limit("full", 0)])?;
    Scenario::new().ops("done", count).build(w)?;
    Scenario::new().ops("delayed", count).build(w)?;
    loop {
        let batch: Vec<Finish> = w.claim_kind("w1", "done", 1_000)?.iter().map(|op| completion(op, "1")).collect();
        if batch.is_empty() {
            break;
        }
        finish(w, &batch)?;
    }
    loop {
        let batch: Vec<Finish> = w.claim_kind("w1", "delayed", 1_000)?.iter().map(failure).collect();
        if batch.is_empty() {
            break;
        }
        finish(w, &batch)?;
    }
    chain(count, Scenario::failed).build(w)?;
    chain(count, |first| first.queue("full")).build(w)?;
    (0..count).fold(Scenario::new(), |scenario, at| scenario.op(&at.to_string()).kind("full").queue("full").priority(9)).build(w)?;
    Scenario::new().ops("foreign", count).build(w)?;
    Ok(())
}

fn claim_statements_do_not_grow_with_backlog_or_history(w: &mut World) -> Outcome {
    let claim = || -> Result<u64, BoxError> {
        Scenario::new().ops("mine", 100).build(w)?;
        let (cost, claimed) = w.statements(|| Ok(w.claim_kind("w1", "mine", 100)?.len()))?;
        assert_eq!(claimed, 100);
        Ok(cost)
    };
    claim()?;
    let before = claim()?;
    ballast(w, 500)?;
    let after = claim()?;
    assert!(after <= before, "{before} statements before, {after} behind the ballast");
    Ok(())
}

/// The shortest of some tries: what the store needs, without what the machine does besides.
fn shortest(tries: usize, mut work: impl FnMut() -> Result<Duration, BoxError>) -> Result<Duration, BoxError> {
    let mut shortest = Duration::MAX;
    for _ in 0..tries {
        shortest = shortest.min(work()?);
    }
    Ok(shortest)
}

/// A sixth of the 20,000 ops that a latency budget is about; the ballast brings six kinds.
const BALLAST: usize = 3_333;

fn a_claim_stays_within_its_budget_whatever_is_in_the_store(w: &mut World) -> Outcome {
    let budget = w.latency_budget()?;
    ballast(w, BALLAST)?;
    let took = shortest(5, || {
        Scenario::new().ops("mine", 100).build(w)?;
        let begun = Instant::now();
        let claimed = w.claim_kind("w1", "mine", 100)?.len();
        let took = begun.elapsed();
        assert_eq!(claimed, 100);
        Ok(took)
    })?;
    assert!(took <= budget, "{took:?} for 100 ops, the budget is {budget:?}");
    Ok(())
}

fn a_completion_stays_within_its_budget_whatever_is_in_the_store(w: &mut World) -> Outcome {
    let budget = w.latency_budget()?;
    ballast(w, BALLAST)?;
    let took = shortest(5, || {
        Scenario::new().ops("mine", 100).build(w)?;
        let batch: Vec<Finish> = w.claim_kind("w1", "mine", 100)?.iter().map(|op| completion(op, "1")).collect();
        let begun = Instant::now();
        finish(w, &batch)?;
        Ok(begun.elapsed())
    })?;
    assert!(took <= budget, "{took:?} for 100 ops, the budget is {budget:?}");
    Ok(())
}

fn a_fan_in_of_10000_is_created_and_drained(w: &mut World) -> Outcome {
    const PARENTS: usize = 10_000;
    let ids: Vec<String> = (0..PARENTS).map(|at| format!("a{at}")).collect();
    let parents: Vec<&str> = ids.iter().map(String::as_str).collect();
    let planted = many(PARENTS).op("join").after(&parents).build(w)?;
    assert_eq!(w.view(planted.op("join"))?.state.unmet, i32::try_from(PARENTS)?);
    assert_eq!(w.drain("w1")?, PARENTS + 1);
    assert_eq!(w.workflow(&planted.id)?.status, WorkflowStatus::Succeeded);
    Ok(())
}

fn a_chain_of_10000_is_created_blocked_and_repaired(w: &mut World) -> Outcome {
    const LENGTH: usize = 10_000;
    let planted = chain(LENGTH, Scenario::failed).build(w)?;
    let blocked = |planted: &Planted| -> Result<i64, BoxError> { Ok(w.workflow(&planted.id)?.counters.blocked) };
    assert_eq!(blocked(&planted)?, i64::try_from(LENGTH - 1)?);
    w.retry_op(&planted, "0")?;
    assert_eq!(blocked(&planted)?, 0);
    w.fail_for_good(&w.claim_one("w1")?)?;
    assert_eq!(blocked(&planted)?, i64::try_from(LENGTH - 1)?);
    w.cancel(&planted)?;
    Ok(())
}
