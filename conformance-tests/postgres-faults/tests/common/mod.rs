//! What the load tests share: workers, clients, and the judgement over what they leave behind.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use diesel::pg::PgConnection;
use leasehold_core::store::Store;
use leasehold_postgres::PostgresStore;
use leasehold_test_faults::audit::{Summary, Tables, audit};
use leasehold_test_faults::hand::Hand;
use leasehold_test_faults::load::{Expected, Fleet, LIMITS, Line, Manners, Traffic, WorkerConfig, check_reports, policies};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// A worker's configuration: leases so short that a crash is recovered while the test runs.
pub(crate) fn template(url: &str, name: &str) -> WorkerConfig {
    WorkerConfig { url: url.to_owned(), name: name.to_owned(), max_workers: 8, lease_ms: 2_000 }
}

/// Workers, and clients that keep them busy.
pub(crate) struct Load {
    fleet: Fleet,
    traffic: Option<Traffic>,
}

impl Load {
    /// Stores the limits and starts the workers. Clients go straight to the store at `url`.
    pub(crate) fn start(url: &str, workers: WorkerConfig, count: usize, seed: u64) -> Self {
        Hand::connect(url, "setup").unwrap().limit(&policies().unwrap()).unwrap();
        let store: Arc<dyn Store> = Arc::new(PostgresStore::connect(url).unwrap());
        let manners = Manners { cancel: true, clients: 4, patience: Duration::from_mins(1) };
        let fleet = Fleet::start(env!("CARGO_BIN_EXE_leasehold-load"), workers, count).unwrap();
        Self { fleet, traffic: Some(Traffic::new(store, seed, manners)) }
    }

    /// Runs the clients for `time` and until all is done, and calls `meanwhile` every tenth of a second of `time`.
    pub(crate) fn run(&mut self, time: Duration, rest: Duration, mut meanwhile: impl FnMut(&mut Fleet, usize)) -> Expected {
        let traffic = self.traffic.take().unwrap();
        let clients = thread::spawn(move || traffic.run(time, rest));
        for round in 0..usize::try_from(time.as_millis() / 100).unwrap() {
            thread::sleep(Duration::from_millis(100));
            meanwhile(&mut self.fleet, round);
            self.fleet.check().unwrap();
            if clients.is_finished() {
                break;
            }
        }
        while !clients.is_finished() {
            thread::sleep(Duration::from_millis(50));
            self.fleet.check().unwrap();
        }
        clients.join().unwrap().unwrap()
    }

    /// Shuts the workers down; returns what all of them printed.
    pub(crate) fn stop(mut self) -> Vec<(String, Vec<Line>)> {
        self.fleet.stop(Duration::from_secs(20)).unwrap();
        self.fleet.lines().unwrap()
    }
}

/// Holds the store against what was asked for, what workers reported, and what it promises.
pub(crate) fn audit_all(conn: &mut PgConnection, expected: &Expected, reports: &[(String, Vec<Line>)]) -> Summary {
    let summary = audit(conn, &LIMITS).unwrap();
    expected.check(conn).unwrap();
    check_reports(&Tables::read(conn).unwrap(), reports).unwrap();
    assert_eq!(summary.leases, 0, "everything has ended");
    summary
}
