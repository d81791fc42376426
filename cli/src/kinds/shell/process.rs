//! Running one command in a process group of its own, which is stopped as a whole.

use super::capture::{Capture, Captured, Tap, capture};
use super::input::RESERVED_PREFIX;
use crate::guard::Guard;
use crate::kinds::output::Keep;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::Child;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long a process group has between SIGTERM and SIGKILL.
pub(crate) const STOP_GRACE: Duration = Duration::from_secs(2);

/// How long output is awaited after everything in the group is gone: a process that left the group may hold the pipe open.
const OUTPUT_GRACE: Duration = Duration::from_secs(1);

/// How often it is looked whether a group is gone; there is no event for it.
const LOOK: Duration = Duration::from_millis(10);

/// What to run.
#[derive(Debug)]
pub(super) struct ProcessSpec {
    pub(super) program: OsString,
    pub(super) arguments: Vec<OsString>,
    pub(super) cwd: Option<PathBuf>,
    pub(super) env: Vec<(OsString, OsString)>,
    pub(super) stdin: Vec<u8>,
    pub(super) stdout_limit: usize,
    pub(super) stderr_limit: usize,
}

/// How it ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// By itself.
    Exited { status: ExitStatus, stdout: Captured, stderr: Captured },
    /// It was told to stop.
    Stopped,
}

/// Runs `spec` until its first process ends or `cancel` says to stop. Afterwards nothing is left of its group.
///
/// Dropping the future kills the group at once.
pub(super) async fn run(spec: ProcessSpec, cancel: &CancellationToken, tap: Option<Tap>, guard: &Guard) -> io::Result<Ended> {
    let mut child = command(&spec).spawn()?;
    let group = Group::of(&child, guard)?;
    let stdout = child.stdout.take().map(|pipe| reader(pipe, Capture::new(Keep::Head, spec.stdout_limit), tap.clone()));
    let stderr = child.stderr.take().map(|pipe| reader(pipe, Capture::new(Keep::Tail, spec.stderr_limit), tap));
    let feeder = child.stdin.take().map(|mut pipe| {
        tokio::spawn(async move {
            // A process need not read what it is offered, and says nothing wrong by closing the pipe.
            let _ = pipe.write_all(&spec.stdin).await;
        })
    });

    let ended = tokio::select! {
        status = child.wait() => Some(status?),
        () = cancel.cancelled() => None,
    };
    if ended.is_none() {
        group.signal(Signal::SIGTERM);
        if tokio::time::timeout(STOP_GRACE, child.wait()).await.is_err() {
            group.signal(Signal::SIGKILL);
            child.wait().await?;
        }
    }
    group.end().await;
    if let Some(feeder) = feeder {
        feeder.abort();
    }
    let (stdout, stderr) = (finished(stdout).await?, finished(stderr).await?);
    Ok(match ended {
        Some(status) => Ended::Exited { status, stdout, stderr },
        None => Ended::Stopped,
    })
}

fn command(spec: &ProcessSpec) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(&spec.program);
    // Where leasehold was itself started by an op, that op's variables must not pass for this one's.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(RESERVED_PREFIX.as_bytes())) {
        command.env_remove(name);
    }
    command.args(&spec.arguments).envs(spec.env.iter().map(|(name, value)| (name, value)));
    if let Some(cwd) = &spec.cwd {
        command.current_dir(cwd);
    }
    let stdin = if spec.stdin.is_empty() { Stdio::null() } else { Stdio::piped() };
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
    command
}

type Reader = JoinHandle<io::Result<Captured>>;

fn reader(pipe: impl tokio::io::AsyncRead + Unpin + Send + 'static, into: Capture, tap: Option<Tap>) -> Reader {
    tokio::spawn(capture(pipe, into, tap))
}

/// What was read; cut off where somebody outside the group still holds the pipe.
async fn finished(reader: Option<Reader>) -> io::Result<Captured> {
    let Some(mut reader) = reader else {
        return Ok(Captured::default());
    };
    if let Ok(read) = tokio::time::timeout(OUTPUT_GRACE, &mut reader).await {
        return read.map_err(io::Error::other)?;
    }
    reader.abort();
    let advice = "start daemons with their output redirected";
    Err(io::Error::other(format!("a process outside the op's process group holds its output open; {advice}")))
}

/// A process group that is killed when this is dropped before its end.
struct Group {
    id: Pid,
    guard: Arc<crate::guard::Watch>,
    ended: bool,
}

impl Group {
    fn of(child: &Child, guard: &Guard) -> io::Result<Self> {
        let id = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        let id = id.ok_or_else(|| io::Error::other("the process ended before it could be watched"))?;
        Ok(Self { id, guard: guard.watch(id), ended: false })
    }

    fn signal(&self, signal: Signal) {
        // ESRCH: nobody is left, which is what the signal was for.
        let _ = killpg(self.id, signal);
    }

    fn is_gone(&self) -> bool {
        killpg(self.id, None).is_err()
    }

    /// Ends what the first process left behind.
    async fn end(mut self) {
        if !self.is_gone() {
            self.signal(Signal::SIGTERM);
            let gone = async {
                while !self.is_gone() {
                    tokio::time::sleep(LOOK).await;
                }
            };
            if tokio::time::timeout(STOP_GRACE, gone).await.is_err() {
                self.signal(Signal::SIGKILL);
            }
        }
        self.ended = true;
        self.guard.forget();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.ended {
            self.signal(Signal::SIGKILL);
            self.guard.forget();
        }
    }
}
