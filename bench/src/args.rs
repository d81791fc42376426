//! The command line.

use clap::{Args as Group, Parser, Subcommand};
use std::path::PathBuf;

/// Measures Leasehold against raw SQL on the same database, in the same run.
#[derive(Debug, Parser)]
#[command(name = "leasehold-bench", version, max_term_width = 120)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(flatten)]
    Suite(Suite),
    /// Prints the tables of docs/PERFORMANCE.md from reports that --json made
    Page {
        /// The reports
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// One of several processes of a suite
    #[command(hide = true)]
    Work(Work),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Suite {
    /// No-op ops at concurrency 1, 16, 100 and 1,000; one workflow and many; one process and four
    Drain(Settings),
    /// Ops one by one, in batches of 1,000, and as graphs of 1,000 and of 100,000 with edges
    Enqueue(Settings),
    /// From an enqueue to the start of its handler, on an idle engine
    Latency(Settings),
    /// Chains, fan-outs with joins, layers and one wide fan-in, against the drain of plain ops
    Graph(Settings),
    /// A claim over a growing backlog, history and future; under a pinned snapshot; a worker's memory
    Backlog(Settings),
    /// Expired leases, taken back in bounded passes
    Recovery(Settings),
    /// Many held leases, renewed together
    Heartbeat(Settings),
    /// A steady load: dead rows, log written per op, growth of files and memory
    Soak(Settings),
}

/// What every suite takes.
#[derive(Debug, Clone, Group)]
pub(crate) struct Settings {
    /// Where to measure: sqlite (a temporary folder), sqlite:FOLDER, postgres (a server started for the run) or postgres://…
    #[arg(long, value_name = "URL", default_value = "sqlite")]
    pub(crate) store: String,
    /// How many ops a round moves, in place of the suite's own number
    #[arg(long, value_name = "N")]
    pub(crate) ops: Option<u64>,
    /// How many rounds
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) rounds: usize,
    /// How long the suites that run for a time do so
    #[arg(long, value_name = "N", default_value_t = 600)]
    pub(crate) seconds: u64,
    /// Only the lines whose names contain this
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Option<String>,
    /// Prints JSON for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// A process that works on a store.
#[derive(Debug, Group)]
pub(crate) struct Work {
    /// The store
    #[arg(long)]
    pub(crate) store: String,
    /// How many handlers run at once
    #[arg(long)]
    pub(crate) concurrency: usize,
    /// How often it looks for work, in milliseconds
    #[arg(long, default_value_t = 500)]
    pub(crate) poll: u64,
}

impl Suite {
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Drain(_) => "drain",
            Self::Enqueue(_) => "enqueue",
            Self::Latency(_) => "latency",
            Self::Graph(_) => "graph",
            Self::Backlog(_) => "backlog",
            Self::Recovery(_) => "recovery",
            Self::Heartbeat(_) => "heartbeat",
            Self::Soak(_) => "soak",
        }
    }

    pub(crate) const fn settings(&self) -> &Settings {
        match self {
            Self::Drain(settings)
            | Self::Enqueue(settings)
            | Self::Latency(settings)
            | Self::Graph(settings)
            | Self::Backlog(settings)
            | Self::Recovery(settings)
            | Self::Heartbeat(settings)
            | Self::Soak(settings) => settings,
        }
    }
}

impl Settings {
    /// The number of ops asked for, or the suite's own.
    pub(crate) fn ops_or(&self, ops: u64) -> u64 {
        self.ops.unwrap_or(ops)
    }

    /// Whether the line `name` is asked for.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }
}
