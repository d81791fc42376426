//! The suite on SQLite in memory.

#[path = "harness/sqlite_memory.rs"]
mod harness;

fn main() {
    std::process::exit(leasehold_conformance::run(harness::SqliteMemory));
}
