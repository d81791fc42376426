//! Upkeep beside transactions that hold its rows (T6, T7, L7, L10).

use crate::common::{SECOND, START, World, at};
use diesel::connection::SimpleConnection;
use leasehold_core::client::{Client, Op, Workflow};
use leasehold_core::engine::{Engine, HandlerError, OpContext};
use leasehold_core::model::{Epoch, LeaseToken, Micros, WorkerName};
use leasehold_core::store::rows::LeaseKey;
use leasehold_core::store::{Candidate, Leadership, Store, StoreExt, StoreResult, Tx, TxKind};
use leasehold_core::transitions::{BatchLimit, CLOCK_TOLERANCE, ClaimCursor, ClaimRequest, HeartbeatOutcome, claim, heartbeat};
use std::sync::Arc;
use std::thread;

const TERM: Micros = Micros::from_secs(10);

fn candidate(name: &str) -> Candidate {
    Candidate { token: LeaseToken::random(), name: WorkerName::new(name).unwrap(), term: TERM }
}

fn elect(world: &World, candidate: &Candidate) -> Leadership {
    world.store.with(TxKind::Maintenance, |tx| tx.elect(candidate)).unwrap()
}

/// Runs `step` while another session holds what `lock` locks; the clock moves on by `by` during the wait.
fn with_a_wait<T: Send>(world: &World, lock: &str, by: i64, step: impl Fn(&mut dyn Tx) -> StoreResult<T> + Sync) -> T {
    let mut holder = world.schema.connect().unwrap();
    holder.batch_execute(&format!("BEGIN; {lock}")).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| world.store.with(TxKind::Maintenance, &step).unwrap());
        world.until_waiting(1);
        world.clock.advance_us(by).unwrap();
        holder.batch_execute("COMMIT").unwrap();
        waiting.join().unwrap()
    })
}

#[test]
fn a_heartbeat_does_not_wait_for_the_clocks_row() {
    let world = World::new();
    let workflow = world.workflow("w");
    world.ready(workflow, "q", 1);
    let keys: Vec<LeaseKey> = world.lease("q", 1).iter().map(|op| op.lease.key).collect();
    let mut holder = world.schema.connect().unwrap();
    holder.batch_execute("BEGIN; SELECT id FROM clock FOR UPDATE").unwrap();
    let beat = || world.store.with(TxKind::Heartbeat, |tx| heartbeat(tx, &keys, TERM)).unwrap();
    assert!(matches!(beat().as_slice(), [HeartbeatOutcome::Held(_)]));
    let mark = || world.store.with(TxKind::Read, |tx| tx.clock()).unwrap().mark;
    assert_eq!(mark(), None, "whoever holds it raises it");
    holder.batch_execute("COMMIT").unwrap();
    beat();
    assert_eq!(mark(), Some(at(START)));
}

#[test]
fn an_election_judges_by_the_time_after_its_wait() {
    let world = World::new();
    assert_eq!(elect(&world, &candidate("first")).epoch, Epoch(1));
    world.clock.advance_us(10 * SECOND).unwrap();
    let second = candidate("second");
    let led = with_a_wait(&world, "SELECT epoch FROM maintenance FOR SHARE", 7 * SECOND, |tx| tx.elect(&second));
    assert_eq!((led.mine, led.epoch, led.ends_at), (true, Epoch(2), at(START + 27 * SECOND)));
}

#[test]
fn a_leader_whose_term_ended_while_it_waited_to_renew_gets_a_new_epoch() {
    let world = World::new();
    let first = candidate("first");
    elect(&world, &first);
    let led = with_a_wait(&world, "SELECT epoch FROM maintenance FOR SHARE", 10 * SECOND, |tx| tx.elect(&first));
    assert_eq!((led.mine, led.epoch), (true, Epoch(2)));
}

#[test]
fn a_pass_that_waited_for_an_election_finds_its_epoch_gone() {
    let world = World::new();
    elect(&world, &candidate("first"));
    assert!(!with_a_wait(&world, "UPDATE maintenance SET epoch = 2", 0, |tx| tx.hold_epoch(Epoch(1))));
    let renewed = "UPDATE maintenance SET ends_at_us = ends_at_us + 1";
    assert!(with_a_wait(&world, renewed, 0, |tx| tx.hold_epoch(Epoch(2))), "a renewal takes nothing from it");
}

/// Leases of a workflow that somebody holds are the longest expired, and as many as a pass may take.
#[tokio::test(flavor = "multi_thread")]
async fn a_recovery_looks_past_a_workflow_that_is_held() {
    let world = World::new();
    let store = Arc::new(world.another("pool_size=4")) as Arc<dyn Store>;
    let client = Client::new(Arc::clone(&store));
    let claim_and_die = || {
        let request = ClaimRequest {
            token: LeaseToken::random(),
            worker: WorkerName::new("dies").unwrap(),
            lease: TERM,
            capacity: 10,
            kinds: None,
            agents: Vec::new(),
            cursor: ClaimCursor::default(),
            suspects: true,
            repeated: false,
            tolerance: CLOCK_TOLERANCE,
        };
        store.with(TxKind::Claim, |tx| claim(tx, &request)).unwrap().ops.len()
    };
    let held = client.start(Workflow::new("held").ops((0..5).map(|n| Op::new(n.to_string(), "k")))).await.unwrap();
    assert_eq!(claim_and_die(), 5);
    world.clock.advance_us(1).unwrap();
    client.start(Workflow::new("free").op(Op::new("free", "k"))).await.unwrap();
    assert_eq!(claim_and_die(), 1);
    world.clock.advance_us(11 * SECOND).unwrap();

    let handler = async |_: OpContext, (): ()| Ok::<_, HandlerError>(());
    let engine = Engine::builder(Arc::clone(&store)).automatic(false).handler("k", handler).build().await.unwrap();
    let pass = async || -> Vec<String> {
        let done = engine.reconcile_once(BatchLimit::new(2).unwrap()).await.unwrap();
        done.recovered.into_iter().map(|op| op.op.to_string()).collect()
    };
    let mut holder = world.schema.connect().unwrap();
    holder.batch_execute(&format!("BEGIN; SELECT seq FROM workflows WHERE id = '{}' FOR UPDATE", held.id())).unwrap();
    assert_eq!(pass().await, ["free"]);
    assert_eq!(pass().await, [""; 0]);
    holder.batch_execute("COMMIT").unwrap();
    let sizes = [pass().await.len(), pass().await.len(), pass().await.len()];
    assert_eq!(sizes, [2, 2, 1], "what was left is there for the next pass");
}
