//! The `leasehold` program: runs workflow files, and repairs what a run left behind.
//!
//! It is thin: every act is a call of the library. What it adds is the workflow file (`file`), the built-in
//! kinds of ops (`kinds`), and words for people.

mod args;
mod commands;
mod exit;
mod file;
mod guard;
mod kinds;
mod log;
mod output;
mod progress;
mod report;
mod screen;
mod signals;
mod store;
mod tally;
mod worker;

use args::{Cli, Command};
use clap::Parser;
use exit::{CliError, Exit};
use std::ffi::OsStr;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().as_deref() == Some(OsStr::new(guard::COMMAND)) {
        guard::main(arguments.next().map(Into::into));
        return ExitCode::SUCCESS;
    }
    let cli = Cli::parse();
    let done = tokio::runtime::Runtime::new()
        .map_err(CliError::system("the async runtime cannot be started"))
        .and_then(|runtime| runtime.block_on(dispatch(&cli)));
    match done {
        Ok(exit) => exit.into(),
        Err(error) => {
            // Standard error may be closed; the exit code still tells.
            let _ = writeln!(std::io::stderr().lock(), "leasehold: {}", error.message());
            error.exit().into()
        }
    }
}

async fn dispatch(cli: &Cli) -> Result<Exit, CliError> {
    let global = &cli.global;
    match &cli.command {
        Command::Run(args) => return commands::run::run(args, global).await,
        _ => log::start(screen::LogWriter(None)),
    }
    match &cli.command {
        Command::Run(_) => unreachable!("it was run above"),
        Command::Status(_) => commands::status::run(global).await,
        Command::List(args) => commands::list::run(args, global).await,
        Command::Show(args) => commands::show::run(args, global).await,
        Command::Retry(args) => commands::retry::run(args, global).await,
        Command::Settle(args) => commands::settle::run(args, global).await,
        Command::Cancel(args) => commands::cancel::run(args, global).await,
        Command::Clock(args) => commands::clock::run(args, global).await,
        Command::Migrate(_) => commands::migrate::run(global).await,
        Command::Doctor(args) => commands::doctor::run(args, global).await,
        Command::Why(args) => commands::why::run(args, global).await,
    }
}
