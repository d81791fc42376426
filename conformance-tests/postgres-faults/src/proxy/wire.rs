//! The part of Postgres' wire protocol that the proxy must understand.

use std::collections::HashMap;
use std::io::{self, Read};
use std::sync::Arc;

/// No message of a test is longer; a length beyond it means that the stream is out of step.
const MESSAGE_BYTES_MAX: usize = 256 << 20;

/// Codes in the place of a protocol version, asking for encryption or for the cancelling of a statement.
const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;

/// What a client says first.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Greeting {
    /// It asks for encryption, and takes no for an answer.
    Encryption,
    /// It cancels a statement of another session.
    Cancel(Vec<u8>),
    /// It begins a session.
    Session(Vec<u8>),
}

/// A message behind the greeting.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) tag: u8,
    /// The whole of it, as it goes on the wire.
    pub(super) bytes: Vec<u8>,
}

impl Message {
    fn body(&self) -> &[u8] {
        self.bytes.get(5..).unwrap_or_default()
    }

    /// Whether it tells a client that its transaction is committed.
    pub(super) fn is_committed(&self) -> bool {
        self.tag == b'C' && self.body() == b"COMMIT\0"
    }

    /// Whether it tells a client that a statement has ended, in whatever way.
    pub(super) const fn ends_statement(&self) -> bool {
        matches!(self.tag, b'C' | b'E')
    }
}

/// Reads a client's first message; `None` when it hung up instead.
pub(super) fn read_greeting(from: &mut impl Read) -> io::Result<Option<Greeting>> {
    let Some(bytes) = read_sized(from, Vec::new())? else {
        return Ok(None);
    };
    let code = bytes.get(4..8).and_then(|code| code.try_into().ok()).map(u32::from_be_bytes);
    Ok(Some(match code {
        Some(SSL_REQUEST | GSS_REQUEST) => Greeting::Encryption,
        Some(CANCEL_REQUEST) => Greeting::Cancel(bytes),
        Some(_) => Greeting::Session(bytes),
        None => return Err(out_of_step()),
    }))
}

/// Reads a message; `None` when the other side hung up before it.
pub(super) fn read_message(from: &mut impl Read) -> io::Result<Option<Message>> {
    let mut tag = [0];
    if from.read(&mut tag)? == 0 {
        return Ok(None);
    }
    Ok(read_sized(from, tag.to_vec())?.map(|bytes| Message { tag: tag[0], bytes }))
}

/// Reads a length and what it counts, behind what was read already.
fn read_sized(from: &mut impl Read, mut bytes: Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && bytes.is_empty() => return Ok(None),
        Err(error) => return Err(error),
    }
    let count = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if !(4..=MESSAGE_BYTES_MAX).contains(&count) {
        return Err(out_of_step());
    }
    bytes.extend_from_slice(&length);
    let start = bytes.len();
    bytes.resize(start + count - 4, 0);
    from.read_exact(bytes.get_mut(start..).unwrap_or_default())?;
    Ok(Some(bytes))
}

fn out_of_step() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the stream is not Postgres' protocol")
}

/// What a session has sent: its named statements, and those of its open transaction.
#[derive(Debug, Default)]
pub(super) struct Listener {
    statements: HashMap<Vec<u8>, Arc<str>>,
    portals: HashMap<Vec<u8>, Arc<str>>,
    transaction: Vec<Arc<str>>,
}

impl Listener {
    /// Takes note of a client's message. When it commits a transaction, the statements of that one.
    pub(super) fn hear(&mut self, message: &Message) -> Option<Vec<Arc<str>>> {
        let body = message.body();
        match message.tag {
            b'Q' => self.run(&text(body).0.into()),
            b'P' => {
                let (name, rest) = cut(body);
                self.statements.insert(name.to_vec(), text(rest).0.into());
                None
            }
            b'B' => {
                let (portal, rest) = cut(body);
                let statement = self.statements.get(cut(rest).0).cloned().unwrap_or_else(|| "".into());
                self.portals.insert(portal.to_vec(), statement);
                None
            }
            b'E' => {
                let statement = self.portals.get(cut(body).0).cloned();
                statement.and_then(|statement| self.run(&statement))
            }
            _ => None,
        }
    }

    fn run(&mut self, statement: &Arc<str>) -> Option<Vec<Arc<str>>> {
        let word = statement.split([' ', ';', '\n']).find(|word| !word.is_empty()).unwrap_or_default();
        match word.to_ascii_uppercase().as_str() {
            "COMMIT" | "END" => return Some(std::mem::take(&mut self.transaction)),
            "BEGIN" | "START" | "ROLLBACK" => self.transaction.clear(),
            _ => self.transaction.push(Arc::clone(statement)),
        }
        None
    }
}

/// The bytes before the first NUL, and those behind it.
fn cut(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    (bytes.get(..end).unwrap_or_default(), bytes.get(end + 1..).unwrap_or_default())
}

fn text(bytes: &[u8]) -> (String, &[u8]) {
    let (head, rest) = cut(bytes);
    (String::from_utf8_lossy(head).into_owned(), rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(tag: u8, body: &[u8]) -> Message {
        let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
        Message { tag, bytes: [&[tag], &length[..], body].concat() }
    }

    #[test]
    fn a_simple_commit_names_the_statements_of_its_transaction() {
        let mut listener = Listener::default();
        assert_eq!(listener.hear(&message(b'Q', b"INSERT INTO before\0")), None);
        assert_eq!(listener.hear(&message(b'Q', b"BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL jit TO off\0")), None);
        assert_eq!(listener.hear(&message(b'Q', b"INSERT INTO leases\0")), None);
        assert_eq!(listener.hear(&message(b'Q', b"COMMIT\0")), Some(vec!["INSERT INTO leases".into()]));
        assert_eq!(listener.hear(&message(b'Q', b"commit;\0")), Some(Vec::new()));
    }

    #[test]
    fn a_prepared_statement_is_known_by_its_name_and_a_commit_may_be_one() {
        let mut listener = Listener::default();
        for (tag, body) in [(b'P', &b"s1\0UPDATE ops\0\0\0"[..]), (b'B', b"\0s1\0\0\0\0\0\0\0"), (b'E', b"\0\0\0\0\0"), (b'S', b"")] {
            assert_eq!(listener.hear(&message(tag, body)), None);
        }
        listener.hear(&message(b'P', b"\0COMMIT\0\0\0"));
        listener.hear(&message(b'B', b"p\0\0\0\0\0\0\0\0"));
        assert_eq!(listener.hear(&message(b'E', b"p\0\0\0\0\0")), Some(vec!["UPDATE ops".into()]));
    }

    #[test]
    fn greetings_and_messages_are_read_whole_or_refused() {
        let ssl = [&8_u32.to_be_bytes()[..], &SSL_REQUEST.to_be_bytes()].concat();
        assert_eq!(read_greeting(&mut ssl.as_slice()).unwrap(), Some(Greeting::Encryption));
        assert_eq!(read_greeting(&mut &b""[..]).unwrap(), None);
        let committed = message(b'C', b"COMMIT\0");
        assert!(read_message(&mut committed.bytes.as_slice()).unwrap().unwrap().is_committed());
        assert!(read_message(&mut &committed.bytes[..6]).is_err(), "cut in the middle");
        assert!(read_message(&mut &b"GET / HTTP/1.1"[..]).is_err());
    }
}
