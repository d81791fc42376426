//! Files that cannot be run: told with the file, the op and the field, and nothing is stored.

use crate::sandbox::Sandbox;

#[track_caller]
fn refused(text: &str, says: &str) {
    let sandbox = Sandbox::with(text);
    let done = sandbox.run().code(2).says(says);
    assert!(done.stderr.contains("w.toml"), "the file is named: {}", done.stderr);
    assert!(done.stdout.is_empty());
    if sandbox.has(".leasehold/leasehold.db") {
        let listed = sandbox.leasehold(&["list", "--json"]).ok().json();
        assert_eq!(listed.as_array().unwrap().len(), 0, "nothing is stored");
    }
}

const OP: &str = "[[ops]]\nid = \"a\"\nkind = \"shell\"\ncommand = \"true\"\n";

#[test]
fn an_unknown_field_is_named_with_the_closest_one() {
    refused(&format!("name = 'w'\n{OP}afer = ['b']\n"), r#"op "a": unknown field "afer"; did you mean "after"?"#);
}

#[test]
fn an_unknown_dependency_names_both_ops() {
    refused(&format!("name = 'w'\n{OP}after = ['missing']\n"), r#"op "a" depends on "missing", which is not an op"#);
}

#[test]
fn a_cycle_names_its_ops() {
    let second = OP.replace("\"a\"", "\"b\"");
    refused(&format!("name = 'w'\n{OP}after = ['b']\n{second}after = ['a']\n"), "in a circle");
    refused(&format!("name = 'w'\n{OP}after = ['a']\n"), r#"op "a" depends on itself"#);
}

#[test]
fn a_doubled_id_is_named() {
    refused(&format!("name = 'w'\n{OP}{OP}"), r#"op "a" is there twice"#);
}

#[test]
fn a_wrong_value_names_op_and_field() {
    refused(&format!("name = 'w'\n{OP}time_limit = '10 parsecs'\n"), r#"op "a": field "time_limit": "10 parsecs" is not a duration"#);
    refused(&format!("name = 'w'\n[queues.q]\nmax_in_flight = 0\n{OP}"), "queues.q.max_in_flight");
    refused("name = 'w'\n[[ops]]\nid = 'a'\nkind = 'http'\nurl = 'ftp://x/'\n", r#"op "a": field "url""#);
}

#[test]
fn everything_wrong_is_told_at_once() {
    let sandbox = Sandbox::with("nam = 'w'\n[[ops]]\nid = 'a'\n[[ops]]\nid = 'b'\nkind = 'perl'\n");
    let done = sandbox.run().code(2).says("unknown field \"nam\"").says("missing field `name`").says("op \"a\"").says("op \"b\"");
    assert!(!sandbox.has(".leasehold"), "not even a store is made: {}", done.stderr);
}

#[test]
fn an_error_of_syntax_names_the_line() {
    refused("name = 'w'\nops = = 1\n", "line 2");
}

#[test]
fn a_file_that_is_not_there_or_of_no_known_format_is_told() {
    let sandbox = Sandbox::new();
    sandbox.leasehold(&["run", "no.toml"]).code(2).says("no.toml: cannot be read");
    sandbox.write("w.ini", "");
    sandbox.leasehold(&["run", "w.ini"]).code(2).says(".toml, .yaml, .yml or .json");
    std::fs::create_dir(sandbox.path("d.toml")).unwrap();
    sandbox.leasehold(&["run", "d.toml"]).code(2).says("is not a file");
}

#[test]
fn a_listed_input_that_is_not_there_is_told() {
    refused(&format!("name = 'w'\ninputs = ['no-such-file']\n{OP}"), r#"field "inputs": "no-such-file" cannot be read"#);
}

#[test]
fn an_input_that_the_file_does_not_declare_is_told() {
    let sandbox = Sandbox::with(&format!("name = 'w'\n[input]\npages = 1\n{OP}"));
    sandbox.leasehold(&["run", "w.toml", "--input", "page=2"]).code(2).says("did you mean \"pages\"?");
}

#[test]
fn the_same_workflow_in_three_formats_is_the_same_workflow() {
    let sandbox = Sandbox::with(&format!("name = 'w'\n{OP}"));
    sandbox.write("w.yaml", "name: w\nops:\n  - id: a\n    kind: shell\n    command: 'true'\n");
    sandbox.write("w.json", r#"{"ops": [{"kind": "shell", "command": "true", "id": "a"}], "name": "w"}"#);
    sandbox.run().ok();
    sandbox.leasehold(&["run", "w.yaml"]).ok().says("was already complete");
    sandbox.leasehold(&["run", "w.json"]).ok().says("was already complete");
}
