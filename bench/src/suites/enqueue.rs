//! Workflows, created by one client; the floor inserts the very same rows into the same tables with the same indexes.

use super::Bench;
use crate::Failure;
use crate::clock::{micros, rate};
use crate::engine::{self, layered, plain};
use crate::floor::Batches;
use crate::report::{Line, Target};
use leasehold::client::{Client, Workflow};
use std::time::{Duration, Instant};

/// How many ops one call brings, where it brings many.
const BATCH: u64 = 1_000;

/// Calls that are alike.
#[derive(Clone, Copy)]
struct Calls {
    count: u64,
    each: u64,
    make: fn(u64) -> Workflow,
}

pub(super) async fn run(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let ops = bench.settings.ops_or(100_000);
    let batch = BATCH.min(ops);
    let target = Target::AtLeast(0.6);
    for (name, calls, target) in [
        ("one by one", Calls { count: (ops / 200).max(5), each: 1, make: plain }, None),
        ("batches of 1,000", Calls { count: (ops / 5 / batch).max(1), each: batch, make: plain }, Some(target)),
        ("one graph, two edges an op", Calls { count: 1, each: ops, make: layered }, None),
    ] {
        if bench.settings.wants(name) {
            against_rows(bench, name, calls, target).await?;
        }
    }
    let name = "one graph of 100,000 ops against 1,000, cost of an op";
    if bench.settings.wants(name) {
        let (mut small, mut large) = (Vec::new(), Vec::new());
        for _ in 0..bench.settings.rounds {
            small.push(cost(bench, Calls { count: (ops / batch / 4).max(1), each: batch, make: layered }).await?);
            large.push(cost(bench, Calls { count: 1, each: ops, make: layered }).await?);
        }
        bench.tell(Line::against(name, "µs", &small, &large).target(Target::AtMost(1.3)).note("the floor is the small graph"));
    }
    Ok(())
}

async fn against_rows(bench: &mut Bench<'_>, name: &str, calls: Calls, target: Option<Target>) -> Result<(), Failure> {
    let (mut floors, mut engines) = (Vec::new(), Vec::new());
    let ops = calls.count * calls.each;
    for _ in 0..bench.settings.rounds {
        let place = bench.place.fresh();
        engines.push(rate(ops, enqueue(&place.url(), calls).await?));
        let batches = Batches::cut(&place.floor()?.read()?, usize::try_from(calls.count)?);
        let empty = bench.place.fresh();
        drop(engine::new_store(&empty.url()).await?);
        floors.push(rate(ops, empty.floor()?.insert(&batches)?));
    }
    let line = Line::against(name, "op/s", &floors, &engines).note("the floor is an insert of the same rows");
    bench.tell(Line { target, ..line });
    Ok(())
}

/// What an op costs, in microseconds.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
async fn cost(bench: &Bench<'_>, calls: Calls) -> Result<f64, Failure> {
    let place = bench.place.fresh();
    Ok(micros(enqueue(&place.url(), calls).await?) / (calls.count * calls.each) as f64)
}

async fn enqueue(url: &str, calls: Calls) -> Result<Duration, Failure> {
    let client = Client::new(engine::new_store(url).await?);
    let workflows: Vec<Workflow> = (0..calls.count).map(|_| (calls.make)(calls.each)).collect();
    let begun = Instant::now();
    for workflow in workflows {
        client.start(workflow).await?;
    }
    Ok(begun.elapsed())
}
