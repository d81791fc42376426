//! What a claim costs over a backlog: ready ops, and those that are blocked, finished or due later.

use super::Bench;
use crate::Failure;
use crate::clock::{median, micros, quantile, timed};
use crate::engine::{self, Claimer, plain};
use crate::floor::Floor;
use crate::place::Fresh;
use crate::process::Worker;
use crate::report::{Line, Target};
use leasehold::prelude::*;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many ops one claim takes.
const BATCH: u32 = 10;
/// How long the leases last.
const LEASE: Micros = Micros::from_secs(600);
/// How many claims a round makes in each store.
const CLAIMS: usize = 200;
/// The most that a worker may need over a million ready ops, in MiB.
const MEMORY: f64 = 100.0;
/// How long the worker is watched over the backlog.
const WATCH: Duration = Duration::from_secs(10);

/// A store that is claimed from.
struct Stock {
    place: Fresh,
    store: Arc<dyn Store>,
    claims: Vec<f64>,
}

pub(super) async fn run(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let most = bench.settings.ops_or(1_000_000);
    let least = (most / 100).max(100);
    // What the rounds take comes on top.
    let taken = u64::try_from(bench.settings.rounds * CLAIMS)? * u64::from(BATCH);
    let mut small = stock(bench, least + taken).await?;
    if bench.settings.wants("ready") {
        for ready in [most / 10, most] {
            let mut large = stock(bench, ready + taken).await?;
            compare(bench, &mut small, &mut large, &format!("{ready} ready"), None)?;
        }
    }
    if bench.settings.wants("blocked, finished and future") {
        let mut large = stock(bench, most + taken).await?;
        // One that is finished is the model of those that are added.
        large.claim(1)?;
        pile_up(large.place.floor()?.as_ref(), most)?;
        let name = format!("{most} ready, and as many blocked, finished and future");
        compare(bench, &mut small, &mut large, &name, Some(Target::AtMost(1.5)))?;
        if bench.settings.wants("memory") {
            memory(bench, &large).await?;
        }
    }
    if bench.settings.wants("pinned") {
        pinned(bench, taken).await?;
    }
    Ok(())
}

/// A store with `ready` ops that may be claimed.
async fn stock(bench: &Bench<'_>, ready: u64) -> Result<Stock, Failure> {
    const EACH: u64 = 1_000;
    let place = bench.place.fresh();
    let store = engine::new_store(&place.url()).await?;
    engine::create(store.as_ref(), (0..ready.div_ceil(EACH)).map(|_| plain(EACH.min(ready))))?;
    place.floor()?.execute(bench.by_store("ANALYZE", "VACUUM ANALYZE"))?;
    Ok(Stock { place, store, claims: Vec::new() })
}

/// Claims from both stores in turn.
fn compare(bench: &mut Bench<'_>, small: &mut Stock, large: &mut Stock, name: &str, target: Option<Target>) -> Result<(), Failure> {
    small.claims.clear();
    large.claims.clear();
    for _ in 0..bench.settings.rounds {
        for stock in [&mut *small, &mut *large] {
            stock.claim(CLAIMS / 4)?;
        }
    }
    for (share, called, target) in [(0.5, "p50", None), (0.99, "p99", target)] {
        let (floor, engine) = (quantile(&small.claims, share), quantile(&large.claims, share));
        let line = Line::against(&format!("claim {called}: {name}"), "µs", &[floor], &[engine]);
        bench.tell(Line { target, ..line.note("the floor is the same engine over a hundredth") });
    }
    Ok(())
}

impl Stock {
    /// Makes `count` claims, and completes what they got apart.
    fn claim(&mut self, count: usize) -> Result<(), Failure> {
        let mut claimer = Claimer::new(self.store.as_ref(), LEASE)?;
        for _ in 0..count {
            let (ops, took) = timed(|| claimer.claim(BATCH))?;
            if ops.is_empty() {
                return Err("the stock ran out".into());
            }
            self.claims.push(micros(took));
            claimer.complete(ops)?;
        }
        Ok(())
    }
}

/// Adds `count` ops of each kind that no claim may take, as copies of one that is there.
fn pile_up(floor: &dyn Floor, count: u64) -> Result<(), Failure> {
    let model = floor.number("SELECT min(op) FROM attempts")?;
    let base = floor.number("SELECT max(seq) FROM ops")? + 1_000_000;
    for (turn, status) in (0_u64..).zip(["blocked", "succeeded", "open"]) {
        let first = base + i64::try_from(turn * count)?;
        let source = format!("WITH RECURSIVE s (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n + 1 < {count})");
        let copy = |table: &str, of: &str, key: &str| -> Result<String, Failure> {
            let columns: Vec<String> = floor.columns(table)?.into_iter().map(|column| column.name).collect();
            let values = columns.iter().map(|name| match (table, name.as_str()) {
                ("ops", "seq") | ("attempts" | "delayed", "op") => format!("{first} + s.n"),
                ("ops", "id") => format!("'{status}-' || s.n"),
                ("ops", "status") => format!("'{status}'"),
                ("ops", "unmet" | "broken") if status == "blocked" => "1".to_owned(),
                ("delayed", "due_at_us") => format!("{} + s.n", i64::MAX / 2),
                _ => format!("m.{name}"),
            });
            let values: Vec<String> = values.collect();
            Ok(format!(
                "{source} INSERT INTO {table} ({}) SELECT {} FROM {of} AS m, s WHERE m.{key}",
                columns.join(", "),
                values.join(", ")
            ))
        };
        floor.execute(&copy("ops", "ops", &format!("seq = {model}"))?)?;
        match status {
            "succeeded" => floor.execute(&copy("attempts", "attempts", &format!("op = {model}"))?)?,
            "open" => floor.execute(&copy("delayed", "ready", "op = (SELECT min(op) FROM ready)")?)?,
            _ => {}
        }
    }
    floor.execute("ANALYZE")
}

/// The most memory that a worker needs over the backlog.
#[expect(clippy::cast_precision_loss, reason = "memory in KiB")]
async fn memory(bench: &mut Bench<'_>, stock: &Stock) -> Result<(), Failure> {
    let mut worker = Worker::new(&stock.place.url(), 100, 500)?;
    worker.go()?;
    tokio::time::sleep(WATCH.min(Duration::from_secs(bench.settings.seconds))).await;
    let peak = worker.end()? as f64 / 1024.0;
    bench.tell(Line::alone("memory of a worker over it, at most", "MiB", peak).target(Target::AtMost(MEMORY)));
    Ok(())
}

/// Claims while a snapshot older than all of them keeps every dead row in its place.
async fn pinned(bench: &mut Bench<'_>, taken: u64) -> Result<(), Failure> {
    let seconds = Duration::from_secs(bench.settings.seconds);
    let mut stock = stock(bench, taken.max(1_000)).await?;
    stock.claim(CLAIMS / 4)?;
    let before = std::mem::take(&mut stock.claims);
    let pin = stock.place.floor()?.pin()?;
    let begun = Instant::now();
    let store = Arc::clone(&stock.store);
    let mut claimer = Claimer::new(store.as_ref(), LEASE)?;
    // A drain beside it: what it finishes stays in the way as dead rows.
    while begun.elapsed() < seconds {
        engine::create(store.as_ref(), (0..10).map(|_| plain(1_000)))?;
        for _ in 0..9 {
            let ops = claimer.claim(1_000)?;
            claimer.complete(ops)?;
        }
        stock.claim(CLAIMS / 8)?;
    }
    drop(pin);
    let tail: Vec<f64> = stock.claims.iter().rev().take(CLAIMS).copied().collect();
    let target = bench.by_store(None, Some(Target::AtMost(2.0)));
    let line = Line::against("claim p50 under a pinned snapshot", "µs", &[median(&before)], &[median(&tail)]);
    bench.tell(line.note("the last claims against those before the snapshot"));
    let line = Line::against("claim p99 under a pinned snapshot", "µs", &[quantile(&before, 0.99)], &[quantile(&tail, 0.99)]);
    bench.tell(Line { target, ..line.note(format!("after {} s of drain", seconds.as_secs())) });
    Ok(())
}
