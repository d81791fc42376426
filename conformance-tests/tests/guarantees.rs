//! `docs/GUARANTEES.md` is what the suite proves, as it stands.

#[path = "harness/memory.rs"]
mod memory;
#[path = "harness/postgres.rs"]
mod postgres;
#[path = "harness/sqlite_file.rs"]
mod sqlite_file;
#[path = "harness/sqlite_memory.rs"]
mod sqlite_memory;

use leasehold_conformance::{Column, guarantee_table};
use std::path::Path;

/// Set to write the table anew.
const UPDATE: &str = "LEASEHOLD_UPDATE_GUARANTEES";

#[test]
fn the_guarantee_table_is_current() {
    let columns = [
        Column::of("memory", &memory::Memory).unwrap(),
        Column::of("SQLite in memory", &sqlite_memory::SqliteMemory).unwrap(),
        Column::of("SQLite file", &sqlite_file::SqliteFile).unwrap(),
        Column::of("Postgres", &postgres::Postgres::default()).unwrap(),
    ];
    let table = guarantee_table(&columns);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/GUARANTEES.md");
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, &table).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == table, "{} is not current: run this test with {UPDATE}=1", path.display());
}
