//! Sets as parameters: JSON arrays that `json_each(?1)` turns into rows; `jsonb_each(?1)` where each row is an array of its
//! own: it hands a row on as it has parsed it, where the other would write it out as text again for every cell that is read.

use std::borrow::Cow;
use std::fmt::Write;

/// How long one parameter grows before the next is begun: SQLite copies it a few times, so a set of any size stays far
/// from filling memory, and 10,000 small rows are still one statement.
const PARAMETER_BYTES: usize = 8 * 1024 * 1024;

/// A set, as the parameters of as many runs of a statement. An empty set has none, so nothing is sent for it.
pub(crate) type Set = Vec<String>;

/// One value of a row.
#[derive(Debug)]
pub(crate) enum Cell<'a> {
    Null,
    Integer(i64),
    Real(f64),
    Text(Cow<'a, str>),
    /// Bytes as hexadecimal digits, for `unhex`.
    Bytes(&'a [u8]),
}

impl From<i64> for Cell<'_> {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}
impl From<f64> for Cell<'_> {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}
impl From<i32> for Cell<'_> {
    fn from(value: i32) -> Self {
        Self::Integer(value.into())
    }
}
impl From<u32> for Cell<'_> {
    fn from(value: u32) -> Self {
        Self::Integer(value.into())
    }
}
impl From<bool> for Cell<'_> {
    fn from(value: bool) -> Self {
        Self::Integer(value.into())
    }
}
impl<'a> From<&'a str> for Cell<'a> {
    fn from(value: &'a str) -> Self {
        Self::Text(Cow::Borrowed(value))
    }
}
impl From<String> for Cell<'_> {
    fn from(value: String) -> Self {
        Self::Text(Cow::Owned(value))
    }
}
impl<T: Into<Self>> From<Option<T>> for Cell<'_> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A row from values of any type that makes a cell.
macro_rules! cells {
    ($($value:expr),* $(,)?) => {
        [$($crate::set::Cell::from($value)),*]
    };
}
pub(crate) use cells;

/// One row an item: `value ->> 0`, `value ->> 1` … are its cells.
pub(crate) fn rows<'a, T, const N: usize>(items: impl IntoIterator<Item = T>, mut cells: impl FnMut(T) -> [Cell<'a>; N]) -> Set {
    gather(items, |item, out| {
        out.push('[');
        for (column, cell) in cells(item).into_iter().enumerate() {
            if column > 0 {
                out.push(',');
            }
            write_cell(cell, out);
        }
        out.push(']');
    })
}

/// One value an item: `value` itself.
pub(crate) fn values<'a, T: Into<Cell<'a>>>(items: impl IntoIterator<Item = T>) -> Set {
    gather(items, |item, out| write_cell(item.into(), out))
}

/// The whole set as one parameter, for a statement that must see all of it at once.
pub(crate) fn whole(set: &[String]) -> String {
    let parts: Vec<&str> = set.iter().filter_map(|part| part.strip_prefix('[')?.strip_suffix(']')).collect();
    format!("[{}]", parts.join(","))
}

fn gather<T>(items: impl IntoIterator<Item = T>, mut write: impl FnMut(T, &mut String)) -> Set {
    let mut set = Set::new();
    let mut open = String::new();
    for item in items {
        open.push(if open.is_empty() { '[' } else { ',' });
        write(item, &mut open);
        if open.len() >= PARAMETER_BYTES {
            open.push(']');
            set.push(std::mem::take(&mut open));
        }
    }
    if !open.is_empty() {
        open.push(']');
        set.push(open);
    }
    set
}

fn write_cell(cell: Cell<'_>, out: &mut String) {
    // Writing to a string cannot fail.
    let _ = match cell {
        Cell::Null => out.write_str("null"),
        Cell::Integer(value) => write!(out, "{value}"),
        // The shortest digits that read back as the same double.
        Cell::Real(value) => write!(out, "{value:?}"),
        Cell::Text(text) => write!(out, "{}", Quoted(&text)),
        Cell::Bytes(bytes) => {
            out.reserve(bytes.len() * 2 + 2);
            out.push('"');
            out.extend(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]));
            out.push('"');
            Ok(())
        }
    };
}

fn digit(nibble: u8) -> char {
    char::from_digit(nibble.into(), 16).unwrap_or('0')
}

/// A text as a JSON string.
struct Quoted<'a>(&'a str);

impl std::fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_char('"')?;
        let mut rest = self.0;
        while let Some(at) = rest.find(|c: char| matches!(c, '"' | '\\' | '\0'..='\u{1f}')) {
            let (plain, special) = rest.split_at(at);
            f.write_str(plain)?;
            let mut chars = special.chars();
            match chars.next() {
                Some('"') => f.write_str("\\\"")?,
                Some('\\') => f.write_str("\\\\")?,
                Some(control) => write!(f, "\\u{:04x}", u32::from(control))?,
                None => {}
            }
            rest = chars.as_str();
        }
        f.write_str(rest)?;
        f.write_char('"')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_json_that_gives_its_cells_back() {
        let text = "ü \"quoted\" back\\slash\nnew\tline \u{1} 😀 {\"a\":[1]}";
        let set = rows([text], |text| [Cell::from(text), i64::MIN.into(), None::<i64>.into(), Cell::Bytes(&[0, 0xab, 0xff])]);
        let read: Vec<(String, i64, Option<i64>, String)> = serde_json::from_str(&set[0]).unwrap();
        assert_eq!(read, [(text.to_owned(), i64::MIN, None, "00abff".to_owned())]);
    }

    #[test]
    fn an_empty_set_sends_nothing_and_a_large_one_a_few_parameters() {
        assert!(values(Vec::<i64>::new()).is_empty());
        assert_eq!(values(0_i64..10_000).len(), 1);
        let large = "x".repeat(3 * 1024 * 1024);
        let set = values(std::iter::repeat_n(large.as_str(), 7));
        assert_eq!(set.len(), 3);
        let all = serde_json::from_str::<Vec<String>>(&whole(&set)).unwrap();
        assert_eq!(all.len(), 7);
        assert_eq!(whole(&[]), "[]");
        let back: usize = set.iter().map(|part| serde_json::from_str::<Vec<String>>(part).unwrap().len()).sum();
        assert_eq!(back, 7);
    }
}
