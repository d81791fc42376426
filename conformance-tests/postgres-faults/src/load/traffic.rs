//! Clients that start workflows and interfere with them, and never forget what they asked for.

use super::expected::Expected;
use super::task::Task;
use super::{FREE, LIMITS, SITES};
use crate::{Dice, Result};
use leasehold_core::client::{Actor, Client, ClientError, Op, Workflow};
use leasehold_core::model::WorkflowId;
use leasehold_core::state::{OpStatus, WorkflowStatus};
use leasehold_core::store::Store;
use leasehold_core::store::rows::OpPage;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Workflows that a client keeps alive at once.
const LIVE_MAX: usize = 16;

/// How the clients behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manners {
    /// Whether they cancel workflows.
    pub cancel: bool,
    /// Clients that work at once.
    pub clients: u64,
    /// How long they may wait for a store that is away.
    pub patience: Duration,
}

/// Clients on one store.
#[derive(Debug)]
pub struct Traffic {
    store: Arc<dyn Store>,
    seed: u64,
    manners: Manners,
}

impl Traffic {
    /// Clients of `store`.
    pub fn new(store: Arc<dyn Store>, seed: u64, manners: Manners) -> Self {
        Self { store, seed, manners }
    }

    /// Works for `time`, then repairs what is failed until every workflow has ended, which may take `rest`. Returns what
    /// must have come of it.
    ///
    /// # Errors
    /// When a call fails in a way that nobody asked for, or the work does not end.
    pub fn run(&self, time: Duration, rest: Duration) -> Result<Expected> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(async {
            let until = Instant::now() + time;
            let clients: Vec<_> = (0..self.manners.clients)
                .map(|number| {
                    let client = Client::new(Arc::clone(&self.store)).with_patience(self.manners.patience);
                    let dice = Dice::new(self.seed.wrapping_add(number));
                    let mut hands =
                        Hands { client, number, dice, cancels: self.manners.cancel, live: Vec::new(), expected: Expected::default() };
                    tokio::spawn(async move {
                        hands.work(until).await?;
                        hands.end(Instant::now() + rest).await?;
                        Ok::<Expected, crate::Error>(hands.expected)
                    })
                })
                .collect();
            let mut all = Expected::default();
            for client in clients {
                all.add(client.await??);
            }
            Ok(all)
        })
    }
}

/// One client.
struct Hands {
    client: Client,
    number: u64,
    dice: Dice,
    cancels: bool,
    live: Vec<WorkflowId>,
    expected: Expected,
}

impl Hands {
    async fn work(&mut self, until: Instant) -> Result<()> {
        let mut count = 0;
        while Instant::now() < until {
            if self.live.len() < LIVE_MAX {
                self.start(count).await?;
                count += 1;
            } else {
                self.look().await?;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            self.interfere(count).await?;
        }
        Ok(())
    }

    async fn start(&mut self, count: u64) -> Result<()> {
        let ops = self.graph();
        let ids: Vec<String> = ops.iter().map(|op| op.id().to_owned()).collect();
        let site = SITES.get(usize::from(self.dice.one_in(2))).copied().unwrap_or_default();
        let flow = Workflow::new("load").site(site).identity(&(self.number, count)).ops(ops);
        let handle = self.client.ensure(flow).await?;
        self.expected.created(handle.id(), ids);
        self.live.push(handle.id().clone());
        Ok(())
    }

    /// Does something to a workflow that may or may not have ended: a conflict is an answer.
    async fn interfere(&mut self, count: u64) -> Result<()> {
        let at = usize::try_from(self.dice.next() % LIVE_MAX as u64)?;
        let Some(id) = self.live.get(at).cloned() else { return Ok(()) };
        let actor = Actor::new(format!("client-{}", self.number));
        match self.dice.roll(12) {
            0 | 1 => {
                let name = format!("added-{count}-{}", self.dice.roll(1_000_000));
                let mut op = self.task().op(&name).queue(self.queue());
                if self.dice.one_in(2) {
                    op = op.after("first");
                }
                if accepted(self.client.add_ops(&id, [op]).await)? {
                    self.expected.added(&id, name);
                }
            }
            2 => drop(accepted(self.client.retry_workflow(&id, &actor).await)?),
            3 if self.cancels && accepted(self.client.cancel_workflow(&id, &actor).await)? => self.expected.canceled(&id),
            _ => {}
        }
        Ok(())
    }

    /// Lets go of what has ended, and repairs what is failed.
    async fn look(&mut self) -> Result<()> {
        let actor = Actor::new("repair");
        let mut still = Vec::with_capacity(self.live.len());
        for id in std::mem::take(&mut self.live) {
            match self.client.snapshot(&id).await?.status {
                WorkflowStatus::Succeeded | WorkflowStatus::Canceled => {}
                WorkflowStatus::Failed => {
                    accepted(self.client.retry_workflow(&id, &actor).await)?;
                    still.push(id);
                }
                WorkflowStatus::Running => still.push(id),
            }
        }
        self.live = still;
        Ok(())
    }

    async fn end(&mut self, deadline: Instant) -> Result<()> {
        while !self.live.is_empty() {
            if Instant::now() > deadline {
                let mut stuck = Vec::new();
                for id in &self.live {
                    let snapshot = self.client.snapshot(id).await?;
                    let ops = self.client.ops(id, OpPage { status: None, after: None, limit: 1_000 }).await?;
                    let open = ops.iter().filter(|op| op.status != OpStatus::Succeeded).collect::<Vec<_>>();
                    stuck.push(format!("{id} {} {open:?}", snapshot.status));
                }
                return Err(format!("workflows do not end: {}", stuck.join("; ")).into());
            }
            self.look().await?;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Mostly the queue without a limit: the others would hold the whole load back.
    fn queue(&mut self) -> &'static str {
        match self.dice.roll(16) {
            0 => LIMITS[0].0,
            1..4 => LIMITS[1].0,
            _ => FREE,
        }
    }

    fn task(&mut self) -> Task {
        match self.dice.roll(10) {
            0 => Task { broken_until: 1, ..Task::default() },
            1 => Task { emits: 1 + self.dice.roll(3), ..Task::default() },
            2 | 3 => Task { flaky_permille: 400, ..Task::default() },
            4 | 5 => Task { millis: self.dice.roll(60), ..Task::default() },
            // Longer than a lease lasts: it lives by heartbeats.
            6 if self.dice.one_in(8) => Task { millis: 4_000, ..Task::default() },
            _ => Task::default(),
        }
    }

    /// A first op, some that depend on it and on each other, and a last one behind them all.
    fn graph(&mut self) -> Vec<Op> {
        let mut ops = vec![self.task().op("first").queue(self.queue())];
        let mut last = self.task().op("last").queue(self.queue());
        for at in 0..=self.dice.roll(6) {
            let id = format!("middle-{at}");
            let mut op = self.task().op(&id).queue(self.queue()).after("first");
            if at > 0 && self.dice.one_in(3) {
                let other = format!("middle-{}", self.dice.roll(at));
                op = if self.dice.one_in(2) { op.after(other) } else { op.after_settled(other) };
            }
            ops.push(op);
            last = last.after(id);
        }
        ops.push(last);
        ops
    }
}

/// Whether a call was accepted; a conflict with what happened meanwhile is a no.
fn accepted<T>(answer: std::result::Result<T, ClientError>) -> Result<bool> {
    match answer {
        Ok(_) => Ok(true),
        Err(ClientError::Conflict(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
