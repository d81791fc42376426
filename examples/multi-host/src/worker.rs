//! A worker as an application writes it.

use crate::{HEARTBEAT, LEASE, Outcome, holder, say};
use leasehold::model::WorkflowId;
use leasehold::prelude::*;
use std::sync::Arc;
use std::time::Duration;

/// What workers run.
pub(crate) const KIND: &str = "work";

/// The name of the host that is cut off. Its ops take for ever, so that they are surely under way when it happens.
const SLOW_HOST: &str = "a";

/// Works until the workflow has ended.
pub(crate) async fn run(store: Arc<dyn Store>, name: &str, id: &WorkflowId) -> Outcome {
    let mut builder =
        Engine::builder(store).name(format!("worker-{name}")).lease(LEASE).heartbeat(HEARTBEAT).poll(Duration::from_millis(200));
    let host = name.to_owned();
    builder = builder.handler(KIND, move |ctx, ()| work(host.clone(), ctx));
    if name != SLOW_HOST {
        // What the holder lost is finished by whoever is there.
        let host = name.to_owned();
        builder = builder.handler(holder::KIND, move |ctx, ()| work(host.clone(), ctx));
    }
    let engine = builder.build().await?;
    let flow = engine.client().handle(id.clone());
    let report = engine.run(async { drop(flow.wait().await) }).await?;
    say(name, &format!("done; {} ops succeeded, {} leases lost", report.succeeded, report.lost));
    Ok(())
}

async fn work(host: String, ctx: OpContext) -> Result<String, HandlerError> {
    say(&host, &format!("began {} (attempt {})", ctx.op_id(), ctx.attempt()));
    if host == SLOW_HOST {
        ctx.cancellation().cancelled().await;
        say(&host, &format!("told to stop {}: the lease has run out", ctx.op_id()));
        return Err(HandlerError::retryable("told to stop"));
    }
    say(&host, &format!("finished {}", ctx.op_id()));
    Ok(host)
}
