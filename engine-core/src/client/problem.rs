//! What is wrong with a workflow that somebody describes: all of it at once, each point naming its op.

use std::error::Error;
use std::fmt;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The op it concerns; `None` for the workflow itself.
    pub op: Option<String>,
    /// What is wrong, and what to do.
    pub message: String,
}

/// A description that was refused; nothing was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidSpec {
    /// Everything that is wrong, in the order of the description; never empty.
    pub problems: Vec<Problem>,
}

impl InvalidSpec {
    /// One problem of `op`.
    pub fn of_op(op: impl Into<String>, message: impl Into<String>) -> Self {
        Self { problems: vec![Problem { op: Some(op.into()), message: message.into() }] }
    }

    /// One problem of the workflow itself.
    pub fn of_workflow(message: impl Into<String>) -> Self {
        Self { problems: vec![Problem { op: None, message: message.into() }] }
    }

    /// `Err` when `problems` holds any.
    pub(crate) fn unless_empty(problems: Vec<Problem>) -> Result<(), Self> {
        if problems.is_empty() { Ok(()) } else { Err(Self { problems }) }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.op {
            Some(op) => write!(f, "op {op:?}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl fmt::Display for InvalidSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// More would bury the first ones, which are often the cause of the rest.
        const SHOWN_MAX: usize = 10;
        for (at, problem) in self.problems.iter().take(SHOWN_MAX).enumerate() {
            let gap = if at == 0 { "" } else { "; " };
            write!(f, "{gap}{problem}")?;
        }
        match self.problems.len().saturating_sub(SHOWN_MAX) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

impl Error for InvalidSpec {}

/// The error's text followed by those of its causes: what a person needs where no chain is shown.
pub(crate) fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        let said = source.to_string();
        // Many errors repeat their source's text in their own.
        if !text.ends_with(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = source.source();
    }
    text
}
