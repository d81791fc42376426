//! What is particular to Postgres: waits, races, errors, connections. The storage contract itself is proved by the
//! conformance suite. One binary, so that all of it shares one server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a failed unwrap is a failed test")]

mod claims;
mod common;
mod errors;
mod finality;
mod held;
mod hint;
mod migrations;
mod own;
mod reconnect;
mod time;
mod tls;
mod upkeep;
