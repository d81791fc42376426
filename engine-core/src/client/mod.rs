//! What an application or an operator calls.
//!
//! A [`Client`] needs a store and nothing else: workers may run in this process, in another, or not yet at all. Every
//! verb makes its ids once and then tries under one deadline, so that a lost answer never becomes a second effect.

mod call;
mod clock;
mod definition;
mod doctor;
mod error;
mod handle;
mod op;
mod operate;
mod problem;
mod read;
mod snapshot;
mod start;
mod within;
mod workflow;

pub use crate::transitions::{Actor, AddedOp, OpVerdict};
pub use clock::ClockStatus;
pub use definition::{Definition, DefinitionInfo};
pub use error::ClientError;
pub use handle::WorkflowHandle;
pub use op::Op;
pub(crate) use problem::with_causes;
pub use problem::{InvalidSpec, Problem};
pub use read::{StoreStatus, UnknownOutcome};
pub use snapshot::{NotACursor, OpCounts, SnapshotCursor, SnapshotPage, WorkflowSnapshot};
pub use within::{Receipt, Within};
pub use workflow::Workflow;

use crate::engine::Hub;
use crate::model::{KindName, Limits};
use crate::store::Store;
use crate::transitions::CLOCK_TOLERANCE;
use definition::Definitions;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How long a call tries again what may succeed soon, the waiting for a connection included.
pub const CALL_PATIENCE: Duration = Duration::from_secs(30);

/// The most rows of one page, so that a page fits in memory and reads end soon.
pub const PAGE_MAX: u32 = 1_000;

/// Calls a store: starts, repairs and reads workflows. Cheap to clone.
///
/// # Errors
/// Every call fails with a [`ClientError`].
///
/// # Examples
/// ```
/// use leasehold_core::client::{Client, Op, Workflow};
/// use leasehold_core::memory::MemoryStore;
/// use leasehold_core::store::SystemClock;
/// use std::sync::Arc;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::new(Arc::new(MemoryStore::new(Arc::new(SystemClock))));
/// let handle = client.start(Workflow::new("greeting").op(Op::new("greet", "greet"))).await?;
/// assert_eq!(handle.snapshot().await?.ops.ready, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Client {
    core: Arc<Core>,
}

#[derive(Debug, Clone)]
struct Core {
    store: Arc<dyn Store>,
    hub: Arc<Hub>,
    limits: Limits,
    patience: Duration,
    clock_tolerance: Duration,
    actor: Actor,
    /// The kinds that ops may have; `None` is any.
    kinds: Option<Arc<BTreeSet<KindName>>>,
    definitions: Arc<Definitions>,
}

impl Client {
    /// A client of `store`.
    pub fn new(store: Arc<dyn Store>) -> Self {
        let hub = Arc::new(Hub::of(store.as_ref()));
        Self {
            core: Arc::new(Core {
                store,
                hub,
                limits: Limits::default(),
                patience: CALL_PATIENCE,
                clock_tolerance: CLOCK_TOLERANCE,
                actor: Actor::new("client"),
                kinds: None,
                definitions: Arc::default(),
            }),
        }
    }

    /// The client of an engine: it shares the engine's hub, and refuses ops of `kinds` other than these if given.
    pub(crate) fn of_engine(
        store: Arc<dyn Store>,
        hub: Arc<Hub>,
        limits: Limits,
        kinds: Option<BTreeSet<KindName>>,
        definitions: Vec<Definition>,
    ) -> Self {
        let plain = Self::new(store).core.as_ref().clone();
        let (kinds, definitions) = (kinds.map(Arc::new), Arc::new(definitions.into_iter().collect()));
        Self { core: Arc::new(Core { hub, limits, kinds, definitions, ..plain }) }
    }

    fn changed(&self, change: impl FnOnce(&mut Core)) -> Self {
        let mut core = self.core.as_ref().clone();
        change(&mut core);
        Self { core: Arc::new(core) }
    }

    /// The same with other limits.
    #[must_use]
    pub fn with_limits(&self, limits: Limits) -> Self {
        self.changed(|core| core.limits = limits)
    }

    /// The same, trying again for `patience` what may succeed soon, in place of [`CALL_PATIENCE`].
    #[must_use]
    pub fn with_patience(&self, patience: Duration) -> Self {
        self.changed(|core| core.patience = patience)
    }

    /// The same, telling by `tolerance` whether the clock is relied on, in place of [`CLOCK_TOLERANCE`]: what its workers go by.
    #[must_use]
    pub fn with_clock_tolerance(&self, tolerance: Duration) -> Self {
        self.changed(|core| core.clock_tolerance = tolerance)
    }

    /// The same, acting in the name of `actor` where a call takes none.
    #[must_use]
    pub fn with_actor(&self, actor: Actor) -> Self {
        self.changed(|core| core.actor = actor)
    }

    /// The store that it calls.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.core.store
    }

    /// The limits that it checks.
    pub fn limits(&self) -> &Limits {
        &self.core.limits
    }

    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.core.hub
    }

    /// What is wrong with an op of `kind`, where only kinds with a handler are taken.
    pub(crate) fn kind_problem(&self, kind: &KindName) -> Option<String> {
        let kinds = self.core.kinds.as_ref()?;
        if kinds.contains(kind) {
            return None;
        }
        let known: Vec<String> = kinds.iter().map(|kind| format!("{kind:?}")).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Some(format!(
            "no handler here runs the kind {kind:?}; there are handlers for {known}. Register one with .handler({kind:?}, …), or build \
             the engine with .strict_kinds(false) if another process runs it"
        ))
    }
}
