//! The application's own transaction, where SQLite is particular: one writer, and transactions that begin deferred (B5).
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;
use leasehold_core::store::{StoreError, SystemClock, Tx};
use leasehold_sqlite::SqliteStore;
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;

struct World {
    store: SqliteStore,
    path: PathBuf,
    _folder: TempDir,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app.db");
        Self { store: SqliteStore::open(path.as_path(), Arc::new(SystemClock)).unwrap(), path, _folder: folder }
    }

    fn connect(&self) -> SqliteConnection {
        SqliteConnection::establish(self.path.to_str().unwrap()).unwrap()
    }
}

fn nothing(tx: &mut dyn Tx) -> Result<(), StoreError> {
    tx.now().map(drop)
}

fn advice(refused: Result<(), StoreError>) -> String {
    match refused {
        Err(StoreError::Rejected(reason)) => reason.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_deferred_transaction_that_has_read_what_is_no_longer_so_is_refused_with_advice() {
    let world = World::new();
    let mut conn = world.connect();
    conn.batch_execute("CREATE TABLE business (note TEXT NOT NULL)").unwrap();
    conn.batch_execute("BEGIN; SELECT count(*) FROM business").unwrap();
    world.connect().batch_execute("INSERT INTO business (note) VALUES ('somebody else''s')").unwrap();
    let advice = advice(world.store.on(&mut conn, nothing));
    assert!(advice.contains("DEFERRED") && advice.contains("immediate_transaction"), "{advice}");
    conn.batch_execute("ROLLBACK").unwrap();
    // As advised.
    conn.immediate_transaction(|conn| world.store.on(conn, nothing).map_err(|_| diesel::result::Error::RollbackTransaction)).unwrap();
}

#[test]
fn a_deferred_transaction_that_nobody_overtook_becomes_a_writer() {
    let world = World::new();
    let mut conn = world.connect();
    conn.batch_execute("CREATE TABLE business (note TEXT NOT NULL)").unwrap();
    conn.batch_execute("BEGIN; SELECT count(*) FROM business").unwrap();
    world.store.on(&mut conn, nothing).unwrap();
    conn.batch_execute("COMMIT").unwrap();
}

#[test]
fn outside_a_transaction_the_door_is_shut_and_none_is_left_open() {
    let world = World::new();
    let mut conn = world.connect();
    assert!(advice(world.store.on(&mut conn, nothing)).contains("begin one IMMEDIATE"));
    conn.batch_execute("BEGIN IMMEDIATE; ROLLBACK").unwrap();
}

#[test]
fn a_store_in_memory_lends_no_connection() {
    let store = SqliteStore::open(":memory:", Arc::new(SystemClock)).unwrap();
    assert!(advice(store.transaction(|_| Ok(()))).contains("use a file"));
}
