//! The network between workers and server falls silent and comes back, or its connections turn out to be dead (L11, B4).

mod common;

use common::{Load, audit_all, template};
use leasehold_test_faults::database::TestDatabase;
use leasehold_test_faults::proxy::{Mode, Proxy};
use leasehold_test_faults::{long, seed};
use std::time::Duration;

/// Tenths of a second from one silence to the next.
const PERIOD: usize = 50;

/// How long the silences are, in turn, and whether what was said meanwhile arrives in the end: shorter than a lease, and
/// longer.
const SILENCES: [(usize, bool); 4] = [(10, true), (30, false), (30, true), (10, false)];

#[test]
fn a_network_that_falls_silent_costs_time_and_nothing_else() {
    let seed = seed();
    let times: usize = if long() { 12 } else { 2 };
    let database = TestDatabase::new().unwrap();
    let proxy = Proxy::start(&database.store_url()).unwrap();
    let mut load = Load::start(&database.store_url(), template(proxy.url(), "silent"), 4, seed);
    let time = Duration::from_millis(100) * u32::try_from(times * PERIOD).unwrap();
    let expected = load.run(time, Duration::from_mins(3), |_, round| {
        // The first of them is the second, so that a short run holds a silence longer than a lease of each sort.
        let (which, at) = (round / PERIOD + 1, round % PERIOD);
        let Some((length, arrives)) = SILENCES.iter().cycle().nth(which).copied() else { return };
        if at == 0 {
            proxy.set_mode(Mode::Silent);
        } else if at == length {
            if !arrives {
                proxy.drop_connections();
            }
            proxy.set_mode(Mode::Pass);
        }
    });
    let reports = load.stop();
    let summary = audit_all(&mut database.connect().unwrap(), &expected, &reports);
    eprintln!("{} workflows asked for; {times} silences; {summary:?}", expected.len());
    assert!(expected.len() > 20, "there was load");
    assert!(summary.abandoned > 0, "leases ran out in the silence");
}
