//! Each error of SQLite, provoked, and what it is sorted as.

use super::*;
use crate::{SqliteOptions, SqliteStore};
use diesel::connection::SimpleConnection;
use diesel::sqlite::SqliteConnection;
use diesel::{Connection, RunQueryDsl};
use leasehold_core::model::{QueueName, QueuePolicy};
use leasehold_core::store::{SchemaError, Store, StoreExt, SystemClock, TxKind};
use std::path::Path;
use std::sync::Arc;

fn open(path: &Path) -> Result<SqliteStore, StoreError> {
    let mut options = SqliteOptions::from(path);
    options.call_deadline = Duration::from_millis(50);
    SqliteStore::open(options, Arc::new(SystemClock))
}

fn raw(path: &Path) -> SqliteConnection {
    SqliteConnection::establish(path.to_str().unwrap()).unwrap()
}

fn reason(error: &StoreError) -> String {
    std::error::Error::source(error).unwrap().to_string()
}

#[test]
fn a_folder_as_path_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let error = open(folder.path()).unwrap_err();
    assert!(matches!(&error, StoreError::Rejected(_)) && reason(&error).contains("is a folder"), "{error:?}");
}

#[test]
fn a_missing_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = open(&folder.path().join("missing").join("store.db")).unwrap_err();
    assert!(matches!(&error, StoreError::Rejected(_)) && reason(&error).contains("missing does not exist"), "{error:?}");
}

#[test]
fn a_missing_file_is_made_only_by_open() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let error = SqliteStore::open_existing(path.as_path(), Arc::new(SystemClock)).unwrap_err();
    assert!(matches!(&error, StoreError::Rejected(_)) && reason(&error).contains("there is no database"), "{error:?}");
    assert!(!path.exists());
    open(&path).unwrap();
    SqliteStore::open_existing(path.as_path(), Arc::new(SystemClock)).unwrap();
}

#[test]
fn a_file_that_is_not_a_database_is_corrupt_and_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    let text = "these are my notes, and they are no database at all. ".repeat(100);
    std::fs::write(&path, &text).unwrap();
    let error = open(&path).unwrap_err();
    assert!(matches!(&error, StoreError::Corrupt(_)), "{error:?}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn a_torn_database_is_corrupt() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    drop(open(&path).unwrap());
    let mut bytes = std::fs::read(&path).unwrap();
    for byte in &mut bytes[100..] {
        *byte = 0xa5;
    }
    std::fs::write(&path, bytes).unwrap();
    let error = open(&path).unwrap_err();
    assert!(matches!(&error, StoreError::Corrupt(_)), "{error:?}");
}

#[test]
fn a_file_that_is_marked_read_only_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    drop(open(&path).unwrap());
    let mut permissions = std::fs::metadata(&path).unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(&path, permissions).unwrap();
    let error = open(&path).unwrap_err();
    assert!(matches!(&error, StoreError::ReadOnly(_)) && reason(&error).contains("read-only"), "{error:?}");
}

#[test]
fn a_write_that_sqlite_refuses_as_read_only_is_sorted_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    drop(open(&path).unwrap());
    let mut conn = SqliteConnection::establish(&format!("file:{}?mode=ro", path.display())).unwrap();
    let error = diesel::sql_query("DELETE FROM ready").execute(&mut conn).unwrap_err();
    let error = store_error(error);
    assert!(matches!(&error, StoreError::ReadOnly(_)), "{error:?}");
}

#[test]
fn a_full_disk_is_full_at_the_start_and_later() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let mut options = SqliteOptions::from(path.as_path());
    options.max_pages = Some(4);
    let error = SqliteStore::open(options.clone(), Arc::new(SystemClock)).unwrap_err();
    assert!(matches!(&error, StoreError::Full(_)), "{error:?}");
    // Half a schema is none.
    let error = SqliteStore::open_existing(path.as_path(), Arc::new(SystemClock)).unwrap_err();
    assert!(matches!(&error, StoreError::Schema(SchemaError::Older { found: 0, .. })), "{error:?}");

    options.max_pages = Some(80);
    let store = SqliteStore::open(options, Arc::new(SystemClock)).unwrap();
    let policies: Vec<QueuePolicy> =
        (0..20_000).map(|n| QueuePolicy::unlimited(QueueName::new(format!("a queue of number {n}")).unwrap())).collect();
    let error = store.with(TxKind::Client, |tx| tx.set_policies(&policies)).unwrap_err();
    assert!(matches!(&error, StoreError::Full(_)), "{error:?}");
    store.with(TxKind::Client, |tx| tx.set_policies(&policies[..1])).unwrap();
    assert_eq!(store.with(TxKind::Read, |tx| tx.policies()).unwrap().len(), 1);
}

#[test]
fn a_store_in_memory_outlives_a_full_transaction() {
    let mut options = SqliteOptions::from(":memory:");
    options.max_pages = Some(80);
    let store = SqliteStore::open(options, Arc::new(SystemClock)).unwrap();
    let policies: Vec<QueuePolicy> =
        (0..20_000).map(|n| QueuePolicy::unlimited(QueueName::new(format!("a queue of number {n}")).unwrap())).collect();
    store.with(TxKind::Client, |tx| tx.set_policies(&policies[..1])).unwrap();
    let error = store.with(TxKind::Client, |tx| tx.set_policies(&policies)).unwrap_err();
    assert!(matches!(&error, StoreError::Full(_)), "{error:?}");
    assert_eq!(store.with(TxKind::Read, |tx| tx.policies()).unwrap().len(), 1);
}

#[test]
fn a_file_that_another_process_keeps_locked_is_busy_without_naming_a_lock_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = open(&path).unwrap();
    let mut other = raw(&path);
    other.batch_execute("BEGIN IMMEDIATE").unwrap();
    let queue = [QueuePolicy::unlimited(QueueName::default())];
    for error in [store.with(TxKind::Client, |tx| tx.set_policies(&queue)).unwrap_err(), {
        // A first start has to write.
        other.batch_execute("DELETE FROM schema_info").unwrap();
        other.batch_execute("DROP TABLE schema_info; COMMIT; BEGIN IMMEDIATE").unwrap();
        open(&path).unwrap_err()
    }] {
        assert!(matches!(&error, StoreError::Busy(_)) && !reason(&error).contains("locked"), "{error:?}: {}", reason(&error));
    }
    assert!(store.with(TxKind::Read, |tx| tx.policies()).is_err(), "the schema is gone");
}

#[test]
fn readers_are_not_in_a_writers_way() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = open(&path).unwrap();
    let mut other = raw(&path);
    other.batch_execute("BEGIN IMMEDIATE").unwrap();
    assert!(store.with(TxKind::Read, |tx| tx.policies()).unwrap().is_empty());
    assert_eq!(store.describe().unwrap().schema, crate::SCHEMA_VERSION);
}

#[test]
fn a_store_whose_file_was_removed_does_not_go_on_in_an_empty_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a%20name?with#marks.db");
    let store = open(&path).unwrap();
    store.with(TxKind::Read, |tx| tx.policies()).unwrap();
    let mut options = SqliteOptions::from(path.as_path());
    options.call_deadline = Duration::from_millis(50);
    let gone = SqliteStore::open_existing(options, Arc::new(SystemClock)).unwrap();
    std::fs::remove_file(&path).unwrap();
    let error = gone.with(TxKind::Read, |tx| tx.policies()).unwrap_err();
    assert!(matches!(&error, StoreError::Unavailable(_)), "{error:?}");
    assert!(!path.exists());
}

#[test]
fn a_broken_constraint_and_bad_sql_are_rejected() {
    let mut conn = SqliteConnection::establish(":memory:").unwrap();
    conn.batch_execute("CREATE TABLE t (n INTEGER PRIMARY KEY, m INTEGER NOT NULL CHECK (m > 0))").unwrap();
    for sql in [
        "INSERT INTO t VALUES (1, 1), (1, 2)",
        "INSERT INTO t VALUES (1, 0)",
        "INSERT INTO t VALUES (1, NULL)",
        "INSERT INTO absent VALUES (1)",
        "INSERT INTO t VALUES ('text', 1)",
        "no sql",
    ] {
        let error = store_error(conn.batch_execute(sql).unwrap_err());
        assert!(matches!(&error, StoreError::Rejected(_)), "{sql}: {error:?}");
    }
}

#[test]
fn a_path_that_cannot_be_opened_is_unavailable() {
    let error = connection_error(SqliteConnection::establish("/dev/null/store.db").err().unwrap());
    assert!(matches!(&error, StoreError::Unavailable(_)), "{error:?}");
}

#[test]
fn every_variant_is_the_same_for_another_member() {
    let errors = [
        StoreError::Conflict("a".into()),
        StoreError::Busy("b".into()),
        StoreError::Unavailable("c".into()),
        StoreError::Full("d".into()),
        StoreError::ReadOnly("e".into()),
        StoreError::Corrupt("f".into()),
        StoreError::Rejected("g".into()),
        StoreError::Schema(SchemaError::Older { found: 0, known: 1 }),
        StoreError::RolledBack,
    ];
    for error in errors {
        assert_eq!(format!("{:?}", again(&error)), format!("{error:?}"));
    }
}
