//! The example of an application with a table of its own, on each store: every order is charged once.

#[path = "../../../examples/orders.rs"]
mod example;

const EXPECTED: [&str; 2] = ["book: charged 1 times", "flaky: charged 1 times"];

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread")]
async fn orders_are_charged_once_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("orders.db").display());
    for _ in 0..2 {
        assert_eq!(example::run(&url).await.unwrap(), EXPECTED);
    }
}

/// `scripts/test` turns the feature on.
#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn orders_are_charged_once_on_postgres() {
    let schema = leasehold_test_postgres::TestSchema::new().unwrap();
    // The shop's own search path, where its table comes to be: a schema beside the store's, gone with the test.
    let shop = leasehold_test_postgres::TestSchema::new().unwrap();
    diesel_execute(&shop, &format!("CREATE SCHEMA \"{}\"", shop.name()));
    let path = format!("\"{}\"", shop.name()).replace(' ', "\\ ");
    let options = format!("-c search_path={path}").replace('\\', "%5C").replace(' ', "%20").replace('"', "%22").replace('=', "%3D");
    let url = format!("{}&options={options}", schema.url());
    for _ in 0..2 {
        assert_eq!(example::run(&url).await.unwrap(), EXPECTED);
    }
}

#[cfg(feature = "postgres")]
fn diesel_execute(schema: &leasehold_test_postgres::TestSchema, sql: &str) {
    use leasehold::postgres::diesel::connection::SimpleConnection;
    schema.connect().unwrap().batch_execute(sql).unwrap();
}
