//! A writer is killed at any moment, hundreds of times (L1, L8, L12, B3): what was acknowledged is there, what was not is
//! there whole or not at all, and the next process goes on by itself.

use leasehold_test_sqlite_faults::judge::Judge;
use leasehold_test_sqlite_faults::long;
use leasehold_test_sqlite_faults::victim::{Victim, argument};
use leasehold_test_sqlite_faults::worker::{Acked, FLOW_OPS, open, run_to_the_end};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most that a process says before the moment of its death is drawn.
const LINES_MAX: u32 = 40;

/// That moment: any between two lines, and so any of a commit.
const MOMENT: Duration = Duration::from_millis(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_is_killed_at_any_moment_loses_nothing_and_leaves_nothing_half_done() {
    let kills = if long() { 500 } else { 15 };
    let begun = Instant::now();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store.db");
    let mut acked = Vec::new();
    let mut judge = None;
    for _ in 0..kills {
        let (victim, first) = Victim::start(env!("CARGO_BIN_EXE_leasehold-sqlite-fault"), &["work", argument(&file).unwrap()]).unwrap();
        // Numbers that nobody can repeat are as good as others here.
        let (dice, more, _, _) = uuid::Uuid::new_v4().as_fields();
        let moment = MOMENT.mul_f64(f64::from(dice) / f64::from(u32::MAX));
        let mut told = vec![Acked::parse(&first).unwrap()];
        told.extend(victim.kill(u32::from(more) % LINES_MAX, moment).unwrap());
        judge.get_or_insert_with(|| Judge::new(&file).unwrap()).check(&told).unwrap();
        acked.extend(told);
    }
    let store = open(&file).unwrap();
    run_to_the_end(Arc::clone(&store), Duration::from_mins(1)).await.unwrap();
    let mut judge = judge.unwrap();
    judge.check(&acked).unwrap();
    judge.check_end(store, FLOW_OPS).unwrap();
    let (created, abandoned) = (acked.iter().filter(|acked| matches!(acked, Acked::Created(_))).count(), judge.abandoned().unwrap());
    let (workflows, took) = (judge.workflows().unwrap(), begun.elapsed());
    eprintln!("{kills} kills in {took:?}: {} acknowledged, {created} of {workflows} workflows; {abandoned} attempts lost", acked.len());
    assert!(abandoned > 0, "some died in mid-op, and their ops were taken over");
    assert!(created >= kills && acked.len() > created, "there was work");
}
