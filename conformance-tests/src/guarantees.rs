//! Which case proves which requirement on which backend, from the table of cases itself (B6).

use crate::{CASES, Case, Harness, Need};
use leasehold_core::store::BoxError;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A backend in the table.
#[derive(Debug, Clone)]
pub struct Column {
    backend: String,
    offers: Vec<Need>,
}

impl Column {
    /// What `harness` offers, found by opening a store with it.
    ///
    /// # Errors
    /// The harness's.
    pub fn of(backend: &str, harness: &impl Harness) -> Result<Self, BoxError> {
        let opened = harness.open()?;
        let offers = Need::ALL.into_iter().filter(|need| opened.offers(*need)).collect();
        Ok(Self { backend: backend.to_owned(), offers })
    }

    fn runs(&self, case: &Case) -> bool {
        case.needs.iter().all(|need| self.offers.contains(need))
    }
}

/// The requirements with the number of cases that prove each of them on each backend, and the cases by name: Markdown.
pub fn guarantee_table(columns: &[Column]) -> String {
    let mut by_requirement: BTreeMap<(String, u32), Vec<&Case>> = BTreeMap::new();
    for case in CASES {
        for requirement in case.proves {
            by_requirement.entry(in_order(requirement)).or_default().push(case);
        }
    }
    let mut text = String::from(
        "# Guarantees\n\n\
         Generated from the cases of `leasehold-conformance` by its test `guarantees`; do not edit. A number counts the cases that\n\
         prove a requirement on a backend; *n of m* means that the backend's harness lacks what the others need.\n\n",
    );
    let heads: Vec<&str> = columns.iter().map(|column| column.backend.as_str()).collect();
    line(&mut text, &format!("| requirement | {} |", heads.join(" | ")));
    line(&mut text, &format!("| --- |{}", " --- |".repeat(columns.len())));
    for ((group, number), cases) in &by_requirement {
        let cells: Vec<String> = columns.iter().map(|column| cell(column, cases)).collect();
        line(&mut text, &format!("| [{group}{number}](#{}{number}) | {} |", group.to_lowercase(), cells.join(" | ")));
    }
    for ((group, number), cases) in &by_requirement {
        line(&mut text, &format!("\n## {group}{number}\n"));
        for case in cases {
            let needs: Vec<String> = case.needs.iter().map(|need| format!(" ({need})")).collect();
            line(&mut text, &format!("- `{}`{}", case.name, needs.concat()));
        }
    }
    text
}

fn cell(column: &Column, cases: &[&Case]) -> String {
    let running = cases.iter().filter(|case| column.runs(case)).count();
    if running == cases.len() { running.to_string() } else { format!("{running} of {}", cases.len()) }
}

/// "L12" as ("L", 12), so that L2 comes before it.
fn in_order(requirement: &str) -> (String, u32) {
    let digits = requirement.trim_start_matches(|c: char| !c.is_ascii_digit());
    let group = requirement.strip_suffix(digits).unwrap_or(requirement);
    (group.to_owned(), digits.parse().unwrap_or(0))
}

fn line(text: &mut String, content: &str) {
    match writeln!(text, "{content}") {
        Ok(()) => {}
        Err(error) => unreachable!("a string takes every line: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_case_has_a_name_of_its_own_and_proves_something() {
        let names: BTreeSet<&str> = CASES.iter().map(|case| case.name).collect();
        assert_eq!(names.len(), CASES.len());
        assert!(CASES.iter().all(|case| !case.proves.is_empty()));
    }

    #[test]
    fn a_case_counts_where_its_needs_are_met() {
        let columns =
            [Column { backend: "all".to_owned(), offers: Need::ALL.to_vec() }, Column { backend: "none".to_owned(), offers: vec![] }];
        let table = guarantee_table(&columns);
        assert!(table.contains("| requirement | all | none |"));
        let of_l7 = table.lines().find(|line| line.starts_with("| [L7]")).unwrap();
        assert!(of_l7.contains(" of "), "{of_l7}");
        assert!(table.find("## L2\n") < table.find("## L12\n"), "by number, not by text");
    }
}
