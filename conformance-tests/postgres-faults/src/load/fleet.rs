//! Several workers, each a process.

use super::worker::{Line, WorkerConfig};
use crate::Result;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Workers that run. They end with this value, and with this process.
#[derive(Debug)]
pub struct Fleet {
    program: PathBuf,
    config: WorkerConfig,
    running: Vec<(String, Child)>,
    started: usize,
    /// What each worker, also one that is gone, printed.
    folder: TempDir,
}

impl Fleet {
    /// Starts `count` workers of `program`, each as `config` says but with a name of its own.
    ///
    /// # Errors
    /// When a process cannot be started.
    pub fn start(program: impl Into<PathBuf>, config: WorkerConfig, count: usize) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut fleet = Self { program: program.into(), config, running: Vec::with_capacity(count), started: 0, folder };
        for _ in 0..count {
            let worker = fleet.spawn()?;
            fleet.running.push(worker);
        }
        Ok(fleet)
    }

    fn spawn(&mut self) -> Result<(String, Child)> {
        self.started += 1;
        let config = WorkerConfig { name: format!("{}-{}", self.config.name, self.started), ..self.config.clone() };
        let path = self.folder.path().join(&config.name);
        let child = Command::new(&self.program)
            .arg(serde_json::to_string(&config)?)
            .stdin(Stdio::piped())
            .stdout(File::create(path.with_extension("out"))?)
            .stderr(File::create(path.with_extension("err"))?)
            .spawn()?;
        Ok((config.name, child))
    }

    /// Kills one of the workers, as a crash would, and starts another in its place.
    ///
    /// # Errors
    /// When the other cannot be started.
    pub fn replace(&mut self, which: usize) -> Result<()> {
        let new = self.spawn()?;
        let at = which % self.running.len().max(1);
        if let Some(worker) = self.running.get_mut(at) {
            let (_, mut old) = std::mem::replace(worker, new);
            old.kill()?;
            old.wait()?;
        }
        Ok(())
    }

    /// Stops one of the workers where it stands, as a suspended machine does, until [`Fleet::go_on`].
    ///
    /// # Errors
    /// When it cannot be told.
    pub fn halt(&mut self, which: usize) -> Result<()> {
        self.signal(which, "STOP")
    }

    /// Lets one that was stopped go on: whatever it had in hand, it believes in for a moment.
    ///
    /// # Errors
    /// When it cannot be told.
    pub fn go_on(&mut self, which: usize) -> Result<()> {
        self.signal(which, "CONT")
    }

    fn signal(&mut self, which: usize, signal: &str) -> Result<()> {
        let at = which % self.running.len().max(1);
        let Some((name, child)) = self.running.get(at) else { return Ok(()) };
        let sent = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status()?;
        if sent.success() { Ok(()) } else { Err(format!("worker {name} does not get the signal {signal}: {sent}").into()) }
    }

    /// Checks that no worker has ended by itself.
    ///
    /// # Errors
    /// With what it said.
    pub fn check(&mut self) -> Result<()> {
        for (name, child) in &mut self.running {
            if let Some(status) = child.try_wait()? {
                let said = fs::read_to_string(self.folder.path().join(&*name).with_extension("err")).unwrap_or_default();
                return Err(format!("worker {name} ended by itself ({status}): {said}").into());
            }
        }
        Ok(())
    }

    /// Lets every worker shut down in good order, within `within`.
    ///
    /// # Errors
    /// When one fails or takes longer.
    pub fn stop(&mut self, within: Duration) -> Result<()> {
        for (_, child) in &mut self.running {
            drop(child.stdin.take());
        }
        let deadline = Instant::now() + within;
        for (name, child) in &mut self.running {
            let status = loop {
                match child.try_wait()? {
                    Some(status) => break status,
                    None if Instant::now() > deadline => return Err(format!("worker {name} does not stop within {within:?}").into()),
                    None => thread::sleep(Duration::from_millis(20)),
                }
            };
            if !status.success() {
                let said = fs::read_to_string(self.folder.path().join(&*name).with_extension("err")).unwrap_or_default();
                return Err(format!("worker {name} failed ({status}): {said}").into());
            }
        }
        self.running.clear();
        Ok(())
    }

    /// What each worker printed, by its name. The last line of one that was killed may be cut.
    ///
    /// # Errors
    /// For a line that is not understood.
    pub fn lines(&self) -> Result<Vec<(String, Vec<Line>)>> {
        let mut all = Vec::new();
        for entry in fs::read_dir(self.folder.path())? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "out") {
                let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                all.push((name, read_lines(&path)?));
            }
        }
        Ok(all)
    }
}

fn read_lines(path: &Path) -> Result<Vec<Line>> {
    let text = fs::read_to_string(path)?;
    let whole = text.rfind('\n').map_or("", |end| text.get(..end).unwrap_or_default());
    whole.lines().map(|line| serde_json::from_str(line).map_err(|error| format!("{}: {error}: {line}", path.display()).into())).collect()
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for (_, child) in &mut self.running {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
