//! A process that works on a store until its standard input ends.

use crate::Failure;
use crate::args::Work;
use crate::engine;
use std::io::BufRead;
use std::time::Duration;

/// Says `ready`, waits for a line, works, and at the end of the input says how much memory it needed at most.
pub(crate) async fn work(work: &Work) -> Result<(), Failure> {
    let store = leasehold::connect_existing(&work.store).await?;
    let (engine, _) = engine::engine(store, work.concurrency, Duration::from_millis(work.poll)).await?;
    println!("ready");
    if !next_line().await? {
        return Ok(());
    }
    let running = engine.start()?;
    while next_line().await? {}
    running.shutdown().await?;
    println!("{}", memory_peak()?);
    Ok(())
}

/// Waits for a line; `false` at the end of the input.
async fn next_line() -> Result<bool, Failure> {
    let read = tokio::task::spawn_blocking(|| std::io::stdin().lock().read_line(&mut String::new())).await??;
    Ok(read > 0)
}

/// The most memory that this process had, in KiB.
fn memory_peak() -> Result<u64, Failure> {
    memory("VmHWM:")
}

/// What the kernel says of this process's memory, in KiB.
pub(crate) fn memory(name: &str) -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB")?.trim().parse().ok());
    value.ok_or_else(|| format!("the kernel does not tell {name}").into())
}
