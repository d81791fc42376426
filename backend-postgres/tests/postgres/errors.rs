//! Each error is provoked, and sorted by what the caller can do about it.

use crate::common::{World, event, nothing};
use diesel::connection::SimpleConnection;
use leasehold_core::model::{Json, RequestId, WorkflowSeq};
use leasehold_core::store::rows::{Act, WriteSet};
use leasehold_core::store::{Store, StoreError, StoreExt, StoreResult, Tx, TxKind, Wait};
use leasehold_postgres::{PostgresOptions, PostgresStore};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;

fn lock(tx: &mut dyn Tx, workflow: WorkflowSeq) -> StoreResult<()> {
    tx.lock_workflows(&[workflow], Wait::Block).map(drop)
}

fn act() -> WriteSet {
    let act = Act {
        request: RequestId::random(),
        question: "q".to_owned(),
        answer: Json::null(),
        actor: "a".to_owned(),
        at: crate::common::at(0),
    };
    WriteSet { act: Some(act), ..WriteSet::default() }
}

fn reasons(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(reason) = source {
        text = format!("{text}: {reason}");
        source = reason.source();
    }
    text
}

#[test]
fn a_deadlock_is_a_conflict_for_one_and_nothing_for_the_other() {
    let world = World::new();
    let (a, b) = (world.workflow("a"), world.workflow("b"));
    let store = world.another("options=-c%20deadlock_timeout%3D20ms");
    let both_hold_one = std::sync::Barrier::new(2);
    let crossed = |one, other| {
        store.with(TxKind::Client, |tx| {
            lock(tx, one)?;
            both_hold_one.wait();
            lock(tx, other)
        })
    };
    let (left, right) = thread::scope(|scope| {
        let left = scope.spawn(|| crossed(a, b));
        let right = scope.spawn(|| crossed(b, a));
        (left.join().unwrap(), right.join().unwrap())
    });
    assert!(
        matches!((&left, &right), (Ok(()), Err(StoreError::Conflict(_))) | (Err(StoreError::Conflict(_)), Ok(()))),
        "{left:?} {right:?}"
    );
}

/// What `step` says while another session holds the row of its workflow.
fn against_a_holder(settings: &str) -> StoreError {
    let world = World::new();
    let workflow = world.workflow("w");
    let store = world.another(settings);
    let mut holder = world.schema.connect().unwrap();
    holder.batch_execute("BEGIN; SELECT seq FROM workflows FOR UPDATE").unwrap();
    let error = store.with(TxKind::Client, |tx| lock(tx, workflow)).unwrap_err();
    holder.batch_execute("ROLLBACK").unwrap();
    store.with(TxKind::Client, |tx| lock(tx, workflow)).unwrap();
    error
}

#[test]
fn a_lock_time_out_is_a_conflict() {
    let error = against_a_holder("lock_timeout_ms=30");
    assert!(matches!(error, StoreError::Conflict(_)), "{error:?}");
}

#[test]
fn a_statement_time_out_is_busy() {
    let error = against_a_holder("statement_timeout_ms=400");
    assert!(matches!(error, StoreError::Busy(_)), "{error:?}");
}

#[test]
fn a_unique_key_that_is_taken_is_rejected() {
    let world = World::new();
    let twice = act();
    world.store.with(TxKind::Client, |tx| tx.write(&twice).map(drop)).unwrap();
    let error = world.store.with(TxKind::Client, |tx| tx.write(&twice).map(drop)).unwrap_err();
    assert!(matches!(error, StoreError::Rejected(_)), "{error:?}");
}

#[test]
fn a_text_that_postgres_cannot_hold_is_rejected() {
    let world = World::new();
    let workflow = world.workflow("w");
    let set = WriteSet { events: vec![event(workflow, "a\0b")], ..WriteSet::default() };
    let error = world.store.with(TxKind::Client, |tx| tx.write(&set).map(drop)).unwrap_err();
    assert!(matches!(error, StoreError::Rejected(_)), "{error:?}");
}

/// What a write says when the server raises `message` for it.
fn raised(code: &str, message: &str) -> StoreError {
    let world = World::new();
    let raise = format!(
        "CREATE FUNCTION raise() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{code}', MESSAGE = '{message}'; END $$;
         CREATE TRIGGER raise BEFORE INSERT ON acts EXECUTE FUNCTION raise()"
    );
    world.schema.connect().unwrap().batch_execute(&raise).unwrap();
    world.store.with(TxKind::Client, |tx| tx.write(&act()).map(drop)).unwrap_err()
}

// A disk is not filled and a page not broken for these; the server's own words for it are raised.
#[test]
fn a_full_disk_is_told_apart() {
    for message in [
        "could not extend file \"base/1/2\": wrote only 4096 of 8192 bytes at block 3",
        "could not write to file \"pg_wal/x\": No space left on device",
    ] {
        let error = raised("53100", message);
        assert!(matches!(error, StoreError::Full(_)), "{error:?}");
    }
}

#[test]
fn a_broken_page_is_told_apart() {
    let error = raised("XX001", "invalid page in block 7 of relation base/1/2");
    assert!(matches!(error, StoreError::Corrupt(_)), "{error:?}");
}

#[test]
fn a_serialisation_failure_is_a_conflict() {
    let error = raised("40001", "could not serialize access due to concurrent update");
    assert!(matches!(error, StoreError::Conflict(_)), "{error:?}");
}

#[test]
fn a_changed_table_under_a_prepared_statement_is_a_conflict_and_the_next_try_succeeds() {
    let world = World::new();
    let mut other = world.schema.connect().unwrap();
    let ask = || world.store.with(TxKind::Client, |tx| tx.act(RequestId::random()));
    ask().unwrap();
    other.batch_execute("ALTER TABLE acts ALTER COLUMN at_us TYPE NUMERIC").unwrap();
    let error = ask().unwrap_err();
    assert!(matches!(error, StoreError::Conflict(_)), "{error:?}");
    ask().unwrap();
}

#[test]
fn a_server_that_takes_no_writes_is_read_only_and_its_connection_is_dropped() {
    let world = World::new();
    let url = format!("{}&options=-c%20default_transaction_read_only%3Don&application_name=standby&pool_size=1", world.schema.url());
    let store = PostgresStore::open_existing(PostgresOptions::parse(&url).unwrap()).unwrap();
    let sessions = "SELECT count(*) AS number FROM pg_stat_activity WHERE application_name = 'standby'";
    store.with(TxKind::Read, |tx| tx.totals()).unwrap();
    world.until(sessions, 1);
    for kind in [TxKind::Client, TxKind::Commit] {
        let error = store.with(kind, |tx| tx.write(&act()).map(drop)).unwrap_err();
        assert!(matches!(error, StoreError::ReadOnly(_)), "{error:?}");
        world.until(sessions, 0);
    }
    // What only reads does not notice; health does.
    assert!(store.describe().is_ok());
    assert!(matches!(store.try_write(), Err(StoreError::ReadOnly(_))));
    world.until(sessions, 0);
    world.store.try_write().unwrap();
}

#[test]
fn a_read_writes_nothing() {
    let world = World::new();
    let error = world.store.with(TxKind::Read, |tx| tx.write(&act()).map(drop)).unwrap_err();
    assert!(matches!(error, StoreError::ReadOnly(_)), "{error:?}");
}

#[test]
fn an_exhausted_pool_is_busy() {
    let world = World::new();
    let store = world.another("pool_size=1&pool_timeout_ms=1000");
    let (held, release) = (mpsc::channel(), mpsc::channel::<()>());
    thread::scope(|scope| {
        let store = &store;
        let release_rx = std::sync::Mutex::new(release.1);
        let held_tx = held.0;
        scope.spawn(move || {
            store.with(TxKind::Client, |tx| {
                nothing(tx)?;
                held_tx.send(()).unwrap();
                release_rx.lock().unwrap().recv().unwrap();
                Ok::<_, StoreError>(())
            })
        });
        held.1.recv().unwrap();
        let error = store.with(TxKind::Read, nothing).unwrap_err();
        assert!(matches!(error, StoreError::Busy(_)) && reasons(&error).contains("pool exhausted"), "{error:?}");
        for kind in [TxKind::Claim, TxKind::Commit, TxKind::Heartbeat] {
            store.with(kind, nothing).unwrap();
        }
        release.0.send(()).unwrap();
    });
}

#[test]
fn a_place_that_does_not_answer_is_unavailable_and_a_mistaken_one_is_rejected() {
    let world = World::new();
    let nobody = PostgresStore::connect("postgres://127.0.0.1:1/x?pool_timeout_ms=100").unwrap_err();
    assert!(matches!(nobody, StoreError::Unavailable(_)), "{nobody:?}");
    let url = format!("{}&dbname=no_such_database", world.schema.url());
    let mistaken = PostgresStore::connect(&url).unwrap_err();
    assert!(matches!(mistaken, StoreError::Rejected(_)), "{mistaken:?}");
    let unknown = PostgresStore::connect(&format!("{}&no_such_option=1", world.schema.url())).unwrap_err();
    assert!(matches!(unknown, StoreError::Rejected(_)), "{unknown:?}");
}

#[test]
fn after_an_error_every_step_fails_and_a_body_that_goes_on_commits_nothing() {
    let world = World::new();
    let workflow = world.workflow("w");
    let bad = WriteSet { events: vec![event(workflow, "a\0b")], ..WriteSet::default() };
    let good = act();
    let request = good.act.as_ref().unwrap().request;
    let outcome = world.store.transact(TxKind::Client, &mut |tx| {
        tx.write(&good)?;
        assert!(tx.write(&bad).is_err());
        assert!(matches!(tx.now(), Err(StoreError::Rejected(_))), "a later step says the same");
        Ok(())
    });
    assert!(matches!(outcome, Err(StoreError::Rejected(_))), "{outcome:?}");
    assert_eq!(world.store.with(TxKind::Client, |tx| tx.act(request)).unwrap(), None);
}

#[test]
fn a_panic_rolls_back_goes_on_and_leaves_the_connection_sound() {
    let world = World::new();
    let store = world.another("pool_size=1");
    for kind in [TxKind::Client, TxKind::Commit] {
        let written = act();
        let request = written.act.as_ref().unwrap().request;
        let caught = catch_unwind(AssertUnwindSafe(|| {
            store.transact(kind, &mut |tx| {
                tx.write(&written)?;
                panic!("on purpose");
            })
        }));
        assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"on purpose"));
        assert_eq!(store.with(kind, |tx| tx.act(request)).unwrap(), None);
    }
}

#[test]
fn a_body_that_asks_for_a_rollback_gets_it() {
    let world = World::new();
    let written = act();
    let request = written.act.as_ref().unwrap().request;
    let outcome = world.store.transact(TxKind::Client, &mut |tx| {
        tx.write(&written)?;
        Err(StoreError::RolledBack)
    });
    assert!(matches!(outcome, Err(StoreError::RolledBack)));
    assert_eq!(world.store.with(TxKind::Client, |tx| tx.act(request)).unwrap(), None);
}
