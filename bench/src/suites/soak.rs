//! A steady load: what it leaves behind in the database and in this process.

use super::Bench;
use crate::Failure;
use crate::clock::rate;
use crate::engine::{self, plain};
use crate::report::Line;
use crate::worker::memory;
use std::time::{Duration, Instant};

/// How many ops come at a time.
const EACH: u64 = 100;
/// How many workflows may be unfinished before more come.
const AHEAD: i64 = 20;

/// What is seen at one moment.
struct Look {
    ops: u64,
    bytes: i64,
    dead: Option<i64>,
    log: Option<i64>,
    memory: u64,
}

#[expect(clippy::cast_precision_loss, reason = "counts and bytes are far below 2^52")]
pub(super) async fn run(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let place = bench.place.fresh();
    let store = engine::new_store(&place.url()).await?;
    let (engine, _) = engine::engine(store, 100, leasehold::engine::POLL).await?;
    let running = engine.start()?;
    let client = engine.client();
    let floor = place.floor()?;
    let most = bench.settings.ops.unwrap_or(u64::MAX);
    let whole = Duration::from_secs(bench.settings.seconds);
    let begun = Instant::now();
    let mut ops = 0;
    let look = |ops| -> Result<Look, Failure> {
        let (bytes, dead) = floor.size()?;
        Ok(Look { ops, bytes, dead, log: floor.log_bytes()?, memory: memory("VmRSS:")? })
    };
    let first = look(0)?;
    let mut middle = None;
    while begun.elapsed() < whole && ops < most {
        for _ in 0..10 {
            client.start(plain(EACH)).await?;
            ops += EACH;
        }
        while engine::unfinished(&client).await? > AHEAD {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if middle.is_none() && begun.elapsed() > whole / 2 {
            middle = Some(look(ops)?);
        }
    }
    let took = begun.elapsed();
    let last = look(ops)?;
    running.shutdown().await?;
    let per_op = |from: i64, to: i64, ops: u64| (to - from) as f64 / ops.max(1) as f64;
    bench.tell(Line::alone("finished, created beside", "op/s", rate(ops, took)).note(format!("{ops} ops in {} s", took.as_secs())));
    bench.tell(
        Line::alone("growth of the files", "B/op", per_op(first.bytes, last.bytes, ops)).note("all that is kept: ops, ledger, events"),
    );
    if let (Some(from), Some(to)) = (first.log, last.log) {
        bench.tell(Line::alone("log written", "B/op", per_op(from, to, ops)));
    }
    if let Some(dead) = last.dead {
        bench.tell(Line::alone("dead rows at the end", "rows", dead as f64));
    }
    if let Some(middle) = middle {
        let later = last.ops - middle.ops;
        let line = Line::alone("growth of the files, second half", "B/op", per_op(middle.bytes, last.bytes, later));
        bench.tell(line.note("as much as in the whole: nothing bloats"));
        bench.tell(Line::alone("memory at half time", "MiB", middle.memory as f64 / 1024.0));
    }
    bench.tell(Line::alone("memory at the end", "MiB", last.memory as f64 / 1024.0));
    Ok(())
}
