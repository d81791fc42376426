//! `doctor` and `why`, on a store that is sound, spoiled, or none.

use crate::sandbox::Sandbox;
use leasehold::model::WorkflowId;
use leasehold::store::rows::OpPage;
use leasehold::store::{Store, StoreError, StoreExt, TxKind};
use serde_json::json;
use std::sync::Arc;

const CHAIN: &str = "name = 'w'\n
[[ops]]\nid = 'bad'\nkind = 'shell'\nretry = { max_attempts = 1 }\ncommand = 'echo broken >&2; exit 1'\n
[[ops]]\nid = 'middle'\nkind = 'shell'\ncommand = 'true'\nafter = ['bad']\n
[[ops]]\nid = 'end'\nkind = 'shell'\ncommand = 'true'\nafter = ['middle']\n";

fn failed() -> Sandbox {
    let sandbox = Sandbox::with(CHAIN);
    sandbox.run().code(1);
    sandbox
}

fn store(sandbox: &Sandbox) -> Arc<dyn Store> {
    let url = format!("sqlite:{}", sandbox.path(".leasehold/leasehold.db").display());
    tokio::runtime::Runtime::new().unwrap().block_on(leasehold::connect(&url)).unwrap()
}

#[test]
fn why_names_the_op_that_failed_however_far_up_it_is() {
    let sandbox = failed();
    let told = sandbox.leasehold(&["why", "w", "end"]).ok().stdout;
    assert!(told.starts_with("op end of w is blocked\n  bad failed since 2"), "{told}");
    assert!(told.contains(": exit_status: exit status 1: broken"), "{told}");
    let json = sandbox.leasehold(&["why", "w", "end", "--json"]).ok().json();
    assert_eq!((&json["status"], &json["roots"][0]["op"]), (&json!("blocked"), &json!("bad")));
    let whole = sandbox.leasehold(&["why", "w"]).ok().stdout;
    assert!(whole.contains("is failed\n  bad failed since"), "{whole}");
    sandbox.leasehold(&["why", "w", "nobody"]).code(2).says("has no op");
}

#[test]
fn doctor_finds_what_was_spoiled_and_repairs_it() {
    let sandbox = failed();
    assert!(sandbox.leasehold(&["doctor"]).ok().stdout.contains("looked at  1 workflow, 3 ops"));
    sandbox.leasehold(&["retry", "w"]).ok();
    let id = sandbox.leasehold(&["list", "--ids"]).ok().stdout;
    let id = WorkflowId::new(id.trim()).unwrap();
    let spoil = |tx: &mut dyn leasehold::store::Tx| {
        let workflow = tx.workflows(std::slice::from_ref(&id))?.pop().unwrap().seq;
        let ops = tx.list_ops(workflow, &OpPage { status: None, after: None, limit: 10 })?;
        tx.unqueue(&ops.iter().map(|op| op.state.seq).collect::<Vec<_>>())
    };
    store(&sandbox).with::<_, StoreError>(TxKind::Client, spoil).unwrap();
    let found = sandbox.leasehold(&["doctor", "--json"]).code(1).json();
    assert_eq!(found["findings"].as_array().unwrap().len(), 1);
    assert_eq!((&found["findings"][0]["op"], &found["findings"][0]["drift"]), (&json!("bad"), &json!("nowhere")));
    let people = sandbox.leasehold(&["doctor"]).code(1).stdout;
    assert!(people.contains("bad nowhere: ") && people.contains("put right by: leasehold doctor --repair"), "{people}");
    let repaired = sandbox.leasehold(&["doctor", "--repair", "--by", "ann", "--json"]).ok().json();
    assert_eq!((&repaired["sound"], &repaired["repaired"][0]["drift"]), (&json!(true), &json!("nowhere")));
    sandbox.leasehold(&["doctor"]).ok();
    let why = sandbox.leasehold(&["why", "w", "end"]).ok().stdout;
    assert!(why.contains("is pending\n  bad ready since") && why.contains("waits for a worker that runs shell"), "{why}");
}

#[test]
fn doctor_tells_a_corrupt_store_from_a_missing_and_from_an_older_one() {
    let sandbox = Sandbox::new();
    sandbox.leasehold(&["doctor"]).code(2).says("does not exist");
    sandbox.write("garbage.db", &"no database ".repeat(1_000));
    sandbox.leasehold(&["doctor", "--store", "sqlite:garbage.db"]).code(7);
    sandbox.write("empty.db", "");
    sandbox.leasehold(&["doctor", "--store", "sqlite:empty.db"]).code(8);
}
