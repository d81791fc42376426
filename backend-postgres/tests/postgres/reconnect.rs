//! Connections die; the store goes on.

use crate::common::{World, insert_workflow, nothing, workflow};
use diesel::connection::SimpleConnection;
use diesel::pg::PgConnection;
use diesel::{Connection, RunQueryDsl};
use leasehold_core::model::WorkflowId;
use leasehold_core::store::{StoreError, StoreExt, TxKind};
use leasehold_postgres::PostgresStore;
use leasehold_test_postgres::{Cluster, TestSchema};

const KINDS: [TxKind; 6] = [TxKind::Read, TxKind::Claim, TxKind::Commit, TxKind::Heartbeat, TxKind::Client, TxKind::Maintenance];

/// Ends every session of the stores with this application name.
fn terminate(world: &World, name: &str) -> usize {
    let mut conn = world.schema.connect().unwrap();
    let ended = format!("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = '{name}'");
    diesel::sql_query(ended).execute(&mut conn).unwrap()
}

#[test]
fn a_connection_that_died_between_transactions_is_replaced_unnoticed() {
    let world = World::new();
    let store = world.another("application_name=idle_victim");
    for kind in KINDS {
        store.with(kind, nothing).unwrap();
    }
    assert!(terminate(&world, "idle_victim") >= 4, "one each for claim, commit and heartbeat, and the pool's");
    for kind in KINDS {
        store.with(kind, nothing).unwrap();
    }
}

#[test]
fn a_connection_that_dies_inside_makes_its_call_unavailable_and_the_next_one_succeeds() {
    let world = World::new();
    let store = world.another("application_name=busy_victim");
    for kind in [TxKind::Client, TxKind::Commit] {
        let mut first = true;
        let mut attempt = || {
            store.with(kind, |tx| {
                let seq = insert_workflow(tx, "w")?;
                if std::mem::take(&mut first) {
                    assert!(terminate(&world, "busy_victim") > 0);
                }
                tx.now()?;
                Ok::<_, StoreError>(seq)
            })
        };
        let error = attempt().unwrap_err();
        assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
        attempt().unwrap();
        world.schema.connect().unwrap().batch_execute("TRUNCATE workflows, ops, events").unwrap();
    }
}

#[test]
fn a_connection_that_dies_before_the_commit_leaves_its_outcome_unknown() {
    let world = World::new();
    let store = world.another("application_name=commit_victim");
    let error = store
        .with(TxKind::Commit, |tx| {
            insert_workflow(tx, "w")?;
            terminate(&world, "commit_victim");
            Ok::<_, StoreError>(())
        })
        .unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    workflow(&store, "w");
}

#[test]
fn a_crash_of_the_server_loses_what_was_open_and_nothing_that_was_committed() {
    let cluster = Cluster::start().unwrap();
    let schema = TestSchema::on(cluster.url());
    let store = PostgresStore::connect(&schema.url()).unwrap();
    workflow(&store, "before");
    for kind in KINDS {
        store.with(kind, nothing).unwrap();
    }
    let mut crashed = false;
    let error = store
        .with(TxKind::Client, |tx| {
            insert_workflow(tx, "during")?;
            if !std::mem::replace(&mut crashed, true) {
                cluster.crash_and_restart().unwrap();
            }
            Ok::<_, StoreError>(())
        })
        .unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    for kind in KINDS {
        store.with(kind, nothing).unwrap();
    }
    let ids = ["before", "during"].map(|id| WorkflowId::new(id).unwrap());
    let found = store.with(TxKind::Read, |tx| tx.workflows(&ids)).unwrap();
    assert_eq!(found.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), ["before"]);
}

#[test]
fn a_server_that_is_the_primary_no_more_is_left_for_the_new_one_unnoticed() {
    let (old, new) = (Cluster::start().unwrap(), Cluster::start().unwrap());
    // libpq tries the hosts in turn, and stays with the first that takes writes.
    let part = |cluster: &Cluster, name: &str| {
        let url = cluster.url().to_owned();
        let (_, value) = url.split_once(&format!("{name}=")).unwrap();
        value.split('&').next().unwrap().to_owned()
    };
    let both = |name: &str| format!("{name}={},{}", part(&old, name), part(&new, name));
    let url = format!("postgres://postgres@/postgres?{}&{}&target_session_attrs=read-write", both("host"), both("port"));
    let (there, store) = (PostgresStore::connect(new.url()).unwrap(), PostgresStore::connect(&url).unwrap());
    for kind in KINDS {
        store.with(kind, nothing).unwrap();
    }
    workflow(&store, "before");

    let mut admin = PgConnection::establish(old.url()).unwrap();
    admin.batch_execute("ALTER SYSTEM SET default_transaction_read_only = on").unwrap();
    admin.batch_execute("SELECT pg_reload_conf()").unwrap();
    // Sessions take notice one after the other; each has by the time that a new one has begun and asked.
    let told = "SELECT 1 FROM pg_settings WHERE name = 'default_transaction_read_only' AND setting = 'on'";
    while diesel::sql_query(told).execute(&mut PgConnection::establish(old.url()).unwrap()).unwrap() == 0 {
        std::thread::yield_now();
    }
    for kind in [TxKind::Claim, TxKind::Commit, TxKind::Heartbeat, TxKind::Client] {
        store.with(kind, |tx| insert_workflow(tx, &format!("{kind:?}"))).unwrap_or_else(|error| panic!("{kind:?}: {error:?}"));
    }
    let ids = ["before", "Claim", "Commit", "Heartbeat", "Client"].map(|id| WorkflowId::new(id).unwrap());
    assert_eq!(there.with(TxKind::Read, |tx| tx.workflows(&ids)).unwrap().len(), 4, "all but the first are on the new one");
}
