//! Where a run tells what it does: bars on a terminal, plain lines elsewhere, a line of JSON an event for programs.
//!
//! Progress goes to standard error; standard output carries only results, or the JSON.

use crate::output::{Colour, Paint, print};
use indicatif::MultiProgress;
use serde_json::{Map, Value, json};
use std::io::{self, IsTerminal, Write};

/// What a run tells, and how.
#[derive(Debug)]
pub(crate) struct Screen {
    style: Style,
    paint: Paint,
    stream: bool,
}

#[derive(Debug)]
enum Style {
    Bars(MultiProgress),
    Lines,
    Json,
    Quiet,
}

impl Screen {
    /// The screen of a run.
    pub(crate) fn new(json: bool, quiet: bool, stream: bool) -> Self {
        let style = if json {
            Style::Json
        } else if quiet {
            Style::Quiet
        } else if io::stderr().is_terminal() {
            Style::Bars(MultiProgress::new())
        } else {
            Style::Lines
        };
        Self { style, paint: Paint::for_stderr(), stream }
    }

    /// Whether events are printed as JSON.
    pub(crate) const fn is_json(&self) -> bool {
        matches!(self.style, Style::Json)
    }
    /// Whether only the end is told.
    pub(crate) const fn is_quiet(&self) -> bool {
        matches!(self.style, Style::Quiet)
    }
    /// Whether what ops print is shown.
    pub(crate) const fn streams(&self) -> bool {
        self.stream
    }
    /// The bars, where there are some.
    pub(crate) const fn bars(&self) -> Option<&MultiProgress> {
        match &self.style {
            Style::Bars(bars) => Some(bars),
            Style::Lines | Style::Json | Style::Quiet => None,
        }
    }
    pub(crate) fn paint(&self, colour: Colour, text: &str) -> String {
        self.paint.paint(colour, text)
    }

    /// Tells people; programs hear of it by [`Screen::event`].
    pub(crate) fn say(&self, text: &str) {
        match &self.style {
            // The bars' own println fills lines with blanks, and a terminal's scrollback would join them.
            Style::Bars(bars) => bars.suspend(|| to_stderr(text)),
            Style::Lines => to_stderr(text),
            Style::Json | Style::Quiet => {}
        }
    }

    /// Tells people even where progress is not wanted.
    pub(crate) fn say_always(&self, text: &str) {
        match &self.style {
            Style::Quiet => to_stderr(text),
            Style::Bars(_) | Style::Lines | Style::Json => self.say(text),
        }
    }

    /// Tells programs.
    pub(crate) fn event(&self, name: &str, fields: Value) {
        if self.is_json() {
            let mut event = Map::from_iter([("event".to_owned(), json!(name))]);
            if let Value::Object(fields) = fields {
                event.extend(fields.into_iter().filter(|(_, value)| !value.is_null()));
            }
            print(&format!("{}\n", Value::Object(event)));
        }
    }

    /// Shows a line that an op printed.
    pub(crate) fn op_line(&self, op: &str, text: &str) {
        if self.is_json() {
            self.event("op_output", json!({"op": op, "line": text}));
        } else {
            // Control characters of a program that believes itself alone would break the bars.
            let clean: String = text.chars().filter(|c| !c.is_control() || *c == '\t').collect();
            self.say(&format!("{} {clean}", self.paint(Colour::Dim, &format!("[{op}]"))));
        }
    }
}

fn to_stderr(text: &str) {
    // The terminal may be gone; the run goes on.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Log lines go above the bars.
#[derive(Debug, Clone)]
pub(crate) struct LogWriter(pub(crate) Option<MultiProgress>);

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &self.0 {
            Some(bars) => bars.suspend(|| io::stderr().lock().write_all(bytes)),
            None => io::stderr().lock().write_all(bytes),
        }?;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        io::stderr().lock().flush()
    }
}
