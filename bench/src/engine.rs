//! The engine as it is measured: no-op handlers over a store, and stores filled for them.

use crate::Failure;
use crate::meter::Meter;
use leasehold::model::{KindName, LeaseToken, Limits, RequestId, WorkerName};
use leasehold::prelude::*;
use leasehold::store::rows::ClaimedOp;
use leasehold::store::{StoreExt, TxKind, Wait};
use leasehold::transitions::{self, CLOCK_TOLERANCE, ClaimCursor, ClaimRequest, CreateMode, CreateRequest, End, Ended, Finish};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::Notify;

/// The kind of all ops here.
pub(crate) const KIND: &str = "nothing";

/// The kind of ops whose result is when their handler began, in microseconds since 1970.
pub(crate) const MARK: &str = "mark";

/// How often the end of a drain is looked for once its last handler has run.
const LOOK: Duration = Duration::from_millis(1);

/// A workflow of `ops` ops that wait for nothing.
pub(crate) fn plain(ops: u64) -> Workflow {
    Workflow::new("plain").ops((0..ops).map(|op| Op::new(format!("op-{op}"), KIND)))
}

/// A graph in which every op but the first few waits for two earlier ones; some are done at any time.
pub(crate) fn layered(ops: u64) -> Workflow {
    const WIDTH: u64 = 100;
    let id = |op: u64| format!("op-{op}");
    let edges = move |op: u64| [op.checked_sub(WIDTH), op.checked_sub(WIDTH + 1)].into_iter().flatten().map(id);
    Workflow::new("layered").ops((0..ops).map(|op| Op::new(id(op), KIND).after_all(edges(op))))
}

/// Makes `workflows`, some of them in one transaction.
pub(crate) fn create(store: &dyn Store, workflows: impl IntoIterator<Item = Workflow>) -> Result<(), Failure> {
    /// About what one transaction is to write.
    const OPS: usize = 5_000;
    let mut requests = Vec::new();
    let mut ops = 0;
    for workflow in workflows {
        let spec = workflow.build()?;
        ops += spec.ops.len();
        requests.push(CreateRequest::new(spec, RequestId::random(), CreateMode::Start, &Limits::default())?);
        if ops >= OPS {
            create_all(store, &std::mem::take(&mut requests))?;
            ops = 0;
        }
    }
    create_all(store, &requests)
}

fn create_all(store: &dyn Store, requests: &[CreateRequest]) -> Result<(), Failure> {
    if requests.is_empty() {
        return Ok(());
    }
    let report = store.with(TxKind::Client, |tx| transitions::create(tx, requests))?;
    for outcome in report.outcomes {
        outcome?;
    }
    Ok(())
}

/// How much is left to do in a store, in workflows.
pub(crate) async fn unfinished(client: &Client) -> Result<i64, Failure> {
    let totals = client.status().await?.totals;
    Ok(totals.workflows.iter().filter(|(status, _)| *status == WorkflowStatus::Running).map(|(_, count)| count).sum())
}

/// Counts handlers that have run, and says when they were enough.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    ran: AtomicU64,
    wanted: AtomicU64,
    enough: Notify,
}

impl Counter {
    fn count(&self) {
        if self.ran.fetch_add(1, Ordering::Relaxed) + 1 == self.wanted.load(Ordering::Relaxed) {
            self.enough.notify_one();
        }
    }
}

/// This machine's time, which its processes share.
pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// An engine of `concurrency` no-op handlers over `store`.
pub(crate) async fn engine(store: Arc<dyn Store>, concurrency: usize, poll: Duration) -> Result<(Engine, Arc<Counter>), Failure> {
    let counter = Arc::new(Counter::default());
    let counting = Arc::clone(&counter);
    let nothing = move |_: OpContext, (): ()| {
        counting.count();
        async { Ok::<(), HandlerError>(()) }
    };
    let mark = |_: OpContext, (): ()| {
        let began = now_us();
        async move { Ok::<u64, HandlerError>(began) }
    };
    let builder = Engine::builder(store).max_workers(concurrency).poll(poll);
    let engine = builder.handler(KIND, nothing).handler(MARK, mark).build().await?;
    Ok((engine, counter))
}

/// Drains the store at `url`, which holds `ops` ops, in this process; returns how long that took, from the start of the
/// engine to the commit of the last op, and what the store did meanwhile.
pub(crate) async fn drain(url: &str, ops: u64, concurrency: usize) -> Result<(Duration, String), Failure> {
    let meter = Arc::new(Meter::new(leasehold::connect_existing(url).await?));
    let (engine, counter) = engine(Arc::clone(&meter) as Arc<dyn Store>, concurrency, leasehold::engine::POLL).await?;
    counter.wanted.store(ops, Ordering::Relaxed);
    let begun = Instant::now();
    let running = engine.start()?;
    counter.enough.notified().await;
    while unfinished(&engine.client()).await? > 0 {
        tokio::time::sleep(LOOK).await;
    }
    let (took, told) = (begun.elapsed(), meter.told());
    let report = running.shutdown().await?;
    if report.succeeded < ops {
        return Err(format!("{} of {ops} ops succeeded", report.succeeded).into());
    }
    Ok((took, told))
}

/// Opens a new store at `url`.
pub(crate) async fn new_store(url: &str) -> Result<Arc<dyn Store>, Failure> {
    Ok(leasehold::connect(url).await?)
}

/// Leases `count` ops to nobody in particular.
pub(crate) fn claim_all(store: &dyn Store, count: u64, lease: Micros) -> Result<Vec<ClaimedOp>, Failure> {
    let mut claimer = Claimer::new(store, lease)?;
    let mut claimed = Vec::new();
    while u64::try_from(claimed.len())? < count {
        let left = count - u64::try_from(claimed.len())?;
        let ops = claimer.claim(u32::try_from(left.min(1_000))?)?;
        if ops.is_empty() {
            return Err(format!("{} ops of {count} could be claimed", claimed.len()).into());
        }
        claimed.extend(ops);
    }
    Ok(claimed)
}

/// Claims as an engine's claim loop does, without handlers.
pub(crate) struct Claimer<'s> {
    store: &'s dyn Store,
    worker: WorkerName,
    lease: Micros,
    cursor: ClaimCursor,
}

impl<'s> Claimer<'s> {
    pub(crate) fn new(store: &'s dyn Store, lease: Micros) -> Result<Self, Failure> {
        Ok(Self { store, worker: WorkerName::new("bench")?, lease, cursor: ClaimCursor::default() })
    }

    /// One claim of up to `capacity` ops.
    pub(crate) fn claim(&mut self, capacity: u32) -> Result<Vec<ClaimedOp>, Failure> {
        let request = ClaimRequest {
            token: LeaseToken::random(),
            worker: self.worker.clone(),
            lease: self.lease,
            capacity,
            kinds: Some(vec![KindName::new(KIND)?]),
            agents: Vec::new(),
            cursor: self.cursor,
            suspects: false,
            repeated: false,
            tolerance: CLOCK_TOLERANCE,
        };
        let report = self.store.with(TxKind::Claim, |tx| transitions::claim(tx, &request))?;
        self.cursor = report.cursor;
        Ok(report.ops)
    }

    /// Completes what was claimed.
    pub(crate) fn complete(&self, ops: Vec<ClaimedOp>) -> Result<(), Failure> {
        let finish = |op: ClaimedOp| Finish {
            lease: op.lease.key,
            workflow: op.lease.workflow,
            op_id: op.op_id,
            site: op.site,
            end: End::Complete { result: Json::null(), artifacts: Vec::new(), records: Vec::new(), emitted: None },
        };
        let batch: Vec<Finish> = ops.into_iter().map(finish).collect();
        let report = self.store.with(TxKind::Commit, |tx| transitions::complete(tx, &batch, Wait::Block))?;
        if report.outcomes.iter().any(|ended| *ended != Ended::Succeeded) {
            return Err("a completion was refused".into());
        }
        Ok(())
    }
}
