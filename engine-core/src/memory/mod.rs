//! The in-memory store: the executable specification of the [storage contract](crate::store), and a test double.
//!
//! One mutex, one transaction at a time, tables as ordered maps. It says in the plainest code what every step must do;
//! where a SQL store differs from it, the SQL store is wrong, or this is. It also checks what the contract asks of the
//! *caller*: that a workflow's row is held locked by whoever changes its graph, and that a read transaction writes nothing.

mod graph;
mod inspect;
mod lease;
mod read;
mod tables;
mod time;
mod wait;

use crate::model::{GateKey, Timestamp, WorkflowSeq};
use crate::store::{Clock, Hints, Store, StoreError, StoreInfo, StoreResult, Tx, TxKind};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tables::Tables;

/// A store that lives in this process and ends with it.
///
/// # Examples
/// ```
/// use leasehold_core::memory::MemoryStore;
/// use leasehold_core::store::{StoreExt, StoreError, SystemClock, TxKind};
/// use std::sync::Arc;
///
/// let store = MemoryStore::new(Arc::new(SystemClock));
/// let totals = store.with(TxKind::Read, |tx| tx.totals())?;
/// assert_eq!(totals.ops.total(), 0);
/// # Ok::<(), StoreError>(())
/// ```
#[derive(Debug)]
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    tables: Mutex<Tables>,
}

impl MemoryStore {
    /// An empty store that takes its time from `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, tables: Mutex::new(Tables::default()) }
    }

    /// A store of its own that holds what this one does now, and takes its time from `clock`. Whoever explores what may
    /// happen next goes on from the same place more than once.
    #[must_use]
    pub fn fork(&self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, tables: Mutex::new(self.lock().clone()) }
    }

    /// The mutex is poisoned only by a body that panicked, and that body's transaction has rolled back while it unwound.
    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    fn transact(&self, kind: TxKind, body: &mut dyn FnMut(&mut dyn Tx) -> StoreResult<()>) -> StoreResult<()> {
        let tables = self.lock();
        let now = self.clock.now();
        let mut tx = MemoryTx {
            tables,
            kind,
            now,
            failed: false,
            locked_workflows: BTreeSet::new(),
            locked_gates: BTreeSet::new(),
            clock_locked: false,
        };
        body(&mut tx)?;
        if tx.failed {
            return Err(reject("a step failed and the body went on as if it had not"));
        }
        tx.tables.commit();
        Ok(())
    }

    fn describe(&self) -> StoreResult<StoreInfo> {
        Ok(StoreInfo { backend: "memory", location: "this process".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned(), schema: 0 })
    }

    fn try_write(&self) -> StoreResult<()> {
        Ok(())
    }

    /// Nobody else can see this store.
    fn hints(&self) -> Option<Arc<dyn Hints>> {
        None
    }
}

/// One transaction. Dropped without a commit, also by a panic, it takes back all it did.
#[derive(Debug)]
struct MemoryTx<'s> {
    tables: MutexGuard<'s, Tables>,
    kind: TxKind,
    now: Timestamp,
    failed: bool,
    locked_workflows: BTreeSet<WorkflowSeq>,
    locked_gates: BTreeSet<GateKey>,
    clock_locked: bool,
}

impl Drop for MemoryTx<'_> {
    fn drop(&mut self) {
        // Nothing to take back after a commit.
        self.tables.roll_back();
    }
}

impl MemoryTx<'_> {
    /// Runs a step that reads, unless one has failed before.
    fn read<T>(&mut self, step: impl FnOnce(&Tables, Timestamp) -> StoreResult<T>) -> StoreResult<T> {
        self.step(|tx| step(&tx.tables, tx.now))
    }

    /// Runs a step that writes or locks.
    fn change<T>(&mut self, step: impl FnOnce(&mut Self) -> StoreResult<T>) -> StoreResult<T> {
        self.step(|tx| {
            if tx.kind == TxKind::Read {
                return Err(StoreError::ReadOnly("a read transaction writes and locks nothing".into()));
            }
            step(tx)
        })
    }

    fn step<T>(&mut self, step: impl FnOnce(&mut Self) -> StoreResult<T>) -> StoreResult<T> {
        if self.failed {
            return Err(reject("an earlier step of this transaction failed"));
        }
        let result = step(self);
        self.failed = result.is_err();
        result
    }

    /// The row of a workflow is the mutex of its graph; who changes the graph without it would race on other stores.
    fn require_lock(&self, workflow: WorkflowSeq) -> StoreResult<()> {
        if self.locked_workflows.contains(&workflow) {
            Ok(())
        } else {
            Err(reject(format!("workflow {} is changed without being locked", workflow.0)))
        }
    }
}

impl Tx for MemoryTx<'_> {
    fn now(&mut self) -> StoreResult<Timestamp> {
        self.read(|_, now| Ok(now))
    }
}

/// What a database says of a broken constraint.
fn reject(reason: impl Into<String>) -> StoreError {
    StoreError::Rejected(reason.into().into())
}

/// A count as the contract's type.
fn count(rows: usize) -> u32 {
    u32::try_from(rows).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{QueueName, QueuePolicy};
    use crate::store::{ManualClock, StoreExt};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn store() -> MemoryStore {
        MemoryStore::new(Arc::new(ManualClock::at(Timestamp::from_micros(0).unwrap())))
    }
    fn policies(store: &MemoryStore) -> usize {
        store.with(TxKind::Read, |tx| Ok::<_, StoreError>(tx.policies()?.len())).unwrap()
    }
    fn unlimited(queue: &str) -> [QueuePolicy; 1] {
        [QueuePolicy::unlimited(QueueName::new(queue).unwrap())]
    }

    #[test]
    fn a_fork_goes_its_own_way() {
        let store = store();
        store.with(TxKind::Client, |tx| tx.set_policies(&unlimited("a"))).unwrap();
        let fork = store.fork(Arc::new(ManualClock::at(Timestamp::from_micros(9).unwrap())));
        fork.with(TxKind::Client, |tx| tx.set_policies(&unlimited("b"))).unwrap();
        assert_eq!((policies(&store), policies(&fork)), (1, 2));
        assert_eq!(fork.with(TxKind::Read, |tx| tx.now()).unwrap().as_micros(), 9);
    }

    #[test]
    fn a_panic_takes_back_what_its_transaction_did_and_the_store_goes_on() {
        let store = store();
        store.with(TxKind::Client, |tx| tx.set_policies(&unlimited("a"))).unwrap();
        let caught = catch_unwind(AssertUnwindSafe(|| {
            store.transact(TxKind::Client, &mut |tx| {
                tx.set_policies(&unlimited("b"))?;
                panic!("on purpose");
            })
        }));
        assert!(caught.is_err());
        assert_eq!(policies(&store), 1);
    }

    #[test]
    fn a_body_that_swallows_an_error_commits_nothing() {
        let store = store();
        let outcome = store.transact(TxKind::Client, &mut |tx| {
            tx.set_policies(&unlimited("a"))?;
            assert!(tx.set_buckets(&[(GateKey(1), bucket())]).is_err(), "the gate is not locked");
            assert!(tx.now().is_err(), "every later step fails");
            Ok(())
        });
        assert!(matches!(outcome, Err(StoreError::Rejected(_))));
        assert_eq!(policies(&store), 0);
    }

    fn bucket() -> crate::model::Bucket {
        crate::model::Bucket { micro_tokens: 0, counted_at: Timestamp::MIN }
    }
}
