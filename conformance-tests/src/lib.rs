//! The conformance suite of Leasehold's storage contract.
//!
//! The author of a backend implements [`Harness`] (make an empty store on a clock that stands still) and calls [`run`]
//! from a test target without libtest's own harness. Each [`Case`] then is a test named after the invariant it proves; one
//! that needs an ability the harness lacks shows as *ignored*, never as passed.
//!
//! # Examples
//! A whole backend's test file:
//! ```
//! use leasehold_conformance::{Harness, Opened, start};
//! use leasehold_core::memory::MemoryStore;
//! use leasehold_core::store::{BoxError, ManualClock};
//! use std::sync::Arc;
//!
//! struct Memory;
//! impl Harness for Memory {
//!     fn open(&self) -> Result<Opened, BoxError> {
//!         let clock = Arc::new(ManualClock::at(start()));
//!         Ok(Opened::new(Arc::new(MemoryStore::new(Arc::clone(&clock) as _)), clock))
//!     }
//! }
//! # let args = leasehold_conformance::Arguments { list: true, ..Default::default() };
//! leasehold_conformance::run_with(Memory, &args); // in your file: std::process::exit(leasehold_conformance::run(Memory))
//! ```

mod audit;
mod case;
pub mod cases;
mod faulty;
mod guarantees;
mod harness;
pub mod history;
pub mod model;
pub mod mutants;
mod own;
mod passing;
mod plant;
mod planted;
mod recount;
mod run;
mod scenario;
mod situations;
mod verbs;
mod world;

pub use audit::{Audited, audit};
pub use case::{Case, Level, Need, Outcome};
pub use cases::CASES;
pub use faulty::{Fault, FaultyStore};
pub use guarantees::{Column, guarantee_table};
pub use harness::{Harness, Opened, StatementCounter, TestClock, start};
pub use libtest_mimic::Arguments;
pub use own::{Door, LentBody, OwnBody, OwnTransactions, OwnTx};
pub use planted::Planted;
pub use recount::recount;
pub use run::{run, run_with};
pub use scenario::Scenario;
pub use situations::{Situation, situation_page, situations};
pub use world::World;
