//! A worker reduced to its lease: it shows what each verb answers once the lease is lost.

use crate::{HEARTBEAT, LEASE, Outcome, say};
use leasehold::model::{ErrorClass, KindName, LeaseToken, OpError, WorkerName};
use leasehold::prelude::*;
use leasehold::store::rows::ClaimedOp;
use leasehold::store::{StoreError, StoreExt, TxKind, Wait};
use leasehold::transitions::{self, CLOCK_TOLERANCE, ClaimCursor, ClaimRequest, End, Ended, Finish, HeartbeatOutcome};
use std::sync::Arc;
use std::thread::sleep;

/// What the holder takes.
pub(crate) const KIND: &str = "held";

/// Takes one op, renews its lease until it is lost, and then tries to complete, fail, release and renew it.
pub(crate) async fn run(store: Arc<dyn Store>, name: &str) -> Outcome {
    let name = name.to_owned();
    // Everything here blocks.
    tokio::task::spawn_blocking(move || hold(store.as_ref(), &name)).await?
}

fn hold(store: &dyn Store, name: &str) -> Outcome {
    let op = loop {
        if let Some(op) = claim(store, name)? {
            break op;
        }
        sleep(HEARTBEAT);
    };
    say(name, &format!("holds {} (attempt {})", op.op_id, op.lease.key.fence.0));
    loop {
        sleep(HEARTBEAT);
        match heartbeat(store, &op) {
            Ok(HeartbeatOutcome::Held(_)) => {}
            Ok(HeartbeatOutcome::Lost) => break,
            Ok(HeartbeatOutcome::ClockBehind) => say(name, "the store's clock is behind the lease"),
            Err(error) => say(name, &format!("heartbeat failed: {error}")),
        }
    }
    let mut refused = true;
    let result = Json::encode("too late")?;
    let complete = End::Complete { result, artifacts: Vec::new(), records: Vec::new(), emitted: None };
    let fail = End::Fail { error: OpError::new("late", "too late"), class: ErrorClass::Retryable, delay: None };
    for (verb, end) in [("complete", complete), ("fail", fail), ("release", End::Release)] {
        let ended = finish(store, &op, end)?;
        say(name, &format!("{verb} {}: {ended:?}", op.op_id));
        refused &= ended == Ended::LeaseLost;
    }
    let renewed = heartbeat(store, &op)?;
    say(name, &format!("heartbeat {}: {renewed:?}", op.op_id));
    refused &= renewed == HeartbeatOutcome::Lost;
    if refused { Ok(()) } else { Err("a lost lease still did something".into()) }
}

fn claim(store: &dyn Store, name: &str) -> Outcome<Option<ClaimedOp>> {
    let request = ClaimRequest {
        token: LeaseToken::random(),
        worker: WorkerName::new(format!("holder-{name}"))?,
        lease: Micros::try_from(LEASE)?,
        capacity: 1,
        kinds: Some(vec![KindName::new(KIND)?]),
        agents: Vec::new(),
        cursor: ClaimCursor::default(),
        suspects: true,
        repeated: false,
        tolerance: CLOCK_TOLERANCE,
    };
    Ok(store.with(TxKind::Claim, |tx| transitions::claim(tx, &request))?.ops.pop())
}

fn heartbeat(store: &dyn Store, op: &ClaimedOp) -> Result<HeartbeatOutcome, StoreError> {
    let by = Micros::from_secs(u32::try_from(LEASE.as_secs()).unwrap_or(u32::MAX));
    let mut answers = store.with(TxKind::Heartbeat, |tx| transitions::heartbeat(tx, &[op.lease.key], by))?;
    Ok(answers.pop().unwrap_or(HeartbeatOutcome::Lost))
}

fn finish(store: &dyn Store, op: &ClaimedOp, end: End) -> Result<Ended, StoreError> {
    let batch = [Finish { lease: op.lease.key, workflow: op.lease.workflow, op_id: op.op_id.clone(), site: op.site.clone(), end }];
    let report = store.with(TxKind::Commit, |tx| transitions::finish(tx, &batch, Wait::Block))?;
    Ok(report.outcomes.into_iter().next().unwrap_or(Ended::LeaseLost))
}
