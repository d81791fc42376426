//! Ops that run a command.

mod artifacts;
mod capture;
mod emit;
mod input;
mod process;
mod scratch;
mod status;

pub(crate) use capture::Tap;
pub(crate) use input::{Command, ShellInput, Stdin, check_output_limit};
pub(crate) use process::STOP_GRACE;
pub(crate) use scratch::Scratch;

use super::failure::Failure;
use super::output::{Keep, Kept};
use crate::guard::Guard;
use leasehold::model::{Artifact, OpSpec};
use process::{Ended, ProcessSpec};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::ErrorKind;
use tokio_util::sync::CancellationToken;

/// How much of the end of standard error is kept.
const STDERR_LIMIT: usize = 8 * 1024;

/// The variables' names, which are an interface: see `docs/WORKFLOW-FILES.md`.
mod variable {
    pub(super) const WORKFLOW: &str = "LEASEHOLD_WORKFLOW";
    pub(super) const OP: &str = "LEASEHOLD_OP";
    pub(super) const ATTEMPT: &str = "LEASEHOLD_ATTEMPT";
    pub(super) const IDEMPOTENCY_KEY: &str = "LEASEHOLD_IDEMPOTENCY_KEY";
    pub(super) const EMIT: &str = "LEASEHOLD_EMIT";
    pub(super) const ARTIFACTS: &str = "LEASEHOLD_ARTIFACTS";
    pub(super) const RESULTS: &str = "LEASEHOLD_RESULTS";
    pub(super) const INPUT: &str = "LEASEHOLD_INPUT";
}

/// What a shell op gives to whoever reads its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShellOutput {
    /// Its standard output.
    pub(crate) stdout: String,
    /// The end of its standard error.
    pub(crate) stderr_tail: String,
    /// Always 0: every other status is a failure.
    pub(crate) exit_code: i32,
    /// Whether standard output was longer.
    #[serde(default)]
    pub(crate) truncated: bool,
    /// Whether standard output held bytes that are not text, which were replaced.
    #[serde(default)]
    pub(crate) lossy: bool,
}

/// What one attempt is about.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    pub(crate) workflow: String,
    pub(crate) op: String,
    pub(crate) number: i64,
    pub(crate) idempotency_key: String,
}

/// What one attempt needs besides its input.
pub(crate) struct Surroundings<'a> {
    pub(crate) attempt: Attempt,
    /// Its folder, filled with what it may read.
    pub(crate) scratch: &'a Scratch,
    /// What its standard input gives.
    pub(crate) stdin: Vec<u8>,
    pub(crate) cancel: CancellationToken,
    pub(crate) guard: &'a Guard,
    /// Shows its output while it runs.
    pub(crate) tap: Option<Tap>,
}

/// What a successful attempt leaves behind.
#[derive(Debug)]
pub(crate) struct ShellSuccess {
    pub(crate) output: ShellOutput,
    pub(crate) artifacts: Vec<Artifact>,
    pub(crate) emitted: Vec<OpSpec>,
}

/// Runs one attempt.
pub(crate) async fn run(input: &ShellInput, around: Surroundings<'_>) -> Result<ShellSuccess, Failure> {
    let spec = process_spec(input, &around);
    let ended = process::run(spec, &around.cancel, around.tap, around.guard).await.map_err(|error| not_started(input, &error))?;
    let (status, stdout, stderr) = match ended {
        Ended::Exited { status, stdout, stderr } => (status, stdout, stderr),
        Ended::Stopped => return Err(Failure::retryable("stopped", "the command was stopped before it ended")),
    };
    let stdout = Kept::of(&stdout.bytes, stdout.more, Keep::Head, input.output_limit());
    let stderr = Kept::of(&stderr.bytes, stderr.more, Keep::Tail, STDERR_LIMIT);
    let exit_code = status::judge(status, &stdout.text, &stderr.text)?;
    let emitted = emit::read(around.scratch.emit_file(), &around.attempt.op).await?;
    let artifacts = artifacts::collect(around.scratch.artifacts_folder(), input).await?;
    let output = ShellOutput { stdout: stdout.text, stderr_tail: stderr.text, exit_code, truncated: stdout.truncated, lossy: stdout.lossy };
    Ok(ShellSuccess { output, artifacts, emitted })
}

fn process_spec(input: &ShellInput, around: &Surroundings<'_>) -> ProcessSpec {
    let (program, arguments) = match &input.command {
        Command::Line(line) => (OsString::from("sh"), vec!["-c".into(), line.into()]),
        Command::Words(words) => {
            let mut words = words.iter().map(OsString::from);
            (words.next().unwrap_or_default(), words.collect())
        }
    };
    let Attempt { workflow, op, number, idempotency_key } = &around.attempt;
    let scratch = around.scratch;
    let mut env: Vec<(OsString, OsString)> = input.env.iter().map(|(name, value)| (name.into(), value.into())).collect();
    env.extend(scratch.input_variables().iter().map(|(name, value)| (name.into(), value.into())));
    // Last, so that nothing stands in for them.
    env.extend([
        (variable::WORKFLOW.into(), workflow.into()),
        (variable::OP.into(), op.into()),
        (variable::ATTEMPT.into(), number.to_string().into()),
        (variable::IDEMPOTENCY_KEY.into(), idempotency_key.into()),
        (variable::EMIT.into(), scratch.emit_file().into()),
        (variable::ARTIFACTS.into(), scratch.artifacts_folder().into()),
        (variable::RESULTS.into(), scratch.results_file().into()),
        (variable::INPUT.into(), scratch.input_file().into()),
    ]);
    ProcessSpec {
        program,
        arguments,
        cwd: input.cwd.as_ref().map(Into::into),
        env,
        stdin: around.stdin.clone(),
        stdout_limit: input.output_limit(),
        stderr_limit: STDERR_LIMIT,
    }
}

/// What to say of a command that did not even begin.
fn not_started(input: &ShellInput, error: &std::io::Error) -> Failure {
    let program = match &input.command {
        Command::Line(_) => "sh",
        Command::Words(words) => words.first().map_or("", String::as_str),
    };
    let place = input.cwd.as_ref().map_or_else(String::new, |cwd| format!(" in the folder {cwd:?}"));
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            let message = format!("cannot run {program:?}{place}: the program or the folder is not there ({error})");
            Failure::permanent("not_found", message)
        }
        ErrorKind::PermissionDenied => Failure::permanent("not_executable", format!("cannot run {program:?}{place}: {error}")),
        _ => Failure::retryable("process", format!("running {program:?}{place} failed: {error}")),
    }
}
