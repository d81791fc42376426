//! A store that stops for ever on one side of a commit.

use leasehold_core::store::{Hints, Store, StoreInfo, StoreResult, Tx, TxKind};
use std::io::Write;
use std::sync::Arc;

/// Where to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Every statement of the transaction is done.
    BeforeCommit,
    /// The commit is acknowledged, and nobody else has heard of it.
    AfterCommit,
}

impl Side {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::BeforeCommit => "before_its_commit",
            Self::AfterCommit => "after_its_commit",
        }
    }
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        [Self::BeforeCommit, Self::AfterCommit].into_iter().find(|side| side.name() == name)
    }
}

/// Runs transactions of the store within, and stops at the boundary of the first.
#[derive(Debug)]
pub(crate) struct Boundary {
    pub(crate) inner: Arc<dyn Store>,
    pub(crate) side: Side,
}

/// What a child says when it has come there.
pub(crate) const REACHED: &str = "reached";

fn stop_for_ever() -> ! {
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{REACHED}").unwrap();
    stdout.flush().unwrap();
    loop {
        std::thread::park();
    }
}

impl Store for Boundary {
    fn transact(&self, kind: TxKind, body: &mut dyn FnMut(&mut dyn Tx) -> StoreResult<()>) -> StoreResult<()> {
        self.inner.transact(kind, &mut |tx| {
            body(tx)?;
            if self.side == Side::BeforeCommit {
                stop_for_ever();
            }
            Ok(())
        })?;
        stop_for_ever();
    }
    fn describe(&self) -> StoreResult<StoreInfo> {
        self.inner.describe()
    }
    fn try_write(&self) -> StoreResult<()> {
        self.inner.try_write()
    }
    fn hints(&self) -> Option<Arc<dyn Hints>> {
        self.inner.hints()
    }
}
