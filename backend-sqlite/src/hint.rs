//! Hints: a connection of its own looks whether another one has committed. Nothing is sent, as the commit tells all.

use crate::connection::Connector;
use diesel::sqlite::SqliteConnection;
use leasehold_core::store::{Hint, Hints, Listener, StoreResult};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Watches one file.
#[derive(Debug)]
pub(crate) struct Watch {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    connector: Connector,
    every: Duration,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    listeners: Vec<Weak<dyn Listener>>,
    /// The thread that looks is there.
    looking: bool,
    closed: bool,
}

impl Watch {
    pub(crate) fn new(connector: Connector, every: Duration) -> Self {
        Self { shared: Arc::new(Shared { connector, every, state: Mutex::default(), changed: Condvar::new() }) }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
    }
}

impl Hints for Watch {
    fn listen(&self, listener: &Arc<dyn Listener>) {
        let mut state = self.shared.lock();
        state.listeners.push(Arc::downgrade(listener));
        if std::mem::replace(&mut state.looking, true) {
            return;
        }
        drop(state);
        let shared = Arc::clone(&self.shared);
        if let Err(error) = std::thread::Builder::new().name("leasehold-hints".to_owned()).spawn(move || shared.look()) {
            tracing::warn!(%error, "no thread to look for what others commit; polling goes on");
            self.shared.lock().looking = false;
        }
    }

    fn tell(&self, _hint: Hint) {}
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every statement that holds the state leaves it consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks until nobody listens any more.
    fn look(&self) {
        let mut seen: Option<(SqliteConnection, i64)> = None;
        let mut failed = false;
        while let Some(listeners) = self.wait() {
            let looked = self.look_once(seen.take());
            match looked {
                Ok((conn, version, changed)) => {
                    seen = Some((conn, version));
                    failed = false;
                    if changed {
                        for listener in &listeners {
                            listener.hear(Hint::Work);
                        }
                    }
                }
                // Once for each time that it stops working: whoever has a look of its own reports the rest.
                Err(error) if !std::mem::replace(&mut failed, true) => {
                    tracing::warn!(%error, "what others commit is not seen for the moment; polling goes on");
                }
                Err(_) => {}
            }
        }
    }

    /// The connection, the version it sees, and whether that is news.
    fn look_once(&self, seen: Option<(SqliteConnection, i64)>) -> StoreResult<(SqliteConnection, i64, bool)> {
        let (mut conn, before) = match seen {
            Some((conn, version)) => (conn, Some(version)),
            None => (self.connector.connect()?, None),
        };
        let version = self.connector.statements.data_version(&mut conn).map_err(|error| self.connector.sort(error))?;
        // A first look may have missed something.
        Ok((conn, version, before != Some(version)))
    }

    /// Waits for the next look; who listens, or `None` when nobody does.
    fn wait(&self) -> Option<Vec<Arc<dyn Listener>>> {
        let mut state = self.lock();
        if !state.closed {
            state = self.changed.wait_timeout(state, self.every).unwrap_or_else(PoisonError::into_inner).0;
        }
        let listeners: Vec<_> = state.listeners.iter().filter_map(Weak::upgrade).collect();
        state.listeners.retain(|listener| listener.strong_count() > 0);
        if state.closed || listeners.is_empty() {
            state.looking = false;
            return None;
        }
        Some(listeners)
    }
}
