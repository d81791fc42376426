//! Transactions: one at a time, each on a clone of the tables from its first change on.

use crate::disk::{Committed, Disk};
use crate::tables::{Tables, rejected};
use leasehold_core::model::Timestamp;
use leasehold_core::store::{Clock, Hints, Store, StoreInfo, StoreResult, Tx, TxKind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// A store in one file. Any number of them, in any number of processes, may be open on the same file.
#[derive(Debug)]
pub struct ToyStore {
    disk: Disk,
    clock: Arc<dyn Clock>,
    /// What this store last saw in the file, so that it is parsed again only after another process committed.
    seen: Mutex<Committed>,
}

impl ToyStore {
    /// Opens the store in `path`, which the first commit makes; the time is told by `clock`.
    ///
    /// # Errors
    /// [`StoreError`](leasehold_core::store::StoreError) when the file is there and cannot be read.
    pub fn open(path: impl Into<PathBuf>, clock: Arc<dyn Clock>) -> StoreResult<Self> {
        let store = Self { disk: Disk::new(path.into()), clock, seen: Mutex::default() };
        store.last_commit()?;
        Ok(store)
    }

    /// The tables as the last commit left them.
    fn last_commit(&self) -> StoreResult<Committed> {
        // Poisoned or not: only whole commits are ever put there.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        self.disk.refresh(&mut seen)?;
        Ok(seen.clone())
    }
}

impl Store for ToyStore {
    fn transact(&self, kind: TxKind, body: &mut dyn FnMut(&mut dyn Tx) -> StoreResult<()>) -> StoreResult<()> {
        if kind == TxKind::Read {
            // A snapshot that nobody changes: readers wait for no writer, and no writer for them.
            let mut tx = ToyTx::new(self.last_commit()?.tables, self.clock.now());
            return body(&mut tx).and(tx.outcome());
        }
        let turn = self.disk.wait_for_turn()?;
        // All that this transaction reads, the time included, it reads behind the lock.
        let before = self.last_commit()?;
        let mut tx = ToyTx::new(Arc::clone(&before.tables), self.clock.now());
        // Rolling back, after an error or a panic, is not to save.
        body(&mut tx).and(tx.outcome())?;
        if !Arc::ptr_eq(&tx.tables, &before.tables) {
            let committed = Committed { number: before.number + 1, tables: tx.tables };
            self.disk.save(&turn, &committed)?;
            *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = committed;
        }
        Ok(())
    }

    fn describe(&self) -> StoreResult<StoreInfo> {
        Ok(StoreInfo {
            backend: "toy",
            location: self.disk.path().display().to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            schema: 1,
        })
    }

    fn try_write(&self) -> StoreResult<()> {
        let turn = self.disk.wait_for_turn()?;
        let Committed { number, tables } = self.last_commit()?;
        self.disk.save(&turn, &Committed { number: number + 1, tables })
    }

    /// Others look by themselves.
    fn hints(&self) -> Option<Arc<dyn Hints>> {
        None
    }
}

/// One transaction. Its steps are in `graph.rs`, `lease.rs` and `read.rs`, by the traits they belong to.
pub(crate) struct ToyTx {
    tables: Arc<Tables>,
    now: Timestamp,
    /// The latest `updated_at` of any commit before this transaction.
    updated_before: Option<Timestamp>,
    failed: bool,
}

impl ToyTx {
    fn new(tables: Arc<Tables>, now: Timestamp) -> Self {
        let updated_before = tables.workflows.values().map(|row| row.updated_at).max();
        Self { tables, now, updated_before, failed: false }
    }

    /// Runs a step that only reads. After the first step that failed, all others fail.
    pub(crate) fn read<T>(&mut self, step: impl FnOnce(&Tables, Timestamp) -> StoreResult<T>) -> StoreResult<T> {
        self.outcome()?;
        let result = step(&self.tables, self.now);
        self.failed = result.is_err();
        result
    }

    /// Runs a step that writes. The first one clones all tables, because what was committed stays as it is.
    pub(crate) fn change<T>(&mut self, step: impl FnOnce(&mut Tables, Timestamp) -> StoreResult<T>) -> StoreResult<T> {
        self.outcome()?;
        let result = step(Arc::make_mut(&mut self.tables), self.now);
        self.failed = result.is_err();
        result
    }

    /// Whether this transaction may go on and commit: also when its body swallowed the error of a step.
    fn outcome(&self) -> StoreResult<()> {
        if self.failed { Err(rejected("an earlier step of this transaction failed")) } else { Ok(()) }
    }

    /// The `updated_at` of what changes at `at`: past every committed one, also when the clock stands or goes back.
    pub(crate) fn updated_at(&self, at: Timestamp) -> StoreResult<Timestamp> {
        let Some(before) = self.updated_before else { return Ok(at) };
        let next = Timestamp::from_micros(before.as_micros() + 1).map_err(|error| rejected(error.to_string()))?;
        Ok(at.max(next))
    }
}

impl Tx for ToyTx {
    fn now(&mut self) -> StoreResult<Timestamp> {
        self.read(|_, now| Ok(now))
    }
}
