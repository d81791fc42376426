//! A store that nobody worked on for a year: what has come due is drained in bounded passes, and stands in nobody's way
//! (L7, W2).

use crate::case::cases;
use crate::scenario::LEASE;
use crate::verbs::{completion, suspension};
use crate::{Outcome, Planted, Scenario, World};
use leasehold_core::model::{Fence, Micros, OpSeq};
use leasehold_core::store::BoxError;
use leasehold_core::store::rows::ClaimedOp;
use leasehold_core::transitions::{Ended, Finish, Until};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

cases! {
    a_year_of_downtime_is_drained_in_bounded_passes_while_work_goes_on proves ["L7", "W2", "T5"];
}

/// Ops of one workflow: half of them are leased, half wait.
const WORKFLOW: usize = 1_000;
/// What one pass may touch: the engine's default.
const PASS: usize = 100;

/// Expired leases, and as many wake-ups. With `LEASEHOLD_LONG=1` in the environment what the contract asks for: 100,000.
fn size() -> usize {
    let long = std::env::var_os("LEASEHOLD_LONG").is_some_and(|value| !value.is_empty() && value != "0");
    if long { 100_000 } else { 1_500 }
}

/// A workflow of ops of `kind`, half of them leased and half waiting.
fn left_behind(w: &World, kind: &str) -> Result<Planted, BoxError> {
    let planted = Scenario::new().ops(kind, WORKFLOW).build(w)?;
    let claimed = w.claim_kind("w1", kind, u32::try_from(WORKFLOW)?)?;
    assert_eq!(claimed.len(), WORKFLOW);
    let waits: Vec<Finish> = claimed.iter().skip(WORKFLOW / 2).map(|op| suspension(op, Until::For(LEASE))).collect();
    assert!(w.finish(&waits)?.iter().all(|ended| matches!(ended, Ended::Suspended { .. })));
    Ok(planted)
}

/// What somebody who works beside the drain got, and how long the longest of their calls took.
#[derive(Default)]
struct Beside {
    completed: usize,
    longest: Duration,
}

/// Claims and completes what is ready until `drained`.
fn work(w: &World, drained: &AtomicBool) -> Result<Beside, BoxError> {
    let mut beside = Beside::default();
    while !drained.load(Ordering::SeqCst) {
        let began = Instant::now();
        let claimed: Vec<ClaimedOp> = w.claim_kind("w2", "k", 10)?;
        let ends: Vec<Finish> = claimed.iter().map(|op| completion(op, "1")).collect();
        let ended = w.finish(&ends)?;
        assert!(ended.iter().all(|ended| *ended == Ended::Succeeded), "{ended:?}");
        beside.longest = beside.longest.max(began.elapsed());
        beside.completed += ended.len();
    }
    Ok(beside)
}

/// The passes of a drain: each is bounded, and nothing is touched twice.
struct Passes {
    recovered: BTreeSet<(OpSeq, Fence)>,
    woken: BTreeSet<(OpSeq, Fence)>,
    longest: Duration,
}

/// Raises its flags when the drain is over, also by a panic: somebody waits for them.
struct Over<'a>([&'a AtomicBool; 2]);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        for flag in self.0 {
            flag.store(true, Ordering::SeqCst);
        }
    }
}

fn drain(w: &World, half_way: &AtomicBool, half: usize) -> Result<Passes, BoxError> {
    let mut passes = Passes { recovered: BTreeSet::new(), woken: BTreeSet::new(), longest: Duration::ZERO };
    let limit = i64::try_from(PASS)?;
    loop {
        let began = Instant::now();
        let (recovered, woken) = (w.recover(limit)?.ops, w.wake(limit)?.ops);
        passes.longest = passes.longest.max(began.elapsed());
        assert!(recovered.len() <= PASS && woken.len() <= PASS, "a pass is bounded");
        assert!(recovered.iter().all(|op| passes.recovered.insert((op.lease.op, op.lease.fence))), "no lease is taken back twice");
        assert!(woken.iter().all(|op| passes.woken.insert((op.wait.op, op.wait.fence))), "no wake-up fires twice");
        half_way.fetch_or(passes.woken.len() >= half, Ordering::SeqCst);
        if recovered.is_empty() && woken.is_empty() {
            // A pass leaves out what another transaction holds just then.
            let totals = w.read(|tx| tx.totals())?;
            if totals.leases_expired == 0 && totals.ops.waiting == 0 {
                return Ok(passes);
            }
        }
    }
}

fn a_year_of_downtime_is_drained_in_bounded_passes_while_work_goes_on(w: &mut World) -> Outcome {
    let size = size();
    let workflows = 2 * size / WORKFLOW - 1;
    for _ in 0..workflows {
        left_behind(w, "k")?;
    }
    let stopped = left_behind(w, "c")?;
    w.clock().advance(Micros::from_secs(365 * 24 * 60 * 60))?;

    let w: &World = w;
    let (half_way, drained) = (&AtomicBool::new(false), &AtomicBool::new(false));
    let (passes, beside, canceled, cancel_took) = std::thread::scope(|scope| -> Result<_, BoxError> {
        let upkeep = scope.spawn(move || {
            let _over = Over([half_way, drained]);
            drain(w, half_way, size / 2)
        });
        let worker = scope.spawn(move || work(w, drained));
        while !half_way.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        let began = Instant::now();
        let canceled = w.cancel(&stopped)?;
        let cancel_took = began.elapsed();
        let passes = upkeep.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let beside = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((passes, beside, canceled, cancel_took))
    })?;
    eprintln!(
        "{size} expired leases and {size} wake-ups: the longest pass of each {PASS} took {:?}; beside them {} ops were completed, the \
         longest claim with its completion took {:?}, and a cancel of {} ops {cancel_took:?}",
        passes.longest, beside.completed, beside.longest, canceled.ops
    );
    assert_eq!(canceled.ops, u64::try_from(WORKFLOW)?, "nothing of it had ended");
    let totals = w.read(|tx| tx.totals())?;
    let (succeeded, open) = (i64::try_from(beside.completed)?, i64::try_from(2 * size - WORKFLOW - beside.completed)?);
    assert_eq!((totals.ops.canceled, totals.ops.succeeded, totals.ops.open), (i64::try_from(WORKFLOW)?, succeeded, open));
    assert_eq!((totals.ops.waiting, totals.leases_expired), (0, 0));
    // All but what the cancel was quicker with.
    for touched in [passes.recovered.len(), passes.woken.len()] {
        assert!((size - WORKFLOW / 2..=size).contains(&touched), "{touched} of {size}");
    }
    Ok(())
}
