//! Many threads over several handles of one SQLite file, by the host's own clock; then an audit that reads only the ledger
//! and the history. Postgres has the same from many processes: `postgres-faults`.
#![expect(clippy::print_stderr, reason = "how much was audited is what a reader of the log looks for")]

use leasehold_conformance::mutants::{Mutant, MutantStore};
use leasehold_conformance::{Opened, Scenario, TestClock, World, audit, recount};
use leasehold_core::model::{ErrorClass, Json, Micros, OpError, QueueName, QueuePolicy, Timestamp};
use leasehold_core::store::rows::ClaimedOp;
use leasehold_core::store::{BoxError, Clock, Store, StoreError, SystemClock};
use leasehold_core::transitions::{End, Finish};
use leasehold_sqlite::SqliteStore;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const HANDLES: usize = 3;
const THREADS_PER_HANDLE: usize = 2;
const LIMIT: u32 = 3;

/// The host's clock, which no test moves.
struct Host;

impl TestClock for Host {
    fn now(&self) -> Timestamp {
        SystemClock.now()
    }
    fn set(&self, _to: Timestamp) -> Result<(), BoxError> {
        Err("the host's clock is not a test's to move".into())
    }
}

fn workflows() -> usize {
    if std::env::var_os("LEASEHOLD_LONG").is_some_and(|value| value == "1") { 2_000 } else { 40 }
}

fn world(path: &Path) -> Result<World, StoreError> {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(path, Arc::new(SystemClock))?);
    Ok(World::new(Opened::new(store, Arc::new(Host))))
}

/// A diamond with a tail; the middle runs in a limited queue.
fn graph() -> Scenario {
    let scenario = Scenario::new().op("start");
    let middle = (0..4).fold(scenario, |scenario, at| scenario.op(&format!("middle{at}")).queue("limited").after(&["start"]));
    middle
        .op("join")
        .after(&["middle0", "middle1", "middle2", "middle3"])
        .op("soft")
        .after_settled(&["start"])
        .op("end")
        .after(&["join", "soft"])
}

/// How the attempt with this fence ends: now and then it fails or is given back first.
fn end(op: &ClaimedOp) -> Finish {
    let end = match (op.lease.key.op.0 + op.lease.key.fence.0) % 7 {
        0 if op.lease.key.fence.0 == 1 => {
            End::Fail { error: OpError::new("flaky", "once"), class: ErrorClass::Retryable, delay: Micros::new(1).ok() }
        }
        1 if op.lease.key.fence.0 == 1 => End::Release,
        _ => End::Complete { result: Json::null(), artifacts: Vec::new(), records: Vec::new(), emitted: None },
    };
    Finish { lease: op.lease.key, workflow: op.lease.workflow, op_id: op.op_id.clone(), site: op.site.clone(), end }
}

/// Works until every op of every workflow has succeeded.
fn work(world: &World, name: &str, left: &AtomicUsize) -> Result<(), StoreError> {
    while left.load(Ordering::SeqCst) > 0 {
        let claimed = world.claim(name, 4)?;
        if claimed.is_empty() {
            std::thread::yield_now();
            continue;
        }
        let batch: Vec<Finish> = claimed.iter().map(end).collect();
        let ended = world.finish(&batch)?;
        let done = ended.iter().filter(|ended| **ended == leasehold_core::transitions::Ended::Succeeded).count();
        left.fetch_sub(done, Ordering::SeqCst);
    }
    Ok(())
}

fn run(mutant: Option<Mutant>) -> Result<leasehold_conformance::Audited, BoxError> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("store.db");
    let first = world(&path)?;
    let queue = QueueName::new("limited")?;
    let policy = QueuePolicy { max_in_flight: Some(LIMIT), ..QueuePolicy::unlimited(queue.clone()) };
    first.tx(|tx| tx.set_policies(std::slice::from_ref(&policy)))?;
    let mut ops = 0;
    for _ in 0..workflows() {
        graph().build(&first)?;
        ops += 8;
    }
    let left = AtomicUsize::new(ops);
    let handles: Vec<World> = (0..HANDLES)
        .map(|_| {
            let world = world(&path)?;
            Ok(match mutant {
                Some(mutant) => world.through(Arc::new(MutantStore::new(Arc::clone(world.store()), mutant))),
                None => world,
            })
        })
        .collect::<Result<_, StoreError>>()?;
    std::thread::scope(|scope| -> Result<(), BoxError> {
        let mut workers = Vec::new();
        for (at, world) in handles.iter().enumerate() {
            for thread in 0..THREADS_PER_HANDLE {
                let left = &left;
                workers.push(scope.spawn(move || work(world, &format!("w{at}.{thread}"), left)));
            }
        }
        for worker in workers {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok(())
    })?;
    let audited = audit(&first, &[(queue, LIMIT as usize)])?;
    recount(&first)?;
    Ok(audited)
}

#[test]
fn what_many_threads_and_handles_did_stands_up_to_an_audit() {
    let audited = run(None).unwrap();
    eprintln!("{audited:?}");
    assert_eq!(audited.ops, workflows() * 8);
}

#[test]
fn an_audit_finds_a_limit_that_was_ignored_and_a_history_that_is_not_told() {
    for mutant in [Mutant::LimitIgnored, Mutant::EventsDropped] {
        let found = run(Some(mutant));
        assert!(found.is_err(), "{mutant} stands up to the audit");
    }
}
