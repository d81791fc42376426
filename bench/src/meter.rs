//! Where a store's time goes: how many transactions of each kind, and how long they took.

use leasehold::store::{Hints, Store, StoreInfo, StoreResult, Tx, TxKind};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Passes everything on, and counts.
#[derive(Debug)]
pub(crate) struct Meter {
    inner: Arc<dyn Store>,
    seen: Mutex<BTreeMap<String, (u32, Duration)>>,
}

impl Meter {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, seen: Mutex::default() }
    }

    /// One phrase a kind.
    pub(crate) fn told(&self) -> String {
        let mut out = String::new();
        for (kind, (count, took)) in &*self.seen.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = write!(out, "{count} × {kind} of {:.2} ms; ", took.as_secs_f64() * 1e3 / f64::from(*count));
        }
        out
    }
}

impl Store for Meter {
    fn transact(&self, kind: TxKind, body: &mut dyn FnMut(&mut dyn Tx) -> StoreResult<()>) -> StoreResult<()> {
        let begun = Instant::now();
        let done = self.inner.transact(kind, body);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, took) = seen.entry(format!("{kind:?}").to_lowercase()).or_default();
        *count += 1;
        *took += begun.elapsed();
        done
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
