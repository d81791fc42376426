//! Leases that one process holds, all renewed by one call.

use super::Bench;
use crate::Failure;
use crate::clock::{micros, timed};
use crate::engine::{self, claim_all, plain};
use crate::report::Line;
use leasehold::model::Micros;
use leasehold::store::{StoreExt, TxKind};
use leasehold::transitions::{HeartbeatOutcome, heartbeat};

/// How long the leases last.
const LEASE: Micros = Micros::from_secs(600);

pub(super) async fn run(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let leases = bench.settings.ops_or(10_000);
    let rounds = bench.settings.rounds.max(1);
    let place = bench.place.fresh();
    let store = engine::new_store(&place.url()).await?;
    engine::create(store.as_ref(), [plain(leases)])?;
    let keys: Vec<_> = claim_all(store.as_ref(), leases, LEASE)?.into_iter().map(|op| op.lease.key).collect();
    let (mut floors, mut engines) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let floor = bench.place.fresh();
        floors.extend(floor.floor()?.renew(leases, 3)?.into_iter().map(|took| micros(took) / 1e3));
        for _ in 0..3 {
            let (outcomes, took) = timed(|| store.with(TxKind::Heartbeat, |tx| heartbeat(tx, &keys, LEASE)))?;
            if outcomes.iter().any(|outcome| !matches!(outcome, HeartbeatOutcome::Held(_))) {
                return Err("a lease was lost".into());
            }
            engines.push(micros(took) / 1e3);
        }
    }
    let line = Line::against(&format!("{leases} leases renewed"), "ms", &floors, &engines);
    bench.tell(line.note("the floor updates as many rows with an indexed expiry by key, and proves nothing"));
    Ok(())
}
