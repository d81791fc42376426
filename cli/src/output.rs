//! Text for people: tables, colours, times.

use leasehold::model::Timestamp;
use leasehold::state::{OpStatus, WorkflowStatus};
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

/// Whether text is coloured: only on a terminal, and not where `NO_COLOR` says so.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint(bool);

#[derive(Debug, Clone, Copy)]
pub(crate) enum Colour {
    Green,
    Red,
    Yellow,
    Blue,
    Dim,
    Bold,
}

impl Paint {
    pub(crate) fn for_stdout() -> Self {
        Self(io::stdout().is_terminal() && allowed())
    }
    pub(crate) fn for_stderr() -> Self {
        Self(io::stderr().is_terminal() && allowed())
    }

    pub(crate) fn paint(self, colour: Colour, text: &str) -> String {
        if !self.0 {
            return text.to_owned();
        }
        let code = match colour {
            Colour::Green => 32,
            Colour::Red => 31,
            Colour::Yellow => 33,
            Colour::Blue => 34,
            Colour::Dim => 2,
            Colour::Bold => 1,
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

/// <https://no-color.org>
fn allowed() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

pub(crate) const fn workflow_colour(status: WorkflowStatus) -> Colour {
    match status {
        WorkflowStatus::Running => Colour::Blue,
        WorkflowStatus::Succeeded => Colour::Green,
        WorkflowStatus::Failed => Colour::Red,
        WorkflowStatus::Canceled => Colour::Yellow,
    }
}

pub(crate) const fn op_colour(status: OpStatus) -> Colour {
    match status {
        OpStatus::Succeeded => Colour::Green,
        OpStatus::Failed => Colour::Red,
        OpStatus::Blocked | OpStatus::Canceled => Colour::Yellow,
        OpStatus::Running => Colour::Blue,
        OpStatus::Pending | OpStatus::Ready | OpStatus::Waiting => Colour::Dim,
    }
}

/// A table whose columns are as wide as their widest cell.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<Cell>>,
}

/// A cell; its colour does not count as width.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    text: String,
    colour: Option<Colour>,
}

impl Cell {
    pub(crate) fn coloured(text: impl Into<String>, colour: Colour) -> Self {
        Self { text: text.into(), colour: Some(colour) }
    }
}
impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), colour: None }
    }
}

impl Table {
    pub(crate) fn new<const N: usize>(header: [&str; N]) -> Self {
        Self { rows: vec![header.into_iter().map(|title| Cell::coloured(title, Colour::Bold)).collect()] }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [Cell; N]) {
        self.rows.push(cells.into());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }

    /// The table as text, a line a row.
    pub(crate) fn render(&self, paint: Paint) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.text.chars().count()).max();
        let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or_default()).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let padding = if at + 1 == row.len() { 0 } else { width + 2 - cell.text.chars().count() };
                line.push_str(&cell.colour.map_or_else(|| cell.text.clone(), |colour| paint.paint(colour, &cell.text)));
                line.push_str(&" ".repeat(padding));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Lines and tables, one below the other.
#[derive(Debug, Default)]
pub(crate) struct Page(String);

impl Page {
    pub(crate) fn line(&mut self, text: &str) {
        self.0.push_str(text);
        self.0.push('\n');
    }
    /// A table, behind an empty line.
    pub(crate) fn table(&mut self, table: &Table, paint: Paint) {
        self.0.push('\n');
        self.0.push_str(&table.render(paint));
    }
    pub(crate) fn finish(self) -> String {
        self.0
    }
}

/// Writes to standard output. A reader that has gone away (`| head`) is not an error.
pub(crate) fn print(text: &str) {
    print_bytes(text.as_bytes());
}

pub(crate) fn print_bytes(bytes: &[u8]) {
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(bytes).and_then(|()| stdout.flush());
}

/// Prints `value` as indented JSON.
pub(crate) fn print_json(value: &serde_json::Value) {
    print(&format!("{value:#}\n"));
}

/// An instant to the second, in UTC.
pub(crate) fn instant(at: Timestamp) -> String {
    let text = at.to_string();
    text.get(..19).map_or(text.clone(), |seconds| format!("{seconds}Z"))
}

/// A duration as people say it.
pub(crate) fn duration(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0 => format!("{} ms", span.as_millis()),
        1..=59 => format!("{}.{} s", seconds, span.subsec_millis() / 100),
        60..=3599 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..=86_399 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// A number of bytes as people say it.
pub(crate) fn bytes(count: i64) -> String {
    match count {
        ..10_240 => format!("{count} bytes"),
        10_240..10_485_760 => format!("{} KiB", count / 1024),
        _ => format!("{} MiB", count / 1_048_576),
    }
}

/// "1 op", "2 ops".
pub(crate) fn count(number: impl Into<i64>, noun: &str) -> String {
    let number = number.into();
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// One line of at most `limit` characters.
pub(crate) fn line(text: &str, limit: usize) -> String {
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match clean.char_indices().nth(limit) {
        Some((cut, _)) => format!("{}…", clean.get(..cut).unwrap_or_default()),
        None => clean,
    }
}

/// `text` as one word of a shell's command line.
pub(crate) fn shell_word(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:=@%+,".contains(&byte);
    if !text.is_empty() && text.bytes().all(plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_end_without_blanks() {
        let mut table = Table::new(["id", "name"]);
        assert!(table.is_empty());
        table.row(["1".into(), Cell::coloured("ü", Colour::Red)]);
        table.row(["long".into(), "".into()]);
        assert_eq!(table.render(Paint(false)), "id    name\n1     ü\nlong\n");
        assert!(table.render(Paint(true)).contains("1     \u{1b}[31mü\u{1b}[0m\n"));
    }

    #[test]
    fn amounts_are_said_as_people_say_them() {
        let spans = [0, 999, 1_000, 59_999, 60_000, 3_600_000, 90_000_000].map(|ms| duration(Duration::from_millis(ms)));
        assert_eq!(spans, ["0 ms", "999 ms", "1.0 s", "59.9 s", "1 min 0 s", "1 h 0 min", "1 d 1 h"]);
        assert_eq!([0, 10_240, 20_971_520].map(bytes), ["0 bytes", "10 KiB", "20 MiB"]);
        assert_eq!([0, 1, 2].map(|n| count(n, "op")), ["0 ops", "1 op", "2 ops"]);
        assert_eq!(instant(Timestamp::parse("2026-01-31T09:30:00.5Z").unwrap()), "2026-01-31T09:30:00Z");
        assert_eq!(line("a\nb\u{1b}c", 2), "a …");
        assert_eq!(["a/b.toml", "it's", ""].map(shell_word), ["a/b.toml", r"'it'\''s'", "''"]);
    }
}
