//! The suite shown to bite: stores that are broken on purpose, around the in-memory one.

use leasehold_conformance::mutants::run_mutants;
use leasehold_conformance::{Arguments, Harness, Opened, start};
use leasehold_core::memory::MemoryStore;
use leasehold_core::store::{BoxError, Clock, ManualClock};
use std::sync::Arc;

struct Memory;

impl Harness for Memory {
    fn open(&self) -> Result<Opened, BoxError> {
        let clock = Arc::new(ManualClock::at(start()));
        Ok(Opened::new(Arc::new(MemoryStore::new(Arc::clone(&clock) as Arc<dyn Clock>)), clock))
    }
}

fn main() {
    run_mutants(Memory, &Arguments::from_args()).exit();
}
