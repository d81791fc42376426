//! What an op's process or server gave back, as text that fits into a result.

use serde::{Deserialize, Serialize};

/// How much of an op's output becomes its result, if the op does not say. Larger output belongs into an artifact or a file.
pub(crate) const OUTPUT_LIMIT: usize = 256 * 1024;

/// No op may ask for more: the result as a whole has to stay below the library's limit of 1 MiB.
pub(crate) const OUTPUT_LIMIT_MAX: usize = 900 * 1024;

/// Output as text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// What was kept.
    pub(crate) text: String,
    /// Whether there was more.
    pub(crate) truncated: bool,
    /// Whether bytes that are not UTF-8, or NUL, were replaced by U+FFFD.
    pub(crate) lossy: bool,
}

/// Which end of output that is too long to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    Head,
    Tail,
}

impl Kept {
    /// `bytes` as text of at most `limit` bytes of JSON. `more` says that what came was longer than `bytes`.
    pub(crate) fn of(bytes: &[u8], more: bool, keep: Keep, limit: usize) -> Self {
        // A cut that was made between bytes may have split a character; that is not the process' fault.
        let bytes = if more { trim_split(bytes, keep) } else { bytes };
        let decoded = String::from_utf8_lossy(bytes);
        let lossy = matches!(decoded, std::borrow::Cow::Owned(_)) || decoded.contains('\0');
        let clean = decoded.replace('\0', "\u{fffd}");
        let kept = fit(&clean, keep, limit);
        Self { truncated: more || kept.len() < clean.len(), lossy, text: kept.to_owned() }
    }
}

/// The bytes without the part of a character at the end where they were cut.
fn trim_split(bytes: &[u8], keep: Keep) -> &[u8] {
    const CONTINUATION_MAX: usize = 3;
    match keep {
        Keep::Head => match std::str::from_utf8(bytes) {
            Err(error) if error.error_len().is_none() => bytes.get(..error.valid_up_to()).unwrap_or(bytes),
            Ok(_) | Err(_) => bytes,
        },
        Keep::Tail => {
            let skip = bytes.iter().take(CONTINUATION_MAX).take_while(|byte| **byte & 0xC0 == 0x80).count();
            bytes.get(skip..).unwrap_or(bytes)
        }
    }
}

/// The part of `text` whose JSON has at most `limit` bytes.
fn fit(text: &str, keep: Keep, limit: usize) -> &str {
    let mut room = limit;
    let mut fits = |c: char| {
        let cost = json_len(c);
        let fits = cost <= room;
        room = room.saturating_sub(cost);
        fits
    };
    match keep {
        Keep::Head => {
            let end = text.char_indices().find(|(_, c)| !fits(*c)).map_or(text.len(), |(at, _)| at);
            text.get(..end).unwrap_or(text)
        }
        Keep::Tail => {
            let start = text.char_indices().rev().find(|(_, c)| !fits(*c)).map_or(0, |(at, c)| at + c.len_utf8());
            text.get(start..).unwrap_or(text)
        }
    }
}

/// How many bytes `c` takes in a JSON text.
fn json_len(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        _ => c.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_at_its_length_in_json_and_between_characters() {
        for input in ["plain", "quo\"te\\ and\nline", "\u{1}\u{2}\u{3}", "grüße 😀 😀", ""] {
            for keep in [Keep::Head, Keep::Tail] {
                for limit in 0..40 {
                    let text = Kept::of(input.as_bytes(), false, keep, limit);
                    let json = serde_json::to_string(&text.text).unwrap();
                    assert!(json.len() - 2 <= limit, "{input:?} {limit}");
                    assert_eq!(text.truncated, text.text != input, "{input:?} {limit}");
                    assert!(!text.lossy);
                    assert!(if keep == Keep::Head { input.starts_with(&text.text) } else { input.ends_with(&text.text) });
                }
            }
        }
    }

    #[test]
    fn bytes_that_are_not_text_are_replaced_and_flagged() {
        let text = Kept::of(b"a\xffb\0c", false, Keep::Head, 100);
        assert_eq!((text.text.as_str(), text.lossy, text.truncated), ("a\u{fffd}b\u{fffd}c", true, false));
    }

    #[test]
    fn a_character_split_by_the_cut_is_left_out_and_not_called_lossy() {
        let bytes = "ü".as_bytes();
        let head = Kept::of(&[b'a', bytes[0]], true, Keep::Head, 100);
        assert_eq!((head.text.as_str(), head.lossy, head.truncated), ("a", false, true));
        let tail = Kept::of(&[bytes[1], b'b'], true, Keep::Tail, 100);
        assert_eq!((tail.text.as_str(), tail.lossy, tail.truncated), ("b", false, true));
    }
}
