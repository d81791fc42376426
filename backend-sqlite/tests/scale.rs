//! What a step costs follows from its set, in statements and in work.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed unwrap is a failed test")]

use leasehold_core::model::*;
use leasehold_core::state::StoredStatus;
use leasehold_core::store::rows::*;
use leasehold_core::store::{ManualClock, StoreError, StoreExt, Tx, TxKind, Wait};
use leasehold_sqlite::SqliteStore;
use std::sync::Arc;

fn store() -> SqliteStore {
    SqliteStore::open(":memory:", Arc::new(ManualClock::at(at(1_000_000)))).unwrap()
}
fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros).unwrap()
}
fn lane() -> Lane {
    Lane::new(SiteName::default(), QueueName::default(), KindName::new("kind").unwrap(), None)
}

/// Runs `body`; returns its answer and how many statements it sent.
fn counted<T>(store: &SqliteStore, kind: TxKind, mut body: impl FnMut(&mut dyn Tx) -> Result<T, StoreError>) -> (T, u64) {
    let before = store.statements();
    let answer = store.with(kind, &mut body).unwrap();
    (answer, store.statements() - before)
}

/// A workflow of `count` ops with `edges`, given by place; returns the keys.
fn graph(store: &SqliteStore, count: usize, edges: impl Fn(&[OpSeq]) -> Vec<Edge>, status: StoredStatus) -> (WorkflowSeq, Vec<OpSeq>) {
    let new = NewWorkflow {
        id: WorkflowId::new("flow").unwrap(),
        request: RequestId::random(),
        name: WorkflowName::new("flow").unwrap(),
        digest: None,
        input: Json::null(),
        metadata: Json::null(),
        site: SiteName::default(),
        subject: None,
        created_at: at(0),
    };
    store
        .with(TxKind::Client, |tx| {
            let workflow = tx.insert_workflows(std::slice::from_ref(&new))?[0].1;
            let keys = tx.reserve_ops(count)?;
            let op = |seq: &OpSeq| NewOp {
                seq: *seq,
                workflow,
                id: OpId::new(seq.0.to_string()).unwrap(),
                parent: None,
                lane: lane(),
                priority: 0,
                input: Json::null(),
                metadata: Json::null(),
                retry: RetryPolicy::default(),
                dedup_key: None,
                time_limit: None,
                spec: Digest::of_bytes(b""),
                status,
                unmet: 1,
                broken: 0,
                created_at: at(0),
            };
            let ready = |seq: &OpSeq| QueuedOp { op: *seq, lane: lane().key, priority: 0, due_at: at(0), fence: Fence(0), failures: 0 };
            tx.write(&WriteSet {
                lanes: vec![lane()],
                ops: keys.iter().map(op).collect(),
                edges: edges(&keys),
                ready: if status == StoredStatus::Open { keys.iter().map(ready).collect() } else { Vec::new() },
                ..WriteSet::default()
            })?;
            Ok::<_, StoreError>((workflow, keys))
        })
        .unwrap()
}

#[test]
fn a_chain_of_100_000_ops_is_walked_by_one_statement() {
    const LENGTH: usize = 100_000;
    let store = store();
    let chain = |keys: &[OpSeq]| keys.windows(2).map(|pair| Edge { parent: pair[0], child: pair[1], required: true }).collect();
    let (_, keys) = graph(&store, LENGTH, chain, StoredStatus::Pending);
    let (edges, statements) = counted(&store, TxKind::Client, |tx| tx.downstream(&keys[..1], Reach::Descendants));
    assert_eq!((edges.len(), statements), (LENGTH - 1, 1));
    let (edges, statements) = counted(&store, TxKind::Client, |tx| tx.downstream(&keys, Reach::Descendants));
    assert_eq!((edges.len(), statements), (LENGTH - 1, 1), "however many it starts from, each edge comes once");
}

#[test]
fn a_lattice_with_uncountable_ways_is_walked_in_the_number_of_its_edges() {
    const LAYERS: usize = 100;
    const WIDTH: usize = 30;
    let store = store();
    let lattice = |keys: &[OpSeq]| {
        let layers: Vec<&[OpSeq]> = keys.chunks(WIDTH).collect();
        let between = layers.windows(2).flat_map(|pair| {
            pair[0].iter().flat_map(|parent| pair[1].iter().map(|child| Edge { parent: *parent, child: *child, required: true }))
        });
        between.collect()
    };
    let (_, keys) = graph(&store, LAYERS * WIDTH, lattice, StoredStatus::Pending);
    let (edges, _) = counted(&store, TxKind::Client, |tx| tx.downstream(&keys[..1], Reach::Descendants));
    // All edges but those out of the other ops of the first layer.
    assert_eq!(edges.len(), (LAYERS - 1) * WIDTH * WIDTH - (WIDTH - 1) * WIDTH);
}

#[test]
fn a_fan_in_of_10_000_is_read_once() {
    const PARENTS: usize = 10_000;
    let store = store();
    let fan = |keys: &[OpSeq]| keys[1..].iter().map(|parent| Edge { parent: *parent, child: keys[0], required: false }).collect();
    let (_, keys) = graph(&store, PARENTS + 1, fan, StoredStatus::Pending);
    let (edges, statements) = counted(&store, TxKind::Client, |tx| tx.upstream(&keys[..1]));
    assert_eq!((edges.len(), statements), (PARENTS, 1));
    let (edges, statements) = counted(&store, TxKind::Client, |tx| tx.downstream(&keys[1..], Reach::Descendants));
    assert_eq!((edges.len(), statements), (PARENTS, 1));
}

#[test]
fn a_set_of_a_thousand_costs_as_many_statements_as_a_set_of_one() {
    const OPS: usize = 1_001;
    let store = store();
    let (workflow, keys) = graph(&store, OPS, |_| Vec::new(), StoredStatus::Open);
    let mut costs = Vec::new();
    for limit in [1, 1_000] {
        let token = LeaseToken::random();
        let takes = vec![LaneTake { lane: lane().key, gate: lane().gate, limit }];
        let claim = Claim { token, worker: WorkerName::new("worker").unwrap(), lease: Micros::from_secs(9), takes };
        let (claimed, claim_cost) = counted(&store, TxKind::Claim, |tx| tx.claim_ready(&claim));
        assert_eq!(claimed.len(), limit as usize);
        let leases: Vec<LeaseKey> = claimed.iter().map(|op| op.lease.key).collect();
        let (extended, extend_cost) = counted(&store, TxKind::Heartbeat, |tx| tx.extend_leases(&leases, Micros::from_secs(9)));
        assert_eq!(extended.len(), limit as usize);
        let (moved, complete_cost) = counted(&store, TxKind::Commit, |tx| {
            tx.lock_workflows(&[workflow], Wait::Skip)?;
            let taken = tx.take_leases(&leases, Take::Live)?;
            assert_eq!(taken.leases.len(), limit as usize);
            let done = |key: &LeaseKey| OpChange {
                op: key.op,
                from: StoredStatus::Open,
                to: StoredStatus::Succeeded,
                unmet: 0,
                broken: 0,
                fence: Some(key.fence),
                failures: None,
                losses: None,
                finished_at: Some(taken.now),
            };
            tx.write(&WriteSet { changes: leases.iter().map(done).collect(), ..WriteSet::default() })
        });
        assert_eq!(moved.len(), limit as usize);
        costs.push((claim_cost, extend_cost, complete_cost));
    }
    assert_eq!(costs, [(3, 1, 3), (3, 1, 3)]);
    let ((), nothing) = counted(&store, TxKind::Client, |tx| {
        tx.write(&WriteSet::default())?;
        tx.unqueue(&[])?;
        tx.ops(&[])?;
        tx.downstream(&[], Reach::Descendants)?;
        tx.take_leases(&[], Take::Live)?;
        tx.reserve_ops(0).map(|_| ())
    });
    assert_eq!(nothing, 0, "an empty set sends nothing");
    assert_eq!(store.with(TxKind::Read, |tx| tx.ops(&keys)).unwrap().len(), OPS);
}
