//! The parts of the engine that ask no database: checking a graph, canonical identities, and how a change spreads.
//!
//! ```sh
//! cargo bench -p leasehold-bench
//! ```

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark, like a test, ends where something is wrong")]

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use leasehold::client::{Op, Workflow};
use leasehold::memory::MemoryStore;
use leasehold::model::ErrorClass;
use leasehold::model::{Digest, Json, KindName, LeaseToken, Limits, Micros, OpError, OpSpec, RequestId, WorkerName};
use leasehold::store::rows::ClaimedOp;
use leasehold::store::{StoreExt, SystemClock, TxKind, Wait};
use leasehold::transitions::{
    CLOCK_TOLERANCE, ClaimCursor, ClaimRequest, CreateMode, CreateRequest, End, Finish, Plan, claim, create, finish,
};
use serde_json::json;
use std::hint::black_box;
use std::sync::Arc;

const OPS: u64 = 1_000;

/// Each op but the first few waits for two earlier ones.
fn layered() -> Workflow {
    let id = |op: u64| format!("op-{op}");
    let parents = move |op: u64| [op.checked_sub(10), op.checked_sub(11)].into_iter().flatten().map(id);
    Workflow::new("layered").ops((0..OPS).map(|op| Op::new(id(op), "nothing").after_all(parents(op))))
}

/// One op that all others wait for, in a chain.
fn chain() -> Workflow {
    let id = |op: u64| format!("op-{op}");
    Workflow::new("chain").ops((0..OPS).map(|op| Op::new(id(op), "nothing").after_all(op.checked_sub(1).map(id))))
}

fn plan(c: &mut Criterion) {
    let specs: Vec<OpSpec> = layered().build().unwrap().ops;
    let mut group = c.benchmark_group("plan");
    group.throughput(Throughput::Elements(OPS));
    group.bench_function("a graph of 1,000 ops, two edges an op", |bench| {
        bench.iter_batched(|| specs.clone(), |specs| Plan::new(specs, &Limits::default()).unwrap(), BatchSize::SmallInput);
    });
    group.finish();
}

fn identity(c: &mut Criterion) {
    let small = json!({"tenant": "acme", "day": "2026-07-01", "pages": [1, 2, 3]});
    let large = json!((0..1_000).map(|at| json!({"name": format!("item {at}"), "weight": f64::from(at) * 0.1})).collect::<Vec<_>>());
    let mut group = c.benchmark_group("canonical JSON and its digest");
    for (name, value) in [("small", &small), ("1,000 objects", &large)] {
        group.throughput(Throughput::Bytes(value.to_string().len() as u64));
        group.bench_function(name, |bench| bench.iter(|| Digest::of(black_box(value)).unwrap()));
    }
    group.finish();
}

/// A store whose first op is leased.
fn leased(workflow: Workflow) -> (MemoryStore, Vec<ClaimedOp>) {
    let store = MemoryStore::new(Arc::new(SystemClock));
    let request = [CreateRequest::new(workflow.build().unwrap(), RequestId::random(), CreateMode::Start, &Limits::default()).unwrap()];
    store.with(TxKind::Client, |tx| create(tx, &request)).unwrap();
    let request = ClaimRequest {
        token: LeaseToken::random(),
        worker: WorkerName::new("bench").unwrap(),
        lease: Micros::from_secs(600),
        capacity: 1_000,
        kinds: Some(vec![KindName::new("nothing").unwrap()]),
        agents: Vec::new(),
        cursor: ClaimCursor::default(),
        suspects: false,
        repeated: false,
        tolerance: CLOCK_TOLERANCE,
    };
    let ops = store.with(TxKind::Claim, |tx| claim(tx, &request)).unwrap().ops;
    (store, ops)
}

fn ended(ops: &[ClaimedOp], end: &End) -> Vec<Finish> {
    let finish = |op: &ClaimedOp| Finish {
        lease: op.lease.key,
        workflow: op.lease.workflow,
        op_id: op.op_id.clone(),
        site: op.site.clone(),
        end: end.clone(),
    };
    ops.iter().map(finish).collect()
}

/// Over the in-memory store, so that the spreading is all there is to it.
fn ripple(c: &mut Criterion) {
    let success = End::Complete { result: Json::null(), artifacts: Vec::new(), records: Vec::new(), emitted: None };
    let failure = End::Fail { error: OpError::new("x", "y"), class: ErrorClass::Permanent, delay: None };
    let mut group = c.benchmark_group("ripple");
    for (name, workflow, end) in
        [("a failure blocks a chain of 1,000", chain(), &failure), ("ten successes free twenty of 1,000", layered(), &success)]
    {
        group.bench_function(name, |bench| {
            bench.iter_batched(
                || {
                    let (store, ops) = leased(workflow.clone());
                    let batch = ended(&ops, end);
                    (store, batch)
                },
                |(store, batch)| store.with(TxKind::Commit, |tx| finish(tx, &batch, Wait::Block)).unwrap(),
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, plan, identity, ripple);
criterion_main!(benches);
