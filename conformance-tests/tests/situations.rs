//! `docs/SCENARIOS.md` maps each report from the field to tests that are there.

use leasehold_conformance::{situation_page, situations};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Set to write the page anew.
const UPDATE: &str = "LEASEHOLD_UPDATE_GUARANTEES";

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn every_test_that_a_situation_names_is_there() {
    let missing: Vec<String> =
        situations().flat_map(|situation| situation.missing(&root()).into_iter().map(|what| format!("{}: {what}", situation.id))).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn every_situation_is_there_once_and_shown_or_said_not_to_be() {
    let ids: BTreeSet<&str> = situations().map(|situation| situation.id).collect();
    let expected: BTreeSet<String> = (1..=78).map(|number| format!("S{number:02}")).collect();
    assert_eq!(ids, expected.iter().map(String::as_str).collect());
    assert_eq!(situations().count(), 78);
    for situation in situations() {
        assert!(situation.is_shown() || situation.note.is_some(), "{} is neither shown nor said not to be", situation.id);
    }
}

#[test]
fn the_page_of_situations_is_current() {
    let (page, path) = (situation_page(), root().join("docs/SCENARIOS.md"));
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == page, "{} is not current: run this test with {UPDATE}=1", path.display());
}
