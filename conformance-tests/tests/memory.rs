//! The suite on the in-memory store.

#[path = "harness/memory.rs"]
mod harness;

fn main() {
    std::process::exit(leasehold_conformance::run(harness::Memory));
}
