//! A workflow as it stands, for people and programs (O3).

use crate::model::{Digest, Json, SiteName, SubjectId, Timestamp, WorkflowId, WorkflowName, WorkflowSeq};
use crate::state::WorkflowStatus;
use crate::store::rows::{UpdateCursor, WorkflowRow};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How many ops stand where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OpCounts {
    /// All of them.
    pub total: i64,
    /// Wait for dependencies.
    pub pending: i64,
    /// Held back by a failed, blocked or canceled dependency.
    pub blocked: i64,
    /// May be claimed, now or once due.
    pub ready: i64,
    /// Leased.
    pub running: i64,
    /// Wait for an instant, a signal, a person or a verdict.
    pub waiting: i64,
    /// Done.
    pub succeeded: i64,
    /// Given up.
    pub failed: i64,
    /// Stopped for ever.
    pub canceled: i64,
}

/// A workflow as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WorkflowSnapshot {
    /// Its id.
    pub id: WorkflowId,
    /// What it does.
    pub name: WorkflowName,
    /// Where it stands.
    pub status: WorkflowStatus,
    /// How many of its ops stand where.
    pub ops: OpCounts,
    /// Whether it was canceled as a whole.
    pub cancel_requested: bool,
    /// The digest of its identity.
    pub digest: Option<Digest>,
    /// What it was started with.
    pub input: Json,
    /// What people and tools attached.
    pub metadata: Json,
    /// The site of its ops that name none.
    pub site: SiteName,
    /// Whom its data is about.
    pub subject: Option<SubjectId>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When a commit last changed it; claims and heartbeats do not.
    pub updated_at: Timestamp,
    /// When it ended, if it has.
    pub finished_at: Option<Timestamp>,
    /// Its place in a list, for the page behind it.
    #[serde(skip)]
    pub seq: WorkflowSeq,
}

impl WorkflowSnapshot {
    /// What `row` says, with `running` of its open ops leased.
    pub(super) fn new(row: WorkflowRow, running: i64) -> Self {
        let counters = row.counters;
        // Both were read in one transaction, yet on a store that reads each statement anew they may be a moment apart.
        let running = running.clamp(0, counters.open);
        let ops = OpCounts {
            total: counters.total(),
            pending: counters.pending,
            blocked: counters.blocked,
            ready: counters.open - running,
            running,
            waiting: counters.waiting,
            succeeded: counters.succeeded,
            failed: counters.failed,
            canceled: counters.canceled,
        };
        Self {
            id: row.id,
            name: row.name,
            status: row.status,
            ops,
            cancel_requested: row.cancel_requested,
            digest: row.digest,
            input: row.input,
            metadata: row.metadata,
            site: row.site,
            subject: row.subject,
            created_at: row.created_at,
            updated_at: row.updated_at,
            finished_at: row.finished_at,
            seq: row.seq,
        }
    }

    /// Where to go on behind this one.
    pub(super) const fn cursor(&self) -> SnapshotCursor {
        SnapshotCursor(UpdateCursor { updated_at: self.updated_at, seq: self.seq })
    }
}

/// A place in the order of updates: opaque text for whoever keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotCursor(pub(super) UpdateCursor);

/// A text that is no [`SnapshotCursor`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a cursor; use one as it was given")]
pub struct NotACursor(String);

impl fmt::Display for SnapshotCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0.updated_at.as_micros(), self.0.seq.0)
    }
}
impl FromStr for SnapshotCursor {
    type Err = NotACursor;
    fn from_str(text: &str) -> Result<Self, NotACursor> {
        let parsed = text.split_once('.').and_then(|(at, seq)| {
            let updated_at = Timestamp::from_micros(at.parse().ok()?).ok()?;
            Some(Self(UpdateCursor { updated_at, seq: WorkflowSeq(seq.parse().ok()?) }))
        });
        parsed.ok_or_else(|| NotACursor(text.to_owned()))
    }
}
impl Serialize for SnapshotCursor {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
impl<'de> Deserialize<'de> for SnapshotCursor {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Some workflows in the order of their updates, and where to go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SnapshotPage {
    /// The workflows.
    pub snapshots: Vec<WorkflowSnapshot>,
    /// Where to go on: behind the last one, or where this page began when it is empty.
    pub cursor: Option<SnapshotCursor>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_back_and_nothing_else_does() {
        let cursor = SnapshotCursor(UpdateCursor { updated_at: Timestamp::from_micros(-5).unwrap(), seq: WorkflowSeq(7) });
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for bad in ["", "5", "a.b", "1.2.3", "99999999999999999999.1"] {
            assert!(bad.parse::<SnapshotCursor>().is_err(), "{bad}");
        }
    }
}
