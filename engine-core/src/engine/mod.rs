//! The running thing: claims ops, runs the application's handlers, keeps their leases, commits what became of them.
//!
//! Five threads of its own call the [store](crate::store::Store): the claim loop, two committers, the heartbeat, and upkeep,
//! which one process does at a time; a sixth watches the clock for leases that can no longer be relied on. Handlers are
//! tasks of the tokio runtime that the engine was built in, so however they block it, leases are kept, results saved and lost leases noticed.
//!
//! **Invariant:** an attempt is among the leases held (`held.rs`) from its claim until its end is committed, refused or given
//! up, and nothing is written for one that is not.

mod attempt;
mod batcher;
mod builder;
mod claimer;
mod clock;
mod context;
mod cycle;
mod dispatch;
mod error;
mod handler;
mod heartbeat;
mod held;
mod hub;
mod notice;
mod observer;
mod office;
mod outbox;
mod probe;
mod recovery;
mod report;
mod retrying;
mod running;
mod session;
mod slots;
mod stop;
mod sweep;
mod upkeep;
mod wakeup;

pub use builder::{EngineBuilder, GRACE, HEARTBEAT, LEASE, MAINTENANCE_TERM, POLL, PROBE_EVERY, STOP_WAIT};
pub use context::OpContext;
pub use cycle::Reconciled;
pub use error::EngineError;
pub use handler::{Handler, HandlerError, typed};
pub(crate) use hub::Hub;
pub use notice::{Notice, NoticeKind};
pub use observer::{NOTICES_MAX, Observer};
pub use probe::{ProbeAnswer, ProbeContext, ProbedOp};
pub use report::{CycleAttempt, CycleReport, RunReport};
pub(crate) use retrying::{Transient, retry};
pub use running::Running;

use crate::client::Client;
use crate::store::Store;
use claimer::Until;
use session::Settings;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// A worker with its handlers. Cheap to clone.
///
/// # Examples
/// ```
/// use leasehold_core::client::{Op, Workflow};
/// use leasehold_core::engine::{Engine, HandlerError, OpContext};
/// use leasehold_core::memory::MemoryStore;
/// use leasehold_core::store::SystemClock;
/// use std::sync::Arc;
///
/// async fn greet(_ctx: OpContext, name: String) -> Result<String, HandlerError> {
///     Ok(format!("Hello, {name}!"))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
/// let engine = Engine::builder(store).handler("greet", greet).build().await?;
/// let running = engine.start()?;
/// let flow = engine.client().start(Workflow::new("greeting").op(Op::new("hello", "greet").input("world"))).await?;
/// flow.wait().await?;
/// assert_eq!(flow.result::<String>("hello").await?, "Hello, world!");
/// running.shutdown().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Engine {
    settings: Arc<Settings>,
}

impl Engine {
    /// Begins to build an engine over `store`.
    pub fn builder(store: Arc<dyn Store>) -> EngineBuilder {
        EngineBuilder::new(store)
    }

    /// A client of the same store, whose changes this engine and its observers hear of at once.
    pub fn client(&self) -> Client {
        self.settings.client.clone()
    }

    /// Starts to work, until [`Running::shutdown`]. Each call starts a worker of its own.
    ///
    /// # Errors
    /// [`EngineError::NotAutomatic`] for an engine that is driven by hand; [`EngineError::Thread`].
    pub fn start(&self) -> Result<Running, EngineError> {
        if !self.settings.automatic {
            return Err(EngineError::NotAutomatic);
        }
        Running::begin(&self.settings, Until::Stopped)
    }

    /// Works until `until` is over, then shuts down.
    ///
    /// # Errors
    /// As [`Engine::start`] and [`Running::shutdown`].
    pub async fn run(&self, until: impl Future<Output = ()>) -> Result<RunReport, EngineError> {
        let running = self.start()?;
        tokio::select! {
            () = until => {}
            () = running.broken() => {}
        }
        running.shutdown().await
    }

    /// How many notices observers missed because they were too slow.
    pub fn notices_dropped(&self) -> u64 {
        self.settings.hub.notices().dropped()
    }

    /// Waits until observers have heard of everything that was committed before this call; `false` when that takes longer
    /// than `within`.
    pub async fn flush_observers(&self, within: Duration) -> bool {
        let notices = self.settings.hub.notices().clone();
        // Cancelled only with its runtime, and then nobody waits any more.
        tokio::task::spawn_blocking(move || notices.flush(within)).await.unwrap_or(false)
    }
}
