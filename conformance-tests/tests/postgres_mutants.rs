//! The suite shown to bite on Postgres: its statements broken on purpose, each in one way that no wrapper can show.

#[path = "harness/postgres.rs"]
mod harness;

use harness::Postgres;
use leasehold_conformance::mutants::{Broken, run_broken};
use leasehold_conformance::{Arguments, Harness};
use leasehold_postgres::Fault;
use std::sync::Arc;

fn main() {
    let sound: Arc<dyn Harness> = Arc::new(Postgres::default());
    let broken = Fault::ALL.iter().map(|fault| Broken {
        name: fault.to_string(),
        killed_by: fault.killed_by(),
        harness: Arc::new(Postgres { fault: Some(*fault) }),
    });
    run_broken(&sound, broken, &Arguments::from_args()).exit();
}
