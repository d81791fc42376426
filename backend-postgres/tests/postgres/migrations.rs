//! Migrations run once, however many start (P1).

use diesel::connection::SimpleConnection;
use diesel::{PgConnection, RunQueryDsl};
use leasehold_core::store::{SchemaError, Store, StoreError, StoreExt, TxKind};
use leasehold_postgres::{PostgresOptions, PostgresStore, SCHEMA_VERSION, migrate};
use leasehold_sql::rows::Number;
use leasehold_test_postgres::TestSchema;
use std::sync::Barrier;
use std::thread;

fn number(conn: &mut PgConnection, sql: &str) -> i64 {
    diesel::sql_query(sql).get_result::<Number>(conn).unwrap().number.unwrap()
}

#[test]
fn five_that_start_at_once_migrate_once() {
    let schema = TestSchema::new().unwrap();
    let start = Barrier::new(5);
    let ran: Vec<usize> = thread::scope(|scope| {
        let starting: Vec<_> = (0..5)
            .map(|_| {
                scope.spawn(|| {
                    let options = PostgresOptions::parse(&schema.url()).unwrap();
                    start.wait();
                    let ran = migrate(&options).unwrap();
                    PostgresStore::open_existing(options).unwrap().with(TxKind::Read, |tx| tx.totals()).unwrap();
                    ran.len()
                })
            })
            .collect();
        starting.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(ran.iter().filter(|count| **count > 0).count(), 1, "{ran:?}");
    let mut conn = schema.connect().unwrap();
    assert_eq!(number(&mut conn, "SELECT count(*) AS number FROM schema_info"), 1);
    let migrations = number(&mut conn, "SELECT count(*) AS number FROM __diesel_schema_migrations");
    assert_eq!(migrations, i64::try_from(ran.iter().sum::<usize>()).unwrap());
}

#[test]
fn two_schemas_of_one_database_share_nothing() {
    let (one, other) = (TestSchema::new().unwrap(), TestSchema::new().unwrap());
    let (left, right) = (PostgresStore::connect(&one.url()).unwrap(), PostgresStore::connect(&other.url()).unwrap());
    crate::common::workflow(&left, "w");
    crate::common::workflow(&right, "w");
    assert_eq!(left.describe().unwrap().schema, SCHEMA_VERSION);
    assert_ne!(left.describe().unwrap().location, right.describe().unwrap().location);
}

#[test]
fn a_schema_that_a_newer_program_made_is_refused_by_name_before_anything_is_written() {
    let schema = TestSchema::new().unwrap();
    PostgresStore::connect(&schema.url()).unwrap();
    let mut conn = schema.connect().unwrap();
    conn.batch_execute("UPDATE schema_info SET version = 9, writable_since = 8; DELETE FROM __diesel_schema_migrations").unwrap();
    let options = PostgresOptions::parse(&schema.url()).unwrap();
    let expected = SchemaError::Newer { found: 9, needed: 8, known: SCHEMA_VERSION };
    for refused in [migrate(&options).map(drop), PostgresStore::open_existing(options).map(drop)] {
        assert!(matches!(&refused, Err(StoreError::Schema(error)) if *error == expected), "{refused:?}");
    }
    assert_eq!(number(&mut conn, "SELECT count(*) AS number FROM __diesel_schema_migrations"), 0);
}

#[test]
fn a_newer_schema_that_this_program_may_still_write_is_used_and_left_as_it_is() {
    let schema = TestSchema::new().unwrap();
    PostgresStore::connect(&schema.url()).unwrap();
    schema.connect().unwrap().batch_execute("UPDATE schema_info SET version = version + 1").unwrap();
    let store = PostgresStore::connect(&schema.url()).unwrap();
    crate::common::workflow(&store, "w");
    assert_eq!(store.describe().unwrap().schema, SCHEMA_VERSION + 1);
}

#[test]
fn a_schema_that_is_not_there_is_named_and_not_made() {
    let schema = TestSchema::new().unwrap();
    let missing = PostgresStore::open_existing(PostgresOptions::parse(&schema.url()).unwrap());
    assert!(matches!(missing, Err(StoreError::Schema(SchemaError::Older { found: 0, known: SCHEMA_VERSION }))), "{missing:?}");
    let sql = format!("SELECT count(*) AS number FROM pg_namespace WHERE nspname = '{}'", schema.name());
    assert_eq!(number(&mut schema.connect().unwrap(), &sql), 0);
}
