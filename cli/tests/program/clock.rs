//! A store whose clock went back, and an operator who trusts it.

use crate::sandbox::Sandbox;
use leasehold::model::Micros;
use leasehold::store::{ClockReading, StoreExt, StoreResult, TxKind};
use serde_json::json;

/// A store that has been in use, and whose clock then showed a time an hour from now.
fn an_hour_ahead() -> Sandbox {
    let sandbox = Sandbox::with("name = 'w'\n[[ops]]\nid = 'a'\nkind = 'shell'\ncommand = 'true'\n");
    sandbox.run().ok();
    let url = format!("sqlite:{}", sandbox.path(".leasehold/leasehold.db").display());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let store = runtime.block_on(leasehold::connect_existing(&url)).unwrap();
    let ahead: StoreResult<()> = store.with(TxKind::Client, |tx| {
        let clock = tx.lock_clock()?;
        let mark = clock.now.after(Micros::from_secs(3_600)).ok();
        tx.set_clock(&ClockReading { mark, ..clock })
    });
    ahead.unwrap();
    sandbox
}

#[test]
fn a_clock_that_is_right_is_relied_on() {
    let sandbox = Sandbox::with("name = 'w'\n[[ops]]\nid = 'a'\nkind = 'shell'\ncommand = 'true'\n");
    sandbox.leasehold(&["clock", "status"]).code(2).says(".leasehold/leasehold.db does not exist");
    sandbox.run().ok();
    let shown = sandbox.leasehold(&["clock", "status"]).ok().stdout;
    assert!(shown.contains("relied on  yes"), "{shown}");
    let json = sandbox.leasehold(&["clock", "status", "--json"]).ok().json();
    assert_eq!((&json["held"], &json["tolerance_ms"], &json["anomaly_since"]), (&json!(false), &json!(5_000), &json!(null)));
    assert!(json["mark"].is_string(), "the run has led the store's upkeep, and remembered the time: {json}");
}

#[test]
fn a_clock_that_went_back_holds_until_it_is_trusted() {
    let sandbox = an_hour_ahead();
    let shown = sandbox.leasehold(&["clock", "status"]).ok().stdout;
    assert!(shown.contains("relied on  no") && shown.contains("behind     59 min"), "{shown}");
    assert!(shown.contains("leasehold clock trust"), "{shown}");
    let json = sandbox.leasehold(&["clock", "status", "--json"]).ok().json();
    assert_eq!(json["held"], true);
    assert!(json["behind_ms"].as_u64().unwrap() > 3_500_000);
    let status = sandbox.leasehold(&["status"]).ok().stdout;
    assert!(status.contains("clock      59 min") && status.contains("behind"), "{status}");
    assert_eq!(sandbox.leasehold(&["status", "--json"]).ok().json()["clock"]["held"], true);
    // A run says why it stands still.
    let run = sandbox.spawn(&["run", "w.toml", "--new"]);
    crate::sandbox::until("the anomaly is recorded", || {
        !sandbox.leasehold(&["clock", "status", "--json"]).ok().json()["anomaly_since"].is_null()
    });
    run.signal("INT");
    run.end().code(130).says("nothing is started until it is right again, or trusted");
    let trusted = sandbox.leasehold(&["clock", "trust", "--by", "ann", "--reason", "a dead battery"]).ok().stdout;
    assert!(trusted.starts_with("the clock is relied on from "), "{trusted}");
    assert_eq!(sandbox.leasehold(&["clock", "status", "--json"]).ok().json()["held"], false);
    assert!(!sandbox.leasehold(&["status"]).ok().stdout.contains("clock "));
    sandbox.leasehold(&["run", "w.toml", "--new"]).ok();
}

#[test]
fn trust_says_what_it_brought_back() {
    let sandbox = an_hour_ahead();
    let json = sandbox.leasehold(&["clock", "trust", "--leases-within", "10m", "--json"]).ok().json();
    assert_eq!((&json["ready"], &json["leases"]), (&json!(0), &json!(0)));
    assert!(json["before"].is_string() && json["now"].is_string(), "{json}");
    sandbox.leasehold(&["clock", "trust", "--leases-within", "0s"]).code(2);
    sandbox.leasehold(&["clock"]).code(2);
}
