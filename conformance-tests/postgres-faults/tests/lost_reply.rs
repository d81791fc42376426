//! The answer to a COMMIT is lost on its way (L12): the same call again gets the first answer, and nothing happens twice.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use leasehold_core::client::{Op, Workflow};
use leasehold_core::engine::{Engine, HandlerError, OpContext};
use leasehold_core::model::{Micros, RequestId};
use leasehold_core::state::WorkflowStatus;
use leasehold_core::store::{Store, StoreError};
use leasehold_core::transitions::{CancelWorkflow, ClaimRequest, CreateOutcome, Ended, HeartbeatOutcome, TransitionError};
use leasehold_postgres::PostgresStore;
use leasehold_test_faults::audit::{Summary, audit};
use leasehold_test_faults::hand::{Hand, creation, failure, success};
use leasehold_test_faults::proxy::{Mode, Proxy};
use leasehold_test_postgres::TestSchema;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

/// A store behind a proxy, and beside it.
struct Line {
    proxy: Proxy,
    behind: Hand,
    beside: Hand,
    // Dropped last: it takes the schema away.
    schema: TestSchema,
}

impl Line {
    fn new() -> Self {
        let schema = TestSchema::new().unwrap();
        let proxy = Proxy::start(&schema.url()).unwrap();
        let beside = Hand::connect(&schema.url(), "beside").unwrap();
        Self { behind: Hand::connect(proxy.url(), "behind").unwrap(), proxy, beside, schema }
    }

    fn audit(&self) -> Summary {
        audit(&mut self.schema.connect().unwrap(), &[]).unwrap()
    }

    /// Cuts at the COMMIT of a transaction that runs a statement with `containing` in it.
    fn lose<T: std::fmt::Debug>(&self, containing: &str, call: impl FnOnce() -> Result<T, StoreError>) {
        let before = self.proxy.cuts();
        self.proxy.cut_next_commit(containing);
        let answer = call();
        assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
        assert_eq!(self.proxy.cuts(), before + 1);
    }
}

fn stored<T>(answer: Result<T, TransitionError>) -> Result<T, StoreError> {
    answer.map_err(|error| match error {
        TransitionError::Store(error) => error,
        other => panic!("{other}"),
    })
}

fn chain() -> Workflow {
    Workflow::new("chain").op(Op::new("a", "k")).op(Op::new("b", "k").after("a"))
}

#[test]
fn a_claim_takes_its_own_leases_back_at_once_and_no_attempt_is_spent() {
    let line = Line::new();
    line.beside.create([chain(), chain(), chain()]).unwrap();
    let request = line.behind.claim_request(2);
    line.lose("INSERT INTO leases", || line.behind.claim_with(&request));
    assert_eq!(line.beside.claim(10).unwrap().len(), 1, "the two are leased, to the one who does not know it yet");

    let again = ClaimRequest { repeated: true, ..request };
    let ops = line.behind.claim_with(&again).unwrap().ops;
    assert_eq!(ops.len(), 2);
    for op in &ops {
        assert_eq!((op.lease.key.fence.0, op.lease.key.token), (1, again.token));
        assert_eq!(line.behind.finish(success(op)).unwrap(), Ended::Succeeded);
    }
    let Summary { attempts, abandoned, leases, .. } = line.audit();
    assert_eq!((attempts, abandoned, leases), (2, 0, 1));
}

#[test]
fn every_other_verb_gets_its_first_answer() {
    let line = Line::new();
    let hand = &line.behind;
    let request = creation(chain().build().unwrap()).unwrap();
    line.lose("INSERT INTO workflows", || stored(hand.create_with(&request)));
    assert_eq!(hand.create_with(&request).unwrap(), CreateOutcome::Created);
    let id = request.id().clone();

    let a = hand.claim(1).unwrap().pop().unwrap();
    line.lose("UPDATE leases", || hand.heartbeat(a.lease.key, Micros::from_secs(8 * 3600)));
    let HeartbeatOutcome::Held(renewed) = hand.heartbeat(a.lease.key, Micros::from_secs(1)).unwrap() else { panic!("it holds") };
    assert!(renewed.expires_at > a.lease.expires_at, "the lost one counts, and nothing shortens it");
    line.lose("DELETE FROM leases", || hand.finish(failure(&a)));
    assert!(matches!(hand.finish(failure(&a)).unwrap(), Ended::Failed { .. }));
    assert_eq!(hand.finish(success(&a)).unwrap(), Ended::LeaseLost, "another end is not what it made");

    let retry = hand.retrying(&id, "a");
    line.lose("INSERT INTO acts", || stored(hand.retry_with(&retry)));
    assert_eq!(hand.retry_with(&retry).unwrap().len(), 1);
    let a = hand.claim(1).unwrap().pop().unwrap();
    line.lose("DELETE FROM leases", || hand.finish(success(&a)));
    assert_eq!(hand.finish(success(&a)).unwrap(), Ended::Succeeded);

    let add = hand.adding(&id, vec![Op::new("c", "k").after("b").build().unwrap()]).unwrap();
    line.lose("INSERT INTO acts", || stored(hand.add_with(&add)));
    assert!(hand.add_with(&add).unwrap().iter().all(|op| op.created));
    let cancel = CancelWorkflow { request: RequestId::random(), actor: hand.actor(), workflow: id };
    line.lose("INSERT INTO acts", || stored(hand.cancel_with(&cancel)));
    assert_eq!(hand.cancel_with(&cancel).unwrap().ops, 2);
    let Summary { workflows, ops, attempts, .. } = line.audit();
    assert_eq!((workflows, ops, attempts), (1, 3, 2));
}

async fn echo(ctx: OpContext, _input: ()) -> Result<i64, HandlerError> {
    Ok(ctx.attempt())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_goes_on_with_what_it_had_claimed() {
    let line = Line::new();
    let store: Arc<dyn Store> = Arc::clone(line.behind.store()) as Arc<dyn Store>;
    // Leases that outlast the test: nothing of it may rest on waiting for one.
    let engine = Engine::builder(store).lease(Duration::from_mins(10)).handler("k", echo).build().await.unwrap();
    let flow = engine.client().start(chain()).await.unwrap();
    let start = Instant::now();
    line.proxy.cut_next_commit("INSERT INTO leases");
    let running = engine.start().unwrap();
    assert!(line.proxy.wait_for_cuts(1, PATIENCE));
    // The answer to a completion is lost as well.
    line.proxy.cut_next_commit("DELETE FROM leases");
    let ended = tokio::time::timeout(PATIENCE, flow.wait()).await.unwrap().unwrap();
    assert_eq!(ended.status, WorkflowStatus::Succeeded);
    assert!(line.proxy.cuts() == 2 && start.elapsed() < PATIENCE);
    assert_eq!((flow.result::<i64>("a").await.unwrap(), flow.result::<i64>("b").await.unwrap()), (1, 1));
    let report = running.shutdown().await.unwrap();
    assert_eq!((report.succeeded, report.lost, report.unsaved), (2, 0, 0));
    let Summary { attempts, abandoned, .. } = line.audit();
    assert_eq!((attempts, abandoned), (2, 0));
}

/// What a handler tells of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Begun,
    Stopped,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_hears_nothing_stops_by_its_own_clock_and_its_late_result_is_refused() {
    const LEASE: Duration = Duration::from_secs(2);
    let line = Line::new();
    // A call that is never answered ends by itself, well within the test.
    let url = format!("{}&tcp_user_timeout=3000&connect_timeout=2&pool_timeout_ms=1000", line.proxy.url());
    let store: Arc<dyn Store> = Arc::new(PostgresStore::connect(&url).unwrap());
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let hold = move |ctx: OpContext, _input: ()| {
        let tell = tell.clone();
        async move {
            let _ = tell.send((ctx.attempt(), Told::Begun));
            ctx.cancellation().cancelled().await;
            let _ = tell.send((ctx.attempt(), Told::Stopped));
            Ok::<_, HandlerError>("too late")
        }
    };
    let engine = Engine::builder(store).name("cut off").lease(LEASE).heartbeat(LEASE / 4).handler("k", hold).build().await.unwrap();
    let id = line.beside.create([Workflow::new("held").op(Op::new("a", "k"))]).unwrap().remove(0);
    let running = engine.start().unwrap();
    assert_eq!(tokio::time::timeout(PATIENCE, told.recv()).await.unwrap(), Some((1, Told::Begun)));

    // From here on nothing that anybody says can arrive: it is told by its own clock or not at all.
    line.proxy.set_mode(Mode::Silent);
    assert_eq!(tokio::time::timeout(PATIENCE, told.recv()).await.unwrap(), Some((1, Told::Stopped)));

    // Another worker takes the op over once the lease has run out, and finishes it.
    let beside = line.beside.clone();
    let taken = tokio::task::spawn_blocking(move || {
        let deadline = Instant::now() + PATIENCE;
        loop {
            beside.recover().unwrap();
            if let Some(op) = beside.claim(1).unwrap().pop() {
                return (op.lease.key.fence.0, beside.finish(success(&op)).unwrap());
            }
            assert!(Instant::now() < deadline, "the lease never runs out");
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    assert_eq!(taken.await.unwrap(), (2, Ended::Succeeded));
    line.proxy.set_mode(Mode::Pass);
    let report = running.shutdown().await.unwrap();
    assert_eq!((report.lost, report.succeeded), (1, 0));
    let client = engine.client();
    assert_eq!(client.snapshot(&id).await.unwrap().status, WorkflowStatus::Succeeded);
    let Summary { attempts, abandoned, .. } = line.audit();
    assert_eq!((attempts, abandoned), (2, 1));
}
