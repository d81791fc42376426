//! What shell ops do.

use crate::sandbox::{Sandbox, runs};
use serde_json::json;

/// An op whose failures come at once.
fn op(id: &str, rest: &str) -> String {
    format!("[[ops]]\nid = '{id}'\nkind = 'shell'\nretry = {{ max_attempts = 2, base = '1ms', jitter = 'none' }}\n{rest}\n")
}
fn file(ops: &[String]) -> Sandbox {
    Sandbox::with(&format!("name = 'w'\n{}", ops.concat()))
}

#[test]
fn the_result_is_what_the_command_printed() {
    let sandbox = file(&[op("a", "command = 'printf \"out ü\\n\"; echo err >&2'")]);
    sandbox.run().ok();
    let shown = sandbox.op("a");
    let expected = json!({"stdout": "out ü\n", "stderr_tail": "err\n", "exit_code": 0, "truncated": false, "lossy": false});
    assert_eq!(shown["op"]["result"], expected);
    assert_eq!(sandbox.leasehold(&["show", "w", "--output", "a"]).ok().stdout, "out ü\n");
}

#[test]
fn a_list_is_run_without_a_shell_and_a_text_by_one() {
    let sandbox = file(&[op("words", "command = ['echo', '$HOME', 'a  b']"), op("line", "command = 'echo $((1 + 1))'")]);
    sandbox.run().ok();
    assert_eq!(sandbox.op("words")["op"]["result"]["stdout"], "$HOME a  b\n");
    assert_eq!(sandbox.op("line")["op"]["result"]["stdout"], "2\n");
}

#[test]
fn folder_variables_and_standard_input_are_as_said() {
    let sandbox = file(&[
        op("cwd", "command = 'basename $(pwd)'\ncwd = 'sub'"),
        op("env", "command = 'echo $A $LEASEHOLD_WORKFLOW $LEASEHOLD_OP $LEASEHOLD_ATTEMPT'\nenv = { A = 'x y' }"),
        op("text", "command = 'cat'\nstdin = 'typed'"),
        op("none", "command = 'wc -c'"),
        op("from", "command = \"tr a-z A-Z\"\nstdin = { from = 'text' }\nafter = ['text']"),
        op("maker", "command = 'printf \"\\000\\377raw\" > $LEASEHOLD_ARTIFACTS/bytes'"),
        op("artifact", "command = 'od -An -tx1'\nstdin = { from = 'maker', artifact = 'bytes' }\nafter = ['maker']"),
    ]);
    std::fs::create_dir(sandbox.path("sub")).unwrap();
    sandbox.run().ok();
    let printed = |op: &str| sandbox.op(op)["op"]["result"]["stdout"].as_str().unwrap().to_owned();
    assert_eq!(printed("cwd"), "sub\n");
    let id = sandbox.leasehold(&["list", "--ids"]).ok().stdout;
    assert_eq!(printed("env"), format!("x y {} env 1\n", id.trim()));
    assert_eq!(printed("text"), "typed");
    assert_eq!(printed("none").trim(), "0");
    assert_eq!(printed("from"), "TYPED");
    assert_eq!(printed("artifact").trim(), "00 ff 72 61 77");
}

#[test]
fn the_input_is_a_file_and_a_variable_for_each_plain_value() {
    let sandbox = Sandbox::with(&format!(
        "name = 'w'\n[input]\nwho = 'a'\nn = 1\n{}",
        op("a", "command = 'echo $LEASEHOLD_INPUT_WHO $LEASEHOLD_INPUT_N; cat $LEASEHOLD_INPUT'")
    ));
    sandbox.leasehold(&["run", "w.toml", "--input", "who=b", "--input", r#"{"n": 2}"#]).ok();
    assert_eq!(sandbox.op("a")["op"]["result"]["stdout"], "b 2\n{\"n\":2,\"who\":\"b\"}");
}

#[test]
fn variables_of_an_op_that_started_leasehold_are_not_passed_on() {
    let sandbox = file(&[op("a", "command = 'echo ${LEASEHOLD_INPUT_WHO-none} $LEASEHOLD_OP'")]);
    let run = sandbox.command(&["run", "w.toml"]).env("LEASEHOLD_INPUT_WHO", "outer").env("LEASEHOLD_OP", "outer").status().unwrap();
    assert!(run.success());
    assert_eq!(sandbox.op("a")["op"]["result"]["stdout"], "none a\n");
}

#[test]
fn results_of_all_dependencies_are_lines_of_one_file() {
    let sandbox = file(&[
        op("a", "command = 'echo 1'"),
        op("b", "command = 'echo 2'"),
        op("soft", "command = 'exit 65'"),
        op("sum", "command = 'sort $LEASEHOLD_RESULTS'\nafter = ['a', 'b']\nafter_settled = ['soft']"),
    ]);
    sandbox.run().code(1);
    let printed = sandbox.op("sum")["op"]["result"]["stdout"].as_str().unwrap().to_owned();
    let lines: Vec<serde_json::Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<_> = lines.iter().map(|line| (line["op"].as_str().unwrap(), line["output"]["stdout"].as_str().unwrap())).collect();
    assert_eq!(told, [("a", "1\n"), ("b", "2\n")], "an op that failed has no result");
}

#[test]
fn exit_statuses_decide_what_happens_next() {
    let sandbox = file(&[
        op("again", "command = 'exit 1'"),
        op("later", "command = 'exit 75'"),
        op("never", "command = 'echo wrong data >&2; exit 65'"),
        op("unknown", "command = 'no-such-command-here'"),
        op("unknown-program", "command = ['no-such-program-here']"),
        op("killed", "command = 'kill -9 $$'"),
    ]);
    sandbox
        .run()
        .code(1)
        .says("op never: failed (data_error)")
        .says("leasehold retry")
        .says("never: data_error: exit status 65 (wrong input): wrong data");
    let attempts = |op: &str| {
        let shown = sandbox.op(op);
        (shown["attempts"].as_array().unwrap().len(), shown["op"]["error"]["code"].as_str().unwrap().to_owned())
    };
    assert_eq!(attempts("again"), (2, "exit_status".into()));
    assert_eq!(attempts("later"), (2, "exit_status".into()));
    assert_eq!(attempts("never"), (1, "data_error".into()));
    assert_eq!(attempts("unknown"), (1, "not_found".into()));
    assert_eq!(attempts("unknown-program"), (1, "not_found".into()));
    assert_eq!(attempts("killed"), (2, "signal".into()));
    let details = &sandbox.op("never")["op"]["error"]["details"];
    assert_eq!((&details["exit_code"], &details["stderr_tail"]), (&json!(65), &json!("wrong data\n")));
}

#[test]
fn every_attempt_has_its_number_and_the_same_key() {
    let sandbox = file(&[op("a", "command = 'echo $LEASEHOLD_ATTEMPT $LEASEHOLD_IDEMPOTENCY_KEY >> seen; [ $LEASEHOLD_ATTEMPT = 2 ]'")]);
    sandbox.run().ok();
    let seen = sandbox.read("seen");
    let words: Vec<&str> = seen.split_whitespace().collect();
    assert!(matches!(words[..], ["1", first, "2", second] if first == second && first.len() >= 32), "{seen}");
}

#[test]
fn long_output_is_cut_and_bytes_that_are_no_text_are_replaced_and_both_are_flagged() {
    let sandbox = file(&[
        op("long", "command = 'yes | head -c 300000'\noutput_limit = '1KiB'"),
        op("bytes", "command = 'printf \"a\\377\\000b\"'"),
        op("reader", "command = 'cat'\nstdin = { from = 'long' }\nafter = ['long']"),
    ]);
    sandbox.run().code(1);
    let long = &sandbox.op("long")["op"]["result"];
    // "y" and a line break are three bytes of JSON.
    assert_eq!((long["stdout"].as_str().unwrap().len(), &long["truncated"]), (683, &json!(true)));
    let bytes = &sandbox.op("bytes")["op"]["result"];
    assert_eq!((bytes["stdout"].as_str().unwrap(), &bytes["lossy"]), ("a\u{fffd}\u{fffd}b", &json!(true)));
    assert_eq!(sandbox.op("reader")["op"]["error"]["code"], "truncated", "half an output is not handed on in silence");
}

#[test]
fn files_left_behind_become_artifacts() {
    let sandbox = file(&[op(
        "a",
        "command = 'mkdir $LEASEHOLD_ARTIFACTS/sub; echo one > $LEASEHOLD_ARTIFACTS/sub/a.txt; echo two > b.csv'\nartifacts = ['b.csv']",
    )]);
    sandbox.run().ok().says("artifact a/sub/a.txt");
    assert_eq!(sandbox.leasehold(&["show", "w", "--artifact", "a/sub/a.txt"]).ok().stdout, "one\n");
    assert_eq!(sandbox.leasehold(&["show", "w", "--artifact", "a/b.csv"]).ok().stdout, "two\n");
    sandbox.leasehold(&["show", "w", "--artifact", "a/c"]).code(2).says("it has a/b.csv, a/sub/a.txt");
}

#[test]
fn a_command_adds_ops_that_others_then_wait_for() {
    let emit =
        r#"for n in 1 2 3; do echo '{"id":"n'$n'","kind":"shell","command":"echo '$n' >> done","before":["sum"]}'; done > $LEASEHOLD_EMIT"#;
    let sandbox = file(&[op("list", &format!("command = '''{emit}'''")), op("sum", "command = 'wc -l < done'\nafter = ['list']")]);
    sandbox.run().ok();
    assert_eq!(sandbox.op("sum")["op"]["result"]["stdout"].as_str().unwrap().trim(), "3");
    assert_eq!(sandbox.leasehold(&["list", "--json"]).ok().json()[0]["ops"]["total"], 5);
}

#[test]
fn a_bad_line_fails_the_op_for_good_and_adds_nothing() {
    let emit =
        r#"echo '{"id":"good","kind":"shell","command":"true"}' > $LEASEHOLD_EMIT; echo '{"id":"bad","kind":"shell"}' >> $LEASEHOLD_EMIT"#;
    let sandbox = file(&[op("list", &format!("command = '''{emit}'''"))]);
    sandbox.run().code(1).says("missing field `command`");
    assert_eq!(sandbox.op("list")["op"]["error"]["code"], "bad_emission");
    assert_eq!(sandbox.leasehold(&["list", "--json"]).ok().json()[0]["ops"]["total"], 1);
}

#[test]
fn a_command_that_fails_adds_nothing() {
    let emit = r#"echo '{"id":"more","kind":"shell","command":"true"}' > $LEASEHOLD_EMIT; exit 1"#;
    let sandbox = file(&[op("list", &format!("command = '''{emit}'''"))]);
    sandbox.run().code(1);
    assert_eq!(sandbox.leasehold(&["list", "--json"]).ok().json()[0]["ops"]["total"], 1);
}

#[test]
fn at_its_time_limit_the_whole_process_group_is_stopped() {
    let sandbox = file(&[op("a", "command = 'sleep 600 & echo $! > child; echo $$ > leader; wait'\ntime_limit = '500ms'")]);
    sandbox.run().code(1);
    assert_eq!(sandbox.op("a")["op"]["error"]["code"], "timed_out");
    assert!(!runs(&sandbox.read("leader")) && !runs(&sandbox.read("child")));
}

#[test]
fn a_group_that_ignores_sigterm_is_killed() {
    let sandbox = file(&[op(
        "a",
        "command = 'trap \"\" TERM; echo $$ > leader; while :; do sleep 1; done'\ntime_limit = '300ms'\nretry.max_attempts = 1",
    )
    .replace("retry = { max_attempts = 2, base = '1ms', jitter = 'none' }\n", "")]);
    sandbox.run().code(1);
    assert!(!runs(&sandbox.read("leader")));
}

#[test]
fn what_a_command_leaves_running_is_stopped_when_it_ends() {
    let sandbox = file(&[op("a", "command = 'sleep 600 & echo $! > child'")]);
    sandbox.run().ok();
    assert!(!runs(&sandbox.read("child")));
}

#[test]
fn output_is_streamed_on_request() {
    let sandbox = file(&[op("a", "command = 'echo to stdout; echo to stderr >&2'")]);
    sandbox.leasehold(&["run", "w.toml", "--stream"]).ok().says("[a] to stdout\n").says("[a] to stderr\n");
    let done = sandbox.leasehold(&["run", "w.toml", "--stream", "--json", "--new"]).ok();
    assert!(done.events().iter().any(|event| event["event"] == "op_output" && event["op"] == "a" && event["line"] == "to stdout"));
}

#[test]
fn a_limit_on_a_queue_holds() {
    let ops: Vec<String> = (0..6).map(|n| op(&format!("n{n}"), "queue = 'one'\ncommand = 'mkdir lock || exit 65; rmdir lock'")).collect();
    let sandbox = Sandbox::with(&format!("name = 'w'\n[queues.one]\nmax_in_flight = 1\n{}", ops.concat()));
    sandbox.leasehold(&["run", "w.toml", "--workers", "6"]).ok();
}
