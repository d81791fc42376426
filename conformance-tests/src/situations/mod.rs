//! Situations in which other queues and engines have failed, as their users reported, and what shows our answer.

mod admission;
mod database;
mod graph;
mod leases;
mod operating;
mod payloads;
mod recurring;
mod scale;
mod time;
mod upgrades;

use crate::CASES;
use std::fmt::Write;
use std::path::Path;

/// One report from the field.
#[derive(Debug, Clone, Copy)]
pub struct Situation {
    /// Its number in the list of scenarios.
    pub id: &'static str,
    /// What went wrong there.
    pub title: &'static str,
    /// Where it was reported.
    pub source: &'static str,
    /// Cases of the suite that show our answer, on every store.
    pub cases: &'static [&'static str],
    /// Other tests that do: the file, from the root of the sources, and the function.
    pub tests: &'static [(&'static str, &'static str)],
    /// Where our answer differs, or what is not shown.
    pub note: Option<&'static str>,
}

const GROUPS: &[(&str, &[Situation])] = &[
    ("State machine and graph", graph::SITUATIONS),
    ("Leases, heartbeats and recovery", leases::SITUATIONS),
    ("Time", time::SITUATIONS),
    ("Admission: limits, rates, priority, uniqueness", admission::SITUATIONS),
    ("Recurring schedules", recurring::SITUATIONS),
    ("Payloads, names and artifacts", payloads::SITUATIONS),
    ("Operating the system", operating::SITUATIONS),
    ("Database failure", database::SITUATIONS),
    ("Scale", scale::SITUATIONS),
    ("Upgrades and mixed versions", upgrades::SITUATIONS),
];

/// Every situation, in the order of their numbers.
pub fn situations() -> impl Iterator<Item = &'static Situation> {
    GROUPS.iter().flat_map(|(_, situations)| situations.iter())
}

impl Situation {
    /// Whether something shows our answer.
    pub const fn is_shown(&self) -> bool {
        !self.cases.is_empty() || !self.tests.is_empty()
    }

    /// What it names and is not there, under the root of the sources.
    pub fn missing(&self, root: &Path) -> Vec<String> {
        let cases = self.cases.iter().filter(|name| !CASES.iter().any(|case| case.name == **name));
        let mut missing: Vec<String> = cases.map(|name| format!("case {name}")).collect();
        for (file, name) in self.tests {
            let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
            if !text.contains(&format!("fn {name}(")) {
                missing.push(format!("{file}: {name}"));
            }
        }
        missing
    }
}

/// The page that maps each situation to what shows our answer.
pub fn situation_page() -> String {
    let mut page = String::from(HEAD);
    let shown = situations().filter(|situation| situation.is_shown()).count();
    let _ = writeln!(page, "{shown} of {} are shown by tests.", situations().count());
    for (group, situations) in GROUPS {
        let _ = writeln!(page, "\n## {group}\n");
        for situation in *situations {
            let _ = writeln!(page, "**{} {}.** ({})", situation.id, situation.title, situation.source);
            for case in situation.cases {
                let _ = writeln!(page, "- `{case}`");
            }
            for (file, name) in situation.tests {
                let _ = writeln!(page, "- [`{name}`](../{file})");
            }
            if let Some(note) = situation.note {
                let _ = writeln!(page, "- {note}");
            }
            page.push('\n');
        }
    }
    page.truncate(page.trim_end().len());
    page.push('\n');
    page
}

const HEAD: &str = "\
# Situations from the field

What users of other job queues and workflow engines have met and reported in public, and the tests that show what happens here.
Made by the test `situations` from `conformance-tests/src/situations`; do not edit it. A name without a link is a case of the
conformance suite, which runs on every store; `docs/GUARANTEES.md` says where.

";
