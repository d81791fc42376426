//! A writer is killed at any moment, hundreds of times (L1, L8, L12, B3): what was acknowledged is there, what was not is
//! there whole or not at all, and the next process goes on by itself.

use leasehold_test_sqlite_faults::judge::Judge;
use leasehold_test_sqlite_faults::long;
use leasehold_test_sqlite_faults::victim::{Victim, argument};
use leasehold_test_sqlite_faults::worker::{Acked, FLOW_OPS, open, run_to_the_end};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest that a process lives behind its first acknowledgement.
const LIFE: Duration = Duration::from_millis(120);

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
        // Any moment of its life; a number that nobody can repeat is as good as another here.
        let life = LIFE.mul_f64(f64::from(uuid::Uuid::new_v4().as_fields().0) / f64::from(u32::MAX));
        let mut told = vec![Acked::parse(&first).unwrap()];
        told.extend(victim.kill(life).unwrap());
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
