//! Fetches pages from several providers in parallel, with a limit for each, and writes an index of them all.
//!
//! ```sh
//! cargo run --release --example pages            # again after a kill: it goes on where it was
//! cargo run --release --example pages -- my.db   # another file
//! ```
//!
//! One op a provider asks how many pages there are and emits an op for each. The finaliser waits for all of them,
//! also for those that nobody knew of when the workflow was started. The providers are made up here: they take a moment,
//! fail now and then, and count how many requests they serve at once.

#![allow(clippy::print_stdout, reason = "a program that tells a person what it does")]

use leasehold::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const PROVIDERS: [(&str, u32, u32); 3] = [("alpha", 60, 2), ("beta", 40, 4), ("gamma", 25, 1)];

#[derive(Serialize, Deserialize)]
struct Page {
    provider: String,
    number: u32,
}

/// A provider that nobody needs a network for.
struct Provider {
    name: &'static str,
    pages: u32,
    serving: AtomicU32,
    most_at_once: AtomicU32,
}

impl Provider {
    async fn page(&self, number: u32, attempt: i64) -> Result<String, HandlerError> {
        let serving = self.serving.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_at_once.fetch_max(serving, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(40)).await;
        self.serving.fetch_sub(1, Ordering::SeqCst);
        if number % 11 == 7 && attempt == 1 {
            return Err(HandlerError::retryable("503 from the provider").code("busy").after(Duration::from_millis(200)));
        }
        Ok(format!("{}, page {number}: {}", self.name, "lorem ipsum ".repeat(number as usize % 9 + 1)))
    }
}

impl Provider {
    const fn new((name, pages, _): (&'static str, u32, u32)) -> Self {
        Self { name, pages, serving: AtomicU32::new(0), most_at_once: AtomicU32::new(0) }
    }
}

static SERVERS: [Provider; 3] = {
    let [alpha, beta, gamma] = PROVIDERS;
    [Provider::new(alpha), Provider::new(beta), Provider::new(gamma)]
};

fn server(name: &str) -> Result<&'static Provider, HandlerError> {
    SERVERS.iter().find(|server| server.name == name).ok_or_else(|| HandlerError::permanent(format!("there is no provider {name:?}")))
}

/// Asks a provider how many pages it has, and emits an op for each. They inherit this op's site, the provider, and hold
/// the finaliser back.
async fn list(ctx: OpContext, provider: String) -> Result<u32, HandlerError> {
    let pages = server(&provider)?.pages;
    for number in 1..=pages {
        let page = Page { provider: provider.clone(), number };
        ctx.emit(Op::new(format!("{provider}/{number}"), "page").queue("pages").input(&page).before("index"))?;
    }
    Ok(pages)
}

async fn page(ctx: OpContext, page: Page) -> Result<usize, HandlerError> {
    let text = server(&page.provider)?.page(page.number, ctx.attempt()).await?;
    Ok(text.len())
}

/// Runs once every page is there: sums up and keeps the index as an artifact.
async fn index(ctx: OpContext, (): ()) -> Result<BTreeMap<String, usize>, HandlerError> {
    let mut sizes: BTreeMap<String, usize> = BTreeMap::new();
    let mut lines = String::new();
    for (op, size) in ctx.dependencies().await? {
        if let Some((provider, _)) = op.as_str().split_once('/') {
            let size: usize = size.decode()?;
            *sizes.entry(provider.to_owned()).or_default() += size;
            writeln!(lines, "{op} {size}")?;
        }
    }
    ctx.attach(Artifact {
        name: ArtifactName::new("index.txt")?,
        kind: ArtifactKind::Text,
        content_type: "text/plain".to_owned(),
        metadata: Json::null(),
        content: lines.into_bytes(),
    })?;
    Ok(sizes)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "pages.db".to_owned());
    let mut builder = Engine::builder(leasehold::connect(&format!("sqlite:{path}")).await?)
        .name("pages")
        .max_workers(32)
        // What a killed process held is free again after this.
        .lease(Duration::from_secs(5))
        .handler("list", list)
        .handler("page", page)
        .handler("index", index);
    for (provider, _, most) in PROVIDERS {
        let queue = QueuePolicy::unlimited(QueueName::new("pages")?);
        builder = builder.policy(QueuePolicy { site: Some(SiteName::new(provider)?), max_in_flight: Some(most), ..queue });
    }
    let engine = builder.build().await?;

    let mut flow =
        Workflow::new("pages").identity("all pages, once").op(Op::new("index", "index").after_all(PROVIDERS.map(|(name, ..)| name)));
    for (provider, ..) in PROVIDERS {
        flow = flow.op(Op::new(provider, "list").site(provider).input(provider));
    }
    let flow = engine.client().ensure(flow).await?;
    let before = flow.snapshot().await?;
    println!("{} {}: {} of {} ops done", before.name, before.id, before.ops.succeeded, before.ops.total);

    if before.ops.running > 0 {
        println!("{} ops are leased to a process that was here before; they run again within 5 s if it is gone", before.ops.running);
    }
    let running = engine.start()?;
    let done = flow.wait().await?;
    let report = running.shutdown().await?;
    println!(
        "{}: {} of {} ops succeeded, {} in this run, {} retried",
        done.status, done.ops.succeeded, done.ops.total, report.succeeded, report.retried
    );
    for ((provider, pages, most), server) in PROVIDERS.into_iter().zip(&SERVERS) {
        println!("  {provider}: {pages} pages, at most {} at once of {most} allowed", server.most_at_once.load(Ordering::SeqCst));
    }
    println!("bytes by provider: {}", flow.result_json("index").await?);
    Ok(())
}
