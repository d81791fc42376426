//! An independent judge: reads the tables and nothing else, in one snapshot, and knows the promises but not the engine.
//!
//! What it holds the tables against:
//!
//! - an op's success is in the ledger once, and its history tells it once (`ledger`);
//! - no two owners of one op overlap, and fences grow without a gap (`ledger`);
//! - no op was leased before what it depends on was done (`order`);
//! - at no instant were more of a queue's ops leased than its limit allows (`limits`);
//! - counts, statuses, queues and leases follow from the graph (`derived`).

mod derived;
mod ledger;
mod limits;
mod order;
mod tables;
#[cfg(test)]
mod tests;

use tables::{Op, Queued, Wait};
pub use tables::{Success, Tables};

use crate::{Error, Result};
use diesel::pg::PgConnection;
use std::fmt;

/// Findings that are told one by one; the rest are counted.
const TOLD_MAX: usize = 40;

/// What was found wrong, in sentences.
#[derive(Debug, Default)]
pub struct Findings(Vec<String>);

impl Findings {
    fn add(&mut self, finding: String) {
        self.0.push(finding);
    }

    /// Each one.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the audit found {} things wrong:", self.0.len())?;
        for finding in self.0.iter().take(TOLD_MAX) {
            write!(f, "\n  {finding}")?;
        }
        if self.0.len() > TOLD_MAX { write!(f, "\n  and {} more", self.0.len() - TOLD_MAX) } else { Ok(()) }
    }
}

/// What a store that passed holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Workflows.
    pub workflows: usize,
    /// Ops.
    pub ops: usize,
    /// Ended attempts.
    pub attempts: usize,
    /// Attempts whose worker was lost.
    pub abandoned: usize,
    /// Events.
    pub events: usize,
    /// Leases that are there now.
    pub leases: usize,
}

/// Judges the store that `conn` sees. `limits` names queues with the most ops that may be leased at once at each site,
/// a limit that held for the store's whole life.
///
/// # Errors
/// Everything that is wrong, or why the tables could not be read.
pub fn audit(conn: &mut PgConnection, limits: &[(&str, usize)]) -> Result<Summary> {
    let tables = Tables::read(conn)?;
    let findings = judge(&tables, limits);
    if findings.is_empty() { Ok(tables.summary()) } else { Err(Error::from(findings.to_string())) }
}

/// Judges tables that were read.
pub fn judge(tables: &Tables, limits: &[(&str, usize)]) -> Findings {
    let mut findings = Findings::default();
    ledger::judge(tables, &mut findings);
    order::judge(tables, &mut findings);
    limits::judge(tables, limits, &mut findings);
    derived::judge(tables, &mut findings);
    findings
}
