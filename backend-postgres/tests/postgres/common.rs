//! A store in a schema of its own, and the little that the tests put into it.

use diesel::RunQueryDsl;
use leasehold_core::model::{
    Digest, Fence, Json, KindName, Lane, LeaseToken, Micros, OpId, OpSeq, QueueName, RequestId, RetryPolicy, SiteName, Timestamp,
    WorkerName, WorkflowId, WorkflowName, WorkflowSeq,
};
use leasehold_core::state::{Counters, StoredStatus, WorkflowStatus};
use leasehold_core::store::rows::{
    Claim, ClaimedOp, EventKind, LaneTake, NewEvent, NewOp, NewWorkflow, QueuedOp, WorkflowChange, WriteSet,
};
use leasehold_core::store::{StoreError, StoreExt, StoreResult, Tx, TxKind};
use leasehold_postgres::PostgresStore;
use leasehold_test_postgres::{DatabaseClock, TestSchema};
use std::time::{Duration, Instant};

/// 2026-01-31T09:30:00Z.
pub(crate) const START: i64 = 1_769_851_800_000_000;
pub(crate) const SECOND: i64 = 1_000_000;

pub(crate) struct World {
    pub(crate) store: PostgresStore,
    pub(crate) clock: DatabaseClock,
    pub(crate) schema: TestSchema,
}

impl World {
    pub(crate) fn new() -> Self {
        let schema = TestSchema::new().unwrap();
        let store = PostgresStore::connect(&schema.url()).unwrap();
        let clock = DatabaseClock::install(&schema, START).unwrap();
        Self { store, clock, schema }
    }

    /// A further store on the same schema, as another process would have it.
    pub(crate) fn another(&self, settings: &str) -> PostgresStore {
        PostgresStore::connect(&format!("{}&{settings}", self.schema.url())).unwrap()
    }

    pub(crate) fn workflow(&self, id: &str) -> WorkflowSeq {
        workflow(&self.store, id)
    }

    /// Puts `count` ops into one lane of `queue`, ready since the start.
    pub(crate) fn ready(&self, workflow: WorkflowSeq, queue: &str, count: usize) -> Vec<OpSeq> {
        self.store.with(TxKind::Client, |tx| ready_in(tx, workflow, queue, "k", count, 0)).unwrap()
    }

    pub(crate) fn lease(&self, queue: &str, limit: u32) -> Vec<ClaimedOp> {
        claim(&self.store, &[(queue, "k", limit)]).unwrap()
    }

    /// Waits until `count` sessions of this schema's stores wait for a lock.
    pub(crate) fn until_waiting(&self, count: i64) {
        let sql = format!(
            "SELECT count(*) AS number FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND pid IN (
                 SELECT pid FROM pg_locks WHERE locktype = 'relation' AND relation IN (
                     SELECT oid FROM pg_class WHERE relnamespace = to_regnamespace('\"{}\"')))",
            self.schema.name()
        );
        self.until(&sql, count);
    }

    /// Waits until the number that `sql` tells is `wanted`.
    pub(crate) fn until(&self, sql: &str, wanted: i64) {
        let mut conn = self.schema.connect().unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let found: leasehold_sql::rows::Number = diesel::sql_query(sql).get_result(&mut conn).unwrap();
            if found.number == Some(wanted) {
                return;
            }
            assert!(Instant::now() < deadline, "{sql} stays at {:?}, not {wanted}", found.number);
            std::thread::yield_now();
        }
    }
}

pub(crate) fn at(us: i64) -> Timestamp {
    Timestamp::from_micros(us).unwrap()
}

pub(crate) fn lane(queue: &str, kind: &str) -> Lane {
    Lane::new(SiteName::default(), QueueName::new(queue).unwrap(), KindName::new(kind).unwrap(), None)
}

pub(crate) fn new_workflow(id: &str) -> NewWorkflow {
    NewWorkflow {
        id: WorkflowId::new(id).unwrap(),
        request: RequestId::random(),
        name: WorkflowName::new("flow").unwrap(),
        digest: None,
        input: Json::null(),
        metadata: Json::null(),
        site: SiteName::default(),
        subject: None,
        created_at: at(START),
    }
}

pub(crate) fn workflow(store: &PostgresStore, id: &str) -> WorkflowSeq {
    store.with(TxKind::Client, |tx| insert_workflow(tx, id)).unwrap()
}

pub(crate) fn insert_workflow(tx: &mut dyn Tx, id: &str) -> StoreResult<WorkflowSeq> {
    let inserted = tx.insert_workflows(&[new_workflow(id)])?;
    let seq = inserted.first().unwrap_or_else(|| panic!("the id {id} is taken")).1;
    tx.write(&WriteSet { workflows: vec![change(seq)], events: vec![event(seq, id)], ..WriteSet::default() })?;
    Ok(seq)
}

pub(crate) fn change(seq: WorkflowSeq) -> WorkflowChange {
    WorkflowChange {
        seq,
        status: WorkflowStatus::Running,
        cancel_requested: false,
        counters: Counters::default(),
        finished_at: None,
        at: at(START),
    }
}

pub(crate) fn event(workflow: WorkflowSeq, detail: &str) -> NewEvent {
    NewEvent {
        at: at(START),
        kind: EventKind::WorkflowUpdated,
        workflow: Some(workflow),
        op: None,
        fence: None,
        actor: None,
        detail: Some(detail.to_owned()),
    }
}

pub(crate) fn ready_in(
    tx: &mut dyn Tx,
    workflow: WorkflowSeq,
    queue: &str,
    kind: &str,
    count: usize,
    priority: i32,
) -> StoreResult<Vec<OpSeq>> {
    tx.lock_workflows(&[workflow], leasehold_core::store::Wait::Block)?;
    let seqs = tx.reserve_ops(count)?;
    let lane = lane(queue, kind);
    let ops = seqs.iter().map(|seq| NewOp {
        seq: *seq,
        workflow,
        id: OpId::new(format!("op {}", seq.0)).unwrap(),
        parent: None,
        lane: lane.clone(),
        priority,
        input: Json::null(),
        metadata: Json::null(),
        retry: RetryPolicy::default(),
        dedup_key: None,
        time_limit: None,
        spec: Digest::of_bytes(b""),
        status: StoredStatus::Open,
        unmet: 0,
        broken: 0,
        created_at: at(START),
    });
    let ready = seqs.iter().map(|seq| QueuedOp { op: *seq, lane: lane.key, priority, due_at: at(START), fence: Fence::NONE, failures: 0 });
    tx.write(&WriteSet { lanes: vec![lane.clone()], ops: ops.collect(), ready: ready.collect(), ..WriteSet::default() })?;
    Ok(seqs)
}

pub(crate) fn claim_of(takes: &[(&str, &str, u32)]) -> Claim {
    let takes = takes.iter().map(|(queue, kind, limit)| {
        let lane = lane(queue, kind);
        LaneTake { lane: lane.key, gate: lane.gate, limit: *limit }
    });
    Claim { token: LeaseToken::random(), worker: WorkerName::new("w").unwrap(), lease: Micros::from_secs(10), takes: takes.collect() }
}

pub(crate) fn claim(store: &PostgresStore, takes: &[(&str, &str, u32)]) -> StoreResult<Vec<ClaimedOp>> {
    let claim = claim_of(takes);
    store.with(TxKind::Claim, |tx| tx.claim_ready(&claim))
}

pub(crate) fn nothing(tx: &mut dyn Tx) -> Result<(), StoreError> {
    tx.now().map(drop)
}
