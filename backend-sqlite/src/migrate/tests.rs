//! Starting together, and schemas of other programs.

use super::*;
use crate::{SqliteOptions, SqliteStore};
use diesel::Connection;
use diesel::connection::SimpleConnection;
use leasehold_core::store::{Clock, Store, StoreExt, SystemClock, TxKind};
use std::path::Path;
use std::sync::{Arc, Barrier};

fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

fn raw(path: &Path) -> SqliteConnection {
    SqliteConnection::establish(path.to_str().unwrap()).unwrap()
}

#[test]
fn five_that_start_together_on_an_empty_file_all_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let together = Barrier::new(5);
    std::thread::scope(|scope| {
        let starts: Vec<_> = (0..5)
            .map(|_| {
                scope.spawn(|| {
                    together.wait();
                    let store = SqliteStore::open(path.as_path(), clock())?;
                    store.with(TxKind::Read, |tx| tx.totals())
                })
            })
            .collect();
        for start in starts {
            start.join().unwrap().unwrap();
        }
    });
    let store = SqliteStore::open_existing(path.as_path(), clock()).unwrap();
    let info = store.describe().unwrap();
    assert_eq!((info.backend, info.schema, info.location), ("sqlite", SCHEMA_VERSION, path.display().to_string()));
}

#[test]
fn a_schema_for_newer_programs_is_refused_by_name_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    raw(&path)
        .batch_execute(
            "CREATE TABLE schema_info (id INTEGER PRIMARY KEY, version, writable_since); INSERT INTO schema_info VALUES (1, 9, 8)",
        )
        .unwrap();
    let before = std::fs::read(&path).unwrap();
    for opened in [SqliteStore::open(path.as_path(), clock()), SqliteStore::open_existing(path.as_path(), clock())] {
        let refused = opened.err();
        assert!(
            matches!(refused, Some(StoreError::Schema(SchemaError::Newer { found: 9, needed: 8, known: SCHEMA_VERSION }))),
            "{refused:?}"
        );
    }
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn a_newer_schema_that_still_takes_this_program_is_used_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    drop(SqliteStore::open(path.as_path(), clock()).unwrap());
    raw(&path).batch_execute("UPDATE schema_info SET version = version + 1").unwrap();
    let store = SqliteStore::open(path.as_path(), clock()).unwrap();
    assert_eq!(store.describe().unwrap().schema, SCHEMA_VERSION + 1);
}

#[test]
fn a_file_without_a_schema_is_older_for_whoever_does_not_migrate() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    raw(&path).batch_execute("CREATE TABLE business (n INTEGER)").unwrap();
    let refused = SqliteStore::open_existing(path.as_path(), clock()).err();
    assert!(matches!(refused, Some(StoreError::Schema(SchemaError::Older { found: 0, known: SCHEMA_VERSION }))), "{refused:?}");
    // An application's own tables may share the file.
    SqliteStore::open(path.as_path(), clock()).unwrap();
    raw(&path).batch_execute("INSERT INTO business VALUES (1)").unwrap();
}

#[test]
fn a_step_that_fails_leaves_the_file_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    // A table of the same name is in the migration's way after it has made others.
    raw(&path).batch_execute("CREATE TABLE leases (n INTEGER)").unwrap();
    let refused = SqliteStore::open(path.as_path(), clock()).err();
    assert!(matches!(refused, Some(StoreError::Rejected(_))), "{refused:?}");
    let found = schema(&mut raw(&path)).unwrap();
    assert_eq!(found, None);
    raw(&path).batch_execute("DROP TABLE leases").unwrap();
    SqliteStore::open(path.as_path(), clock()).unwrap();
}

#[test]
fn the_version_that_is_known_is_the_migrations() {
    let store = SqliteStore::open(SqliteOptions::from(":memory:"), clock()).unwrap();
    assert_eq!(store.describe().unwrap().schema, SCHEMA_VERSION);
}
