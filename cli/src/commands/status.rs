//! `leasehold status`: the store as a whole.

use crate::args::GlobalArgs;
use crate::exit::{CliError, Exit};
use crate::output::{Cell, Colour, Page, Paint, Table, duration, print, print_json, workflow_colour};
use crate::store::{self, Missing};
use leasehold::client::{Client, ClockStatus, StoreStatus};
use leasehold::model::{Bucket, MICRO_TOKENS};
use leasehold::store::rows::QueueStatus;
use leasehold::store::{Clock, SystemClock};
use serde_json::{Map, Value, json};

pub(crate) async fn run(global: &GlobalArgs) -> Result<Exit, CliError> {
    let client = Client::new(store::open(global, Missing::Refuse).await?);
    let status = client.status().await?;
    let clock = client.clock_status().await?;
    if global.json {
        print_json(&for_programs(&status, &clock));
    } else {
        print(&for_people(&status, &clock, Paint::for_stdout()));
    }
    Ok(Exit::Success)
}

fn for_people(status: &StoreStatus, clock: &ClockStatus, paint: Paint) -> String {
    let (info, totals) = (&status.info, &status.totals);
    let mut text = Page::default();
    text.line(&format!("store      {} ({} {}, schema {})", info.location, info.backend, info.version, info.schema));
    let workflows: Vec<String> = totals
        .workflows
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(status, count)| format!("{count} {}", paint.paint(workflow_colour(*status), &status.to_string())))
        .collect();
    let ops = totals.ops;
    let ops = [
        ("open", ops.open),
        ("pending", ops.pending),
        ("blocked", ops.blocked),
        ("waiting", ops.waiting),
        ("succeeded", ops.succeeded),
        ("failed", ops.failed),
        ("canceled", ops.canceled),
    ];
    let ops: Vec<String> = ops.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| format!("{count} {name}")).collect();
    let or_none = |parts: Vec<String>| if parts.is_empty() { "none".to_owned() } else { parts.join(", ") };
    text.line(&format!("workflows  {}", or_none(workflows)));
    text.line(&format!("ops        {}", or_none(ops)));
    let expired = format!("{} expired", totals.leases_expired);
    let expired = if totals.leases_expired > 0 { paint.paint(Colour::Yellow, &expired) } else { expired };
    text.line(&format!("leases     {} live, {expired}", totals.leases_live));
    if clock.held() {
        let behind =
            format!("{} behind a time it has shown before: nothing is claimed; see `leasehold clock status`", duration(clock.behind));
        text.line(&format!("clock      {}", paint.paint(Colour::Red, &behind)));
    }
    let table = queues(&status.queues);
    if !table.is_empty() {
        text.table(&table, paint);
    }
    text.finish()
}

fn queues(queues: &[QueueStatus]) -> Table {
    let mut table = Table::new(["SITE", "QUEUE", "READY", "DELAYED", "RUNNING", "LIMIT", "RATE", "TOKENS", "OLDEST READY"]);
    let now = SystemClock.now();
    for queue in queues {
        let policy = queue.policy.as_ref();
        let limit = policy.and_then(|policy| policy.max_in_flight).map_or_else(|| "-".to_owned(), |limit| limit.to_string());
        let rate = policy.and_then(|policy| policy.rate);
        let rate = rate.map_or_else(|| "-".to_owned(), |rate| format!("{}/s, burst {}", rate.per_second, rate.burst));
        table.row([
            queue.site.as_str().into(),
            queue.queue.as_str().into(),
            queue.ready.to_string().into(),
            queue.delayed.to_string().into(),
            Cell::from(queue.in_flight.to_string()),
            limit.into(),
            rate.into(),
            queue.bucket.map_or_else(|| "-".to_owned(), |bucket| tokens(bucket).to_string()).into(),
            queue.oldest_due_at.map_or_else(|| "-".to_owned(), |due| duration(now.since(due))).into(),
        ]);
    }
    table
}

/// Whole tokens in a bucket.
const fn tokens(bucket: Bucket) -> i64 {
    bucket.micro_tokens / MICRO_TOKENS
}

fn for_programs(status: &StoreStatus, clock: &ClockStatus) -> Value {
    let (info, totals) = (&status.info, &status.totals);
    let workflows: Map<String, Value> = totals.workflows.iter().map(|(status, count)| (status.to_string(), json!(count))).collect();
    let ops = totals.ops;
    let queues: Vec<Value> = status
        .queues
        .iter()
        .map(|queue| {
            json!({
                "site": queue.site,
                "queue": queue.queue,
                "ready": queue.ready,
                "delayed": queue.delayed,
                "in_flight": queue.in_flight,
                "oldest_due_at": queue.oldest_due_at,
                "policy": queue.policy,
                "tokens": queue.bucket.map(tokens),
            })
        })
        .collect();
    json!({
        "store": {"backend": info.backend, "location": info.location, "version": info.version, "schema": info.schema},
        "workflows": workflows,
        "ops": {
            "open": ops.open, "pending": ops.pending, "blocked": ops.blocked, "waiting": ops.waiting,
            "succeeded": ops.succeeded, "failed": ops.failed, "canceled": ops.canceled,
        },
        "leases": {"live": totals.leases_live, "expired": totals.leases_expired},
        "clock": super::clock::for_programs(clock),
        "queues": queues,
    })
}
