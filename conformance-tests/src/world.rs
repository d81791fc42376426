//! What a case works with: a store, its clock, and the engine's verbs as short calls.

use crate::scenario::name;
use crate::{Door, Opened, OwnTransactions, OwnTx, Planted, TestClock};
use leasehold_core::model::{Fence, OpSeq, Timestamp, WorkflowId, WorkflowSeq};
use leasehold_core::store::rows::{ArtifactRow, Attempt, EventRow, NewRecord, OpPage, OpView, WorkflowRow};
use leasehold_core::store::{BoxError, Store, StoreError, StoreExt, StoreResult, Tx, TxKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// How often a transaction that lost a race is run again: what the engine's client does, with a bound that no case comes near.
const TRIES: usize = 1_000;

/// Rows in one page of the suite's own reads.
const PAGE: u32 = 1_000;

/// A store, its clock, and the engine's verbs as short calls.
#[derive(Debug)]
pub struct World {
    store: Arc<dyn Store>,
    opened: Arc<Opened>,
    next_id: Arc<AtomicU32>,
}

impl World {
    /// A world around a store that was just opened.
    pub fn new(mut opened: Opened) -> Self {
        let store = std::mem::replace(&mut opened.store, Arc::new(Closed));
        Self { store, opened: Arc::new(opened), next_id: Arc::new(AtomicU32::new(1)) }
    }

    /// The same world seen through another store: a second handle, or a wrapper around its own.
    #[must_use]
    pub fn through(&self, store: Arc<dyn Store>) -> Self {
        Self { store, opened: Arc::clone(&self.opened), next_id: Arc::clone(&self.next_id) }
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The store's clock.
    pub fn clock(&self) -> &dyn TestClock {
        self.opened.clock.as_ref()
    }

    /// Where the clock stands.
    pub fn now(&self) -> Timestamp {
        self.opened.clock.now()
    }

    /// The same store seen through another handle, as by another process.
    ///
    /// # Errors
    /// The harness', or that it has none.
    pub fn second_handle(&self) -> Result<Self, BoxError> {
        match &self.opened.second_handle {
            Some(open) => Ok(self.through(open()?)),
            None => Err("the harness has no second handle".into()),
        }
    }

    /// How many statements `body` sent to the database.
    ///
    /// # Errors
    /// What `body` returned, or that the harness counts none.
    pub fn statements<T>(&self, body: impl FnOnce() -> Result<T, BoxError>) -> Result<(u64, T), BoxError> {
        let Some(counter) = &self.opened.statements else { return Err("the harness counts no statements".into()) };
        let before = counter.statements();
        let value = body()?;
        Ok((counter.statements() - before, value))
    }

    /// How long one verb over 100 ops may take.
    ///
    /// # Errors
    /// That the harness sets no budget.
    pub fn latency_budget(&self) -> Result<std::time::Duration, BoxError> {
        self.opened.latency_budget.ok_or_else(|| "the harness sets no latency budget".into())
    }

    /// Runs `body` in a transaction of the application's through `door`.
    ///
    /// # Errors
    /// What `body` returned, or that the harness has no such transactions.
    pub(crate) fn own_transaction(&self, door: Door, mut body: impl FnMut(&mut dyn OwnTx) -> Result<(), BoxError>) -> Result<(), BoxError> {
        self.own()?.transaction(door, &mut body)
    }

    /// The application's own rows.
    ///
    /// # Errors
    /// The harness's.
    pub(crate) fn own_rows(&self) -> Result<Vec<String>, BoxError> {
        self.own()?.rows()
    }

    fn own(&self) -> Result<&dyn OwnTransactions, BoxError> {
        self.opened.own.as_deref().ok_or_else(|| "the harness has no transactions of the application's".into())
    }

    /// Closes the store and opens it again on the same data.
    ///
    /// # Errors
    /// The harness', or that it cannot.
    pub(crate) fn restart(&mut self) -> Result<(), BoxError> {
        let Some(open) = &self.opened.restart else { return Err("the harness cannot restart".into()) };
        // The old store is dropped before the new one opens, as a process ends before the next begins.
        self.store = Arc::new(Closed);
        self.store = open()?;
        Ok(())
    }

    /// A workflow id that no other fixture of this case has.
    pub(crate) fn fresh_id(&self) -> WorkflowId {
        name(format!("workflow-{}", self.next_id.fetch_add(1, Ordering::Relaxed)))
    }

    // ---- transactions ----

    /// Runs steps in a transaction that writes, again when it lost a race.
    ///
    /// # Errors
    /// The store's.
    pub fn tx<T>(&self, body: impl FnMut(&mut dyn Tx) -> StoreResult<T>) -> StoreResult<T> {
        transact(self.store.as_ref(), TxKind::Client, body)
    }

    /// Runs steps in a transaction that only reads.
    ///
    /// # Errors
    /// The store's.
    pub fn read<T>(&self, body: impl FnMut(&mut dyn Tx) -> StoreResult<T>) -> StoreResult<T> {
        transact(self.store.as_ref(), TxKind::Read, body)
    }

    // ---- what stands in the store ----

    /// A workflow as stored.
    ///
    /// # Errors
    /// The store's, or that there is none.
    pub fn workflow(&self, id: &WorkflowId) -> Result<WorkflowRow, BoxError> {
        let mut found = self.read(|tx| tx.workflows(std::slice::from_ref(id)))?;
        found.pop().ok_or_else(|| format!("there is no workflow {id:?}").into())
    }

    /// All ops of a workflow, in key order.
    ///
    /// # Errors
    /// The store's.
    pub fn all_ops(&self, workflow: WorkflowSeq) -> Result<Vec<OpView>, BoxError> {
        let mut all: Vec<OpView> = Vec::new();
        loop {
            let after = all.last().map(|view| view.state.seq);
            let page = self.read(|tx| tx.list_ops(workflow, &OpPage { status: None, after, limit: PAGE }))?;
            if page.is_empty() {
                return Ok(all);
            }
            all.extend(page);
        }
    }

    /// Everything that is stored about a workflow. Records are those of the collection `c`.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn fingerprint(&self, of: &Planted) -> Result<Fingerprint, BoxError> {
        let ops = self.all_ops(of.workflow)?;
        let mut attempts = Vec::new();
        for op in &ops {
            attempts.extend(self.read(|tx| tx.attempts(op.state.seq, Fence::NONE, PAGE))?);
        }
        let (artifacts, records, events) = self.read(|tx| {
            let artifacts = tx.artifacts(of.workflow, None, None, PAGE)?;
            let records = tx.records(of.workflow, &name("c"), None, PAGE)?;
            Ok((artifacts, records, tx.events_since(None, Some(of.workflow), PAGE)?))
        })?;
        Ok(Fingerprint { workflow: self.workflow(&of.id)?, ops, attempts, artifacts, records, events })
    }

    /// One op with everything a person asks of it.
    ///
    /// # Errors
    /// The store's, or that there is none.
    pub fn view(&self, op: OpSeq) -> Result<OpView, BoxError> {
        let mut found = self.read(|tx| tx.op_views(&[op]))?;
        found.pop().ok_or_else(|| format!("there is no op {}", op.0).into())
    }
}

/// Everything that is stored about one workflow: what a verb that does nothing must leave as it is.
#[derive(Debug, PartialEq)]
pub(crate) struct Fingerprint {
    workflow: WorkflowRow,
    ops: Vec<OpView>,
    attempts: Vec<Attempt>,
    artifacts: Vec<ArtifactRow>,
    records: Vec<NewRecord>,
    pub(crate) events: Vec<EventRow>,
}

/// Runs `body` in a transaction of `store`, again when it lost a race.
///
/// # Errors
/// The store's, or the body's.
pub(crate) fn transact<T, E: From<StoreError> + Lost>(
    store: &dyn Store,
    kind: TxKind,
    mut body: impl FnMut(&mut dyn Tx) -> Result<T, E>,
) -> Result<T, E> {
    let mut tries = 0;
    loop {
        tries += 1;
        match store.with(kind, &mut body) {
            Err(error) if error.lost_a_race() && tries < TRIES => std::thread::yield_now(),
            result => return result,
        }
    }
}

/// Errors that may say that another transaction won.
pub(crate) trait Lost {
    /// Whether nothing was written and the body may run again.
    fn lost_a_race(&self) -> bool;
}
impl Lost for StoreError {
    fn lost_a_race(&self) -> bool {
        matches!(self, Self::Conflict(_) | Self::Busy(_))
    }
}

/// What stands where a store was, between its end and its next beginning.
#[derive(Debug)]
struct Closed;

impl Store for Closed {
    fn transact(&self, _kind: TxKind, _body: &mut dyn FnMut(&mut dyn Tx) -> StoreResult<()>) -> StoreResult<()> {
        Err(StoreError::Unavailable("the store is closed".into()))
    }
    fn describe(&self) -> StoreResult<leasehold_core::store::StoreInfo> {
        Err(StoreError::Unavailable("the store is closed".into()))
    }
    fn try_write(&self) -> StoreResult<()> {
        Err(StoreError::Unavailable("the store is closed".into()))
    }
    fn hints(&self) -> Option<Arc<dyn leasehold_core::store::Hints>> {
        None
    }
}
