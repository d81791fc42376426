//! One connection through the proxy: a thread for each direction.

use super::Shared;
use super::stream::{Hook, Stream};
use super::wire::{Greeting, Listener, Message, read_greeting, read_message};
use crate::url::Endpoint;
use std::io::{self, BufReader, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Serves `client` in the background.
pub(super) fn begin(shared: &Arc<Shared>, client: TcpStream, upstream: Endpoint) {
    let serving = Arc::clone(shared);
    let spawned = thread::Builder::new().name("proxy-session".to_owned()).spawn(move || {
        // A connection that breaks is what this is for: its client sees the same.
        let _ = serve(&serving, client, &upstream);
    });
    if let Err(error) = spawned {
        eprintln!("proxy: no thread for a connection: {error}");
    }
}

/// A COMMIT whose answer is to be lost, from when it is sent until it is answered.
type Order = Arc<Mutex<Option<Arc<str>>>>;

fn serve(shared: &Arc<Shared>, client: TcpStream, upstream: &Endpoint) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut client = Stream::Tcp(client);
    // Enlisted before anything is waited for, so that it can be closed while it is silent.
    let key = shared.enlist(Hook { client: client.try_clone()?, server: None })?;
    let greeting = greet(shared, &mut client);
    let server = match &greeting {
        Ok(Some(_)) => Stream::connect(upstream),
        Ok(None) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(error) => Err(error.kind().into()),
    };
    shared.leave_open(key);
    let (mut server, Some(greeting)) = (server?, greeting?) else { return Ok(()) };
    let key = shared.enlist(Hook { client: client.try_clone()?, server: Some(server.try_clone()?) })?;
    let (Greeting::Session(bytes) | Greeting::Cancel(bytes)) = greeting else {
        shared.leave(key);
        return Ok(());
    };
    let order = Order::default();
    let sent = server.write_all(&bytes);
    let back = Back { shared: Arc::clone(shared), order: Arc::clone(&order), key };
    let (reading, writing) = (server.try_clone()?, client.try_clone()?);
    let answering = thread::Builder::new().name("proxy-answers".to_owned()).spawn(move || back.run(reading, writing));
    if sent.is_ok() && answering.is_ok() {
        // It ends with an error when either side is gone, which ends the session as well.
        let _ = forward(shared, client, server, &order);
    }
    shared.leave(key);
    Ok(())
}

/// Reads what a client says first; encryption is refused, and it goes on without.
fn greet(shared: &Shared, client: &mut Stream) -> io::Result<Option<Greeting>> {
    loop {
        let greeting = read_greeting(client)?;
        if !shared.may_pass() {
            return Ok(None);
        }
        match greeting {
            Some(Greeting::Encryption) => client.write_all(b"N")?,
            other => return Ok(other),
        }
    }
}

/// From the client to the server.
fn forward(shared: &Shared, client: Stream, mut server: Stream, order: &Order) -> io::Result<()> {
    let mut client = BufReader::new(client);
    let mut listener = Listener::default();
    while let Some(message) = read_message(&mut client)? {
        if !shared.may_pass() {
            break;
        }
        if let Some(statements) = listener.hear(&message) {
            *order.lock().unwrap_or_else(PoisonError::into_inner) = shared.take_order(&statements);
        }
        server.write_all(&message.bytes)?;
    }
    Ok(())
}

/// From the server to the client.
struct Back {
    shared: Arc<Shared>,
    order: Order,
    key: u64,
}

impl Back {
    fn run(&self, server: Stream, client: Stream) {
        // The same as in the other direction.
        let _ = self.hand_on(server, client);
        self.shared.leave(self.key);
    }

    fn hand_on(&self, server: Stream, mut client: Stream) -> io::Result<()> {
        let mut server = BufReader::new(server);
        while let Some(message) = read_message(&mut server)? {
            if !self.shared.may_pass() || self.is_to_be_lost(&message) {
                break;
            }
            client.write_all(&message.bytes)?;
        }
        Ok(())
    }

    fn is_to_be_lost(&self, message: &Message) -> bool {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        if order.is_none() || !message.ends_statement() {
            return false;
        }
        let taken = order.take();
        if message.is_committed() {
            // Counted first: the client may look as soon as its connection is closed.
            self.shared.count_cut();
            self.shared.leave(self.key);
            return true;
        }
        // It was a rollback: nothing happened whose answer could be lost.
        if let Some(taken) = taken {
            self.shared.give_back(taken);
        }
        false
    }
}
