//! Recomputes every derived fact from the graph and the leases, and repairs what differs (P3).
//!
//! What is stored beside the graph follows from it: counts of unmet and broken parents, pending, blocked and ready, places
//! in the queues, counters, a workflow's status. Every transition keeps these right under its workflow's lock, so a
//! difference means a defect or a hand in the database. [`examine`] reads one page a snapshot, so that work in progress
//! never shows as a difference; [`repair`] goes through [`mend`](crate::transitions::mend), which judges anew under the
//! lock. [`why`] names what an op that does not go on comes down to (S10).

mod chart;
mod examine;
mod finding;
mod repair;
mod why;

pub(crate) use chart::{Chart, fits, is_ended, is_sound, standing};
pub use examine::{Diagnosis, FINDINGS_MAX, examine};
pub use finding::{Drift, Finding};
pub use repair::{MEND_MAX, repair};
pub use why::{Root, WaitsFor, Why, why, why_workflow};
