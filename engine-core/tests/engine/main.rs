//! The engine and its client, on the in-memory store with a clock that stands until it is moved.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, reason = "a failed unwrap is a failed test")]

mod client;
mod clock;
mod cycle;
mod effects;
mod failures;
mod faults;
mod fixture;
mod leases;
mod maintenance;
mod observers;
mod pool;
mod shutdown;
mod waits;
mod within;
