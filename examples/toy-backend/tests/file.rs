//! What the file holds up to.

use leasehold_core::model::{QueueName, QueuePolicy};
use leasehold_core::store::{Store, StoreError, StoreExt, StoreResult, SystemClock, TxKind};
use leasehold_toy_backend::ToyStore;
use std::path::Path;
use std::sync::Arc;

fn open(path: &Path) -> StoreResult<ToyStore> {
    ToyStore::open(path, Arc::new(SystemClock))
}

fn policy(most: u32) -> QueuePolicy {
    QueuePolicy { max_in_flight: Some(most), ..QueuePolicy::unlimited(QueueName::default()) }
}

fn limit(store: &ToyStore) -> StoreResult<Option<u32>> {
    store.with(TxKind::Read, |tx| Ok(tx.policies()?.first().and_then(|policy| policy.max_in_flight)))
}

/// Many handles, as many processes have them, each add one to one number: none is lost.
#[test]
fn transactions_of_all_handles_come_one_after_the_other() {
    const EACH: u32 = 20;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let store = open(&path).unwrap();
                for _ in 0..EACH {
                    let added: StoreResult<()> = store.with(TxKind::Client, |tx| {
                        let before = tx.policies()?.first().and_then(|policy| policy.max_in_flight).unwrap_or(0);
                        tx.set_policies(&[policy(before + 1)])
                    });
                    added.unwrap();
                }
            });
        }
    });
    assert_eq!(limit(&open(&path).unwrap()).unwrap(), Some(3 * EACH));
}

/// Killed before the rename: what it had written so far is not the store.
#[test]
fn a_commit_that_was_cut_off_is_as_if_it_had_never_begun() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    open(&path).unwrap().with(TxKind::Client, |tx| tx.set_policies(&[policy(1)])).unwrap();
    std::fs::write(folder.path().join("store.new"), "leasehold toy 1, commit 2\n{\"policy\":{\"si").unwrap();
    let store = open(&path).unwrap();
    assert_eq!(limit(&store).unwrap(), Some(1));
    store.with(TxKind::Client, |tx| tx.set_policies(&[policy(2)])).unwrap();
    assert_eq!(limit(&open(&path).unwrap()).unwrap(), Some(2));
}

#[test]
fn a_file_of_something_else_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    for text in ["dear diary\n", "", "leasehold toy 1, commit 1\n{\"policy\":7}\n"] {
        std::fs::write(&path, text).unwrap();
        assert!(matches!(open(&path), Err(StoreError::Corrupt(_))), "{text:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
}

/// A folder that is not there takes no lock: nothing runs, nothing is written.
#[test]
fn a_store_that_cannot_be_written_runs_no_body() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("nowhere").join("store")).unwrap();
    let outcome = store.transact(TxKind::Client, &mut |_| panic!("the body ran"));
    assert!(matches!(outcome, Err(StoreError::Unavailable(_))), "{outcome:?}");
}
