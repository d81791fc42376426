//! A store that an earlier release left is migrated and goes on where it was.
//!
//! `stores/schema-N.db` was written by the `leasehold` program of schema N and never since: a workflow that had
//! succeeded, one that had failed with an op blocked below it, and one whose process was killed while an op ran, another
//! waited in a limited queue, one for its next attempt, and one for all of them.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "what is not there fails the test, and that is the point")]

use leasehold_conformance::{Opened, World, recount};
use leasehold_core::doctor;
use leasehold_core::model::{AgentName, Json, LeaseToken, Micros, RequestId, Timestamp, WorkerName, WorkflowId, WorkflowName};
use leasehold_core::state::WorkflowStatus;
use leasehold_core::store::rows::{ClaimedOp, WorkflowPage};
use leasehold_core::store::{Clock, ManualClock, SchemaError, Store, StoreError, StoreExt, Tx, TxKind};
use leasehold_core::transitions::{
    Actor, CLOCK_TOLERANCE, ClaimCursor, ClaimRequest, End, Ended, Finish, RetryOps, RetryTarget, TransitionError, Upkeep, claim, promote,
    retry,
};
use leasehold_sqlite::{SCHEMA_VERSION, SqliteStore};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Handles that open the old file at once.
const HANDLES: usize = 5;

/// The files, by the schema that they have.
fn stores() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stores");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "db"));
    files.sort();
    files
}

fn named(world: &World, name: &str) -> WorkflowId {
    let page = WorkflowPage { name: Some(WorkflowName::new(name).unwrap()), limit: 2, ..WorkflowPage::default() };
    let found = world.read(|tx| tx.list_workflows(&page)).unwrap();
    assert_eq!(found.len(), 1, "{name}");
    found[0].id.clone()
}

/// Claims what is due. The program leaves each workflow's ops to workers that name it as their agent.
fn claimed(world: &World, agents: &[&WorkflowId]) -> Vec<ClaimedOp> {
    let request = ClaimRequest {
        token: LeaseToken::random(),
        worker: WorkerName::new("upgraded").unwrap(),
        lease: Micros::from_secs(30),
        capacity: 100,
        kinds: None,
        agents: agents.iter().map(|id| AgentName::new(id.as_str()).unwrap()).collect(),
        cursor: ClaimCursor::default(),
        suspects: true,
        repeated: false,
        tolerance: CLOCK_TOLERANCE,
    };
    let door = Upkeep { epoch: None, tolerance: CLOCK_TOLERANCE };
    let claim = |tx: &mut dyn Tx| {
        promote(tx, 100, door)?;
        claim(tx, &request)
    };
    world.store().with::<_, StoreError>(TxKind::Claim, claim).unwrap().ops
}

/// Claims and completes all there is.
fn drain(world: &World, agents: &[&WorkflowId]) {
    loop {
        let claimed = claimed(world, agents);
        if claimed.is_empty() {
            return;
        }
        let end = || End::Complete { result: Json::null(), artifacts: Vec::new(), records: Vec::new(), emitted: None };
        let batch: Vec<Finish> = claimed
            .iter()
            .map(|op| Finish {
                lease: op.lease.key,
                workflow: op.lease.workflow,
                op_id: op.op_id.clone(),
                site: op.site.clone(),
                end: end(),
            })
            .collect();
        assert!(world.finish(&batch).unwrap().iter().all(|ended| *ended == Ended::Succeeded));
    }
}

fn upgraded(old: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    std::fs::copy(old, &path).unwrap();
    // Three hours after the file was made: leases have run out, and what was to be tried again is due.
    let clock = Arc::new(ManualClock::at(Timestamp::parse("2026-11-30T20:00:00Z").unwrap()));
    let open = || SqliteStore::open(path.as_path(), Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
    // All at once, as after a deploy: one migrates, the others wait and go on.
    let mut handles: Vec<SqliteStore> = std::thread::scope(|scope| {
        let opening: Vec<_> = (0..HANDLES).map(|_| scope.spawn(open)).collect();
        opening.into_iter().map(|handle| handle.join().unwrap()).collect()
    });
    let store: Arc<dyn Store> = Arc::new(handles.pop().unwrap());
    assert_eq!(store.describe().unwrap().schema, SCHEMA_VERSION);
    let sound = || {
        let diagnosis = doctor::examine(store.as_ref(), Duration::from_secs(30)).unwrap();
        assert!(diagnosis.is_sound(), "{:?}", diagnosis.findings);
        assert_eq!((diagnosis.workflows, diagnosis.ops), (3, 9));
    };
    sound();
    let world = World::new(Opened::new(Arc::clone(&store), Arc::clone(&clock) as _));
    recount(&world).unwrap();
    let [done, failed, cut] = ["done", "failed", "cut"].map(|name| named(&world, name));
    let status = |id: &WorkflowId| world.workflow(id).unwrap().status;
    let statuses = [&done, &failed, &cut].map(status);
    assert_eq!(statuses, [WorkflowStatus::Succeeded, WorkflowStatus::Failed, WorkflowStatus::Running]);
    let results = world.all_ops(world.workflow(&done).unwrap().seq).unwrap();
    assert!(results.iter().all(|op| op.result.is_some()), "results are kept");

    assert_eq!(world.recover(100).unwrap().ops.len(), 1, "the killed process' lease");
    let call =
        RetryOps { request: RequestId::random(), actor: Actor::new("test"), workflow: failed.clone(), target: RetryTarget::AllFailed };
    store.with::<_, TransitionError>(TxKind::Client, |tx| retry(tx, &call)).unwrap();
    drain(&world, &[&done, &failed, &cut]);
    for id in [&done, &failed, &cut] {
        let ops = world.all_ops(world.workflow(id).unwrap().seq).unwrap();
        let left: Vec<_> = ops.iter().filter(|op| op.result.is_none()).map(|op| (&op.state.id, op.status, op.due_at, &op.lease)).collect();
        assert!(left.is_empty(), "{id}: {left:?}");
        assert_eq!(status(id), WorkflowStatus::Succeeded);
    }
    sound();
    recount(&world).unwrap();
    drop(handles);
}

#[test]
fn a_store_of_the_first_schema_is_migrated_and_goes_on() {
    let stores = stores();
    assert!(stores.iter().any(|path| path.ends_with("schema-1.db")));
    for old in stores {
        upgraded(&old);
    }
}

#[test]
fn an_old_store_is_not_migrated_by_who_only_opens_it() {
    for old in stores() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        std::fs::copy(&old, &path).unwrap();
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(Micros::from_secs(1).get()).unwrap()));
        let opened = SqliteStore::open_existing(path.as_path(), clock as Arc<dyn Clock>);
        let older = matches!(opened, Err(StoreError::Schema(SchemaError::Older { .. })));
        assert!(older, "an older schema is refused by name");
    }
}
