//! From an enqueue to the start of its handler, while nothing else is to do.

use super::Bench;
use crate::Failure;
use crate::clock::{median, micros, quantile};
use crate::engine::{self, MARK, now_us};
use crate::process::Worker;
use crate::report::{Line, Target};
use leasehold::client::{Client, Op, Workflow};
use std::time::Duration;

/// Between two samples, so that the engine is idle again.
const REST: Duration = Duration::from_millis(20);
/// A poll that no sample waits for.
const NEVER: Duration = Duration::from_mins(10);
const NEVER_MS: u64 = 600_000;

/// Delays of one way to start work, in microseconds.
#[derive(Default)]
struct Delays {
    commits: Vec<f64>,
    from_call: Vec<f64>,
    from_answer: Vec<f64>,
}

pub(super) async fn run(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let samples = usize::try_from(bench.settings.ops_or(40))?;
    if bench.settings.wants("in process") {
        let mut delays = Delays::default();
        for _ in 0..bench.settings.rounds {
            let place = bench.place.fresh();
            let (engine, _) = engine::engine(engine::new_store(&place.url()).await?, 16, NEVER).await?;
            let running = engine.start()?;
            sample(bench, &engine.client(), samples, &mut delays).await?;
            running.shutdown().await?;
        }
        tell(bench, "in process", &delays, Some((3.0, 6.0)));
    }
    if bench.settings.wants("another process") {
        for (name, poll_ms, hints) in [("another process, hints", NEVER_MS, true), ("another process, poll of 20 ms", 20, false)] {
            let mut delays = Delays::default();
            for _ in 0..bench.settings.rounds {
                let place = bench.place.fresh();
                let Some(url) = (if hints { Some(place.url()) } else { place.url_without_hints() }) else { continue };
                let client = Client::new(engine::new_store(&place.url()).await?);
                let mut worker = Worker::new(&url, 16, poll_ms)?;
                worker.go()?;
                sample(bench, &client, samples.div_ceil(4), &mut delays).await?;
                worker.end()?;
            }
            if !delays.commits.is_empty() {
                tell(bench, name, &delays, None);
            }
        }
    }
    Ok(())
}

async fn sample(bench: &Bench<'_>, client: &Client, samples: usize, delays: &mut Delays) -> Result<(), Failure> {
    let floor = bench.place.fresh();
    delays.commits.extend(floor.floor()?.commits(samples)?.into_iter().map(micros));
    for _ in 0..samples {
        tokio::time::sleep(REST).await;
        let called = now_us();
        let flow = client.start(Workflow::new("mark").op(Op::new("mark", MARK))).await?;
        let answered = now_us();
        flow.wait().await?;
        let began: u64 = flow.result("mark").await?;
        delays.from_call.push(micros(Duration::from_micros(began.saturating_sub(called))));
        delays.from_answer.push(micros(Duration::from_micros(began.saturating_sub(answered))));
    }
    Ok(())
}

/// `most`: how many commits a delay may last, from the answer and from the call.
fn tell(bench: &mut Bench<'_>, name: &str, delays: &Delays, most: Option<(f64, f64)>) {
    let commit = median(&delays.commits);
    let against = |line: String, delay: f64, most: Option<f64>| {
        let line = Line::against(&line, "µs", &[commit], &[delay]).note("the floor is one commit of one row");
        Line { target: most.map(Target::AtMost), ..line }
    };
    let lines = [
        against(format!("{name}: p50 from the answer"), median(&delays.from_answer), most.map(|most| most.0)),
        against(format!("{name}: p99 from the answer"), quantile(&delays.from_answer, 0.99), None),
        against(format!("{name}: p50 from the call"), median(&delays.from_call), most.map(|most| most.1)),
        against(format!("{name}: p99 from the call"), quantile(&delays.from_call, 0.99), None),
    ];
    for line in lines {
        bench.tell(line);
    }
}
