//! The application's own transaction, where Postgres is particular: isolation levels, search paths (B5, O3).

use crate::common::{World, insert_workflow, workflow};
use diesel::QueryableByName;
use diesel::connection::SimpleConnection;
use diesel::pg::PgConnection;
use diesel::prelude::*;
use leasehold_core::store::rows::UpdateCursor;
use leasehold_core::store::{BoxError, StoreError, StoreExt, Tx, TxKind, Wait};

/// The levels at which a transaction goes on seeing what was there when it began.
const OLD_SNAPSHOTS: [&str; 2] = ["REPEATABLE READ", "SERIALIZABLE"];

#[derive(QueryableByName)]
struct Path {
    #[diesel(sql_type = diesel::sql_types::Text)]
    path: String,
}

fn search_path(conn: &mut PgConnection) -> String {
    diesel::sql_query("SELECT current_setting('search_path') AS path").get_result::<Path>(conn).unwrap().path
}

fn nothing(tx: &mut dyn Tx) -> Result<(), StoreError> {
    tx.now().map(drop)
}

#[test]
fn outside_a_transaction_the_door_is_shut_with_advice() {
    let world = World::new();
    let mut conn = world.schema.connect().unwrap();
    let refused = world.store.on(&mut conn, nothing).unwrap_err();
    let StoreError::Rejected(reason) = refused else { panic!("{refused:?}") };
    assert!(reason.to_string().contains("begin one"), "{reason}");
}

#[test]
fn an_old_snapshot_updates_nothing_behind_a_readers_cursor() {
    for level in OLD_SNAPSHOTS {
        let world = World::new();
        workflow(&world.store, "first");
        let mut conn = world.schema.connect().unwrap();
        conn.batch_execute(&format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM workflows")).unwrap();
        // The clock stands: each of these is an update later than the last, and a reader goes past them.
        for id in ["a", "b", "c"] {
            workflow(&world.store, id);
        }
        let seen = world.store.with(TxKind::Read, |tx| tx.workflows_since(None, 100)).unwrap();
        let last = seen.last().unwrap();
        let cursor = UpdateCursor { updated_at: last.updated_at, seq: last.seq };
        assert_eq!(seen.len(), 4);
        let late = world.store.on(&mut conn, |tx| insert_workflow(tx, "late")).unwrap();
        conn.batch_execute("COMMIT").unwrap();
        let found = world.store.with(TxKind::Read, |tx| tx.workflows_since(Some(cursor), 100)).unwrap();
        assert_eq!(found.iter().map(|row| row.seq).collect::<Vec<_>>(), [late], "{level}");
    }
}

#[test]
fn what_an_old_snapshot_cannot_see_is_a_conflict_and_never_a_guess() {
    for level in OLD_SNAPSHOTS {
        let world = World::new();
        let seq = workflow(&world.store, "w");
        let mut conn = world.schema.connect().unwrap();
        conn.batch_execute(&format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM workflows")).unwrap();
        world.ready(seq, "q", 1);
        world
            .store
            .with(TxKind::Client, |tx| {
                tx.lock_workflows(&[seq], Wait::Block)?;
                tx.write(&leasehold_core::store::rows::WriteSet { workflows: vec![crate::common::change(seq)], ..Default::default() })
            })
            .unwrap();
        let refused = world.store.on(&mut conn, |tx| tx.lock_workflows(&[seq], Wait::Block)).unwrap_err();
        assert!(matches!(refused, StoreError::Conflict(_)), "{level}: {refused:?}");
    }
}

#[test]
fn the_applications_search_path_is_its_own_again_whatever_happened() {
    let world = World::new();
    let mut conn = world.schema.connect().unwrap();
    conn.batch_execute("SET search_path TO mine, public").unwrap();
    conn.transaction(|conn| {
        world.store.on(conn, |tx| insert_workflow(tx, "w"))?;
        assert_eq!(search_path(conn), "mine, public");
        let refused: Result<(), BoxError> = world.store.on(conn, |tx| {
            insert_workflow(tx, "x")?;
            Err("no".into())
        });
        assert!(refused.is_err());
        assert_eq!(search_path(conn), "mine, public");
        Ok::<_, BoxError>(())
    })
    .unwrap();
    let found = world.store.with(TxKind::Read, |tx| tx.workflows_since(None, 10)).unwrap();
    assert_eq!(found.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), ["w"]);
}

#[test]
fn an_application_may_nest_its_transactions() {
    let world = World::new();
    let committed: Result<(), BoxError> = world.store.transaction(|conn| {
        let inner: Result<(), BoxError> = conn.transaction(|conn| {
            world.store.on(conn, |tx| insert_workflow(tx, "undone"))?;
            Err("the inner one rolls back".into())
        });
        assert!(inner.is_err());
        conn.transaction(|conn| world.store.on(conn, |tx| insert_workflow(tx, "kept")).map(drop).map_err(BoxError::from))
    });
    committed.unwrap();
    let found = world.store.with(TxKind::Read, |tx| tx.workflows_since(None, 10)).unwrap();
    assert_eq!(found.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), ["kept"]);
}
