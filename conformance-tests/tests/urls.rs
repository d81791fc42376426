//! Any text given as the URL of a store is understood or refused, and what is shown of it holds no password.

use leasehold_postgres::PostgresOptions;
use proptest::prelude::*;

fn nearly_urls() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "postgres://",
        "postgresql://",
        "user",
        "@",
        "host",
        "[::1]",
        ":5432",
        ":99999",
        "/db",
        "/",
        "?",
        "&",
        "schema=s",
        "schema=",
        "pool_size=4",
        "pool_size=-1",
        "prepared_statements=off",
        "prepared_statements=maybe",
        "passfile=x",
        "sslmode=require",
        "%",
        "%00",
        "%zz",
        "=",
        "#",
        " ",
        "\u{0}",
        "ü",
    ]);
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_a_store_or_refused_and_shows_no_password(url in prop_oneof![".*", nearly_urls(), nearly_urls().prop_map(|rest| format!("postgres://u:secret@h/db?password=secret&{rest}"))]) {
        match PostgresOptions::parse(&url) {
            Ok(options) => prop_assert!(!options.location().contains("secret"), "{}", options.location()),
            Err(refused) => prop_assert!(!refused.to_string().contains("secret"), "{}", refused),
        }
    }
}
