//! TLS: `sslmode` means what libpq says it means.
//!
//! The key in this folder is a test's and secret from nobody. It was made, for a hundred years, by
//! `openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 36500 -subj "/CN=leasehold test"
//! -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:TRUE -keyout tls.key -out tls.crt`.

use diesel::RunQueryDsl;
use leasehold_core::store::{StoreError, StoreExt, TxKind};
use leasehold_postgres::PostgresStore;
use leasehold_test_postgres::{Cluster, TestSchema};

const KEY: &[u8] = include_bytes!("tls.key");
const CERTIFICATE: &[u8] = include_bytes!("tls.crt");
const ITS_PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/postgres/tls.crt");

fn encrypted(schema: &TestSchema, name: &str) -> i64 {
    let sql =
        format!("SELECT count(*) AS number FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE ssl AND application_name = '{name}'");
    let number: leasehold_sql::rows::Number = diesel::sql_query(sql).get_result(&mut schema.connect().unwrap()).unwrap();
    number.number.unwrap()
}

#[test]
fn a_connection_is_encrypted_and_its_server_known_when_the_url_says_so() {
    let settings = "ssl = on\nssl_cert_file = 'tls.crt'\nssl_key_file = 'tls.key'\n";
    let cluster = Cluster::start_with(settings, &[("tls.crt", CERTIFICATE), ("tls.key", KEY)]).unwrap();
    let schema = TestSchema::on(cluster.tcp_url());
    let open = |mode: &str| {
        let url = format!("{}&application_name=tls_test&{mode}", schema.url());
        PostgresStore::connect(&url).and_then(|store| store.with(TxKind::Claim, |tx| tx.now()).map(|_| store))
    };
    let store = open("sslmode=require").unwrap();
    assert!(encrypted(&schema, "tls_test") > 0);
    drop(store);
    open(&format!("sslmode=verify-full&sslrootcert={ITS_PATH}")).unwrap();
    let stranger = open("sslmode=verify-full&sslrootcert=/dev/null").unwrap_err();
    assert!(matches!(stranger, StoreError::Rejected(_) | StoreError::Unavailable(_)), "{stranger:?}");

    let plain = Cluster::start().unwrap();
    let without = PostgresStore::connect(&format!("{}?sslmode=require", plain.tcp_url())).unwrap_err();
    assert!(matches!(without, StoreError::Rejected(_) | StoreError::Unavailable(_)), "{without:?}");
    PostgresStore::connect(&format!("{}?sslmode=disable", plain.tcp_url())).unwrap();
}
