//! What `leasehold run` promises: the same command goes on, nothing is done twice, and the exit code tells how it ended.

use crate::sandbox::{Sandbox, runs, until};
use serde_json::{Value, json};

fn op(id: &str, rest: &str) -> String {
    format!("[[ops]]\nid = '{id}'\nkind = 'shell'\n{rest}\n")
}
fn file(ops: &[String]) -> Sandbox {
    Sandbox::with(&format!("name = 'w'\n{}", ops.concat()))
}

/// Waits in the op `a` until the file `go` is there.
const WAITING: &str = "command = 'echo $$ > a.pid; while ! [ -e go ]; do sleep 0.05; done; echo a >> log'";

#[test]
fn a_second_run_attaches_and_says_that_it_was_complete() {
    let sandbox = Sandbox::with(&format!("name = 'w'\nprint = 'a'\n{}", op("a", "command = 'echo ran >> log; echo the report is here'")));
    let first = sandbox.run().ok().says("created in sqlite:.leasehold/leasehold.db").says("succeeded, 1 op");
    assert_eq!(first.stdout, "the report is here\n");
    let second = sandbox.run().ok().says("was already complete");
    assert_eq!(second.stdout, "the report is here\n");
    assert_eq!(sandbox.read("log"), "ran\n");
    assert_eq!(sandbox.read(".leasehold/.gitignore"), "*\n");
}

#[test]
fn input_listed_files_and_new_make_another_workflow_and_the_environment_does_not() {
    let sandbox = Sandbox::with(&format!("name = 'w'\ninputs = ['data']\n[input]\nn = '1'\n{}", op("a", "command = 'true'")));
    sandbox.write("data", "one");
    let created = |arguments: &[&str]| sandbox.leasehold(&[&["run", "w.toml"], arguments].concat()).ok().stderr.contains("created");
    assert!(created(&[]));
    assert!(!created(&[]));
    assert!(!created(&["--input", "n=1"]), "the input it would have had anyway");
    assert!(created(&["--input", "n=2"]));
    sandbox.write("data", "two");
    assert!(created(&[]));
    sandbox.write("data", "one");
    assert!(!created(&[]));
    assert!(created(&["--new"]));
    assert!(created(&["--new"]));
    let done = sandbox.command(&["run", "w.toml"]).env("UNRELATED", "x").output().unwrap();
    assert!(String::from_utf8(done.stderr).unwrap().contains("already complete"));
}

#[test]
fn an_id_is_taken_as_given_and_belongs_to_one_identity() {
    let sandbox = file(&[op("a", "command = 'true'")]);
    sandbox.leasehold(&["run", "w.toml", "--id", "mine"]).ok();
    assert_eq!(sandbox.leasehold(&["list", "--ids"]).ok().stdout, "mine\n");
    sandbox.write("w.toml", &format!("name = 'w'\n{}", op("b", "command = 'true'")));
    sandbox.leasehold(&["run", "w.toml", "--id", "mine"]).code(2).says("belongs to");
}

#[test]
fn killed_and_run_again_it_goes_on_and_says_what_it_waits_for() {
    let sandbox = file(&[op("first", "command = 'echo first >> log'"), op("a", &format!("{WAITING}\nafter = ['first']"))]);
    let running = sandbox.spawn(&["run", "w.toml", "--lease", "2s"]);
    sandbox.until_file("a.pid");
    let orphan = sandbox.read("a.pid");
    running.signal("KILL");
    assert_eq!(running.end().code, None);
    until("the guard stops the processes of the killed run", || !runs(&orphan));
    sandbox.write("go", "");
    let again = sandbox.leasehold(&["run", "w.toml", "--lease", "2s"]).ok();
    let again = again.says("going on; 1 of 2 ops are done").says("waiting for 1 op leased by a process that is gone");
    assert_eq!(sandbox.read("log"), "first\na\n", "{}", again.stderr);
    let attempts = sandbox.op("a")["attempts"].as_array().unwrap().clone();
    let outcomes: Vec<&str> = attempts.iter().map(|attempt| attempt["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["abandoned", "succeeded"]);
    assert_eq!(sandbox.op("first")["attempts"].as_array().unwrap().len(), 1);
}

#[test]
fn nothing_is_left_of_a_killed_run() {
    let sandbox = file(&[op("a", WAITING)]);
    let running = sandbox.spawn(&["run", "w.toml"]);
    sandbox.until_file("a.pid");
    assert_eq!(sandbox.temporary_folders(), 1);
    running.signal("KILL");
    until("the guard removes the folder of the killed run", || sandbox.temporary_folders() == 0);
    // It was killed before; that takes a moment on a busy machine.
    until("the op is gone", || !runs(&sandbox.read("a.pid")));
}

#[test]
fn the_first_signal_lets_running_ops_finish_and_gives_the_rest_back() {
    for signal in ["INT", "TERM"] {
        let sandbox = file(&[op("a", WAITING), op("b", "command = 'echo b >> log'\nafter = ['a']")]);
        let running = sandbox.spawn(&["run", "w.toml"]);
        sandbox.until_file("a.pid");
        running.signal(signal);
        // Only a drain lets the op see this file.
        sandbox.write("go", "");
        let done =
            running.end().code(130).says("running ops are finished").says("1 of 2 ops are done. It goes on with: leasehold run w.toml");
        assert_eq!(sandbox.read("log"), "a\n", "{}", done.stderr);
        sandbox.run().ok().says("going on; 1 of 2 ops are done");
        assert_eq!(sandbox.read("log"), "a\nb\n");
        assert_eq!(sandbox.op("a")["attempts"].as_array().unwrap().len(), 1);
    }
}

#[test]
fn after_the_grace_running_ops_are_stopped_and_given_back_at_no_cost() {
    let sandbox = file(&[op("a", &format!("{WAITING}\nretry = {{ max_attempts = 1 }}"))]);
    let running = sandbox.spawn(&["run", "w.toml", "--grace", "100ms"]);
    sandbox.until_file("a.pid");
    running.signal("INT");
    running.end().code(130);
    assert!(!runs(&sandbox.read("a.pid")));
    sandbox.write("go", "");
    sandbox.run().ok();
    let attempts = sandbox.op("a")["attempts"].as_array().unwrap().clone();
    let outcomes: Vec<&str> = attempts.iter().map(|attempt| attempt["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["released", "succeeded"]);
}

#[test]
fn the_second_signal_stops_at_once_and_leaves_no_process() {
    let sandbox = file(&[op("a", WAITING)]);
    let mut command = sandbox.command(&["run", "w.toml"]);
    let log = std::fs::File::create(sandbox.path("stderr")).unwrap();
    let mut child = command.stderr(log).spawn().unwrap();
    sandbox.until_file("a.pid");
    let signal = || assert!(std::process::Command::new("kill").args(["-s", "INT", &child.id().to_string()]).status().unwrap().success());
    signal();
    until("the first signal is answered", || sandbox.read("stderr").contains("once more stops at once"));
    signal();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    until("the guard stops the op", || !runs(&sandbox.read("a.pid")));
}

#[test]
fn an_op_that_must_not_be_repeated_is_asked_about_behind_an_interruption() {
    let sandbox = file(&[op("a", &format!("{WAITING}\neffect = 'once'")), op("b", "command = 'echo b >> log'\nafter = ['a']")]);
    let running = sandbox.spawn(&["run", "w.toml", "--grace", "100ms"]);
    sandbox.until_file("a.pid");
    running.signal("INT");
    running.end().code(130).says("op a: nobody knows what attempt 1 did");
    let stands = sandbox.op("a");
    assert_eq!(
        (&stands["op"]["status"], &stands["op"]["wait"]["for"], &stands["op"]["wait"]["attempt"]),
        (&json!("waiting"), &json!("verdict"), &json!(1))
    );
    let shown = sandbox.leasehold(&["show", "w"]).ok().stdout;
    assert!(shown.contains("for a verdict on attempt 1"), "{shown}");
    // A later run cannot go on either, and says why.
    let again = sandbox.spawn(&["run", "w.toml", "--json"]);
    sandbox.leasehold(&["settle", "w", "a"]).code(2);
    sandbox.leasehold(&["settle", "w", "a", "--retry", "--fail", "no"]).code(2);
    sandbox.leasehold(&["settle", "w", "a", "--succeed", "no JSON"]).code(2).says("no JSON");
    sandbox.leasehold(&["settle", "w", "a", "--retry", "--attempt", "9"]).code(1).says("attempt 1, not on 9");
    let settled = sandbox.leasehold(&["settle", "w", "a", "--succeed", "{\"paid\": 7}", "--by", "ann", "--reason", "the bank has it"]).ok();
    assert!(settled.stdout.contains("op a is succeeded now"), "{}", settled.stdout);
    sandbox.leasehold(&["settle", "w", "a", "--retry"]).code(1).says("it waits for no verdict");
    let events = again.end().ok().events();
    let asked = events.iter().filter(|event| event["event"] == "waiting_for_verdict").count();
    assert!(asked <= 1, "it is said once, unless the verdict was quicker: {events:?}");
    assert_eq!((sandbox.read("log").as_str(), &sandbox.op("a")["op"]["result"]), ("b\n", &json!({"paid": 7})));
}

#[test]
fn a_failed_workflow_names_its_ops_and_is_repaired_by_retry() {
    let failing = "command = '[ -e repaired ] || { echo no part >&2; exit 1; }'\nretry = { max_attempts = 1 }";
    let sandbox = file(&[
        op("good", "command = 'echo good >> log'"),
        op("bad", failing),
        op("below", "command = 'echo below >> log'\nafter = ['bad', 'good']"),
    ]);
    let failed =
        sandbox.run().code(1).says("failed; 1 of 3 ops failed, 1 blocked by them").says("bad: exit_status: exit status 1: no part");
    assert!(failed.stderr.contains("leasehold retry "), "{}", failed.stderr);
    sandbox.run().code(1).says("failed; 1 of 3 ops failed");
    sandbox.write("repaired", "");
    sandbox.leasehold(&["retry", "w", "--by", "ann", "--reason", "the part is here"]).ok();
    sandbox.run().ok();
    assert_eq!(sandbox.read("log"), "good\nbelow\n");
}

#[test]
fn a_canceled_workflow_ends_a_run_with_its_own_code() {
    let sandbox = file(&[op("a", WAITING), op("b", "command = 'true'\nafter = ['a']")]);
    let running = sandbox.spawn(&["run", "w.toml", "--lease", "1s"]);
    sandbox.until_file("a.pid");
    sandbox.leasehold(&["cancel", "w"]).ok();
    running.end().code(3).says("canceled");
    assert!(!runs(&sandbox.read("a.pid")), "its process was stopped");
    sandbox.run().code(3).says("canceled");
}

#[test]
fn two_runs_of_one_file_share_the_work() {
    let ops: Vec<String> = (0..20).map(|n| op(&format!("n{n}"), &format!("command = 'echo {n} >> log'"))).collect();
    let sandbox = file(&ops);
    let (one, two) = (sandbox.spawn(&["run", "w.toml"]), sandbox.spawn(&["run", "w.toml"]));
    one.end().ok();
    two.end().ok();
    let mut lines: Vec<u32> = sandbox.read("log").lines().map(|line| line.parse().unwrap()).collect();
    lines.sort_unstable();
    assert_eq!(lines, (0..20).collect::<Vec<_>>());
}

#[test]
fn what_another_run_left_in_the_store_does_not_begin_to_move() {
    let emit = r#"echo '{"id":"emitted","kind":"shell","queue":"one","command":"echo emitted >> log"}' > $LEASEHOLD_EMIT"#;
    let sandbox = Sandbox::with(&format!(
        "name = 'w'\n[queues.one]\nmax_in_flight = 1\n{}{}",
        op("a", &format!("{WAITING}\nqueue = 'one'")),
        op("list", &format!("command = '''{emit}'''")),
    ));
    let running = sandbox.spawn(&["run", "w.toml", "--grace", "100ms", "--workers", "2"]);
    sandbox.until_file("a.pid");
    let ops = |what: &str| sandbox.leasehold(&["list", "--json", "--name", "w"]).ok().json()[0]["ops"][what].as_i64();
    until("the other op is added", || ops("total") == Some(3));
    running.signal("INT");
    running.end().code(130);
    sandbox.write("go", "");
    sandbox.write("other.toml", &format!("name = 'other'\n{}", op("c", "command = 'echo c >> log'")));
    sandbox.leasehold(&["run", "other.toml"]).ok();
    assert_eq!((sandbox.read("log").as_str(), ops("ready")), ("c\n", Some(2)));
    sandbox.run().ok();
    assert_eq!((sandbox.read("log").lines().count(), ops("succeeded")), (3, Some(3)));
}

#[test]
fn a_workflow_is_resumed_without_its_file() {
    let sandbox = file(&[op("a", "command = '[ -e go ] || exit 65'")]);
    sandbox.leasehold(&["run", "w.toml", "--new"]).code(1).says("leasehold run --resume ");
    std::fs::remove_file(sandbox.path("w.toml")).unwrap();
    sandbox.write("go", "");
    let retried = sandbox.leasehold(&["retry", "w"]).ok();
    assert!(retried.stdout.contains("leasehold run --resume "), "{}", retried.stdout);
    sandbox.leasehold(&["run", "--resume", "w"]).ok().says("succeeded, 1 op");
    sandbox.leasehold(&["run", "--resume", "no-such"]).code(2).says("no-such");
}

#[test]
fn for_programs_every_event_is_a_line_and_the_last_says_how_it_ended() {
    let sandbox = Sandbox::with(&format!(
        "name = 'w'\nprint = 'a'\n{}",
        op("a", "command = 'echo hi; echo x > $LEASEHOLD_ARTIFACTS/x.txt; [ $LEASEHOLD_ATTEMPT = 2 ]'\nretry.base = '1ms'")
    ));
    let done = sandbox.leasehold(&["run", "w.toml", "--json"]).ok();
    let events = done.events();
    let names: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    let expected = ["run", "op_leased", "op_retried", "op_leased", "op_succeeded", "workflow_updated", "end"];
    assert!(expected.iter().all(|name| names.contains(name)), "{names:?}");
    assert_eq!((names.first(), names.last()), (Some(&"run"), Some(&"end")));
    let retried = events.iter().find(|event| event["event"] == "op_retried").unwrap();
    assert_eq!((&retried["op"], &retried["attempt"], &retried["code"]), (&json!("a"), &json!(1), &json!("exit_status")));
    let end = events.last().unwrap();
    assert_eq!((&end["status"], &end["exit_code"], &end["output"]), (&json!("succeeded"), &json!(0), &json!("hi\n")));
    assert_eq!((&end["artifacts"][0]["name"], &end["events_dropped"]), (&json!("x.txt"), &json!(0)));
    assert!(done.stderr.is_empty(), "{}", done.stderr);
}

#[test]
fn quiet_says_only_how_it_ended() {
    let sandbox = file(&[op("a", "command = 'true'")]);
    let done = sandbox.leasehold(&["run", "w.toml", "--quiet"]).ok();
    assert_eq!((done.stdout.as_str(), done.stderr.lines().count()), ("", 1), "{}", done.stderr);
}

#[test]
fn a_store_that_cannot_be_used_is_told_with_its_own_code() {
    let sandbox = file(&[op("a", "command = 'true'")]);
    sandbox.write("junk.db", &"this is no database. ".repeat(1000));
    sandbox.leasehold(&["run", "w.toml", "--store", "sqlite:junk.db"]).code(7).says("junk.db");
    sandbox.leasehold(&["run", "w.toml", "--store", "sqlite:."]).says("sqlite:.");
    sandbox.leasehold(&["run", "w.toml", "--store", "nosuch:x"]).code(2).says("nosuch:x");
}

#[test]
fn many_small_ops_are_all_done_once() {
    let emit = r#"i=0; while [ $i -lt 500 ]; do echo '{"id":"n'$i'","kind":"shell","command":["true"],"queue":"many","before":["end"]}'; i=$((i+1)); done > $LEASEHOLD_EMIT"#;
    let sandbox =
        file(&[op("list", &format!("command = '''{emit}'''")), op("end", "command = 'wc -l < $LEASEHOLD_RESULTS'\nafter = ['list']")]);
    let done = sandbox.leasehold(&["run", "w.toml", "--json"]).ok();
    let succeeded = done.events().iter().filter(|event| event["event"] == "op_succeeded").count();
    assert_eq!(succeeded, 502);
    assert_eq!(sandbox.op("end")["op"]["result"]["stdout"].as_str().unwrap().trim(), "501");
    let end: Value = done.events().pop().unwrap();
    assert_eq!(end["ops"]["succeeded"], 502);
}
