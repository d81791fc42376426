//! The suite on an SQLite file.

#[path = "harness/sqlite_file.rs"]
mod harness;

fn main() {
    std::process::exit(leasehold_conformance::run(harness::SqliteFile));
}
