//! What can happen to workflows, ops and leases: each verb once, as a function over [`Tx`](crate::store::Tx).
//!
//! A transition reads a bounded number of sets, decides in memory by the [table](crate::state::TABLE), and writes one
//! [`WriteSet`](crate::store::rows::WriteSet). It runs inside a transaction that its caller began, and may run again:
//! tokens, ids and request ids are made before the first try.
//!
//! # Locks
//! Every verb but claim and heartbeat first locks the rows of the workflows it changes, in key order; after that nobody
//! else changes status, counts, edges or counters in them. Then it takes leases, then it writes. The leader's row comes before
//! them all, and the clock's is waited for only by who holds nothing.

mod act;
mod add;
mod cancel;
mod claim;
mod create;
mod dispatch;
mod ending;
mod error;
mod finish;
mod heartbeat;
mod journal;
mod mend;
mod plan;
mod recover;
mod retry;
mod ripple;
mod settle;
mod trust;
mod upkeep;
mod wake;

pub use act::Actor;
pub use add::{AddOps, AddedOp, AddedOps, add_ops};
pub use cancel::{CancelWorkflow, Canceled, cancel_workflow};
pub use claim::{ClaimCursor, ClaimReport, ClaimRequest, claim};
pub use create::{CreateMode, CreateOutcome, CreateReport, CreateRequest, Created, create};
pub use dispatch::{DispatchOutcome, dispatch};
pub use error::{GraphError, TransitionError};
pub use finish::{End, Ended, Finish, FinishReport, Until, complete, fail, finish, release, suspend};
pub use heartbeat::{HeartbeatOutcome, heartbeat};
pub use journal::Notice;
pub use mend::{Mend, Mended, mend, mend_orphans};
pub use plan::Plan;
pub use recover::{BatchLimit, BatchLimitError, Recovered, RecoveredOp, recover, recover_leases};
pub use retry::{Retried, RetryOps, RetryTarget, retry};
pub(crate) use ripple::queued;
pub use settle::{OpVerdict, SettleOp, Settled, settle};
pub use trust::{CLOCK_TOLERANCE, ClockTrusted, LEASES_WITHIN, TrustClock, note_anomaly, trust_clock};
pub use upkeep::{Pass, Upkeep, elect, promote, resign, upkeep};
pub use wake::{Woken, WokenOp, wake, wake_waits};
