//! Every step answers on SQLite as it does on the in-memory store, the contract's executable specification.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed unwrap is a failed test")]

use leasehold_core::memory::MemoryStore;
use leasehold_core::model::*;
use leasehold_core::state::{Counters, StoredStatus, WorkflowStatus};
use leasehold_core::store::rows::*;
use leasehold_core::store::{Clock, ManualClock, Store, StoreError, StoreExt, Tx, TxKind, Wait};
use leasehold_sqlite::SqliteStore;
use std::fmt::Debug;
use std::sync::Arc;

struct Pair {
    clock: Arc<ManualClock>,
    stores: Vec<Arc<dyn Store>>,
    _folder: tempfile::TempDir,
}

impl Pair {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::at(at(1_000_000)));
        let folder = tempfile::tempdir().unwrap();
        let shared = || Arc::clone(&clock) as Arc<dyn Clock>;
        let stores: Vec<Arc<dyn Store>> = vec![
            Arc::new(MemoryStore::new(shared())),
            Arc::new(SqliteStore::open(":memory:", shared()).unwrap()),
            Arc::new(SqliteStore::open(folder.path().join("store.db").as_path(), shared()).unwrap()),
        ];
        Self { clock, stores, _folder: folder }
    }

    /// Runs `body` on every store and returns what all answered.
    fn all<T: Debug + PartialEq>(&self, kind: TxKind, mut body: impl FnMut(&mut dyn Tx) -> Result<T, StoreError>) -> T {
        let mut answers = self.stores.iter().map(|store| store.with(kind, &mut body).unwrap());
        let first = answers.next().unwrap();
        for (number, answer) in answers.enumerate() {
            assert_eq!(answer, first, "store {}", number + 1);
        }
        first
    }
    fn read<T: Debug + PartialEq>(&self, body: impl FnMut(&mut dyn Tx) -> Result<T, StoreError>) -> T {
        self.all(TxKind::Read, body)
    }
    fn change<T: Debug + PartialEq>(&self, body: impl FnMut(&mut dyn Tx) -> Result<T, StoreError>) -> T {
        self.all(TxKind::Client, body)
    }
}

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros).unwrap()
}
fn name<T: TryFrom<&'static str, Error = NameError>>(text: &'static str) -> T {
    T::try_from(text).unwrap()
}
fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}
fn lane(site: &'static str, kind: &'static str, agent: Option<&'static str>) -> Lane {
    Lane::new(name(site), name("q"), name(kind), agent.map(name))
}

fn new_workflow(id: &'static str, request: RequestId) -> NewWorkflow {
    NewWorkflow {
        id: name(id),
        request,
        name: name("flow"),
        digest: Some(Digest::of_bytes(id.as_bytes())),
        input: json(r#"{"text":"ü \"quoted\" \\ \n line", "n":9007199254740993}"#),
        metadata: json("{}"),
        site: name("eu"),
        subject: (id == "w2").then(|| name("somebody")),
        created_at: at(1_000_000),
    }
}

fn new_op(seq: OpSeq, workflow: WorkflowSeq, id: char, lane: &Lane, status: StoredStatus) -> NewOp {
    NewOp {
        seq,
        workflow,
        id: OpId::new(id.to_string()).unwrap(),
        parent: (seq.0 > 3).then_some(OpSeq(1)),
        lane: lane.clone(),
        priority: i32::try_from(seq.0 % 3).unwrap() - 1,
        input: json(r#"["input"]"#),
        metadata: Json::null(),
        retry: RetryPolicy::default().attempts(u32::try_from(seq.0).unwrap()),
        dedup_key: (seq.0 % 2 == 0).then(|| DedupKey::new(format!("key {id}")).unwrap()),
        time_limit: (seq.0 % 2 == 1).then(|| Micros::from_secs(7)),
        spec: Digest::of_bytes(id.to_string().as_bytes()),
        status,
        unmet: i32::from(status == StoredStatus::Pending),
        broken: 0,
        created_at: at(1_000_000),
    }
}

fn queued(op: &NewOp, due_at: i64) -> QueuedOp {
    QueuedOp { op: op.seq, lane: op.lane.key, priority: op.priority, due_at: at(due_at), fence: Fence(4), failures: 2 }
}

/// Two workflows; in the first `a` to `f` are open, `g` to `l` pending behind them in a ladder.
fn build(pair: &Pair) -> Vec<WorkflowSeq> {
    let requests = [RequestId::random(), RequestId::random()];
    let seqs = pair.change(|tx| {
        let inserted = tx.insert_workflows(&[new_workflow("w2", requests[1]), new_workflow("w1", requests[0])])?;
        assert!(tx.insert_workflows(&[new_workflow("w1", requests[1])])?.is_empty(), "the id is taken");
        tx.lock_workflows(&inserted.iter().map(|(_, seq)| *seq).collect::<Vec<_>>(), Wait::Block)?;
        Ok(inserted.into_iter().map(|(_, seq)| seq).collect::<Vec<_>>())
    });
    pair.change(|tx| {
        tx.lock_workflows(&seqs, Wait::Skip)?;
        let keys = tx.reserve_ops(12)?;
        let lanes = [lane("eu", "k1", None), lane("eu", "k2", None), lane("us", "k1", Some("gpu"))];
        let ops: Vec<NewOp> = keys
            .iter()
            .enumerate()
            .map(|(i, seq)| {
                let status = if i < 6 { StoredStatus::Open } else { StoredStatus::Pending };
                new_op(*seq, seqs[0], char::from(b'a' + u8::try_from(i).unwrap()), &lanes[i % 3], status)
            })
            .collect();
        let ladder = (6..12).flat_map(|child| {
            [child - 6, child - 1].map(|parent| Edge { child: keys[child], parent: keys[parent], required: (child + parent) % 5 != 0 })
        });
        let set = WriteSet {
            lanes: lanes.to_vec(),
            edges: ladder.collect(),
            ready: ops[..5].iter().map(|op| queued(op, 900_000 + op.seq.0)).collect(),
            delayed: vec![queued(&ops[5], 1_500_000)],
            events: ops.iter().map(|op| event(EventKind::WorkflowUpdated, seqs[0], Some(op.seq))).collect(),
            workflows: vec![WorkflowChange {
                seq: seqs[0],
                status: WorkflowStatus::Running,
                cancel_requested: false,
                counters: Counters { pending: 6, open: 6, ..Counters::default() },
                finished_at: None,
                at: at(1_000_000),
            }],
            ops,
            ..WriteSet::default()
        };
        tx.write(&set)
    });
    seqs
}

fn event(kind: EventKind, workflow: WorkflowSeq, op: Option<OpSeq>) -> NewEvent {
    NewEvent { at: at(1_000_000), kind, workflow: Some(workflow), op, fence: Some(Fence(5)), actor: Some("me".into()), detail: None }
}

#[test]
fn workflows_are_inserted_locked_listed_and_updated_alike() {
    let pair = Pair::new();
    let seqs = build(&pair);
    pair.read(|tx| tx.totals());
    let rows = pair.read(|tx| tx.workflows(&[name("w1"), name("absent"), name("w2")]));
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0].input.as_str(), r#"{"text":"ü \"quoted\" \\ \n line", "n":9007199254740993}"#);
    pair.change(|tx| tx.lock_workflows(&[seqs[1], WorkflowSeq(99), seqs[0], seqs[1]], Wait::Block));
    for page in [
        WorkflowPage { limit: 10, ..WorkflowPage::default() },
        WorkflowPage { limit: 1, ..WorkflowPage::default() },
        WorkflowPage { limit: 10, name: Some(name("flow")), ..WorkflowPage::default() },
        WorkflowPage { limit: 10, subject: Some(name("somebody")), ..WorkflowPage::default() },
        WorkflowPage { limit: 10, site: Some(name("us")), ..WorkflowPage::default() },
        WorkflowPage { limit: 10, status: Some(WorkflowStatus::Running), before: Some(seqs[1]), ..WorkflowPage::default() },
        WorkflowPage { limit: 10, created_from: Some(at(1_000_000)), created_before: Some(at(1_000_000)), ..WorkflowPage::default() },
    ] {
        pair.read(|tx| tx.list_workflows(&page));
    }
    let change = |seq, at| WorkflowChange {
        seq,
        status: WorkflowStatus::Failed,
        cancel_requested: true,
        counters: Counters { blocked: 1, failed: 2, canceled: 3, waiting: 4, succeeded: 5, open: 6, pending: 7 },
        finished_at: Some(at),
        at,
    };
    // A commit at an earlier instant is still a later update, and one transaction's updates share an instant.
    let back = pair.change(|tx| {
        tx.lock_workflows(&seqs, Wait::Block)?;
        tx.write(&WriteSet { workflows: vec![change(seqs[1], at(5)), change(seqs[0], at(5))], ..WriteSet::default() })?;
        tx.workflows_since(None, 10)
    });
    assert_eq!(back[0].updated_at, back[1].updated_at);
    let cursor = UpdateCursor { updated_at: back[0].updated_at, seq: back[0].seq };
    assert_eq!(pair.read(|tx| tx.workflows_since(Some(cursor), 10)).len(), 1);
}

#[test]
fn ops_and_edges_are_read_alike() {
    let pair = Pair::new();
    let seqs = build(&pair);
    let ops: Vec<OpSeq> = (1..=12).map(OpSeq).collect();
    assert_eq!(pair.read(|tx| tx.ops(&[OpSeq(3), OpSeq(99), OpSeq(1), OpSeq(3)])).len(), 2);
    let ids = [(seqs[0], name("c")), (seqs[0], name("a")), (seqs[1], name("a")), (seqs[0], name("c"))];
    assert_eq!(pair.read(|tx| tx.ops_by_id(&ids)).len(), 2);
    let keys = [(seqs[0], name("key d")), (seqs[0], name("key b")), (seqs[1], name("key b"))];
    assert_eq!(pair.read(|tx| tx.ops_by_dedup_key(&keys)).len(), 2);
    assert_eq!(pair.read(|tx| tx.ops_with_status(seqs[0], &[StoredStatus::Pending, StoredStatus::Failed])).len(), 6);
    for from in [&ops[..1], &ops[..6], &ops[5..8], &ops[11..], &[OpSeq(1), OpSeq(1)], &[]] {
        for reach in [Reach::Children, Reach::Descendants] {
            pair.read(|tx| {
                let mut edges = tx.downstream(from, reach)?;
                edges.sort_by_key(|edge| (edge.parent, edge.child.seq));
                Ok(edges)
            });
        }
        pair.read(|tx| tx.upstream(from));
    }
    for page in [
        OpPage { status: None, after: None, limit: 5 },
        OpPage { status: Some(StoredStatus::Pending), after: Some(OpSeq(7)), limit: 3 },
        OpPage { status: None, after: Some(OpSeq(12)), limit: 5 },
    ] {
        pair.read(|tx| tx.list_ops(seqs[0], &page));
    }
    pair.read(|tx| tx.op_views(&[OpSeq(6), OpSeq(99), OpSeq(1)]));
    pair.read(|tx| tx.events_since(None, None, 7));
    pair.read(|tx| tx.events_since(Some(EventSeq(7)), Some(seqs[0]), 70));
    pair.read(|tx| tx.events_since(None, Some(seqs[1]), 70));
}

#[test]
fn guarded_changes_apply_alike() {
    let pair = Pair::new();
    let seqs = build(&pair);
    let change = |op, from, fence: Option<i64>| OpChange {
        op: OpSeq(op),
        from,
        to: StoredStatus::Succeeded,
        unmet: 3,
        broken: -1,
        fence: fence.map(Fence),
        failures: fence.map(|_| 9),
        losses: None,
        finished_at: fence.map(at),
    };
    let moved = pair.change(|tx| {
        tx.lock_workflows(&seqs, Wait::Block)?;
        let changes = vec![
            change(3, StoredStatus::Open, None),
            change(1, StoredStatus::Open, Some(7)),
            change(2, StoredStatus::Pending, Some(7)),
            change(99, StoredStatus::Open, Some(7)),
        ];
        let mut moved = tx.write(&WriteSet { changes, ..WriteSet::default() })?;
        moved.sort_unstable();
        Ok(moved)
    });
    assert_eq!(moved, [OpSeq(1), OpSeq(3)]);
    pair.read(|tx| tx.list_ops(seqs[0], &OpPage { status: None, after: None, limit: 50 }));
    pair.change(|tx| tx.unqueue(&[OpSeq(1), OpSeq(6), OpSeq(99)]));
    pair.read(|tx| tx.list_ops(seqs[0], &OpPage { status: None, after: None, limit: 50 }));
}

#[test]
fn lanes_gates_and_claims_agree() {
    let pair = Pair::new();
    build(&pair);
    let eu = gate_key(&name("eu"), &name("q"));
    let us = gate_key(&name("us"), &name("q"));
    let scan = |after, kinds: Option<Vec<&'static str>>, agents: Vec<&'static str>, limit| LaneScan {
        after,
        kinds: kinds.map(|kinds| kinds.into_iter().map(name).collect()),
        agents: agents.into_iter().map(name).collect(),
        limit,
    };
    let lanes = pair.read(|tx| tx.open_lanes(&scan(None, None, vec!["gpu"], 10))).lanes;
    assert_eq!(lanes.len(), 3);
    assert_eq!(pair.read(|tx| tx.open_lanes(&scan(None, Some(vec!["k1"]), vec![], 10))).lanes.len(), 1);
    assert_eq!(pair.read(|tx| tx.open_lanes(&scan(None, Some(vec![]), vec!["gpu"], 10))).lanes.len(), 0);
    assert_eq!(pair.read(|tx| tx.open_lanes(&scan(Some(lanes[0].lane.key), None, vec!["gpu"], 1))).lanes.len(), 1);
    pair.change(|tx| {
        tx.set_policies(&[
            QueuePolicy { site: None, queue: name("q"), max_in_flight: Some(3), rate: None },
            QueuePolicy {
                site: Some(name("eu")),
                queue: name("q"),
                max_in_flight: Some(2),
                rate: Some(RateLimit { per_second: 0.1, burst: 4 }),
            },
        ])
    });
    pair.change(|tx| {
        let locked = tx.lock_gates(&[us, eu, GateKey(12345)])?;
        tx.set_buckets(&[(eu, Bucket { micro_tokens: 17, counted_at: at(999) })])?;
        Ok((locked, tx.lock_gates(&[eu])?))
    });
    // Both lanes of one gate, its limit over both together; the other gate's lane by itself.
    let token = LeaseToken::random();
    let take = |lane: &Lane, limit| LaneTake { lane: lane.key, gate: lane.gate, limit };
    let claim = Claim {
        token,
        worker: name("worker"),
        lease: Micros::from_secs(30),
        takes: vec![take(&lane("eu", "k2", None), 2), take(&lane("eu", "k1", None), 2), take(&lane("us", "k1", Some("gpu")), 7)],
    };
    let by_op = |mut ops: Vec<ClaimedOp>| {
        ops.sort_by_key(|op| op.lease.key.op);
        ops
    };
    let claimed = pair.all(TxKind::Claim, |tx| tx.claim_ready(&claim).map(by_op));
    assert_eq!(claimed.len(), 3, "two of the gate that has four, and the one of the other");
    pair.read(|tx| tx.claimed_by(token).map(by_op));
    pair.read(|tx| tx.claimed_by(LeaseToken::random()).map(by_op));
    pair.read(|tx| tx.open_lanes(&scan(None, None, vec!["gpu"], 10)));
    pair.read(|tx| tx.queue_statuses());
    pair.read(|tx| tx.policies());
    pair.read(|tx| tx.running_counts(&[WorkflowSeq(2), WorkflowSeq(1)]));
    pair.read(|tx| tx.op_views(&(1..=12).map(OpSeq).collect::<Vec<_>>()));
    pair.read(|tx| tx.totals());
    // What is due later comes at its instant, and not before.
    assert_eq!(pair.all(TxKind::Claim, |tx| tx.promote(10)), 0);
    pair.clock.set(at(1_499_999));
    assert_eq!(pair.all(TxKind::Claim, |tx| tx.promote(10)), 0);
    pair.clock.set(at(1_500_000));
    pair.read(|tx| tx.queue_statuses());
    assert_eq!(pair.all(TxKind::Claim, |tx| tx.promote(0)), 0);
    assert_eq!(pair.all(TxKind::Claim, |tx| tx.promote(10)), 1);
    pair.read(|tx| tx.queue_statuses());
}

#[test]
fn leases_are_judged_alike_at_every_edge() {
    let pair = Pair::new();
    let seqs = build(&pair);
    let token = LeaseToken::random();
    let take = |lane: &Lane| LaneTake { lane: lane.key, gate: lane.gate, limit: 10 };
    let takes = vec![take(&lane("eu", "k2", None)), take(&lane("eu", "k1", None)), take(&lane("us", "k1", Some("gpu")))];
    let claim = Claim { token, worker: name("worker"), lease: Micros::from_secs(30), takes };
    let keys: Vec<LeaseKey> = pair.all(TxKind::Claim, |tx| {
        let mut keys: Vec<LeaseKey> = tx.claim_ready(&claim)?.into_iter().map(|op| op.lease.key).collect();
        keys.sort_unstable();
        Ok(keys)
    });
    assert_eq!(keys.len(), 5);
    let by_op = |mut leases: Vec<Lease>| {
        leases.sort_by_key(|lease| lease.key);
        leases
    };
    let wrong = [
        LeaseKey { token: LeaseToken::random(), ..keys[0] },
        LeaseKey { fence: Fence(99), ..keys[0] },
        LeaseKey { op: OpSeq(99), ..keys[0] },
    ];
    let all: Vec<LeaseKey> = keys.iter().chain(&wrong).copied().collect();
    for instant in [999_999, 1_000_000, 30_999_999, 31_000_000, 31_000_001] {
        pair.clock.set(at(instant));
        pair.read(|tx| tx.expired_leases(3));
        let mut tries = Vec::new();
        for take in [Take::Live, Take::Expired] {
            let outcome = pair.stores.iter().map(|store| {
                let mut seen = None;
                let ended = store.transact(TxKind::Commit, &mut |tx| {
                    let mut taken = tx.take_leases(&all, take)?;
                    taken.leases = by_op(taken.leases);
                    seen = Some(taken);
                    Err(StoreError::RolledBack)
                });
                assert!(matches!(ended, Err(StoreError::RolledBack)));
                seen.unwrap()
            });
            let outcome: Vec<Taken> = outcome.collect();
            assert!(outcome.windows(2).all(|pair| pair[0] == pair[1]), "{instant}: {outcome:?}");
            tries.push(outcome[0].leases.len());
        }
        let live = usize::from((1_000_000..31_000_000).contains(&instant)) * 5;
        let expired = usize::from(instant >= 31_000_000) * 5;
        assert_eq!(tries, [live, expired], "{instant}");
    }
    pair.clock.set(at(2_000_000));
    let extended = pair.all(TxKind::Heartbeat, |tx| tx.extend_leases(&all[1..], Micros::from_secs(60)).map(by_op));
    assert_eq!(extended.len(), 4);
    assert_eq!(extended[0].expires_at, at(62_000_000));
    let shorter = pair.all(TxKind::Heartbeat, |tx| tx.extend_leases(&all[1..2], Micros::from_secs(1)).map(by_op));
    assert_eq!(shorter[0].expires_at, at(62_000_000), "an expiry never moves back");
    pair.clock.set(at(31_000_000));
    let taken = pair.all(TxKind::Maintenance, |tx| tx.take_leases(&all, Take::Expired).map(|taken| by_op(taken.leases)));
    assert_eq!(taken.len(), 1, "the one that was not extended");
    assert_eq!(pair.read(|tx| tx.leases_of(&[OpSeq(99), OpSeq(3), OpSeq(2), OpSeq(3)])).len(), 2);
    let cleared = pair.change(|tx| {
        tx.lock_workflows(&seqs, Wait::Block)?;
        tx.clear_hot(&seqs).map(by_op)
    });
    assert_eq!(cleared.len(), 4);
    pair.read(|tx| tx.queue_statuses());
}

#[test]
fn the_ledger_and_what_commits_bring_agree() {
    let pair = Pair::new();
    let seqs = build(&pair);
    let token = LeaseToken::random();
    let attempt = |op, fence, outcome, result: Option<&str>, error: Option<OpError>| Attempt {
        key: LeaseKey { op: OpSeq(op), token, fence: Fence(fence) },
        workflow: seqs[0],
        worker: name("worker"),
        acquired_at: at(1),
        ended_at: at(2),
        outcome,
        result: result.map(json),
        error,
    };
    let artifact = |op, text: &'static str, content: &[u8], fence| NewArtifact {
        op: OpSeq(op),
        workflow: seqs[0],
        fence: Fence(fence),
        artifact: Artifact {
            name: name(text),
            kind: ArtifactKind::Binary,
            content_type: "application/octet-stream".into(),
            metadata: json("[1]"),
            content: content.to_vec(),
        },
        sha256: Digest::of_bytes(content),
        at: at(3),
    };
    let record = |key: &'static str, value: &str| NewRecord {
        workflow: seqs[0],
        op: OpSeq(1),
        record: Record { collection: name("pages"), key: name(key), value: json(value) },
        at: at(3),
    };
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let act = Act { request: RequestId::random(), question: "cancel".into(), answer: json("1"), actor: "me".into(), at: at(9) };
    let failed = OpError { code: "timed_out".into(), message: "took \"too\" long".into(), details: json("{\"a\":[]}") };
    pair.change(|tx| {
        tx.lock_workflows(&seqs, Wait::Block)?;
        tx.write(&WriteSet {
            changes: [1, 2]
                .map(|op| OpChange {
                    op: OpSeq(op),
                    from: StoredStatus::Open,
                    to: StoredStatus::Succeeded,
                    unmet: 0,
                    broken: 0,
                    fence: Some(Fence(2)),
                    failures: None,
                    losses: Some(1),
                    finished_at: Some(at(2)),
                })
                .to_vec(),
            attempts: vec![
                attempt(1, 2, AttemptOutcome::Succeeded, Some("{\"done\": true}"), None),
                attempt(1, 1, AttemptOutcome::Retried, None, Some(failed.clone())),
                attempt(2, 1, AttemptOutcome::Succeeded, Some("1"), None),
                attempt(2, 2, AttemptOutcome::Succeeded, Some("2"), None),
                attempt(3, 1, AttemptOutcome::Failed, None, Some(failed.clone())),
                attempt(4, 1, AttemptOutcome::Released, None, None),
            ],
            artifacts: vec![artifact(2, "b", &[], 1), artifact(1, "z", &bytes, 1), artifact(1, "a", b"text", 1)],
            records: vec![record("b", "2"), record("a", "1")],
            events: vec![event(EventKind::OpSucceeded, seqs[1], None), event(EventKind::OpFailed, seqs[0], Some(OpSeq(1)))],
            act: Some(act.clone()),
            ..WriteSet::default()
        })
    });
    pair.change(|tx| {
        tx.lock_workflows(&seqs, Wait::Block)?;
        let set = WriteSet { artifacts: vec![artifact(1, "a", b"later", 2)], records: vec![record("a", "3")], ..WriteSet::default() };
        tx.write(&set)
    });
    let ops: Vec<OpSeq> = (1..=5).map(OpSeq).collect();
    assert_eq!(pair.read(|tx| tx.results(&ops)).len(), 2);
    pair.read(|tx| tx.op_views(&ops));
    pair.read(|tx| tx.attempts(OpSeq(1), Fence(0), 10));
    pair.read(|tx| tx.attempts(OpSeq(1), Fence(1), 10));
    let keys = [LeaseKey { op: OpSeq(1), token, fence: Fence(2) }, LeaseKey { op: OpSeq(1), token: LeaseToken::random(), fence: Fence(1) }];
    assert_eq!(pair.read(|tx| tx.attempts_by_lease(&keys)).len(), 1);
    assert_eq!(pair.read(|tx| tx.artifacts(seqs[0], None, None, 10)).len(), 3);
    assert_eq!(pair.read(|tx| tx.artifacts(seqs[0], Some(OpSeq(1)), Some((OpSeq(1), name("a"))), 10)).len(), 1);
    assert_eq!(pair.read(|tx| tx.artifacts(seqs[0], None, Some((OpSeq(1), name("z"))), 10)).len(), 1);
    assert_eq!(pair.read(|tx| tx.artifact_content(OpSeq(1), &name("z"))), Some(bytes.clone()));
    assert_eq!(pair.read(|tx| tx.artifact_content(OpSeq(1), &name("a"))), Some(b"later".to_vec()));
    assert_eq!(pair.read(|tx| tx.artifact_content(OpSeq(2), &name("b"))), Some(Vec::new()));
    assert_eq!(pair.read(|tx| tx.artifact_content(OpSeq(2), &name("c"))), None);
    assert_eq!(pair.read(|tx| tx.records(seqs[0], &name("pages"), None, 10)).len(), 2);
    assert_eq!(pair.read(|tx| tx.records(seqs[0], &name("pages"), Some(&name("a")), 10)).len(), 1);
    assert_eq!(pair.read(|tx| tx.act(act.request)), Some(act.clone()));
    assert_eq!(pair.read(|tx| tx.act(RequestId::random())), None);
    pair.read(|tx| tx.events_since(None, None, 100));
    // A key that is taken rejects the whole transaction, on every store.
    for store in &pair.stores {
        let again = WriteSet { act: Some(act.clone()), events: vec![event(EventKind::OpFailed, seqs[0], None)], ..WriteSet::default() };
        let outcome = store.with(TxKind::Client, |tx| tx.write(&again));
        assert!(matches!(outcome, Err(StoreError::Rejected(_))), "{outcome:?}");
        let outcome = store.with(TxKind::Read, |tx| tx.promote(1));
        assert!(matches!(outcome, Err(StoreError::ReadOnly(_))), "{outcome:?}");
    }
    pair.read(|tx| tx.events_since(None, None, 100));
}

#[test]
fn a_rate_comes_back_as_the_very_same_double() {
    let pair = Pair::new();
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    let rates: Vec<f64> = (0..2_000)
        .map(|_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            f64::from_bits(seed >> 1)
        })
        .filter(|rate| rate.is_finite() && *rate > 0.0)
        .chain([0.1, 1.0 / 3.0, f64::MIN_POSITIVE, f64::MAX, 1e22, 123_456_789.123_456_79])
        .collect();
    let policies: Vec<QueuePolicy> = rates
        .iter()
        .enumerate()
        .map(|(i, rate)| QueuePolicy {
            site: None,
            queue: QueueName::new(format!("{i:05}")).unwrap(),
            max_in_flight: None,
            rate: Some(RateLimit { per_second: *rate, burst: 1 }),
        })
        .collect();
    pair.change(|tx| tx.set_policies(&policies));
    pair.read(|tx| tx.policies());
}
