//! The harness of the in-memory store.

use leasehold_conformance::{Harness, Opened, start};
use leasehold_core::memory::MemoryStore;
use leasehold_core::store::{BoxError, Clock, ManualClock, Store};
use std::sync::Arc;
use std::time::Duration;

/// Makes the stores.
pub(crate) struct Memory;

impl Harness for Memory {
    fn open(&self) -> Result<Opened, BoxError> {
        let clock = Arc::new(ManualClock::at(start()));
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::clone(&clock) as Arc<dyn Clock>));
        let same = Arc::clone(&store);
        Ok(Opened::new(store, clock).with_second_handle(move || Ok(Arc::clone(&same))).with_latency_budget(Duration::from_millis(250)))
    }
}
