//! Every interleaving on small graphs, and broken stores that it must find out.
//!
//! `LEASEHOLD_LONG=1` explores all there is within wider bounds.
#![expect(clippy::print_stderr, reason = "how many states were explored is what a reader of the log looks for")]

use leasehold_conformance::Scenario;
use leasehold_conformance::model::{Bounds, explore, retried};
use leasehold_conformance::mutants::Mutant;
use std::time::Instant;

fn is_long() -> bool {
    std::env::var_os("LEASEHOLD_LONG").is_some_and(|value| value == "1")
}

fn bounds() -> Bounds {
    let short = Bounds {
        workers: 2,
        steps_forward: 2,
        steps_back: 1,
        retries: 1,
        cancels: 1,
        additions: 0,
        attempts: 2,
        states: 2_000,
        drive_each: 8,
    };
    if is_long() {
        Bounds { workers: 3, steps_forward: 3, additions: 1, attempts: 3, states: 2_000_000, drive_each: 4, ..short }
    } else {
        short
    }
}

/// The graphs: every shape of up to four ops that the rules tell apart.
fn graphs() -> Vec<(&'static str, Scenario)> {
    vec![
        ("one", retried(Scenario::new().op("a"))),
        ("two apart", retried(Scenario::new().op("a").op("b"))),
        ("two of a kind", retried(Scenario::new().op("a").kind("k").op("b").kind("k"))),
        ("chain", retried(Scenario::new().op("a").op("b").after(&["a"]).op("c").after(&["b"]))),
        ("join", retried(Scenario::new().op("a").op("b").op("c").after(&["a", "b"]))),
        ("soft join", retried(Scenario::new().op("a").op("b").op("c").after(&["a"]).after_settled(&["b"]))),
        ("diamond", retried(Scenario::new().op("a").op("b").after(&["a"]).op("c").after(&["a"]).op("d").after(&["b", "c"]))),
        (
            "soft below a failure",
            retried(Scenario::new().op("a").op("b").after(&["a"]).op("c").after_settled(&["b"]).op("d").after(&["c"])),
        ),
    ]
}

fn explored(name: &str, graph: &Scenario, bounds: &Bounds) -> usize {
    let begun = Instant::now();
    let explored = explore(graph, bounds, None).unwrap_or_else(|broken| panic!("{name}: {broken}"));
    let all = if explored.complete { "all there are" } else { "there are more" };
    eprintln!(
        "{name}: {} states ({all}), {} acts, {} driven to the end, {:?}",
        explored.states,
        explored.acts,
        explored.driven,
        begun.elapsed()
    );
    explored.states
}

#[test]
fn every_interleaving_keeps_the_invariants() {
    let states: usize = graphs().iter().map(|(name, graph)| explored(name, graph, &bounds())).sum();
    eprintln!("{states} states in all");
}

#[test]
fn every_interleaving_with_added_ops_keeps_the_invariants() {
    let bounds = Bounds { additions: 1, steps_forward: 1, steps_back: 0, ..bounds() };
    for (name, graph) in graphs().iter().take(5) {
        explored(&format!("{name}, with an op added"), graph, &bounds);
    }
}

/// A store that is broken on purpose must be found out, on some graph.
fn is_found(mutant: Mutant) {
    // The shallow part of every graph before the depths of one.
    for states in [1_000, 8_000] {
        let bounds = Bounds { states, ..bounds() };
        for (name, graph) in graphs() {
            if let Err(broken) = explore(&graph, &bounds, Some(mutant)) {
                eprintln!("{mutant} is found on {name}: {broken}");
                return;
            }
        }
    }
    panic!("{mutant} was not found");
}

macro_rules! found {
    ($($test:ident: $mutant:ident;)*) => {
        $(#[test]
        fn $test() {
            is_found(Mutant::$mutant);
        })*
    };
}

found! {
    a_store_that_compares_no_tokens_is_found: TokenNotCompared;
    a_store_that_compares_no_expiry_is_found: ExpiryNotCompared;
    a_store_that_lives_at_the_expiry_is_found: EqualityIsAlive;
    a_store_that_repeats_fences_is_found: FenceNotRaised;
    a_store_that_does_not_count_down_is_found: CounterNotSubtracted;
    a_store_that_forgets_dependents_is_found: DependentsOutsideTheTransaction;
    a_store_without_a_bound_is_found: RecoveryUnbounded;
    a_store_that_counts_no_losses_is_found: LossNotCounted;
    a_store_that_counts_no_failures_is_found: FailureNotCounted;
    a_store_that_leaves_leases_on_cancel_is_found: CancelLeavesLeases;
    a_store_that_commits_what_failed_is_found: FailedBodyCommits;
    a_store_that_claims_too_much_is_found: ClaimTakesTooMany;
    a_store_that_promotes_early_is_found: PromotesTooEarly;
    a_store_that_stops_at_children_is_found: PropagationStopsAtChildren;
    a_store_without_a_ledger_is_found: LedgerNotWritten;
    a_store_that_forgets_claims_is_found: LostClaimForgotten;
    a_store_without_events_is_found: EventsDropped;
    a_store_that_wakes_too_late_is_found: EqualityIsNotDue;
    a_store_whose_waits_stay_is_found: WaitRowStays;
    a_store_that_wakes_all_is_found: WakingUnbounded;
}
