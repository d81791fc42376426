//! A store, its clock, and ways to reach into both.

use leasehold_core::client::{Client, Op, Workflow, WorkflowHandle};
use leasehold_core::engine::{Engine, EngineBuilder};
use leasehold_core::memory::MemoryStore;
use leasehold_core::model::{KindName, LeaseToken, Micros, OpId, Timestamp, WorkerName};
use leasehold_core::store::rows::{Attempt, AttemptOutcome, OpView};
use leasehold_core::store::{Hints, ManualClock, Store, StoreError, StoreExt, StoreInfo, StoreResult, Tx, TxKind};
use leasehold_core::transitions::{CLOCK_TOLERANCE, ClaimCursor, ClaimRequest, claim};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Far above anything that goes well, and short enough for a person to wait for what does not.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// How long a lease lasts by the store's clock.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

pub(crate) struct World {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) store: Arc<dyn Store>,
}

impl World {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::parse("2026-01-31T09:30:00Z").unwrap()));
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::clone(&clock) as _));
        Self { clock, store }
    }

    /// The same world through a store that fails as told.
    pub(crate) fn with_faults(faults: Faults) -> Self {
        let Self { clock, store } = Self::new();
        Self { clock, store: Arc::new(Faulty { inner: store, faults }) }
    }

    /// An engine that looks and beats often, so that no test waits for it.
    pub(crate) fn engine(&self) -> EngineBuilder {
        Engine::builder(Arc::clone(&self.store))
            .name("w1")
            .max_workers(8)
            .lease(LEASE)
            .heartbeat(Duration::from_millis(20))
            .poll(Duration::from_millis(20))
            // The manual clock does nothing but jump.
            .jump_grace(Duration::ZERO)
            .stop_wait(Duration::from_millis(50))
    }

    /// A client of another process.
    pub(crate) fn client(&self) -> Client {
        Client::new(Arc::clone(&self.store))
    }

    /// A worker of another process that claims what it can and dies; how many ops it took along.
    pub(crate) fn claim_and_die(&self) -> usize {
        self.claim_and_die_of(None, 100)
    }

    /// The same of up to `capacity` ops of a kind.
    pub(crate) fn claim_and_die_of(&self, kind: Option<&str>, capacity: u32) -> usize {
        let request = ClaimRequest {
            token: LeaseToken::random(),
            worker: WorkerName::new("dies").unwrap(),
            lease: Micros::try_from(LEASE).unwrap(),
            capacity,
            kinds: kind.map(|kind| vec![KindName::new(kind).unwrap()]),
            agents: Vec::new(),
            cursor: ClaimCursor::default(),
            suspects: true,
            repeated: false,
            tolerance: CLOCK_TOLERANCE,
        };
        self.store.with(TxKind::Claim, |tx| Ok::<_, StoreError>(claim(tx, &request)?.ops.len())).unwrap()
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.clock.advance(Micros::try_from(by).unwrap());
    }
}

/// Waits for what must come soon.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("this should have happened long ago")
}

/// Waits until `condition` holds.
pub(crate) async fn until<F: Future<Output = bool>>(mut condition: impl FnMut() -> F) {
    soon(async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

/// How many handlers have begun: what the store shows as running may not have.
#[derive(Clone, Default)]
pub(crate) struct Begun(Arc<AtomicUsize>);

impl Begun {
    pub(crate) fn one(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
    pub(crate) async fn all(&self, count: usize) {
        until(|| async { self.0.load(Ordering::SeqCst) == count }).await;
    }
}

pub(crate) fn id(op: &str) -> OpId {
    OpId::new(op).unwrap()
}

/// A workflow of independent ops of `kind`.
pub(crate) fn flow(kind: &str, ops: impl IntoIterator<Item = impl fmt::Display>) -> Workflow {
    Workflow::new("w").ops(ops.into_iter().map(|op| Op::new(op.to_string(), kind)))
}

pub(crate) async fn op(flow: &WorkflowHandle, op: &str) -> OpView {
    flow.client().op(flow.id(), &id(op)).await.unwrap()
}

pub(crate) async fn attempts(flow: &WorkflowHandle, op: &str) -> Vec<Attempt> {
    flow.client().attempts(flow.id(), &id(op)).await.unwrap()
}

pub(crate) async fn outcomes(flow: &WorkflowHandle, op: &str) -> Vec<AttemptOutcome> {
    attempts(flow, op).await.into_iter().map(|attempt| attempt.outcome).collect()
}

type Fault = Box<dyn Fn(TxKind) -> Option<StoreError> + Send + Sync>;
type Check = Box<dyn Fn(TxKind, &mut dyn Tx) -> StoreResult<()> + Send + Sync>;

/// When and how a store fails; each is asked at every transaction.
pub(crate) struct Faults {
    /// Instead of the transaction.
    pub(crate) before: Fault,
    /// Behind the body, before the commit.
    pub(crate) check: Check,
    /// In place of the answer to a commit that happened.
    pub(crate) after: Fault,
}

impl Default for Faults {
    fn default() -> Self {
        Self { before: Box::new(|_| None), check: Box::new(|_, _| Ok(())), after: Box::new(|_| None) }
    }
}

struct Faulty {
    inner: Arc<dyn Store>,
    faults: Faults,
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Store for Faulty {
    fn transact(&self, kind: TxKind, body: &mut dyn FnMut(&mut dyn Tx) -> StoreResult<()>) -> StoreResult<()> {
        if let Some(error) = (self.faults.before)(kind) {
            return Err(error);
        }
        self.inner.transact(kind, &mut |tx| {
            body(tx)?;
            (self.faults.check)(kind, tx)
        })?;
        (self.faults.after)(kind).map_or(Ok(()), Err)
    }
    fn describe(&self) -> StoreResult<StoreInfo> {
        self.inner.describe()
    }
    fn try_write(&self) -> StoreResult<()> {
        self.inner.try_write()
    }
    fn hints(&self) -> Option<Arc<dyn Hints>> {
        self.inner.hints()
    }
}
