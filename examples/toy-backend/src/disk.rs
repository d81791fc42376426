//! The file: all rows, a line each, replaced as a whole at every commit.

use crate::codec::{
    ActDef, ArtifactDef, AttemptDef, BucketDef, EdgeDef, EventDef, LeaseDef, QueuedDef, RecordDef, WaitDef, WakeDef, WorkflowDef,
};
use crate::tables::{LastKeys, Op, Tables};
use crate::time::{Clock, Leader};
use leasehold_core::model::{Bucket, EventSeq, GateKey, Lane, QueuePolicy};
use leasehold_core::store::rows::{Act, Attempt, Edge, Lease, NewArtifact, NewEvent, NewRecord, OpWait, OpWake, QueuedOp, WorkflowRow};
use leasehold_core::store::{StoreError, StoreResult};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a transaction waits for its turn. A heartbeat must come through well within a lease, which is 30 s.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Between two looks whether the turn is free. Such waiting is not fair: a real backend has to do better.
const WAIT_STEP: Duration = Duration::from_millis(1);

/// What the first line says before the number of the commit; the digit is the format's version.
const HEAD: &str = "leasehold toy 1, commit ";

/// One row, of whichever table.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Last(LastKeys),
    Workflow(#[serde(with = "WorkflowDef")] WorkflowRow),
    Op(Op),
    Edge(#[serde(with = "EdgeDef")] Edge),
    Lane(Lane),
    Bucket(GateKey, #[serde(with = "BucketDef")] Bucket),
    Ready(#[serde(with = "QueuedDef")] QueuedOp),
    Delayed(#[serde(with = "QueuedDef")] QueuedOp),
    Lease(#[serde(with = "LeaseDef")] Lease),
    Wait(#[serde(with = "WaitDef")] OpWait),
    Wake(#[serde(with = "WakeDef")] OpWake),
    Attempt(#[serde(with = "AttemptDef")] Attempt),
    Artifact(#[serde(with = "ArtifactDef")] NewArtifact),
    Record(#[serde(with = "RecordDef")] NewRecord),
    Event(EventSeq, #[serde(with = "EventDef")] NewEvent),
    Act(#[serde(with = "ActDef")] Act),
    Policy(QueuePolicy),
    Clock(Clock),
    Leader(Leader),
}

/// Where the tables live.
#[derive(Debug)]
pub(crate) struct Disk {
    path: PathBuf,
}

/// The right to write, of one transaction in all processes; given back when it is dropped, also by a panic or a crash.
#[derive(Debug)]
pub(crate) struct Turn {
    _lock: File,
}

/// The tables as some commit left them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Committed {
    pub(crate) number: u64,
    pub(crate) tables: Arc<Tables>,
}

impl Disk {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for the turn. The lock is on a file of its own, because the data's file is another one after each commit.
    pub(crate) fn wait_for_turn(&self) -> StoreResult<Turn> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(self.beside("lock")).map_err(sorted)?;
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Turn { _lock: file }),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => std::thread::sleep(WAIT_STEP),
                Err(TryLockError::WouldBlock) => return Err(StoreError::Busy("another transaction does not end".into())),
                Err(TryLockError::Error(error)) => return Err(sorted(error)),
            }
        }
    }

    /// Brings `known` up to the last commit. The number stands in the file itself, so both are of the same commit.
    pub(crate) fn refresh(&self, known: &mut Committed) -> StoreResult<()> {
        let mut lines = match File::open(&self.path) {
            Ok(file) => BufReader::new(file).lines(),
            Err(error) if error.kind() == ErrorKind::NotFound && known.number == 0 => return Ok(()),
            Err(error) => return Err(sorted(error)),
        };
        let head = lines.next().transpose().map_err(sorted)?.unwrap_or_default();
        let number = head.strip_prefix(HEAD).and_then(|number| number.parse().ok());
        let number = number.ok_or_else(|| StoreError::Corrupt(format!("{head:?} is not the head of a store").into()))?;
        if number != known.number {
            let mut tables = Tables::default();
            for line in lines {
                let line = line.map_err(sorted)?;
                tables.load(serde_json::from_str(&line).map_err(|error| StoreError::Corrupt(error.into()))?);
            }
            *known = Committed { number, tables: Arc::new(tables) };
        }
        Ok(())
    }

    /// Commits: writes a new file and puts it in the old one's place. Whoever reads meets the one or the other, whole.
    pub(crate) fn save(&self, _turn: &Turn, committed: &Committed) -> StoreResult<()> {
        let new = self.beside("new");
        write_new(&new, committed).map_err(sorted)?;
        std::fs::rename(&new, &self.path).map_err(sorted)?;
        // The commit has happened, and only a crash of the machine could still undo it: its outcome is unknown.
        sync_folder(&self.path).map_err(|error| StoreError::Unavailable(error.into()))
    }

    fn beside(&self, what: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".");
        name.push(what);
        name.into()
    }
}

fn write_new(path: &Path, committed: &Committed) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    writeln!(file, "{HEAD}{}", committed.number)?;
    for line in committed.tables.lines() {
        serde_json::to_writer(&mut file, &line)?;
        file.write_all(b"\n")?;
    }
    file.into_inner()?.sync_all()
}

fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// The one place that sorts this backend's errors: by what the caller can do. Up to the rename nothing is committed.
fn sorted(error: io::Error) -> StoreError {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => StoreError::Full(error.into()),
        ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => StoreError::ReadOnly(error.into()),
        ErrorKind::InvalidData => StoreError::Corrupt(error.into()),
        _ => StoreError::Unavailable(error.into()),
    }
}

impl Tables {
    /// Every row.
    fn lines(&self) -> impl Iterator<Item = Line> {
        std::iter::once(Line::Last(self.last))
            .chain(self.workflows.values().cloned().map(Line::Workflow))
            .chain(self.ops.values().cloned().map(Line::Op))
            .chain(self.edges.values().copied().map(Line::Edge))
            .chain(self.lanes.values().cloned().map(Line::Lane))
            .chain(self.buckets.iter().map(|(gate, bucket)| Line::Bucket(*gate, *bucket)))
            .chain(self.ready.values().copied().map(Line::Ready))
            .chain(self.delayed.values().copied().map(Line::Delayed))
            .chain(self.leases.values().cloned().map(Line::Lease))
            .chain(self.waits.values().cloned().map(Line::Wait))
            .chain(self.wakes.values().cloned().map(Line::Wake))
            .chain(self.attempts.values().cloned().map(Line::Attempt))
            .chain(self.artifacts.values().cloned().map(Line::Artifact))
            .chain(self.records.values().cloned().map(Line::Record))
            .chain(self.events.iter().map(|(seq, event)| Line::Event(*seq, event.clone())))
            .chain(self.acts.iter().cloned().map(Line::Act))
            .chain(self.policies.values().cloned().map(Line::Policy))
            .chain(std::iter::once(Line::Clock(self.clock)))
            .chain(self.leader.iter().cloned().map(Line::Leader))
    }

    /// Takes a row in.
    fn load(&mut self, line: Line) {
        match line {
            Line::Last(last) => self.last = last,
            Line::Workflow(row) => drop(self.workflows.insert(row.seq, row)),
            Line::Op(op) => drop(self.ops.insert(op.row.seq, op)),
            Line::Edge(edge) => drop(self.edges.insert((edge.parent, edge.child), edge)),
            Line::Lane(lane) => drop(self.lanes.insert(lane.key, lane)),
            Line::Bucket(gate, bucket) => drop(self.buckets.insert(gate, bucket)),
            Line::Ready(queued) => drop(self.ready.insert(queued.op, queued)),
            Line::Delayed(queued) => drop(self.delayed.insert(queued.op, queued)),
            Line::Lease(lease) => drop(self.leases.insert(lease.key.op, lease)),
            Line::Wait(wait) => drop(self.waits.insert(wait.key.op, wait)),
            Line::Wake(wake) => drop(self.wakes.insert(wake.wait.key.op, wake)),
            Line::Attempt(attempt) => drop(self.attempts.insert((attempt.key.op, attempt.key.fence), attempt)),
            Line::Artifact(new) => drop(self.artifacts.insert((new.op, new.artifact.name.clone()), new)),
            Line::Record(new) => {
                let key = (new.workflow, new.record.collection.clone(), new.record.key.clone());
                self.records.insert(key, new);
            }
            Line::Event(seq, event) => drop(self.events.insert(seq, event)),
            Line::Act(act) => self.acts.push(act),
            Line::Policy(policy) => drop(self.policies.insert((policy.queue.clone(), policy.site.clone()), policy)),
            Line::Clock(clock) => self.clock = clock,
            Line::Leader(leader) => self.leader = Some(leader),
        }
    }
}
