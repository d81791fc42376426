//! Leases of dead workers, taken back in bounded passes.

use super::Bench;
use crate::Failure;
use crate::clock::{micros, quantile, rate, timed};
use crate::engine::{self, claim_all, plain};
use crate::report::Line;
use leasehold::model::Micros;
use leasehold::store::{StoreExt, TxKind};
use leasehold::transitions::{BatchLimit, recover};
use std::time::Instant;

/// How long the leases last: they are over when the recovery begins.
const LEASE: Micros = Micros::from_millis(1);

pub(super) async fn run(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let leases = bench.settings.ops_or(100_000);
    let batch = BatchLimit::DEFAULT;
    let (mut floors, mut engines, mut passes) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.settings.rounds {
        let place = bench.place.fresh();
        floors.push(rate(leases, place.floor()?.recover(leases, batch.get())?));
        drop(place);

        let place = bench.place.fresh();
        let store = engine::new_store(&place.url()).await?;
        let each = 1_000.min(leases);
        engine::create(store.as_ref(), (0..leases / each).map(|_| plain(each)))?;
        claim_all(store.as_ref(), leases / each * each, LEASE)?;
        tokio::time::sleep(LEASE.as_duration() * 2).await;
        let begun = Instant::now();
        let mut recovered = 0;
        while recovered < leases / each * each {
            let (pass, took) = timed(|| store.with(TxKind::Maintenance, |tx| recover(tx, batch)))?;
            if pass.ops.is_empty() {
                return Err(format!("{recovered} leases of {leases} were recovered").into());
            }
            recovered += u64::try_from(pass.ops.len())?;
            passes.push(micros(took) / 1e3);
        }
        engines.push(rate(recovered, begun.elapsed()));
    }
    let line = Line::against(&format!("{leases} expired leases recovered"), "op/s", &floors, &engines);
    let note = format!("passes of {}: the floor moves rows from one table to another, without ledger, events or counters", batch.get());
    bench.tell(line.note(note));
    bench.tell(Line::alone("the longest pass in a hundred", "ms", quantile(&passes, 0.99)));
    Ok(())
}
