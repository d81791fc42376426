//! Hints by LISTEN and NOTIFY, on a connection of its own: no transaction that changes anything has to do with them.

use crate::connection::{Connector, Link, chain, lock};
use crate::error::sorted;
use crate::options::SchemaName;
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::Text;
use leasehold_core::model::Digest;
use leasehold_core::store::{Hint, Hints, Listener, StoreResult};
use leasehold_sql::statement;
use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How often the connection is asked for what has come: a look at a socket, which costs next to nothing.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Between two notifications: what changes meanwhile is told by one.
const GAP: Duration = Duration::from_millis(20);
/// How long the first notification may take. A pooler in transaction mode lends LISTEN a connection for a moment and then
/// passes nothing on, so none would ever come.
const PROOF_WITHIN: Duration = Duration::from_secs(5);
/// Between two tries to connect.
const RETRY_EVERY: Duration = Duration::from_secs(5);

/// What a probe carries in a hint's place.
const PROBE: &str = "probe";

/// Tells others and hears of them.
#[derive(Debug)]
pub(crate) struct Herald {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    connector: Connector,
    /// One of the schema's own: others on the server may have stores as well.
    channel: String,
    /// Who speaks: a store hears itself, too.
    name: String,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    listeners: Vec<Weak<dyn Listener>>,
    /// What is still to be told.
    untold: Option<Hint>,
    /// The thread is there.
    running: bool,
    closed: bool,
}

impl Herald {
    pub(crate) fn new(connector: Connector, schema: &SchemaName) -> Self {
        // A name's length is limited, and a schema's may have just that.
        let digest = Digest::of_bytes(schema.as_str().as_bytes()).to_string();
        let channel = format!("leasehold_{}", digest.get(..32).unwrap_or(&digest));
        let name = leasehold_core::model::RequestId::random().to_string();
        Self { shared: Arc::new(Shared { connector, channel, name, state: Mutex::default(), changed: Condvar::new() }) }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = lock(&self.shared.state);
        change(&mut state);
        let start = !std::mem::replace(&mut state.running, true);
        drop(state);
        self.shared.changed.notify_all();
        if start {
            let shared = Arc::clone(&self.shared);
            if let Err(error) = std::thread::Builder::new().name("leasehold-hints".to_owned()).spawn(move || shared.run()) {
                tracing::warn!(%error, "no thread for hints; polling goes on");
                lock(&self.shared.state).running = false;
            }
        }
    }
}

impl Drop for Herald {
    fn drop(&mut self) {
        lock(&self.shared.state).closed = true;
        self.shared.changed.notify_all();
    }
}

impl Hints for Herald {
    fn listen(&self, listener: &Arc<dyn Listener>) {
        self.change(|state| state.listeners.push(Arc::downgrade(listener)));
    }

    fn tell(&self, hint: Hint) {
        // A cancel says more than that there is work.
        self.change(|state| state.untold = state.untold.max(Some(hint)));
    }
}

/// What is to be done next.
struct Turn {
    listeners: Vec<Arc<dyn Listener>>,
    untold: Option<Hint>,
}

/// The connection, and how far it hears.
struct Line {
    link: Link,
    hearing: Hearing,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Hearing {
    /// Nobody listens.
    Off,
    /// LISTEN was sent, and the probe as well.
    Unproved {
        until: Instant,
    },
    Proved,
    /// The probe did not come: this connection hears nothing.
    Deaf,
}

impl Shared {
    fn run(&self) {
        let mut line: Option<Line> = None;
        let mut failed = false;
        // Found once, it stays so: the pooler is not going to leave.
        let mut deaf = false;
        while let Some(turn) = self.wait() {
            match self.serve(line.take(), &turn, deaf) {
                Ok(kept) => {
                    deaf |= kept.hearing == Hearing::Deaf;
                    line = Some(kept);
                    failed = false;
                    if turn.untold.is_some() {
                        std::thread::sleep(GAP);
                    }
                }
                // A connection that was lost is replaced at once; one that cannot be opened is waited for.
                Err(error) => {
                    if std::mem::replace(&mut failed, true) {
                        self.pause();
                    } else {
                        tracing::warn!(error = chain(&error), "hints neither come nor go for the moment; polling goes on");
                    }
                    self.tell_later(turn.untold);
                }
            }
        }
    }

    /// Waits for something to tell, or until it is time to look; `None` when the store is gone.
    fn wait(&self) -> Option<Turn> {
        let mut state = lock(&self.state);
        loop {
            state.listeners.retain(|listener| listener.strong_count() > 0);
            let listens = !state.listeners.is_empty();
            if state.closed {
                return None;
            }
            if state.untold.is_some() {
                break;
            }
            if listens {
                state = self.changed.wait_timeout(state, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner).0;
                if state.closed {
                    return None;
                }
                break;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let listeners = state.listeners.iter().filter_map(Weak::upgrade).collect();
        Some(Turn { listeners, untold: state.untold.take() })
    }

    fn tell_later(&self, hint: Option<Hint>) {
        let mut state = lock(&self.state);
        state.untold = state.untold.max(hint);
    }

    fn pause(&self) {
        let until = Instant::now() + RETRY_EVERY;
        let mut state = lock(&self.state);
        while !state.closed {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Tells what is to be told, and passes on what has come.
    fn serve(&self, line: Option<Line>, turn: &Turn, deaf: bool) -> StoreResult<Line> {
        let mut line = match line {
            Some(line) => line,
            None => Line { link: self.connector.open()?, hearing: Hearing::Off },
        };
        if line.hearing == Hearing::Off && !deaf && !turn.listeners.is_empty() {
            self.begin_to_hear(&mut line)?;
        }
        if let Some(hint) = turn.untold {
            self.send(&mut line.link, word(hint))?;
        }
        if matches!(line.hearing, Hearing::Unproved { .. } | Hearing::Proved) {
            self.hear(&mut line, turn)?;
        }
        Ok(line)
    }

    fn begin_to_hear(&self, line: &mut Line) -> StoreResult<()> {
        line.link.conn.batch_execute(&format!("LISTEN {}", self.channel)).map_err(|error| sorted(error).0)?;
        // From another connection: only then has a pooler no reason to pass it on by chance.
        self.send(&mut self.connector.open()?, PROBE)?;
        line.hearing = Hearing::Unproved { until: Instant::now() + PROOF_WITHIN };
        Ok(())
    }

    fn send(&self, link: &mut Link, what: &str) -> StoreResult<()> {
        const NOTIFY: &str = "SELECT pg_notify($1, $2)";
        let told = statement(NOTIFY).bind::<Text, _>(&self.channel).bind::<Text, _>(format!("{} {what}", self.name));
        told.execute(&mut link.conn).map(drop).map_err(|error| sorted(error).0)
    }

    fn hear(&self, line: &mut Line, turn: &Turn) -> StoreResult<()> {
        let mut heard: BTreeSet<Hint> = BTreeSet::new();
        for notification in line.link.conn.notifications_iter() {
            let payload = notification.map_err(|error| sorted(error).0)?.payload;
            match payload.split_once(' ') {
                Some((name, PROBE)) if name == self.name && line.hearing != Hearing::Proved => {
                    line.hearing = Hearing::Proved;
                    // What changed until now may have been missed.
                    heard.insert(Hint::Work);
                }
                Some((name, _)) if name == self.name => {}
                Some((_, what)) => heard.extend(hint(what)),
                None => {}
            }
        }
        if let Hearing::Unproved { until } = line.hearing
            && until <= Instant::now()
        {
            line.hearing = Hearing::Deaf;
            tracing::warn!(
                "no notification reaches this process, as behind a pooler in transaction mode: it polls instead. \
                 Add hints=off to the URL to say so, or let the store reach the server itself"
            );
        }
        // The last says the most.
        if let Some(hint) = heard.last() {
            for listener in &turn.listeners {
                listener.hear(*hint);
            }
        }
        Ok(())
    }
}

const fn word(hint: Hint) -> &'static str {
    match hint {
        Hint::Work => "work",
        Hint::Canceled => "canceled",
    }
}

/// What a word means; one of a later release means nothing here.
fn hint(word: &str) -> Option<Hint> {
    match word {
        "work" => Some(Hint::Work),
        "canceled" => Some(Hint::Canceled),
        _ => None,
    }
}
