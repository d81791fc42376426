//! The suite on Postgres: each case in a schema of its own, on the server that the tests find or start.

#[path = "harness/postgres.rs"]
mod harness;

fn main() {
    std::process::exit(leasehold_conformance::run(harness::Postgres::default()));
}
