//! The cases about steps once more, with the file opened anew for every transaction: what they see has been through it.

use leasehold_conformance::{Arguments, CASES, Harness, Level, Opened, run_with, start};
use leasehold_core::store::{BoxError, Clock, Hints, ManualClock, Store, StoreInfo, StoreResult, Tx, TxKind};
use leasehold_toy_backend::ToyStore;
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Debug)]
struct Reopened {
    path: PathBuf,
    clock: Arc<ManualClock>,
}

impl Reopened {
    fn open(&self) -> StoreResult<ToyStore> {
        ToyStore::open(&self.path, Arc::clone(&self.clock) as Arc<dyn Clock>)
    }
}

impl Store for Reopened {
    fn transact(&self, kind: TxKind, body: &mut dyn FnMut(&mut dyn Tx) -> StoreResult<()>) -> StoreResult<()> {
        self.open()?.transact(kind, body)
    }
    fn describe(&self) -> StoreResult<StoreInfo> {
        self.open()?.describe()
    }
    fn try_write(&self) -> StoreResult<()> {
        self.open()?.try_write()
    }
    fn hints(&self) -> Option<Arc<dyn Hints>> {
        None
    }
}

struct Toy;

impl Harness for Toy {
    fn open(&self) -> Result<Opened, BoxError> {
        let folder = tempfile::tempdir()?;
        let clock = Arc::new(ManualClock::at(start()));
        let store = Reopened { path: folder.path().join("store"), clock: Arc::clone(&clock) };
        Ok(Opened::new(Arc::new(store), clock).keeping(folder))
    }
}

fn main() {
    let mut arguments = Arguments::from_args();
    // Whole verbs say no more about the file, and take long: some are about ten thousand ops.
    arguments.skip.extend(CASES.iter().filter(|case| case.level == Level::Verb).map(|case| case.name.to_owned()));
    run_with(Toy, &arguments).exit()
}
