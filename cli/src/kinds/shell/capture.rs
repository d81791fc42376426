//! Reading a process' output within a limit, and showing it line by line on request.

use crate::kinds::output::Keep;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt};

/// What is shown of a running op: called with each line, without its line break.
pub(crate) type Tap = Arc<dyn Fn(&str) + Send + Sync>;

/// A line longer than this is shown in pieces, so that a process that never ends a line costs no memory.
const LINE_BYTES_MAX: usize = 8 * 1024;

/// The kept part of one stream.
#[derive(Debug, Default)]
pub(crate) struct Captured {
    /// The first or last bytes.
    pub(crate) bytes: Vec<u8>,
    /// Whether there were more.
    pub(crate) more: bool,
}

/// Keeps `limit` bytes of one end of a stream, whatever its length.
#[derive(Debug)]
pub(super) struct Capture {
    keep: Keep,
    limit: usize,
    kept: VecDeque<u8>,
    more: bool,
}

impl Capture {
    pub(super) fn new(keep: Keep, limit: usize) -> Self {
        Self { keep, limit, kept: VecDeque::new(), more: false }
    }

    fn push(&mut self, bytes: &[u8]) {
        let (taken, left_over) = match self.keep {
            Keep::Head => bytes.split_at(bytes.len().min(self.limit.saturating_sub(self.kept.len()))),
            Keep::Tail => {
                let (dropped, taken) = bytes.split_at(bytes.len().saturating_sub(self.limit));
                let overflow = (self.kept.len() + taken.len()).saturating_sub(self.limit);
                self.more |= overflow > 0;
                self.kept.drain(..overflow);
                (taken, dropped)
            }
        };
        self.kept.extend(taken);
        self.more |= !left_over.is_empty();
    }

    fn finish(self) -> Captured {
        Captured { bytes: self.kept.into(), more: self.more }
    }
}

/// Reads `from` to its end. What does not fit is read and dropped: the process must not stall on a full pipe.
pub(super) async fn capture<R: AsyncRead + Unpin>(mut from: R, mut capture: Capture, tap: Option<Tap>) -> std::io::Result<Captured> {
    let mut buffer = vec![0; 16 * 1024];
    let mut lines = tap.map(Lines::new);
    loop {
        let count = from.read(&mut buffer).await?;
        let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else {
            break;
        };
        capture.push(bytes);
        if let Some(lines) = &mut lines {
            lines.push(bytes);
        }
    }
    if let Some(lines) = lines {
        lines.finish();
    }
    Ok(capture.finish())
}

/// Cuts a stream into lines.
struct Lines {
    tap: Tap,
    begun: Vec<u8>,
}

impl Lines {
    fn new(tap: Tap) -> Self {
        Self { tap, begun: Vec::new() }
    }
    fn push(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.begun.len() > LINE_BYTES_MAX {
                self.show();
            }
        }
    }
    fn show(&mut self) {
        let line = String::from_utf8_lossy(&self.begun);
        (self.tap)(line.trim_end_matches(['\n', '\r']));
        self.begun.clear();
    }
    fn finish(mut self) {
        if !self.begun.is_empty() {
            self.show();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    async fn captured(chunks: &[&[u8]], keep: Keep, limit: usize) -> (Vec<u8>, bool) {
        let stream = chunks.iter().fold(Box::new(tokio::io::empty()) as Box<dyn AsyncRead + Unpin + Send>, |so_far, chunk| {
            Box::new(so_far.chain(std::io::Cursor::new(chunk.to_vec())))
        });
        let captured = capture(stream, Capture::new(keep, limit), None).await.unwrap();
        (captured.bytes, captured.more)
    }

    #[tokio::test]
    async fn one_end_is_kept_however_the_stream_arrives() {
        let chunks: &[&[u8]] = &[b"ab", b"cdef", b"g"];
        assert_eq!(captured(chunks, Keep::Head, 7).await, (b"abcdefg".to_vec(), false));
        assert_eq!(captured(chunks, Keep::Tail, 7).await, (b"abcdefg".to_vec(), false));
        assert_eq!(captured(chunks, Keep::Head, 3).await, (b"abc".to_vec(), true));
        assert_eq!(captured(chunks, Keep::Tail, 3).await, (b"efg".to_vec(), true));
        assert_eq!(captured(chunks, Keep::Head, 0).await, (Vec::new(), true));
        assert_eq!(captured(chunks, Keep::Tail, 0).await, (Vec::new(), true));
        assert_eq!(captured(&[], Keep::Head, 0).await, (Vec::new(), false));
    }

    #[tokio::test]
    async fn lines_are_shown_as_they_come_and_the_last_one_without_a_break() {
        let shown = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&shown);
        let tap: Tap = Arc::new(move |line: &str| sink.lock().unwrap().push(line.to_owned()));
        let input = [b"one\ntw".as_slice(), b"o\r\n\nlast"].concat();
        capture(std::io::Cursor::new(input), Capture::new(Keep::Head, 0), Some(tap)).await.unwrap();
        assert_eq!(*shown.lock().unwrap(), ["one", "two", "", "last"]);
    }
}
