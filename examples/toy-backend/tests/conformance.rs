//! The conformance suite on the toy: this is all that a backend needs.

use leasehold_conformance::{Harness, Opened, run, start};
use leasehold_core::store::{BoxError, Clock, ManualClock, Store};
use leasehold_toy_backend::ToyStore;
use std::sync::Arc;

struct Toy;

impl Harness for Toy {
    fn open(&self) -> Result<Opened, BoxError> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("store");
        let clock = Arc::new(ManualClock::at(start()));
        let open = {
            let clock = Arc::clone(&clock);
            move || -> Result<Arc<dyn Store>, BoxError> { Ok(Arc::new(ToyStore::open(&path, Arc::clone(&clock) as Arc<dyn Clock>)?)) }
        };
        Ok(Opened::new(open()?, clock).with_restart(open.clone()).with_second_handle(open).keeping(folder))
    }
}

fn main() {
    std::process::exit(run(Toy));
}
