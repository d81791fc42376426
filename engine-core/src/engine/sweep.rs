//! One bounded pass over rows that time has made due, whatever they are (L7, L13, W2): what cannot be handled is isolated,
//! what others hold is left, and neither keeps the pass from the rest.

use super::recovery;
use super::session::Settings;
use crate::client::with_causes;
use crate::model::{Epoch, OpSeq, WorkflowSeq};
use crate::store::{ClockReading, StoreError, StoreExt, StoreResult, Tx, TxKind};
use crate::transitions::{BatchLimit, Notice, Pass, Upkeep, upkeep};
use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One kind of rows, such as expired leases, and what is done about them.
pub(super) trait Due {
    /// What is listed.
    type Row: Clone;
    /// What names it exactly.
    type Key: Copy + Eq + Hash + Debug;
    /// What became of it.
    type Done: Debug;

    /// What is done, for logs.
    const NAME: &'static str;

    /// Lists rows, the longest due first, without locking them.
    fn list(tx: &mut dyn Tx, limit: u32) -> StoreResult<Vec<Self::Row>>;
    /// Handles those of `rows` that still stand and that nobody holds.
    fn handle(tx: &mut dyn Tx, rows: &[Self::Row]) -> StoreResult<(Vec<Self::Done>, Vec<Notice>)>;

    fn key(row: &Self::Row) -> Self::Key;
    fn op(key: Self::Key) -> OpSeq;
    fn workflow(row: &Self::Row) -> WorkflowSeq;
    fn done(done: &Self::Done) -> Self::Key;
    /// Where this engine remembers what could not be handled.
    fn aside(settings: &Settings) -> &SetAside<Self::Key>;
}

/// What a pass did.
#[derive(Debug)]
pub(super) struct Swept<D: Due> {
    pub(super) done: Vec<D::Done>,
    /// Rows that cannot be handled, each found alone, in this pass or in one a moment ago.
    pub(super) isolated: Vec<D::Key>,
    /// The pass was full: there is more.
    pub(super) more: bool,
}

/// Rows that recent passes found that they cannot handle. They stand first in every list, so that without this they could
/// be all that is seen.
#[derive(Debug)]
pub(super) struct SetAside<K>(Mutex<HashMap<K, Instant>>);

/// How long such a row is left alone before it is tried, and told of, again.
const SET_ASIDE_FOR: Duration = Duration::from_mins(1);
/// Lists that one pass asks for where others hold what it finds, each twice as long as the one before.
const LISTS_MAX: u32 = 8;

impl<K> Default for SetAside<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Copy + Eq + Hash> SetAside<K> {
    fn lock(&self) -> MutexGuard<'_, HashMap<K, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn now(&self) -> HashSet<K> {
        let mut aside = self.lock();
        let now = Instant::now();
        aside.retain(|_, until| *until > now);
        aside.keys().copied().collect()
    }
    fn put(&self, row: K) {
        self.lock().insert(row, Instant::now() + SET_ASIDE_FOR);
    }
}

/// One pass over at most `limit` rows, under the leader's epoch or, without one, in a claim's way.
pub(super) fn sweep<D: Due>(settings: &Settings, limit: BatchLimit, epoch: Option<Epoch>) -> Result<Pass<Swept<D>>, StoreError> {
    let door = Upkeep { epoch, tolerance: settings.clock.tolerance };
    let limit = limit.get() as usize;
    let mut passed_over = D::aside(settings).now();
    let mut length = limit + passed_over.len();
    let mut listed = list::<D>(settings, length)?;
    if let Err(behind) = listed.clock.trusted(door.tolerance) {
        return Ok(Pass::ClockBehind(behind));
    }
    if recovery::spare_if_jumped(settings, listed.clock.now, listed.began)? {
        listed = list::<D>(settings, length)?;
    }
    let isolated = listed.rows.iter().map(D::key).filter(|key| passed_over.contains(key)).collect();
    let mut swept = Swept::<D> { done: Vec::new(), isolated, more: false };
    let mut held: HashSet<WorkflowSeq> = HashSet::new();
    for _ in 0..LISTS_MAX {
        let whole = listed.rows.len() < length;
        let left = limit - swept.done.len();
        let fresh = |row: &D::Row| !passed_over.contains(&D::key(row)) && !held.contains(&D::workflow(row));
        let rows: Vec<D::Row> = listed.rows.into_iter().filter(fresh).take(left).collect();
        match handle::<D>(settings, door, &rows, &mut swept)? {
            Pass::Done(()) => {}
            Pass::ClockBehind(behind) => return Ok(Pass::ClockBehind(behind)),
            Pass::NotLeader => return Ok(Pass::NotLeader),
        }
        swept.more = !whole || rows.len() == left;
        if swept.done.len() == limit || !swept.more {
            break;
        }
        // What was neither handled nor isolated is held by others, or does not stand any more.
        let settled: HashSet<D::Key> = swept.done.iter().map(D::done).chain(swept.isolated.iter().copied()).collect();
        held.extend(rows.iter().filter(|row| !settled.contains(&D::key(row))).map(D::workflow));
        passed_over.extend(rows.iter().map(D::key));
        length *= 2;
        listed = list::<D>(settings, length)?;
    }
    // What others hold is waited for, not asked for without rest.
    swept.more &= !swept.done.is_empty();
    if !swept.done.is_empty() {
        tracing::info!(
            messaging.system = "leasehold",
            messaging.operation.name = D::NAME,
            messaging.batch.message_count = swept.done.len(),
            "a pass of upkeep is done"
        );
    }
    Ok(Pass::Done(swept))
}

/// Rows that are due, and the clock by which they are.
struct Listed<R> {
    began: Instant,
    clock: ClockReading,
    rows: Vec<R>,
}

/// Read alone, by an index, so that an engine with nothing to do takes no lock.
fn list<D: Due>(settings: &Settings, length: usize) -> Result<Listed<D::Row>, StoreError> {
    let (began, length) = (Instant::now(), u32::try_from(length).unwrap_or(u32::MAX));
    let (clock, rows) = settings.store.with(TxKind::Read, |tx| Ok::<_, StoreError>((tx.clock()?, D::list(tx, length)?)))?;
    Ok(Listed { began, clock, rows })
}

/// Handles `rows` in one transaction; if the store refuses that, in halves, down to the bad row.
fn handle<D: Due>(settings: &Settings, door: Upkeep, rows: &[D::Row], swept: &mut Swept<D>) -> Result<Pass<()>, StoreError> {
    if rows.is_empty() {
        return Ok(Pass::Done(()));
    }
    let done = settings.hub.transact(
        settings.store.as_ref(),
        TxKind::Maintenance,
        |tx| upkeep(tx, door, |tx| D::handle(tx, rows)),
        |pass| match pass {
            Pass::Done((_, notices)) => std::mem::take(notices),
            Pass::ClockBehind(_) | Pass::NotLeader => Vec::new(),
        },
        |_, notice| notice,
    );
    match (done, rows) {
        (Ok(pass), _) => Ok(pass.map(|(done, _)| swept.done.extend(done))),
        (Err(StoreError::Rejected(error)), [row]) => {
            let key = D::key(row);
            tracing::error!(
                messaging.operation.name = D::NAME,
                op = D::op(key).0,
                error = with_causes(error.as_ref()),
                "an op that is due cannot be handled; the others are"
            );
            D::aside(settings).put(key);
            swept.isolated.push(key);
            Ok(Pass::Done(()))
        }
        (Err(StoreError::Rejected(_)), _) => {
            let (first, second) = rows.split_at(rows.len() / 2);
            match handle(settings, door, first, swept)? {
                Pass::Done(()) => handle(settings, door, second, swept),
                stopped => Ok(stopped),
            }
        }
        (Err(error), _) => Err(error),
    }
}
