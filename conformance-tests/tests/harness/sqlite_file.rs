//! The harness of an SQLite file.

#[path = "sqlite_own.rs"]
mod own;

use leasehold_conformance::{Harness, Opened, StatementCounter, start};
use leasehold_core::store::{BoxError, Clock, ManualClock, Store};
use leasehold_sqlite::SqliteStore;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Makes the stores.
pub(crate) struct SqliteFile;

/// Counts without keeping a store open that a case has closed.
struct Counter(Weak<SqliteStore>);

impl StatementCounter for Counter {
    fn statements(&self) -> u64 {
        self.0.upgrade().map_or(0, |store| store.statements())
    }
}

impl Harness for SqliteFile {
    fn open(&self) -> Result<Opened, BoxError> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("store.db");
        let clock = Arc::new(ManualClock::at(start()));
        let ticking: Arc<dyn Clock> = Arc::clone(&clock) as Arc<dyn Clock>;
        let open = {
            let path = path.clone();
            move || SqliteStore::open(path.as_path(), Arc::clone(&ticking)).map(Arc::new)
        };
        let again = open.clone();
        let other = open.clone();
        let store = open()?;
        let own = own::Own::new(&path, move || Ok(open()?))?;
        let counter = Arc::new(Counter(Arc::downgrade(&store)));
        let opened = Opened::new(store as Arc<dyn Store>, clock)
            .with_own_transactions(own)
            .with_restart(move || Ok(again()? as Arc<dyn Store>))
            .with_second_handle(move || Ok(other()? as Arc<dyn Store>))
            .with_statements(counter)
            .with_latency_budget(Duration::from_secs(1));
        Ok(opened.keeping(folder))
    }
}
