//! Every suite runs, small, on both databases, and its report says something of everything.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a helper of tests fails like a test")]

use leasehold_test_postgres::Server;
use serde_json::Value;
use std::process::Command;

const SUITES: [&str; 8] = ["drain", "enqueue", "latency", "graph", "backlog", "recovery", "heartbeat", "soak"];

fn report(suite: &str, store: &str) -> Value {
    // So few that all suites together take seconds; a sample of latency is a workflow, and rests in between.
    let ops = if suite == "latency" { "4" } else { "200" };
    let run = Command::new(env!("CARGO_BIN_EXE_leasehold-bench"))
        .args([suite, "--store", store, "--ops", ops, "--rounds", "1", "--seconds", "1", "--json"])
        .output()
        .unwrap();
    assert!(run.status.success(), "{suite} on {store}: {}", String::from_utf8_lossy(&run.stderr));
    serde_json::from_slice(&run.stdout).unwrap()
}

fn check(suite: &str, store: &str) {
    let report = report(suite, store);
    assert_eq!(report["suite"], suite);
    assert_eq!(report["settings"]["rounds"], "1");
    let lines = report["lines"].as_array().unwrap();
    assert!(!lines.is_empty(), "{suite} measured nothing");
    for line in lines {
        assert!(line["engine"].as_f64().is_some_and(f64::is_finite), "{suite}: {line}");
        let floored = line["floor"].as_f64();
        assert!(floored.is_none_or(|floor| floor.is_finite() && floor > 0.0), "{suite}: {line}");
        assert_eq!(floored.is_some(), line["ratio"].is_number(), "{suite}: {line}");
    }
}

#[test]
fn every_suite_reports_on_sqlite() {
    for suite in SUITES {
        check(suite, "sqlite");
    }
}

#[test]
fn every_suite_reports_on_postgres() {
    let url = Server::shared().unwrap().url();
    for suite in SUITES {
        check(suite, url);
    }
}

#[test]
fn a_report_becomes_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("heartbeat.json");
    std::fs::write(&file, serde_json::to_vec(&report("heartbeat", "sqlite")).unwrap()).unwrap();
    let page = Command::new(env!("CARGO_BIN_EXE_leasehold-bench")).arg("page").arg(&file).output().unwrap();
    let page = String::from_utf8(page.stdout).unwrap();
    assert!(page.starts_with("### heartbeat, sqlite"), "{page}");
    assert!(page.contains("| 200 leases renewed |"), "{page}");
}
