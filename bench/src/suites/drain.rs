//! No-op ops, drained: claims, handlers that do nothing, commits.

use super::Bench;
use crate::Failure;
use crate::clock::rate;
use crate::engine::{self, plain};
use crate::floor::Drain;
use crate::process::Worker;
use crate::report::{Line, Target};
use std::time::{Duration, Instant};

/// How many workflows share the ops, where they are many.
const MANY: u64 = 1_000;
/// How many ops the floor moves at once.
const BATCH: u32 = 100;
/// How many processes share a store.
const PROCESSES: usize = 4;

/// One way of draining.
struct Shape {
    name: String,
    concurrency: usize,
    workflows: u64,
    ops: u64,
    floor: Drain,
    target: Option<Target>,
}

pub(super) async fn run(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let ops = bench.settings.ops_or(30_000);
    let giant = bench.settings.ops_or(100_000);
    // A commit an op: far fewer, or it takes minutes.
    let single = (ops / 20).max(10);
    let connections = bench.best_connections(ops, BATCH)?;
    bench
        .notes
        .insert("floor".to_owned(), format!("batches of {BATCH}, {connections} connections; of 1 on 1 connection for concurrency 1"));
    let floor = Drain { ops, batch: BATCH, connections };
    let one = Drain { ops: single, batch: 1, connections: 1 };
    let at_least = |bench: &Bench<'_>, sqlite, postgres| Some(Target::AtLeast(bench.by_store(sqlite, postgres)));
    let shape = |concurrency: usize, workflows: u64, ops, floor, target| {
        let flows = if workflows == 1 { "one workflow".to_owned() } else { format!("{workflows} workflows") };
        Shape { name: format!("concurrency {concurrency}, {flows}"), concurrency, workflows, ops, floor, target }
    };
    let many = MANY.min(ops);
    let shapes = [
        shape(1, many.min(single), single, one, at_least(bench, 0.5, 0.5)),
        shape(16, many, ops, floor, None),
        shape(100, many, ops, floor, at_least(bench, 0.3, 0.45)),
        shape(100, 1, giant, floor, at_least(bench, 0.3, 0.4)),
        shape(1_000, many, ops, floor, at_least(bench, 0.4, 0.6)),
        shape(1_000, 1, giant, floor, None),
    ];
    for shape in shapes {
        if bench.settings.wants(&shape.name) {
            one_process(bench, &shape).await?;
        }
    }
    for (workflows, ops, target) in [(many, ops, at_least(bench, 0.7, 1.0)), (1, giant, at_least(bench, 0.7, 0.8))] {
        let name = format!("{PROCESSES} processes against one, {workflows} workflows");
        if bench.settings.wants(&name) {
            processes(bench, &name, workflows, ops, target).await?;
        }
    }
    Ok(())
}

async fn one_process(bench: &mut Bench<'_>, shape: &Shape) -> Result<(), Failure> {
    let (mut floors, mut engines, mut note) = (Vec::new(), Vec::new(), String::new());
    for _ in 0..bench.settings.rounds {
        let place = bench.place.fresh();
        floors.push(rate(shape.floor.ops, place.floor()?.drain(shape.floor)?));
        drop(place);
        let place = bench.place.fresh();
        fill(&place.url(), shape.workflows, shape.ops).await?;
        let (took, told) = engine::drain(&place.url(), shape.ops, shape.concurrency).await?;
        engines.push(rate(shape.ops, took));
        note = told;
    }
    let line = Line::against(&shape.name, "op/s", &floors, &engines).note(note);
    bench.tell(Line { target: shape.target, ..line });
    Ok(())
}

async fn processes(bench: &mut Bench<'_>, name: &str, workflows: u64, ops: u64, target: Option<Target>) -> Result<(), Failure> {
    let (mut alone, mut together) = (Vec::new(), Vec::new());
    for _ in 0..bench.settings.rounds {
        for (processes, rates) in [(1, &mut alone), (PROCESSES, &mut together)] {
            let place = bench.place.fresh();
            fill(&place.url(), workflows, ops).await?;
            rates.push(rate(ops, drain_by(&place.url(), processes).await?));
        }
    }
    let line = Line::against(name, "op/s", &alone, &together).note("the floor is one such process; concurrency 100 each");
    bench.tell(Line { target, ..line });
    Ok(())
}

async fn fill(url: &str, workflows: u64, ops: u64) -> Result<(), Failure> {
    let store = engine::new_store(url).await?;
    let of = |workflow: u64| ops / workflows + u64::from(workflow < ops % workflows);
    engine::create(store.as_ref(), (0..workflows).map(|workflow| plain(of(workflow))))
}

/// Drains the store by `count` processes.
async fn drain_by(url: &str, count: usize) -> Result<Duration, Failure> {
    let client = leasehold::client::Client::new(leasehold::connect_existing(url).await?);
    let mut workers = (0..count).map(|_| Worker::new(url, 100, 500)).collect::<Result<Vec<_>, _>>()?;
    let begun = Instant::now();
    for worker in &mut workers {
        worker.go()?;
    }
    while engine::unfinished(&client).await? > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let took = begun.elapsed();
    for worker in workers {
        worker.end()?;
    }
    Ok(took)
}
