//! A process that works until it is killed.

use crate::Result;
use crate::worker::Acked;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

/// A process that runs; it is killed with this value.
#[derive(Debug)]
pub struct Victim {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Victim {
    /// Starts `program` with `arguments`, and waits for the first line that it prints.
    ///
    /// # Errors
    /// When it cannot be started or ends without a word.
    pub fn start(program: &str, arguments: &[&str]) -> Result<(Self, String)> {
        let mut command = Command::new(program);
        command.args(arguments);
        Self::spawn(command)
    }

    /// [`Victim::start`] of a command.
    ///
    /// # Errors
    /// As there.
    pub fn spawn(mut command: Command) -> Result<(Self, String)> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let Some(out) = child.stdout.take() else { return Err("the process has no standard output".into()) };
        let mut victim = Self { child, out: BufReader::new(out) };
        let mut line = String::new();
        if victim.out.read_line(&mut line)? == 0 {
            return Err(format!("the process ended without a word: {}", victim.end()?).into());
        }
        Ok((victim, line.trim_end().to_owned()))
    }

    /// Kills it a moment `after` it has said `lines` more; returns what it had been told by then. A last line that was cut
    /// off was not said. Counted in lines, so that it has worked as much on a busy machine.
    ///
    /// # Errors
    /// When it had ended by itself, with its last words.
    pub fn kill(mut self, lines: u32, after: Duration) -> Result<Vec<Acked>> {
        let mut said = String::new();
        for _ in 0..lines {
            self.out.read_line(&mut said)?;
        }
        thread::sleep(after);
        if let Some(status) = self.child.try_wait()? {
            return Err(format!("the process ended by itself ({status}): {}", self.end()?).into());
        }
        self.child.kill()?;
        self.out.read_to_string(&mut said)?;
        let whole = said.rfind('\n').map_or("", |end| said.get(..end).unwrap_or_default());
        whole.lines().map(|line| Acked::parse(line).ok_or_else(|| format!("not understood: {line}").into())).collect()
    }

    /// Closes its standard input, which asks it to end, and waits; returns what it still printed.
    ///
    /// # Errors
    /// When it fails, with its last words.
    pub fn finish(mut self) -> Result<String> {
        drop(self.child.stdin.take());
        let mut said = String::new();
        self.out.read_to_string(&mut said)?;
        let words = self.end()?;
        let status = self.child.wait()?;
        if status.success() { Ok(said) } else { Err(format!("the process failed ({status}): {words}").into()) }
    }

    /// Its last words.
    fn end(&mut self) -> Result<String> {
        drop(self.child.stdin.take());
        let mut words = String::new();
        if let Some(mut err) = self.child.stderr.take() {
            err.read_to_string(&mut words)?;
        }
        Ok(words)
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The path as an argument.
///
/// # Errors
/// For one that is not UTF-8.
pub fn argument(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| "the path is not UTF-8".into())
}
