//! What cleans up when this process is gone, however it went.

use std::io;
use std::process::{Child, Command, Stdio};

/// A shell that waits for the end of this process and then runs a script. Statics are never dropped and a killed process
/// runs nothing; but the kernel closes its end of a pipe in every case.
#[derive(Debug)]
pub(crate) struct Watchdog(Child);

impl Watchdog {
    /// Runs `script` with `arguments` as `$1`, `$2` … once this process has ended or the watchdog is dropped.
    /// `shell` may already say as whom.
    pub(crate) fn new(mut shell: Command, script: &str, arguments: &[&str]) -> io::Result<Self> {
        use std::os::unix::process::CommandExt;
        let child = shell
            .args(["-c", &format!("trap '' INT TERM HUP; cat >/dev/null; {script}"), "watchdog"])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            // The terminal's Ctrl-C goes to the tests, not to what cleans up after them.
            .process_group(0)
            .spawn()?;
        Ok(Self(child))
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // Its own errors are those of cleaning up: nobody is left who could do better.
        let _ = self.0.wait();
    }
}
