//! The harness of SQLite in memory.

use leasehold_conformance::{Harness, Opened, StatementCounter, start};
use leasehold_core::store::{BoxError, Clock, ManualClock, Store};
use leasehold_sqlite::SqliteStore;
use std::sync::Arc;
use std::time::Duration;

/// Makes the stores.
pub(crate) struct SqliteMemory;

struct Counter(Arc<SqliteStore>);

impl StatementCounter for Counter {
    fn statements(&self) -> u64 {
        self.0.statements()
    }
}

impl Harness for SqliteMemory {
    fn open(&self) -> Result<Opened, BoxError> {
        let clock = Arc::new(ManualClock::at(start()));
        let store = Arc::new(SqliteStore::open(":memory:", Arc::clone(&clock) as Arc<dyn Clock>)?);
        let counter = Arc::new(Counter(Arc::clone(&store)));
        let opened = Opened::new(store as Arc<dyn Store>, clock);
        Ok(opened.with_statements(counter).with_latency_budget(Duration::from_millis(500)))
    }
}
