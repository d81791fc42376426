//! The suite bites on the toy, too: broken in any of the ways that the suite knows, it fails at the case named for it.

use leasehold_conformance::mutants::run_mutants;
use leasehold_conformance::{Arguments, Harness, Opened, start};
use leasehold_core::store::{BoxError, Clock, ManualClock};
use leasehold_toy_backend::ToyStore;
use std::sync::Arc;

struct Toy;

impl Harness for Toy {
    fn open(&self) -> Result<Opened, BoxError> {
        let folder = tempfile::tempdir()?;
        let clock = Arc::new(ManualClock::at(start()));
        let store = ToyStore::open(folder.path().join("store"), Arc::clone(&clock) as Arc<dyn Clock>)?;
        Ok(Opened::new(Arc::new(store), clock).keeping(folder))
    }
}

fn main() {
    run_mutants(Toy, &Arguments::from_args()).exit();
}
