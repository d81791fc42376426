//! What is particular to Postgres: waits, races, errors, connections. The storage contract itself is proved by the
//! conformance suite. One binary, so that all of it shares one server.

mod claims;
mod common;
mod errors;
mod finality;
mod migrations;
mod reconnect;
mod time;
mod tls;
