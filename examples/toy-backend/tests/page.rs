//! What `docs/BACKENDS.md` names is there.

use leasehold_conformance::CASES;
use std::path::Path;

const PAGE: &str = include_str!("../../../docs/BACKENDS.md");

#[test]
fn every_case_in_the_table_of_traps_is_in_the_suite() {
    let traps = PAGE.split("## The traps").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
    let rows: Vec<&str> = traps.lines().filter(|line| line.starts_with("| **")).collect();
    assert!(rows.len() > 10, "the table is found");
    for row in rows {
        let named = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        for case in named.split('`').skip(1).step_by(2) {
            assert!(CASES.iter().any(|known| known.name == case), "{case} is not a case: {row}");
        }
    }
}

#[test]
fn every_link_leads_to_a_file() {
    let links: Vec<&str> = PAGE.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    assert!(links.len() > 10, "the links are found");
    for link in links {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(link);
        assert!(path.is_file(), "{link} leads nowhere");
    }
}

/// The test file that the page prints as the toy's own.
#[test]
fn the_harness_on_the_page_is_the_one_that_runs() {
    let run = include_str!("conformance.rs").split("struct Toy;").nth(1).unwrap().split("fn main").next().unwrap();
    assert!(PAGE.contains(run.trim()), "the page shows another harness");
}
