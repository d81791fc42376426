//! Telling how a run goes.

use crate::output::{Colour, count};
use crate::screen::Screen;
use crate::tally::Tally;
use indicatif::{ProgressBar, ProgressStyle};
use leasehold::client::{Client, ClientError, WorkflowSnapshot};
use leasehold::engine::{Notice, NoticeKind, Observer};
use leasehold::model::{Fence, OpId, QueueName, Timestamp, WorkerName, WorkflowId};
use leasehold::state::StoredStatus;
use leasehold::store::rows::{EventKind, OpPage, WaitReason};
use leasehold::store::{Clock, SystemClock};
use serde_json::json;
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How often it is looked how things stand.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How often plain lines say so.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// A recount reads every op, so it may take at most this part of the time.
const RECOUNT_SHARE: u32 = 20;

/// Queues' names line up at this width.
const QUEUE_WIDTH: usize = 14;

/// Further failures scroll everything else away; they are told at the end.
const FAILURES_TOLD: usize = 20;

/// More ops that wait for a verdict are not named one by one.
const UNKNOWN_TOLD: u32 = 20;

/// Follows one workflow.
#[derive(Debug)]
pub(crate) struct Progress {
    screen: Arc<Screen>,
    workflow: OnceLock<WorkflowId>,
    worker: WorkerName,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    tally: Tally,
    bars: BTreeMap<QueueName, ProgressBar>,
    failures_told: usize,
    recount_from: Option<Instant>,
    line_from: Option<Instant>,
    line_told: String,
    gone_told: Option<Timestamp>,
    /// Attempts of which the user knows that somebody has to say what became of them.
    unknown_told: HashSet<(OpId, Fence)>,
}

impl Progress {
    pub(crate) fn new(screen: Arc<Screen>, worker: WorkerName) -> Self {
        Self { screen, workflow: OnceLock::new(), worker, state: Mutex::default() }
    }

    /// From now on it follows `workflow`.
    pub(crate) fn follow(&self, workflow: &WorkflowId) {
        let _ = self.workflow.set(workflow.clone());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells how things stand, again and again; never returns.
    pub(crate) async fn watch(&self, client: &Client) {
        loop {
            if let Err(error) = self.look(client).await {
                tracing::debug!(error = &error as &dyn std::error::Error, "cannot look how the workflow stands");
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Looks once, and tells.
    pub(crate) async fn look(&self, client: &Client) -> Result<(), ClientError> {
        let Some(workflow) = self.workflow.get().filter(|_| !self.screen.is_quiet()) else {
            return Ok(());
        };
        let snapshot = client.snapshot(workflow).await?;
        if self.wants_recount(&snapshot) {
            self.recount(client, workflow).await?;
        }
        let elsewhere = snapshot.ops.running.unsigned_abs().saturating_sub(self.state().tally.sum().running);
        if elsewhere > 0 {
            self.look_for_the_dead(client, workflow).await?;
        }
        if snapshot.ops.waiting > 0 {
            let waiting = client.ops(workflow, OpPage { status: Some(StoredStatus::Waiting), after: None, limit: UNKNOWN_TOLD }).await?;
            for op in waiting {
                if let Some(wait) = op.wait.filter(|wait| wait.reason == WaitReason::Verdict) {
                    self.tell_unknown(&op.state.id, wait.key.fence);
                }
            }
        }
        self.draw(elsewhere);
        Ok(())
    }

    /// Says once of each attempt that the workflow waits for a verdict on it.
    fn tell_unknown(&self, op: &OpId, attempt: Fence) {
        if !self.state().unknown_told.insert((op.clone(), attempt)) {
            return;
        }
        let text = format!(
            "op {op}: nobody knows what attempt {attempt} did, and it must not be repeated blindly; `leasehold settle` says",
            attempt = attempt.0
        );
        self.screen.say(&self.screen.paint(Colour::Yellow, &text));
        self.screen.event("waiting_for_verdict", json!({"op": op, "attempt": attempt}));
    }

    /// Whether what was heard and what is stored differ, as when ops were emitted or another process works as well.
    fn wants_recount(&self, snapshot: &WorkflowSnapshot) -> bool {
        let state = self.state();
        let (sum, ops) = (state.tally.sum(), snapshot.ops);
        let heard = [sum.total, sum.succeeded, sum.failed, sum.blocked, sum.canceled];
        let stored = [ops.total, ops.succeeded, ops.failed, ops.blocked, ops.canceled].map(i64::unsigned_abs);
        heard != stored && state.recount_from.is_none_or(|from| Instant::now() >= from)
    }

    async fn recount(&self, client: &Client, workflow: &WorkflowId) -> Result<(), ClientError> {
        let begun = Instant::now();
        let mut ops = Tally::default();
        let mut after = None;
        loop {
            let page = client.ops(workflow, OpPage { status: None, after, limit: 0 }).await?;
            let Some(last) = page.last() else {
                break;
            };
            after = Some(last.state.seq);
            for op in &page {
                ops.add(op);
            }
        }
        let mut state = self.state();
        state.tally = ops.with_running_of(&state.tally);
        state.recount_from = Some(Instant::now() + begun.elapsed() * RECOUNT_SHARE);
        Ok(())
    }

    /// Says so when ops are held by leases of processes that are gone: until those run out nothing else can be done.
    async fn look_for_the_dead(&self, client: &Client, workflow: &WorkflowId) -> Result<(), ClientError> {
        let open = client.ops(workflow, OpPage { status: Some(StoredStatus::Open), after: None, limit: 0 }).await?;
        let leases = open.iter().filter_map(|op| op.lease.as_ref()).filter(|lease| lease.worker != self.worker);
        let dead: Vec<_> = leases.filter(|lease| crate::worker::is_gone(&lease.worker)).collect();
        let Some(until) = dead.iter().map(|lease| lease.expires_at).max() else {
            return Ok(());
        };
        let mut state = self.state();
        if state.gone_told == Some(until) {
            return Ok(());
        }
        state.gone_told = Some(until);
        drop(state);
        let seconds = until.since(SystemClock.now()).as_secs() + 1;
        let (ops, until) = (i64::try_from(dead.len()).unwrap_or(i64::MAX), crate::output::instant(until));
        let plural = if ops == 1 { "by a process that is gone" } else { "by processes that are gone" };
        let plural =
            if dead.windows(2).all(|pair| matches!(pair, [a, b] if a.worker == b.worker)) { "by a process that is gone" } else { plural };
        self.screen.say(&format!("waiting for {} leased {plural} (until {until}, about {seconds} s)", count(ops, "op")));
        self.screen.event("waiting_for_leases", json!({"ops": ops, "until": until}));
        Ok(())
    }

    fn draw(&self, elsewhere: u64) {
        let mut state = self.state();
        if let Some(bars) = self.screen.bars() {
            let queues: Vec<_> = state.tally.queues().map(|(queue, counts)| (queue.clone(), *counts)).collect();
            for (queue, counts) in queues {
                let bar = state.bars.entry(queue.clone()).or_insert_with(|| bars.add(new_bar(&queue)));
                bar.set_length(counts.total);
                bar.set_position(counts.succeeded);
                bar.set_message(counts.rest());
            }
            return;
        }
        let now = Instant::now();
        if state.line_from.is_some_and(|from| now < from) {
            return;
        }
        let sum = state.tally.sum();
        let elsewhere = if elsewhere > 0 { format!(", {elsewhere} leased by other processes") } else { String::new() };
        let line = format!("{}/{} succeeded, {}{elsewhere}", sum.succeeded, sum.total, sum.rest());
        if line != state.line_told && sum.total > 0 {
            self.screen.say(&line);
            state.line_told = line;
            state.line_from = Some(now + LINE_EVERY);
        }
    }

    /// One last look; lines that stay take the place of the bars.
    pub(crate) async fn finish(&self, client: &Client) {
        self.state().recount_from = None;
        self.state().line_from = None;
        if let Err(error) = self.look(client).await {
            tracing::debug!(error = &error as &dyn std::error::Error, "cannot look how the workflow stands");
        }
        let state = std::mem::take(&mut *self.state());
        for bar in state.bars.values() {
            bar.finish_and_clear();
        }
        for (queue, counts) in state.tally.queues().filter(|(queue, _)| state.bars.contains_key(*queue)) {
            self.screen.say(&format!(
                "{:>QUEUE_WIDTH$}  {}/{} succeeded, {}",
                queue.as_str(),
                counts.succeeded,
                counts.total,
                counts.rest()
            ));
        }
    }

    fn tell_failure(&self, notice: &Notice, retried: bool) {
        let mut state = self.state();
        state.failures_told += 1;
        let told = state.failures_told;
        drop(state);
        if told > FAILURES_TOLD {
            if told == FAILURES_TOLD + 1 {
                self.screen.say("further failures are told at the end");
            }
            return;
        }
        let op = notice.op_id.as_ref().map_or("", |op| op.as_str());
        let code = notice.code.as_deref().unwrap_or("error");
        let attempt = notice.attempt.map_or(0, |attempt| attempt.0);
        if retried {
            self.screen.say(&format!("op {op}: attempt {attempt} failed ({code}); it is tried again"));
        } else {
            self.screen.say(&self.screen.paint(Colour::Red, &format!("op {op}: failed ({code})")));
        }
    }
}

impl Progress {
    /// Without a word the run would seem to stand still for no reason.
    fn tell_anomaly(&self, notice: &Notice) {
        let what = notice.code.as_deref().unwrap_or("the store's clock went back");
        let line = format!("{what}: nothing is started until it is right again, or trusted (see `leasehold clock status`)");
        self.screen.say_always(&self.screen.paint(Colour::Red, &line));
        self.screen.event(notice.kind.as_str(), json!({"at": notice.at, "code": notice.code}));
    }
}

impl Observer for Progress {
    fn notice(&self, notice: &Notice) {
        if notice.kind == NoticeKind::Event(EventKind::ClockAnomaly) {
            self.tell_anomaly(notice);
        }
        if notice.workflow_id.is_none() || notice.workflow_id.as_ref() != self.workflow.get() {
            return;
        }
        self.state().tally.hear(notice);
        match notice.kind {
            NoticeKind::Event(EventKind::OpRetried) => self.tell_failure(notice, true),
            NoticeKind::Event(EventKind::OpFailed) => self.tell_failure(notice, false),
            NoticeKind::Event(EventKind::OpWaiting) if notice.code.as_deref() == Some(WaitReason::Verdict.as_str()) => {
                if let (Some(op), Some(attempt)) = (&notice.op_id, notice.attempt) {
                    self.tell_unknown(op, attempt);
                }
            }
            _ => {}
        }
        self.screen.event(
            notice.kind.as_str(),
            json!({
                "at": notice.at,
                "workflow": notice.workflow_id,
                "op": notice.op_id,
                "parent": notice.parent,
                "queue": notice.queue,
                "kind": notice.op_kind,
                "attempt": notice.attempt,
                "code": notice.code,
                "actor": notice.actor,
                "queue_wait_ms": notice.queue_wait.map(millis),
                "run_time_ms": notice.run_time.map(millis),
            }),
        );
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn new_bar(queue: &QueueName) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix} [{wide_bar}] {pos}/{len}  {msg}");
    let bar = ProgressBar::new(0).with_prefix(format!("{:>QUEUE_WIDTH$}", queue.as_str()));
    match style {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}
