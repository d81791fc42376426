//! A proxy for Postgres' wire protocol that loses answers.

mod session;
mod stream;
mod wire;

use crate::Result;
use crate::url::ServerUrl;
use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use stream::Hook;

/// What the proxy does with what it receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Hands everything on.
    #[default]
    Pass,
    /// Keeps every connection open, takes new ones, and hands nothing on: a network that swallows packets. What was said
    /// meanwhile is handed on once the mode is [`Mode::Pass`] again.
    Silent,
}

/// A proxy on a port of its own at 127.0.0.1, in front of one server. It speaks no encryption, and says so to clients
/// that ask.
#[derive(Debug)]
pub struct Proxy {
    url: String,
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts one in front of the server at `url`.
    ///
    /// # Errors
    /// For a URL that is not understood, or when there is no free port.
    pub fn start(url: &str) -> Result<Self> {
        let url = ServerUrl::parse(url)?;
        let upstream = url.endpoint()?;
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let with = Arc::clone(&shared);
        let accepting = thread::Builder::new().name("proxy".to_owned()).spawn(move || {
            for client in listener.incoming() {
                if with.lock().closed {
                    return;
                }
                let Ok(client) = client else { continue };
                session::begin(&with, client, upstream.clone());
            }
        })?;
        Ok(Self { url: url.at(address).to_string(), address, shared, accepting: Some(accepting) })
    }

    /// How clients reach the server through it.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Changes what it does, for connections that are there as well.
    pub fn set_mode(&self, mode: Mode) {
        self.shared.lock().mode = mode;
        self.shared.changed.notify_all();
    }

    /// Loses the answer to the next COMMIT of a transaction in which a statement held the text `containing`: the server
    /// commits, and then both sides find their connection closed.
    pub fn cut_next_commit(&self, containing: &str) {
        self.shared.lock().armed = Some(containing.into());
    }

    /// How many answers were lost.
    pub fn cuts(&self) -> usize {
        self.shared.lock().cuts
    }

    /// Waits until `cuts` answers were lost; `false` when that takes longer than `within`.
    pub fn wait_for_cuts(&self, cuts: usize, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        let mut state = self.shared.lock();
        while state.cuts < cuts {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Closes every connection there is.
    pub fn drop_connections(&self) {
        self.shared.drop_connections();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
        self.shared.drop_connections();
        // Wakes the thread that accepts, which then sees that it is over and frees the port.
        if let (Ok(_), Some(accepting)) = (TcpStream::connect(self.address), self.accepting.take()) {
            // One that panicked has freed it as well.
            let _ = accepting.join();
        }
    }
}

/// What the connections of a proxy share.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    mode: Mode,
    /// The answer to the next COMMIT behind a statement that holds this is lost.
    armed: Option<Arc<str>>,
    cuts: usize,
    closed: bool,
    /// What closes each connection.
    hooks: HashMap<u64, Hook>,
    next_hook: u64,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while the proxy is silent; `false` once it is closed.
    fn may_pass(&self) -> bool {
        let mut state = self.lock();
        while state.mode == Mode::Silent && !state.closed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.closed
    }

    /// Takes the order to cut, if it is about a transaction of these statements.
    fn take_order(&self, statements: &[Arc<str>]) -> Option<Arc<str>> {
        let mut state = self.lock();
        let wanted = state.armed.as_ref()?;
        if statements.iter().any(|statement| statement.contains(&**wanted)) { state.armed.take() } else { None }
    }

    /// Gives an order back that could not be followed.
    fn give_back(&self, order: Arc<str>) {
        self.lock().armed.get_or_insert(order);
    }

    fn count_cut(&self) {
        self.lock().cuts += 1;
        self.changed.notify_all();
    }

    fn enlist(&self, hook: Hook) -> io::Result<u64> {
        let mut state = self.lock();
        if state.closed {
            return Err(io::Error::other("the proxy is closed"));
        }
        state.next_hook += 1;
        let key = state.next_hook;
        state.hooks.insert(key, hook);
        Ok(key)
    }

    /// Strikes a connection off without closing it.
    fn leave_open(&self, key: u64) {
        self.lock().hooks.remove(&key);
    }

    fn leave(&self, key: u64) {
        if let Some(hook) = self.lock().hooks.remove(&key) {
            hook.close();
        }
    }

    fn drop_connections(&self) {
        for (_, hook) in self.lock().hooks.drain() {
            hook.close();
        }
    }
}

#[cfg(test)]
mod tests;
