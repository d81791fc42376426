//! Stopping the processes of shell ops when leasehold itself is killed.
//!
//! A process cannot act after SIGKILL, so another one does: the guard, which leasehold starts from its own program file. It
//! reads from a pipe which process groups run, and learns from the end of the pipe that leasehold is gone, however it ended.
//! Then it stops what still runs and removes the scratch folder. (Linux could tie a child's life to its parent's, but only
//! through a call between fork and exec, which needs unsafe code, and only for the child, not for its children.)

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

/// The hidden command that makes the program the guard.
pub(crate) const COMMAND: &str = "__guard";

/// Leasehold's end of the pipe.
#[derive(Debug)]
pub(crate) struct Guard {
    pipe: Arc<Mutex<Option<ChildStdin>>>,
    child: Child,
}

/// One process group that the guard knows of.
#[derive(Debug)]
pub(crate) struct Watch {
    pipe: Arc<Mutex<Option<ChildStdin>>>,
    group: Pid,
}

impl Guard {
    /// Starts the guard, which in the end also removes `scratch`.
    pub(crate) fn start(scratch: &Path) -> std::io::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(COMMAND)
            .arg(scratch)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Away from the terminal's signals: it has to outlive leasehold.
            .process_group(0)
            .spawn()?;
        Ok(Self { pipe: Arc::new(Mutex::new(child.stdin.take())), child })
    }

    /// Has `group` stopped if leasehold ends before [`Watch::forget`].
    pub(crate) fn watch(&self, group: Pid) -> Arc<Watch> {
        tell(&self.pipe, '+', group);
        Arc::new(Watch { pipe: Arc::clone(&self.pipe), group })
    }
}

impl Watch {
    /// The group is gone.
    pub(crate) fn forget(&self) {
        tell(&self.pipe, '-', self.group);
    }
}

fn tell(pipe: &Mutex<Option<ChildStdin>>, sign: char, group: Pid) {
    let mut pipe = pipe.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(open) = pipe.as_mut()
        && let Err(error) = open.write_all(format!("{sign}{group}\n").as_bytes())
    {
        tracing::warn!(%error, "the guard is gone: if leasehold is killed now, processes of its ops go on");
        *pipe = None;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // The end of the pipe lets the guard end; waiting for it means that the scratch folder is gone when leasehold is.
        self.pipe.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Err(error) = self.child.wait() {
            tracing::warn!(%error, "the guard could not be waited for");
        }
    }
}

/// The guard's whole life.
pub(crate) fn main(scratch: Option<PathBuf>) {
    let mut groups: BTreeSet<i32> = BTreeSet::new();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let (sign, id) = line.split_at(line.len().min(1));
        match (sign, id.parse()) {
            // 0 and 1 would mean the guard's own group and every process.
            ("+", Ok(id)) if id > 1 => groups.insert(id),
            ("-", Ok(id)) => groups.remove(&id),
            _ => false,
        };
    }
    stop(&groups);
    if let Some(scratch) = scratch {
        // Nobody is left to tell; what stays is a folder in the system's own place for temporary ones.
        let _ = std::fs::remove_dir_all(scratch);
    }
}

fn stop(groups: &BTreeSet<i32>) {
    let signal = |signal| groups.iter().filter(|group| killpg(Pid::from_raw(**group), signal).is_ok()).count();
    if signal(Some(Signal::SIGTERM)) == 0 {
        return;
    }
    let deadline = std::time::Instant::now() + crate::kinds::shell::STOP_GRACE;
    while signal(None) > 0 && std::time::Instant::now() < deadline {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    signal(Some(Signal::SIGKILL));
}
