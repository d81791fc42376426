//! Measures the engine against its floor: the least that raw SQL through a thin driver needs for the same, on the same
//! database, with the same durability, in the same run.
//!
//! ```sh
//! cargo run --release -p leasehold-bench -- drain --store sqlite
//! cargo run --release -p leasehold-bench -- drain --store postgres --json > drain.json
//! cargo run --release -p leasehold-bench -- page *.json     # the tables of docs/PERFORMANCE.md
//! ```
//!
//! Floor and engine take turns round by round, so that whatever else the machine does meets both; only ratios of one run
//! mean anything.

#![allow(clippy::print_stdout, reason = "a program that tells a person what it measured")]

mod args;
mod clock;
mod engine;
mod floor;
mod meter;
mod page;
mod place;
mod process;
mod report;
mod suites;
mod worker;

use args::{Args, Command};
use clap::Parser;
use std::process::ExitCode;

/// Whatever went wrong: this program only reports it.
type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let args = Args::parse();
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("leasehold-bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match args.command {
        Command::Page { files } => page::print(&files),
        Command::Work(work) => runtime.block_on(worker::work(&work)),
        Command::Suite(suite) => {
            let report = runtime.block_on(suites::run(&suite))?;
            if suite.settings().json {
                println!("{}", serde_json::to_string_pretty(&report)?);
            } else {
                print!("{}", page::text(&report));
            }
            Ok(())
        }
    }
}
