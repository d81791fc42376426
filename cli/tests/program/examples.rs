//! The examples run as they are.

use crate::sandbox::{Sandbox, until};
use std::path::Path;

/// A folder with the examples and a few files, as a fresh clone has them.
fn clone() -> Sandbox {
    let sandbox = Sandbox::new();
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    copy(&repository.join("examples"), &sandbox.path("examples"));
    sandbox
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn digest_tree_goes_on_after_a_kill_with_the_same_report() {
    let undisturbed = clone();
    for n in 0..40 {
        undisturbed.write(&format!("file {n}.txt"), &"line\n".repeat(n));
    }
    let done = undisturbed.leasehold(&["run", "examples/digest-tree.toml"]).ok();
    assert!(done.stdout.starts_with("the report is in .leasehold/digest-tree-report.txt: "), "{}", done.stdout);
    let report = undisturbed.read(".leasehold/digest-tree-report.txt");
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 0 0 file 0.txt\n";
    assert!(report.contains(empty), "{report}");
    let artifact = undisturbed.leasehold(&["show", "digest-tree", "--artifact", "report/digest-tree-report.txt"]).ok();
    assert_eq!(artifact.stdout, report);

    let killed = clone();
    for n in 0..40 {
        killed.write(&format!("file {n}.txt"), &"line\n".repeat(n));
    }
    let arguments = ["run", "examples/digest-tree.toml", "--lease", "1s"];
    let succeeded = |at_least: i64| {
        let listed = killed.leasehold(&["list", "--json"]);
        listed.code == Some(0) && listed.json()[0]["ops"]["succeeded"].as_i64().is_some_and(|count| count >= at_least)
    };
    let mut kills = 0;
    for at_least in [1, 10, 25] {
        let running = killed.spawn(&arguments);
        until("some ops are done", || succeeded(at_least));
        running.signal("KILL");
        kills += usize::from(running.end().code.is_none());
    }
    killed.leasehold(&arguments).ok();
    assert_eq!(killed.read(".leasehold/digest-tree-report.txt"), report, "after {kills} kills");
    killed.leasehold(&arguments).ok().says("was already complete");

    let shown = killed.leasehold(&["show", "digest-tree", "--json", "--limit", "10000"]).ok().json();
    for op in shown["ops"].as_array().unwrap() {
        let id = op["id"].as_str().unwrap();
        let attempts = killed.leasehold(&["show", "digest-tree", "--op", id, "--json"]).ok().json()["attempts"].as_array().unwrap().clone();
        let successes = attempts.iter().filter(|attempt| attempt["outcome"] == "succeeded").count();
        assert_eq!(successes, 1, "{id}: {attempts:?}");
    }
}

#[test]
fn repair_fails_and_goes_on_after_the_retry() {
    let sandbox = clone();
    sandbox.leasehold(&["run", "examples/repair.toml"]).code(1).says("the folder .leasehold/parts is missing");
    std::fs::create_dir(sandbox.path(".leasehold/parts")).unwrap();
    sandbox.leasehold(&["retry", "repair"]).ok();
    let done = sandbox.leasehold(&["run", "examples/repair.toml"]).ok();
    assert_eq!(done.stdout, "a bicycle: one frame,two tyres\n");
}
