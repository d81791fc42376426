//! The harness of Postgres: each case in a schema of its own, on the server that the tests find or start.

#[path = "postgres_own.rs"]
mod own;

use leasehold_conformance::{Harness, Opened, StatementCounter, TestClock, start};
use leasehold_core::model::Timestamp;
use leasehold_core::store::{BoxError, Store};
use leasehold_postgres::{Fault, PostgresStore};
use leasehold_test_postgres::{DatabaseClock, TestSchema};
use std::sync::Arc;
use std::time::Duration;

/// Makes the stores.
#[derive(Clone, Copy, Default)]
pub(crate) struct Postgres {
    /// How they are broken, if they are.
    pub(crate) fault: Option<Fault>,
}

impl Postgres {
    fn connect(self, url: &str) -> Result<PostgresStore, BoxError> {
        let store = PostgresStore::connect(url)?;
        Ok(match self.fault {
            Some(fault) => store.with_fault(fault),
            None => store,
        })
    }
}

struct Counter(Arc<PostgresStore>);

impl StatementCounter for Counter {
    fn statements(&self) -> u64 {
        self.0.statements()
    }
}

struct Clock(DatabaseClock);

impl TestClock for Clock {
    fn now(&self) -> Timestamp {
        let us = self.0.now_us().unwrap_or_else(|error| panic!("the clock cannot be read: {error}"));
        Timestamp::from_micros(us).unwrap_or_else(|error| panic!("the clock stands at {us}: {error}"))
    }
    fn set(&self, to: Timestamp) -> Result<(), BoxError> {
        Ok(self.0.set_us(to.as_micros())?)
    }
}

impl Harness for Postgres {
    fn open(&self) -> Result<Opened, BoxError> {
        let schema = Arc::new(TestSchema::new()?);
        // Two hundred cases run side by side: each keeps few connections.
        let url = format!("{}&pool_size=4", schema.url());
        let store = Arc::new(self.connect(&url)?);
        let clock = Arc::new(Clock(DatabaseClock::install(&schema, start().as_micros())?));
        let counter = Arc::new(Counter(Arc::clone(&store)));
        let same = *self;
        let again = move || Ok(Arc::new(same.connect(&url)?) as Arc<dyn Store>);
        let own = own::Own::new(Arc::clone(&store), Arc::clone(&schema))?;
        let opened = Opened::new(store as Arc<dyn Store>, clock)
            .with_own_transactions(own)
            .with_overlapping_writers()
            .with_statements(counter)
            .with_latency_budget(Duration::from_millis(500))
            .with_restart(again.clone())
            .with_second_handle(again);
        // Last, so that it is dropped when the connections are closed.
        Ok(opened.keeping(schema))
    }
}
