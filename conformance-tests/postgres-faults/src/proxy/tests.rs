//! Against a server that knows just enough of the protocol.

use super::wire::{Greeting, read_greeting, read_message};
use super::*;
use std::io::{Read, Write};
use std::sync::mpsc;

const PATIENCE: Duration = Duration::from_secs(10);

/// Answers every statement; tells each COMMIT it has answered.
fn server() -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, tell) = (stream.unwrap(), tell.clone());
            thread::spawn(move || {
                let Ok(Some(Greeting::Session(_))) = read_greeting(&mut stream) else { return };
                stream.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I").unwrap();
                while let Ok(Some(message)) = read_message(&mut stream) {
                    let said = String::from_utf8_lossy(&message.bytes[5..]).trim_end_matches('\0').to_owned();
                    let tag = if said == "COMMIT broken" { "ROLLBACK" } else { said.split(' ').next().unwrap() };
                    let length = u32::try_from(tag.len() + 5).unwrap().to_be_bytes();
                    let answer = [b"C", &length[..], tag.as_bytes(), b"\0Z\0\0\0\x05T"].concat();
                    if stream.write_all(&answer).is_ok() && said.starts_with("COMMIT") {
                        tell.send(said).unwrap();
                    }
                }
            });
        }
    });
    (format!("postgres://u@127.0.0.1:{port}/d"), told)
}

struct Client(TcpStream);

impl Client {
    fn new(proxy: &Proxy) -> Self {
        let mut stream = Self::greet(proxy);
        let mut answer = [0; 15];
        stream.read_exact(&mut answer).unwrap();
        Self(stream)
    }

    fn greet(proxy: &Proxy) -> TcpStream {
        let mut stream = TcpStream::connect(proxy.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"\0\0\0\x08\x04\xd2\x16\x2f").unwrap();
        let mut answer = [0];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"N", "encryption is refused");
        stream.write_all(b"\0\0\0\x08\0\x03\0\0").unwrap();
        stream
    }

    fn send(&mut self, sql: &str) {
        let length = u32::try_from(sql.len() + 5).unwrap().to_be_bytes();
        self.0.write_all(&[b"Q", &length[..], sql.as_bytes(), b"\0"].concat()).unwrap();
    }

    /// The tag of the answer, or `None` when the connection is gone.
    fn answer(&mut self) -> Option<String> {
        let message = read_message(&mut self.0).ok()??;
        read_message(&mut self.0).ok()??;
        Some(String::from_utf8_lossy(&message.bytes[5..]).trim_end_matches('\0').to_owned())
    }

    fn ask(&mut self, sql: &str) -> Option<String> {
        self.send(sql);
        self.answer()
    }
}

#[test]
fn everything_passes_until_an_order_is_given() {
    let (url, _told) = server();
    let proxy = Proxy::start(&url).unwrap();
    let mut client = Client::new(&proxy);
    for sql in ["BEGIN", "INSERT leases", "COMMIT", "SELECT 1"] {
        assert_eq!(client.ask(sql).as_deref(), sql.split(' ').next());
    }
    assert_eq!(proxy.cuts(), 0);
}

#[test]
fn the_server_commits_and_the_client_never_hears_of_it() {
    let (url, told) = server();
    let proxy = Proxy::start(&url).unwrap();
    let (mut other, mut client) = (Client::new(&proxy), Client::new(&proxy));
    proxy.cut_next_commit("leases");
    for sql in ["BEGIN", "INSERT events", "COMMIT"] {
        assert!(other.ask(sql).is_some(), "another transaction is not meant");
    }
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "COMMIT");
    assert!(client.ask("BEGIN").is_some() && client.ask("INSERT leases").is_some());
    assert_eq!(client.ask("COMMIT"), None);
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "COMMIT");
    assert!(proxy.wait_for_cuts(1, PATIENCE));

    let mut again = Client::new(&proxy);
    assert!(again.ask("BEGIN").is_some() && again.ask("INSERT leases").is_some() && again.ask("COMMIT").is_some(), "one order, one cut");
    assert!(other.ask("SELECT 1").is_some(), "the others keep their connections");
}

#[test]
fn a_commit_that_became_a_rollback_is_told_and_the_order_stands() {
    let (url, _told) = server();
    let proxy = Proxy::start(&url).unwrap();
    let mut client = Client::new(&proxy);
    proxy.cut_next_commit("leases");
    client.ask("INSERT leases");
    assert_eq!(client.ask("COMMIT broken").as_deref(), Some("ROLLBACK"));
    client.ask("INSERT leases");
    assert_eq!(client.ask("COMMIT"), None);
    assert!(proxy.wait_for_cuts(1, PATIENCE), "the client may see its end before the cut is counted");
    assert_eq!(proxy.cuts(), 1);
}

#[test]
fn silence_keeps_connections_open_and_loses_nothing() {
    let (url, told) = server();
    let proxy = Proxy::start(&url).unwrap();
    let mut client = Client::new(&proxy);
    proxy.set_mode(Mode::Silent);
    client.send("COMMIT");
    // Both a statement and a new connection hang.
    client.0.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut byte = [0];
    assert!(matches!(client.0.read(&mut byte), Err(error) if error.kind() == io::ErrorKind::WouldBlock));
    assert!(told.try_recv().is_err());
    let mut newcomer = TcpStream::connect(proxy.address).unwrap();
    newcomer.write_all(b"\0\0\0\x08\x04\xd2\x16\x2f").unwrap();
    newcomer.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(matches!(newcomer.read(&mut byte), Err(error) if error.kind() == io::ErrorKind::WouldBlock));

    proxy.set_mode(Mode::Pass);
    client.0.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(client.answer().as_deref(), Some("COMMIT"));
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "COMMIT");
}

#[test]
fn connections_can_be_dropped_also_silent_ones_and_new_ones_pass() {
    let (url, _told) = server();
    let proxy = Proxy::start(&url).unwrap();
    let mut client = Client::new(&proxy);
    proxy.set_mode(Mode::Silent);
    client.send("SELECT 1");
    proxy.drop_connections();
    assert_eq!(client.answer(), None);
    proxy.set_mode(Mode::Pass);
    assert!(Client::new(&proxy).ask("SELECT 1").is_some());
    let address = proxy.address;
    drop(proxy);
    assert!(TcpStream::connect(address).is_err(), "the port is free again");
}
