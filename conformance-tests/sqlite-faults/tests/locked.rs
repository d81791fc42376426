//! Another process holds the file's write lock for seconds (B3): calls wait, nobody hears of a lock, and the work goes on.

use leasehold_test_sqlite_faults::judge::Judge;
use leasehold_test_sqlite_faults::long;
use leasehold_test_sqlite_faults::victim::{Victim, argument};
use leasehold_test_sqlite_faults::worker::{FLOW_OPS, LEASE, engine, flow, open};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_held_for_longer_than_a_lease_costs_time_and_nothing_else() {
    let (times, held_for) = if long() { (5, Duration::from_secs(10)) } else { (2, LEASE * 3) };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store.db");
    let store = open(&file).unwrap();
    let engine = engine(Arc::clone(&store), |_| ()).await.unwrap();
    let client = engine.client();
    let running = engine.start().unwrap();
    let mut flows = Vec::new();
    for _ in 0..times {
        // Under way when the lock is taken.
        for _ in 0..20 {
            flows.push(client.start(flow("locked", 100)).await.unwrap());
        }
        let (holder, said) = Victim::start(env!("CARGO_BIN_EXE_leasehold-sqlite-fault"), &["hold", argument(&file).unwrap()]).unwrap();
        assert_eq!(said, "held");
        let held = Instant::now();
        let waiting = client.clone();
        let started = tokio::spawn(async move { waiting.start(flow("locked", 100)).await });
        while held.elapsed() < held_for {
            // Readers are not in a writer's way.
            client.status().await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(!started.is_finished(), "it waits for the lock");
        holder.finish().unwrap();
        flows.push(started.await.unwrap().unwrap());
    }
    for flow in &flows {
        tokio::time::timeout(Duration::from_mins(1), flow.wait()).await.unwrap().unwrap();
    }
    let report = running.shutdown().await.unwrap();
    eprintln!("{times} times {held_for:?}: {} ops succeeded, {} leases lost, {} unsaved", report.succeeded, report.lost, report.unsaved);
    assert_eq!(report.unsaved, 0);
    Judge::new(&file).unwrap().check_end(store, FLOW_OPS).unwrap();
}
