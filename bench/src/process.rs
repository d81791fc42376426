//! Other processes of this program.

use crate::Failure;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A process that works on a store; killed if it is dropped before it ended.
#[derive(Debug)]
pub(crate) struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts one and waits until it has opened the store.
    pub(crate) fn new(url: &str, concurrency: usize, poll_ms: u64) -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["work", "--store", url, "--concurrency", &concurrency.to_string(), "--poll", &poll_ms.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().ok_or("a worker has no output")?);
        let mut worker = Self { child, input, output };
        worker.line()?;
        Ok(worker)
    }

    /// Lets it work.
    pub(crate) fn go(&mut self) -> Result<(), Failure> {
        let input = self.input.as_mut().ok_or("a worker has ended")?;
        Ok(input.write_all(b"go\n").and_then(|()| input.flush())?)
    }

    /// Ends it; the most memory that it had, in KiB.
    pub(crate) fn end(mut self) -> Result<u64, Failure> {
        drop(self.input.take());
        let memory = self.line()?.trim().parse()?;
        self.child.wait()?;
        Ok(memory)
    }

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err("a worker ended before it was told to".into());
        }
        Ok(line)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // One that has ended cannot be killed, and need not be.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
