//! How many ops of a workflow stand where, by queue.

use leasehold::engine::{Notice, NoticeKind};
use leasehold::model::QueueName;
use leasehold::state::OpStatus;
use leasehold::store::rows::{EventKind, OpView};
use std::collections::BTreeMap;

/// How many ops of one queue stand where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct QueueCounts {
    pub(crate) total: u64,
    pub(crate) succeeded: u64,
    /// Those that run in this process.
    pub(crate) running: u64,
    pub(crate) failed: u64,
    pub(crate) blocked: u64,
    pub(crate) canceled: u64,
}

/// Counted from the store now and then, and kept up to date between counts by what this process hears.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    queues: BTreeMap<QueueName, QueueCounts>,
}

impl Tally {
    /// The same, with what runs in this process taken from `heard`: only what is heard tells that.
    #[must_use]
    pub(crate) fn with_running_of(mut self, heard: &Self) -> Self {
        for (queue, counts) in &heard.queues {
            if counts.running > 0 {
                self.queues.entry(queue.clone()).or_default().running = counts.running;
            }
        }
        self
    }

    /// Counts one op.
    pub(crate) fn add(&mut self, op: &OpView) {
        let counts = self.queues.entry(op.queue.clone()).or_default();
        counts.total += 1;
        match op.status {
            OpStatus::Succeeded => counts.succeeded += 1,
            OpStatus::Failed => counts.failed += 1,
            OpStatus::Blocked => counts.blocked += 1,
            OpStatus::Canceled => counts.canceled += 1,
            OpStatus::Running | OpStatus::Pending | OpStatus::Ready | OpStatus::Waiting => {}
        }
    }

    /// Takes in what happened to an op that this process leased.
    pub(crate) fn hear(&mut self, notice: &Notice) {
        let Some(queue) = &notice.queue else {
            return;
        };
        let counts = self.queues.entry(queue.clone()).or_default();
        let mut ended = || counts.running = counts.running.saturating_sub(1);
        match notice.kind {
            NoticeKind::OpLeased => counts.running += 1,
            NoticeKind::Event(EventKind::OpSucceeded) => {
                ended();
                counts.succeeded += 1;
            }
            NoticeKind::Event(EventKind::OpFailed) => {
                ended();
                counts.failed += 1;
            }
            NoticeKind::Event(EventKind::OpRetried | EventKind::OpReleased | EventKind::OpWaiting) | NoticeKind::OpLeaseLost => ended(),
            _ => {}
        }
    }

    pub(crate) fn queues(&self) -> impl Iterator<Item = (&QueueName, &QueueCounts)> {
        self.queues.iter()
    }

    /// All queues together.
    pub(crate) fn sum(&self) -> QueueCounts {
        self.queues.values().fold(QueueCounts::default(), |sum, counts| QueueCounts {
            total: sum.total + counts.total,
            succeeded: sum.succeeded + counts.succeeded,
            running: sum.running + counts.running,
            failed: sum.failed + counts.failed,
            blocked: sum.blocked + counts.blocked,
            canceled: sum.canceled + counts.canceled,
        })
    }
}

impl QueueCounts {
    /// What is to be said besides how many succeeded: running always, the rest where there is any.
    pub(crate) fn rest(&self) -> String {
        let mut parts = vec![format!("{} running", self.running)];
        for (count, what) in [(self.failed, "failed"), (self.blocked, "blocked"), (self.canceled, "canceled")] {
            if count > 0 {
                parts.push(format!("{count} {what}"));
            }
        }
        parts.join(", ")
    }
}
