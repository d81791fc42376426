//! `leasehold clock`: whether the store's time is relied on, and relying on it again.

use super::actor;
use crate::args::{ClockArgs, ClockCommand, GlobalArgs, TrustClockArgs};
use crate::exit::{CliError, Exit};
use crate::output::{Colour, Page, Paint, count, duration, instant, print, print_json};
use crate::store::{self, Missing};
use leasehold::client::{Client, ClockStatus};
use leasehold::model::Timestamp;
use leasehold::transitions::LEASES_WITHIN;
use serde_json::{Value, json};

pub(crate) async fn run(args: &ClockArgs, global: &GlobalArgs) -> Result<Exit, CliError> {
    let client = Client::new(store::open(global, Missing::Refuse).await?);
    match &args.command {
        ClockCommand::Status => status(&client, global).await,
        ClockCommand::Trust(args) => trust(&client, args, global).await,
    }
}

async fn status(client: &Client, global: &GlobalArgs) -> Result<Exit, CliError> {
    let status = client.clock_status().await?;
    if global.json {
        print_json(&for_programs(&status));
    } else {
        print(&for_people(&status, Paint::for_stdout()));
    }
    Ok(Exit::Success)
}

fn for_people(status: &ClockStatus, paint: Paint) -> String {
    let mut text = Page::default();
    text.line(&format!("now        {}", instant(status.now)));
    let mark = status.mark.map_or_else(|| "none yet: no worker has run here".to_owned(), instant);
    text.line(&format!("seen       {mark}"));
    let tolerance = duration(status.tolerance);
    if !status.held() {
        text.line(&format!("relied on  {}", paint.paint(Colour::Green, "yes")));
        if !status.behind.is_zero() {
            text.line(&format!("behind     {}, and {tolerance} are allowed", duration(status.behind)));
        }
        return text.finish();
    }
    text.line(&format!("relied on  {}", paint.paint(Colour::Red, "no: nothing is claimed, recovered or woken")));
    text.line(&format!("behind     {}, and {tolerance} are allowed", duration(status.behind)));
    if let Some(since) = status.anomaly_since {
        text.line(&format!("since      {}", instant(since)));
    }
    text.line("if the clock is right now and was wrong before: `leasehold clock trust`; else set it right, and work goes on by itself");
    text.finish()
}

pub(crate) fn for_programs(status: &ClockStatus) -> Value {
    json!({
        "now": status.now,
        "mark": status.mark,
        "behind_ms": status.behind.as_millis(),
        "tolerance_ms": status.tolerance.as_millis(),
        "held": status.held(),
        "anomaly_since": status.anomaly_since,
    })
}

async fn trust(client: &Client, args: &TrustClockArgs, global: &GlobalArgs) -> Result<Exit, CliError> {
    let within = args.leases_within.map_or(LEASES_WITHIN, |span| span.0);
    let trusted = client.trust_clock_within(&actor(&args.actor), within).await?;
    let (ready, leases) = (trusted.pulled_back.ready, trusted.pulled_back.leases);
    if global.json {
        print_json(&json!({"now": trusted.now, "before": trusted.before, "ready": ready, "leases": leases}));
        return Ok(Exit::Success);
    }
    let mut text = Page::default();
    let before = trusted.before.map_or_else(String::new, |before: Timestamp| format!("; the latest time seen was {}", instant(before)));
    text.line(&format!("the clock is relied on from {} on{before}", instant(trusted.now)));
    if ready + leases > 0 {
        let number = |n: u64, noun| count(i64::try_from(n).unwrap_or(i64::MAX), noun);
        let within = duration(within.as_duration());
        text.line(&format!(
            "brought back from later: {}, {} (which end within {within})",
            number(ready, "ready op"),
            number(leases, "lease")
        ));
    }
    print(&text.finish());
    Ok(Exit::Success)
}
