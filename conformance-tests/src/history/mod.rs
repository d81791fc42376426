//! Histories that run on several stores in lockstep: every answer, and everything that is stored, must be equal.
//!
//! A [`Command`] is a kind of act and a number from which all its choices follow, so that a history stays one when any of
//! its commands is taken out: whoever looks for the shortest one that still fails may try that.

mod chance;
mod command;
mod graph;
mod lockstep;
mod shown;

pub use command::{Act, Command};
pub use lockstep::{Lockstep, specification};
