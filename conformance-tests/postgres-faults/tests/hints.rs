//! Hints behind a pooler in transaction mode, where LISTEN cannot work (B4).

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use leasehold_core::store::{Hint, Listener, Store};
use leasehold_postgres::PostgresStore;
use leasehold_test_faults::database::{SCHEMA, TestDatabase};
use leasehold_test_faults::pgbouncer::PgBouncer;
use leasehold_test_faults::url::ServerUrl;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// As few as make it a pooler.
const CONNECTIONS: u32 = 3;

/// Keeps the warnings of this process.
#[derive(Debug, Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    fn about(&self, what: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|warning| warning.contains(what)).count()
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        struct Message(String);
        impl Visit for Message {
            fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                if field.name() == "message" {
                    self.0 = format!("{value:?}");
                }
            }
        }
        let mut message = Message(String::new());
        event.record(&mut message);
        self.0.lock().unwrap().push(message.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[derive(Debug, Default)]
struct Ear(AtomicUsize);

impl Listener for Ear {
    fn hear(&self, _: Hint) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// LISTEN cannot work there: a store finds out, says so once, and hears nothing; but what it tells reaches those that do.
#[test]
fn through_a_pooler_no_hint_comes_and_one_line_says_so() {
    let warnings = Warnings::default();
    tracing::subscriber::set_global_default(warnings.clone()).unwrap();
    let database = TestDatabase::new().unwrap();
    let pooler = PgBouncer::start(&database.url().to_string(), CONNECTIONS).unwrap();
    let direct = database.url().clone().with("schema", SCHEMA).to_string();
    let url = ServerUrl::parse(pooler.url()).unwrap().with("schema", SCHEMA).with("prepared_statements", "off").to_string();
    let (straight, pooled) = (PostgresStore::connect(&direct).unwrap(), PostgresStore::connect(&url).unwrap());
    let (hearing, deaf) = (Arc::new(Ear::default()), Arc::new(Ear::default()));
    straight.hints().unwrap().listen(&(Arc::clone(&hearing) as Arc<dyn Listener>));
    pooled.hints().unwrap().listen(&(Arc::clone(&deaf) as Arc<dyn Listener>));
    let until = |what: &str, done: &dyn Fn() -> bool| {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !done() {
            assert!(Instant::now() < deadline, "{what}");
            thread::sleep(Duration::from_millis(10));
        }
    };
    until("a store that reaches the server hears", &|| hearing.0.load(Ordering::SeqCst) > 0);
    until("the log says that the other does not", &|| warnings.about("no notification reaches") > 0);
    let before = hearing.0.load(Ordering::SeqCst);
    pooled.hints().unwrap().tell(Hint::Work);
    until("what is told through the pooler arrives", &|| hearing.0.load(Ordering::SeqCst) > before);
    straight.hints().unwrap().tell(Hint::Canceled);
    pooled.hints().unwrap().listen(&(Arc::clone(&deaf) as Arc<dyn Listener>));
    pooled.try_write().unwrap();
    assert_eq!((deaf.0.load(Ordering::SeqCst), warnings.about("no notification reaches")), (0, 1));
}
