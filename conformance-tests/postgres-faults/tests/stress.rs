//! Eight workers, each a process, under everything at once: limits of 1, 4 and none, retries, cancels, repairs, added ops,
//! heartbeats, killed workers and their recovery (B3, Q1, L1, S12).

mod common;

use common::{Load, audit_all, template};
use leasehold_test_faults::database::TestDatabase;
use leasehold_test_faults::load::{LIMITS, Sampler};
use leasehold_test_faults::{long, seed};
use std::time::Duration;

#[test]
fn eight_processes_keep_every_promise() {
    let seed = seed();
    let time = Duration::from_secs(if long() { 120 } else { 12 });
    let database = TestDatabase::new().unwrap();
    let mut load = Load::start(&database.store_url(), template(&database.store_url(), "stress"), 8, seed);
    let sampler = Sampler::start(database.url()).unwrap();
    let expected = load.run(time, Duration::from_mins(1), |fleet, round| {
        // Every two seconds one worker crashes.
        if round % 20 == 19 {
            fleet.replace(round / 20).unwrap();
        }
    });
    let reports = load.stop();
    let samples = sampler.stop().unwrap();
    let summary = audit_all(&mut database.connect().unwrap(), &expected, &reports);
    eprintln!("{} workflows asked for; {summary:?}; {} samples, most {:?}", expected.len(), samples.taken, samples.most);
    assert!(samples.failed == 0 && samples.taken > 100, "{samples:?}");
    for (queue, limit) in LIMITS {
        let most = samples.most.iter().filter(|((_, at), _)| at == queue).map(|(_, most)| *most).max();
        assert_eq!(most.and_then(|most| usize::try_from(most).ok()), Some(limit), "the limit of {queue} was reached, so it was tested");
    }
    assert!(summary.abandoned > 0, "some workers died in mid-op, and their ops were recovered");
    assert_eq!(database.deadlocks().unwrap(), 0, "deadlocks");
}
