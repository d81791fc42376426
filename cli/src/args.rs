//! The command line.

use crate::file::amount::Span;
use clap::{Args, Parser, Subcommand, ValueEnum};
use leasehold::state::WorkflowStatus;
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// Runs durable workflows, and repairs what a run left behind.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, max_term_width = 120, after_help = MAIN_HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
}

const MAIN_HELP: &str = "\
Examples:
  leasehold run examples/digest-tree.toml     run a workflow; the same command again goes on where it was
  leasehold list                              the workflows in the store
  leasehold show digest-tree                  one workflow, its ops and its artifacts
  leasehold retry digest-tree                 try its failed ops again

Exit codes:
  0 done   1 failed or refused   2 wrong command line or file   3 canceled   130 interrupted; the same command goes on
  the store is: 4 busy or away   5 read-only   6 full   7 corrupt   8 of another schema version";

/// What every command takes.
#[derive(Debug, Args)]
pub(crate) struct GlobalArgs {
    /// The store, such as sqlite:work.db [default: sqlite:.leasehold/leasehold.db in the current folder]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// Prints JSON for programs, `run` a line for each event
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(RunArgs),
    Status(StatusArgs),
    List(ListArgs),
    Show(ShowArgs),
    Retry(RetryArgs),
    Settle(SettleArgs),
    Cancel(CancelArgs),
    Clock(ClockArgs),
    Migrate(MigrateArgs),
    Doctor(DoctorArgs),
    Why(WhyArgs),
}

/// Runs a workflow file to its end; interrupted or killed and run again, it goes on where it was
#[derive(Debug, Args)]
#[command(after_help = RUN_HELP)]
pub(crate) struct RunArgs {
    /// The workflow file: TOML, YAML or JSON
    #[arg(required_unless_present = "resume", conflicts_with = "resume")]
    pub(crate) file: Option<PathBuf>,
    /// Goes on with this workflow (its id, or its name if only one has it) instead of reading a file
    #[arg(long, value_name = "WORKFLOW", conflicts_with_all = ["input", "id", "new"])]
    pub(crate) resume: Option<String>,
    /// Input for the workflow: name=text, a JSON object, or @file; may be given more than once
    #[arg(long, short, value_name = "INPUT")]
    pub(crate) input: Vec<String>,
    /// The workflow's id, instead of one derived from its identity
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
    /// Starts a new workflow, even if the same was run before
    #[arg(long)]
    pub(crate) new: bool,
    /// How many ops run at once [default: the number of processors]
    #[arg(long, short, value_name = "N")]
    pub(crate) workers: Option<NonZeroUsize>,
    /// After this time without a sign of life from a process, others take over its ops
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub(crate) lease: Span,
    /// How long running ops may go on after the first Ctrl-C
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    pub(crate) grace: Span,
    /// Shows what ops print, while they run
    #[arg(long)]
    pub(crate) stream: bool,
    /// Shows no progress, only how it ended
    #[arg(long, short, conflicts_with = "stream")]
    pub(crate) quiet: bool,
}

const RUN_HELP: &str = "\
Which workflow it is follows from the parsed file, the input, and the contents of the files that it lists as `inputs`; never
from the environment. What has succeeded is not done again.

Examples:
  leasehold run site.toml --input pages=500 --workers 8
  leasehold run site.toml --input '{\"pages\": 500}' --stream
  leasehold run site.toml --new
  leasehold run --resume 0198c9a4-7a4e-7c3e-8f52-3f7d4e1b2a10

Ctrl-C lets running ops finish and gives the others back; a second one stops at once.";

/// Shows the store as a whole: schema, workflows, ops and queues
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {}

/// Lists workflows, newest first
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only those that stand so
    #[arg(long, value_enum)]
    pub(crate) status: Option<StatusFilter>,
    /// Only those of this name
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// At most this many
    #[arg(long, short = 'n', default_value_t = 50)]
    pub(crate) limit: u32,
    /// Prints ids only, one a line
    #[arg(long, conflicts_with = "json")]
    pub(crate) ids: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum StatusFilter {
    Running,
    Succeeded,
    Failed,
    Canceled,
}

impl From<StatusFilter> for WorkflowStatus {
    fn from(filter: StatusFilter) -> Self {
        match filter {
            StatusFilter::Running => Self::Running,
            StatusFilter::Succeeded => Self::Succeeded,
            StatusFilter::Failed => Self::Failed,
            StatusFilter::Canceled => Self::Canceled,
        }
    }
}

/// Shows one workflow with its ops and artifacts, or one of its ops, or what an op gave
#[derive(Debug, Args)]
#[command(after_help = SHOW_HELP)]
pub(crate) struct ShowArgs {
    /// The workflow: its id, or its name if only one has it
    pub(crate) workflow: String,
    /// One op, with its attempts
    #[arg(long, value_name = "OP")]
    pub(crate) op: Option<String>,
    /// Only what this op printed (a shell op's standard output, an http op's body, else its result)
    #[arg(long, value_name = "OP", conflicts_with_all = ["op", "artifact", "json"])]
    pub(crate) output: Option<String>,
    /// Only the content of this artifact
    #[arg(long, value_name = "OP/NAME", conflicts_with_all = ["op", "json"])]
    pub(crate) artifact: Option<String>,
    /// Shows at most this many ops
    #[arg(long, short = 'n', default_value_t = 100)]
    pub(crate) limit: u32,
}

const SHOW_HELP: &str = "\
Examples:
  leasehold show digest-tree
  leasehold show digest-tree --op report
  leasehold show digest-tree --output report
  leasehold show digest-tree --artifact report/digest-tree-report.txt > report.txt";

/// Who acts, and why: kept in the history.
#[derive(Debug, Args)]
pub(crate) struct ActorArgs {
    /// Who acts, for the history [default: your user name]
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,
    /// Why, for the history
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

/// Makes failed ops ready again, with a new budget of attempts, and reopens what they blocked
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  leasehold retry nightly fetch-17 --reason 'the server is back'\n  leasehold run nightly.toml")]
pub(crate) struct RetryArgs {
    /// The workflow: its id, or its name if only one has it
    pub(crate) workflow: String,
    /// Only these ops [default: every failed one]
    pub(crate) ops: Vec<String>,
    #[command(flatten)]
    pub(crate) actor: ActorArgs,
}

/// Says what became of an op with effect = "once" whose last attempt gave no answer
#[derive(Debug, Args)]
#[command(after_help = SETTLE_HELP)]
#[command(group = clap::ArgGroup::new("verdict").required(true))]
pub(crate) struct SettleArgs {
    /// The workflow: its id, or its name if only one has it
    pub(crate) workflow: String,
    /// The op, which waits for a verdict
    pub(crate) op: String,
    /// It had no effect, or one that may be repeated: it is run again
    #[arg(long, group = "verdict")]
    pub(crate) retry: bool,
    /// It took effect: the op has succeeded with this result
    #[arg(long, value_name = "JSON", group = "verdict")]
    pub(crate) succeed: Option<String>,
    /// It had no effect and shall have none: the op has failed, for this reason
    #[arg(long, value_name = "TEXT", group = "verdict")]
    pub(crate) fail: Option<String>,
    /// The attempt that is judged, refused if the op waits for a verdict on another [default: the one it waits for now]
    #[arg(long, value_name = "N")]
    pub(crate) attempt: Option<i64>,
    #[command(flatten)]
    pub(crate) actor: ActorArgs,
}

const SETTLE_HELP: &str = "\
Examples:
  leasehold show payroll --op transfer              what is known of it
  leasehold settle payroll transfer --succeed '{\"receipt\": 7}' --reason 'the bank has it'
  leasehold settle payroll transfer --retry --attempt 3";

/// Cancels a workflow and all its ops that have not ended: final
#[derive(Debug, Args)]
pub(crate) struct CancelArgs {
    /// The workflow: its id, or its name if only one has it
    pub(crate) workflow: String,
    #[command(flatten)]
    pub(crate) actor: ActorArgs,
}

/// Shows whether the store's time is relied on, or relies on it again after it went wrong
#[derive(Debug, Args)]
pub(crate) struct ClockArgs {
    #[command(subcommand)]
    pub(crate) command: ClockCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClockCommand {
    /// Shows the store's time, the latest that it has shown, and whether it is relied on
    Status,
    Trust(TrustClockArgs),
}

/// Relies on the clock as it stands: it is right now, and what it showed before was not
#[derive(Debug, Args)]
#[command(after_help = TRUST_HELP)]
pub(crate) struct TrustClockArgs {
    /// How long leases that the mistaken clock gave may last: at least a third of the longest lease in use [default: 1h]
    #[arg(long, value_name = "DURATION")]
    pub(crate) leases_within: Option<Span>,
    #[command(flatten)]
    pub(crate) actor: ActorArgs,
}

const TRUST_HELP: &str = "\
A store whose clock is behind a time that it has shown before claims, recovers and wakes nothing. If the clock is wrong now, set it
right: work goes on by itself. If it was wrong before, this makes the present time the one that counts.

Example:
  leasehold clock trust --reason 'the host had started with a dead battery'";

/// Recomputes everything that follows from the graph and the leases, reports what differs, and tries a write
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 all is sound, 1 something differs, 4 to 8 what keeps the store from being read or written")]
pub(crate) struct DoctorArgs {
    /// Puts right what can be, in small steps; workers may go on
    #[arg(long)]
    pub(crate) repair: bool,
    #[command(flatten)]
    pub(crate) actor: ActorArgs,
}

/// Names what an op that does not go on comes down to: which op, with which error, since when
#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    /// The workflow: its id, or its name if only one has it
    pub(crate) workflow: String,
    /// The op [default: the workflow as a whole]
    pub(crate) op: Option<String>,
}

/// Creates the store's schema, or brings it up to this program's version
#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
