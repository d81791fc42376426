//! A folder of its own for each test, and the real program in it.

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Nothing here takes longer, however busy the machine is.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// A folder in which the program runs, with its default store.
#[derive(Debug)]
pub(crate) struct Sandbox {
    folder: tempfile::TempDir,
    /// Where the program has its temporary files.
    temporary: tempfile::TempDir,
}

/// How a run of the program ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), temporary: tempfile::tempdir().unwrap() }
    }

    /// A folder with `text` as `w.toml`.
    pub(crate) fn with(text: &str) -> Self {
        let sandbox = Self::new();
        sandbox.write("w.toml", text);
        sandbox
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }
    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }
    pub(crate) fn has(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command.args(arguments).current_dir(self.folder.path()).stdin(Stdio::null());
        for proxy in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
            command.env_remove(proxy);
        }
        command.env_remove("LEASEHOLD_LOG").env("TMPDIR", self.temporary.path());
        command
    }

    /// Runs the program to its end.
    pub(crate) fn leasehold(&self, arguments: &[&str]) -> Done {
        Done::of(self.command(arguments).output().unwrap())
    }

    /// Begins to run it.
    pub(crate) fn spawn(&self, arguments: &[&str]) -> Running {
        let child = self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Running { child: Some(child) }
    }

    /// Runs `w.toml`.
    pub(crate) fn run(&self) -> Done {
        self.leasehold(&["run", "w.toml"])
    }

    /// What `show --json --op OP` says of an op of the only workflow called "w".
    pub(crate) fn op(&self, op: &str) -> Value {
        self.leasehold(&["show", "w", "--op", op, "--json"]).ok().json()
    }

    /// How many temporary folders of the program are there.
    pub(crate) fn temporary_folders(&self) -> usize {
        std::fs::read_dir(self.temporary.path()).unwrap().count()
    }

    /// Waits until the file `name` is there and says something: a shell makes it before it writes.
    pub(crate) fn until_file(&self, name: &str) {
        until(&format!("waiting for the file {name}"), || std::fs::metadata(self.path(name)).is_ok_and(|file| file.len() > 0));
    }
}

/// Waits until `what` holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// The program while it runs; killed if the test ends first.
#[derive(Debug)]
pub(crate) struct Running {
    child: Option<Child>,
}

impl Running {
    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.as_ref().unwrap().id()).unwrap()
    }
    /// Sends it a signal, by name.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.pid().to_string()]).status().unwrap();
        assert!(status.success());
    }
    pub(crate) fn end(mut self) -> Done {
        Done::of(self.child.take().unwrap().wait_with_output().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Done {
    fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Asserts its exit code.
    #[track_caller]
    pub(crate) fn code(self, expected: i32) -> Self {
        assert_eq!(self.code, Some(expected), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        self.code(0)
    }
    /// Asserts what it says on standard error.
    #[track_caller]
    pub(crate) fn says(self, text: &str) -> Self {
        assert!(self.stderr.contains(text), "not said: {text}\nstderr:\n{}", self.stderr);
        self
    }
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }
    /// The lines of `run --json`.
    pub(crate) fn events(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
    }
}

/// Whether the process `pid` runs. One that has ended and was not waited for yet does not.
pub(crate) fn runs(pid: &str) -> bool {
    let pid: u32 = pid.trim().parse().unwrap();
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    stat.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with('Z'))
}
