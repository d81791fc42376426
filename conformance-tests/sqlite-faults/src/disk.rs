//! What processes do on disks that fill up or take no writes.

use crate::judge::Judge;
use crate::worker::{FLOW_OPS, engine, flow, open};
use crate::{Error, Result};
use leasehold_core::client::ClientError;
use leasehold_core::model::{QueueName, QueuePolicy};
use leasehold_core::store::{StoreError, StoreExt, TxKind};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How much is free when the work begins: enough for the schema and some workflows.
const FREE_BYTES: usize = 1 << 20;

/// How long what was refused may take once there is space again.
const PATIENCE: Duration = Duration::from_secs(30);

/// Opens the store in `file` and writes to it; says `written`, or the sort of the error and why.
///
/// # Errors
/// When nothing can be said.
pub fn open_and_write(file: &Path) -> Result<()> {
    let write = || -> Result<()> {
        let policy = [QueuePolicy::unlimited(QueueName::default())];
        open(file)?.with(TxKind::Client, |tx| tx.set_policies(&policy))?;
        Ok(())
    };
    writeln!(std::io::stdout(), "{}", write().map_or_else(|error| format!("{error:?}"), |()| "written".to_owned()))?;
    Ok(())
}

/// Works on a disk that fills up until the store is full, makes space, and goes on. Says how many workflows were
/// acknowledged before and after.
///
/// # Errors
/// When an error is anything but full, or the work does not go on by itself.
pub fn fill(folder: &Path) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let (file, ballast) = (folder.join("store.db"), folder.join("ballast"));
        let store = open(&file)?;
        let engine = engine(Arc::clone(&store), |_| ()).await?;
        let client = engine.client().with_patience(Duration::ZERO);
        let running = engine.start()?;
        write_ballast(&ballast, FREE_BYTES)?;

        let mut started = Vec::new();
        let refused = loop {
            match client.start(flow("full", 4_000)).await {
                Ok(flow) => started.push(flow),
                Err(error) => break error,
            }
        };
        if !matches!(refused, ClientError::Store(StoreError::Full(_))) {
            return Err(Error::from(format!("a full disk is reported as {refused:?}")));
        }
        let before = started.len();
        // The engine's own commits meet the full disk as well.
        tokio::time::sleep(Duration::from_secs(1)).await;
        fs::remove_file(&ballast)?;

        let after = engine.client().with_patience(PATIENCE).start(flow("after", 4_000)).await?;
        started.push(after);
        for flow in &started {
            tokio::time::timeout(PATIENCE, flow.wait()).await.map_err(|_| "the work does not go on")??;
        }
        let report = running.shutdown().await?;
        let mut judge = Judge::new(&file)?;
        judge.check(&[])?;
        judge.check_end(store, FLOW_OPS)?;
        if usize::try_from(judge.workflows()?)? != started.len() {
            return Err("a workflow that was refused is there".into());
        }
        writeln!(
            std::io::stdout(),
            "{before} workflows until it was full; {} ops succeeded, {} leases lost",
            report.succeeded,
            report.lost
        )?;
        Ok(())
    })
}

/// Leaves `free` bytes of the disk.
fn write_ballast(path: &Path, free: usize) -> Result<()> {
    let mut file = File::create(path)?;
    let block = vec![0; free];
    let mut written = 0;
    while let Ok(more) = file.write(&block) {
        if more == 0 {
            break;
        }
        written += more;
    }
    file.set_len(u64::try_from(written.saturating_sub(free))?)?;
    file.sync_all()?;
    Ok(())
}
