//! `leasehold doctor`: recomputes what follows from the graph, and repairs what differs.

use super::actor;
use crate::args::{DoctorArgs, GlobalArgs};
use crate::exit::{CliError, Exit, of_store, with_causes};
use crate::output::{Colour, Page, Paint, count, print, print_json};
use crate::store::{self, Missing};
use leasehold::client::Client;
use leasehold::doctor::{Diagnosis, Finding};
use serde_json::json;

/// More are counted, not listed, for people.
const LISTED_MAX: usize = 50;

pub(crate) async fn run(args: &DoctorArgs, global: &GlobalArgs) -> Result<Exit, CliError> {
    let client = Client::new(store::open(global, Missing::Refuse).await?);
    let diagnosis = if args.repair { client.repair(&actor(&args.actor)).await? } else { client.examine().await? };
    let fault = diagnosis.write_fault.as_ref();
    if global.json {
        print_json(&json!({
            "sound": diagnosis.is_sound(),
            "workflows": diagnosis.workflows,
            "ops": diagnosis.ops,
            "findings": diagnosis.findings,
            "unlisted": diagnosis.unlisted,
            "repaired": diagnosis.repaired,
            "write_fault": fault.map(|error| with_causes(error)),
        }));
    } else {
        print(&for_people(&diagnosis, &format!("leasehold doctor --repair{}", store::option(global)), Paint::for_stdout()));
    }
    // A store that takes no writes is the first thing to see to: nothing else can be repaired before.
    Ok(match fault {
        Some(error) => of_store(error),
        None if diagnosis.is_sound() => Exit::Success,
        None => Exit::Failed,
    })
}

fn for_people(diagnosis: &Diagnosis, repair: &str, paint: Paint) -> String {
    let mut text = Page::default();
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let looked_at = (count(number(diagnosis.workflows), "workflow"), count(number(diagnosis.ops), "op"));
    text.line(&format!("looked at  {}, {}", looked_at.0, looked_at.1));
    listed(&mut text, "repaired", &diagnosis.repaired, paint, Colour::Green);
    listed(&mut text, "wrong", &diagnosis.findings, paint, Colour::Red);
    if diagnosis.unlisted > 0 {
        text.line(&format!("           and {} more", diagnosis.unlisted));
    }
    if let Some(error) = &diagnosis.write_fault {
        text.line(&paint.paint(Colour::Red, &format!("no writes  {}", with_causes(error))));
    }
    if diagnosis.is_sound() {
        text.line("everything follows from the graph, and the store takes writes");
    } else if diagnosis.write_fault.is_none() {
        let (some, all) = (diagnosis.findings.iter().any(can_be_repaired), diagnosis.findings.iter().all(can_be_repaired));
        if some && diagnosis.repaired.is_empty() {
            text.line(&format!("what can be is put right by: {repair}"));
        }
        if !all {
            text.line("what is marked * has lost something that nothing else tells: look at it, then cancel or add ops");
        }
    }
    text.finish()
}

fn can_be_repaired(finding: &Finding) -> bool {
    finding.drift.is_repairable()
}

fn listed(text: &mut Page, word: &str, findings: &[Finding], paint: Paint, colour: Colour) {
    for finding in findings.iter().take(LISTED_MAX) {
        let mut place = finding.workflow.as_ref().map(ToString::to_string).unwrap_or_default();
        if let Some(op) = &finding.op {
            place = format!("{place}/{op}");
        }
        let mark = if can_be_repaired(finding) { "" } else { "*" };
        let space = if place.is_empty() { "" } else { " " };
        text.line(&format!("{}  {place}{space}{}{mark}: {}", paint.paint(colour, &format!("{word:<9}")), finding.drift, finding.detail));
    }
    if findings.len() > LISTED_MAX {
        text.line(&format!("           and {} more", findings.len() - LISTED_MAX));
    }
}
