//! The operators' commands: they work on the store with no worker running.

use crate::sandbox::Sandbox;
use serde_json::json;

fn op(id: &str, rest: &str) -> String {
    format!("[[ops]]\nid = '{id}'\nkind = 'shell'\nretry = {{ max_attempts = 1 }}\n{rest}\n")
}

/// A store with a failed workflow `w` and a succeeded one `good`.
fn two_workflows() -> Sandbox {
    let sandbox = Sandbox::with(&format!(
        "name = 'w'\n[queues.q]\nmax_in_flight = 3\nrate = {{ per_second = 100 }}\n{}{}{}{}",
        op("ok", "command = 'echo fine'"),
        op("bad", "command = 'echo broken >&2; exit 1'\nqueue = 'q'"),
        op("worse", "command = 'exit 65'"),
        op("below", "command = 'true'\nafter = ['bad']"),
    ));
    sandbox.write("good.toml", &format!("name = 'good'\n{}", op("a", "command = 'true'")));
    sandbox.run().code(1);
    sandbox.leasehold(&["run", "good.toml"]).ok();
    sandbox
}

#[test]
fn without_a_store_every_command_says_where_it_looked() {
    let sandbox = Sandbox::new();
    for command in [&["status"][..], &["list"], &["show", "w"], &["retry", "w"], &["cancel", "w"], &["settle", "w", "a", "--retry"]] {
        sandbox.leasehold(command).code(2).says(".leasehold/leasehold.db does not exist");
    }
    assert!(!sandbox.has(".leasehold"));
}

#[test]
fn list_shows_the_newest_first_and_filters() {
    let sandbox = two_workflows();
    let listed = sandbox.leasehold(&["list"]).ok().stdout;
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[0].starts_with("ID") && lines[1].contains("good") && lines[1].contains("1/1") && lines[2].contains("failed"), "{listed}");
    assert!(!listed.contains('\u{1b}'), "no colours but on a terminal");
    let json = sandbox.leasehold(&["list", "--json", "--status", "failed"]).ok().json();
    assert_eq!((json.as_array().unwrap().len(), &json[0]["name"]), (1, &json!("w")));
    assert_eq!(sandbox.leasehold(&["list", "--ids", "--limit", "1"]).ok().stdout.lines().count(), 1);
    assert_eq!(sandbox.leasehold(&["list", "--ids", "--limit", "0"]).ok().stdout, "");
}

#[test]
fn show_puts_first_what_somebody_has_to_look_at() {
    let sandbox = two_workflows();
    let shown = sandbox.leasehold(&["show", "w"]).ok().stdout;
    assert!(shown.contains("ops        4 (1 succeeded, 2 failed, 1 blocked)"), "{shown}");
    let table: Vec<&str> = shown.lines().skip_while(|line| !line.starts_with("OP")).collect();
    assert!(table[1].starts_with("bad") && table[1].ends_with("exit_status: exit status 1: broken"), "{shown}");
    assert!(table[2].starts_with("worse") && table[3].starts_with("below") && table[4].starts_with("ok"), "{shown}");
    let op = sandbox.leasehold(&["show", "w", "--op", "bad"]).ok().stdout;
    assert!(op.contains("kind       shell, queue q") && op.contains("broken"), "{op}");
    sandbox.leasehold(&["show", "w", "--op", "no-such"]).code(2).says("no-such");
    sandbox.leasehold(&["show", "no-such"]).code(2).says("`leasehold list` shows those there are");
}

#[test]
fn a_name_that_several_workflows_have_is_not_enough() {
    let sandbox = two_workflows();
    sandbox.leasehold(&["run", "good.toml", "--new"]).ok();
    let done = sandbox.leasehold(&["show", "good"]).code(2).says("several workflows are called \"good\"");
    assert_eq!(done.stderr.lines().count(), 3, "{}", done.stderr);
}

#[test]
fn status_counts_the_store() {
    let sandbox = two_workflows();
    let shown = sandbox.leasehold(&["status"]).ok().stdout;
    assert!(shown.contains("workflows  1 succeeded, 1 failed"), "{shown}");
    assert!(shown.contains("1 blocked, 2 succeeded, 2 failed"), "{shown}");
    let json = sandbox.leasehold(&["status", "--json"]).ok().json();
    assert_eq!((&json["workflows"]["failed"], &json["ops"]["failed"], &json["leases"]["live"]), (&json!(1), &json!(2), &json!(0)));
    let queue = json["queues"].as_array().unwrap().iter().find(|queue| queue["queue"] == "q").unwrap();
    assert_eq!(queue["policy"]["max_in_flight"], 3);
    assert_eq!(queue["policy"]["rate"], json!({"per_second": 100.0, "burst": 100}));
}

#[test]
fn retry_takes_all_failed_ops_or_those_that_are_named() {
    let sandbox = two_workflows();
    let one = sandbox.leasehold(&["retry", "w", "worse", "--json"]).ok().json();
    assert_eq!(one["ready"], json!(["worse"]));
    let rest = sandbox.leasehold(&["retry", "w", "--by", "ann"]).ok().stdout;
    assert!(rest.contains("1 op made ready: bad") && rest.contains("go on with: leasehold run w.toml"), "{rest}");
    sandbox.leasehold(&["retry", "w"]).code(1);
    sandbox.leasehold(&["retry", "w", "ok"]).code(1).says("ok");
    sandbox.leasehold(&["retry", "w", "no-such"]).code(2).says("no-such");
}

#[test]
fn cancel_is_final_and_a_succeeded_workflow_refuses_it() {
    let sandbox = two_workflows();
    let canceled = sandbox.leasehold(&["cancel", "w", "--reason", "not needed"]).ok().stdout;
    assert!(canceled.contains("canceled 1 op"), "{canceled}");
    sandbox.leasehold(&["retry", "w"]).code(1);
    sandbox.leasehold(&["cancel", "good"]).code(1);
}

#[test]
fn migrate_makes_the_schema_and_says_which() {
    let sandbox = Sandbox::new();
    let made = sandbox.leasehold(&["migrate", "--store", "sqlite:x.db"]).ok().stdout;
    assert!(made.contains("x.db: schema version "), "{made}");
    let json = sandbox.leasehold(&["migrate", "--store", "sqlite:x.db", "--json"]).ok().json();
    assert_eq!(json["backend"], "sqlite");
    assert!(json["schema"].as_i64().unwrap() > 0);
    sandbox.leasehold(&["list", "--store", "sqlite:x.db"]).ok();
}

#[test]
fn help_has_examples_and_exit_codes() {
    let sandbox = Sandbox::new();
    let help = sandbox.leasehold(&["--help"]).ok().stdout;
    assert!(help.contains("Examples:") && help.contains("Exit codes:"), "{help}");
    for command in ["run", "status", "list", "show", "retry", "cancel", "clock", "migrate"] {
        assert!(help.contains(command));
        sandbox.leasehold(&[command, "--help"]).ok();
    }
    sandbox.leasehold(&["no-such-command"]).code(2);
    sandbox.leasehold(&["run"]).code(2);
}
