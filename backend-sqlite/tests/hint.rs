//! Another process's work begins at once, although nobody sends anything (B4).
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use leasehold_core::client::{Client, Op, Workflow};
use leasehold_core::engine::{Engine, HandlerError, OpContext};
use leasehold_core::store::{Store, SystemClock};
use leasehold_sqlite::{SqliteOptions, SqliteStore};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(30);

/// Opens the file, runs an engine on it that looks by itself every `poll`, and lets another process start work.
async fn runs_what_another_starts(look_every: Option<Duration>, poll: Duration) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let open = |look_every| {
        let mut options = SqliteOptions::from(&path as &Path);
        options.look_every = look_every;
        Arc::new(SqliteStore::open(options, Arc::new(SystemClock)).unwrap()) as Arc<dyn Store>
    };
    let engine = Engine::builder(open(look_every))
        .handler("k", async |_: OpContext, (): ()| Ok::<_, HandlerError>(()))
        .poll(poll)
        .build()
        .await
        .unwrap();
    let running = engine.start().unwrap();
    let flow = Client::new(open(None)).start(Workflow::new("w").op(Op::new("a", "k").input(&()))).await.unwrap();
    let ended = timeout(PATIENCE, flow.wait()).await.is_ok();
    running.shutdown().await.unwrap();
    ended
}

#[tokio::test(flavor = "multi_thread")]
async fn another_processs_work_begins_long_before_the_next_poll() {
    assert!(runs_what_another_starts(Some(Duration::from_millis(20)), Duration::from_hours(1)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_looking_polling_finds_it() {
    assert!(runs_what_another_starts(None, Duration::from_millis(50)).await);
}
