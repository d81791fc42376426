//! What is wrong with a workflow file, said so that a person can repair it.

use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt;
use std::path::PathBuf;

/// One thing that is wrong: where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The part of the file, such as `op "fetch"`; empty for the file as a whole.
    pub(crate) place: String,
    /// The field in that part, such as `retry.base`.
    pub(crate) field: Option<String>,
    /// What is wrong with it.
    pub(crate) message: String,
}

impl Problem {
    pub(crate) fn new(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self { place: place.into(), field: None, message: message.into() }
    }
    pub(crate) fn of_field(place: impl Into<String>, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { place: place.into(), field: Some(field.into()), message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.place.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        if let Some(field) = &self.field {
            write!(f, "field \"{field}\": ")?;
        }
        f.write_str(&self.message)
    }
}

/// A workflow file that cannot be run, with all that is wrong with it.
#[derive(Debug)]
pub(crate) struct FileError {
    /// The file.
    pub(crate) path: PathBuf,
    /// What is wrong with it; at least one.
    pub(crate) problems: Vec<Problem>,
}

impl FileError {
    pub(crate) fn new(path: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        Self { path: path.into(), problems: vec![Problem::new("", message)] }
    }
}

/// A line a problem, each naming the file.
impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.problems.iter().enumerate() {
            let line_break = if at == 0 { "" } else { "\n" };
            write!(f, "{line_break}{}: {problem}", self.path.display())?;
        }
        Ok(())
    }
}

impl std::error::Error for FileError {}

/// Reads `value` as a `T`; what does not fit becomes a problem that names the field.
pub(crate) fn read<T: DeserializeOwned>(value: Value, place: &str, problems: &mut Vec<Problem>) -> Option<T> {
    match serde_path_to_error::deserialize(value) {
        Ok(read) => Some(read),
        Err(error) => {
            let path = error.path().to_string();
            let field = (path != "." && path != "?").then_some(path);
            problems.push(Problem { place: place.to_owned(), field, message: error.into_inner().to_string() });
            None
        }
    }
}

/// A problem for each of `keys` that is none of `known`, with the closest known one where there is one.
pub(crate) fn unknown_fields<'a>(keys: impl Iterator<Item = &'a String>, known: &[&str], place: &str, problems: &mut Vec<Problem>) {
    for key in keys.filter(|key| !known.contains(&key.as_str())) {
        let closest = closest(key, known.iter().copied());
        let hint = closest.map_or_else(|| format!("; the fields are {}", known.join(", ")), |name| format!("; did you mean \"{name}\"?"));
        problems.push(Problem::new(place, format!("unknown field \"{key}\"{hint}")));
    }
}

/// The one of `names` that `word` was probably meant to be.
pub(crate) fn closest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    /// Below this, two words have little in common.
    const SIMILAR: f64 = 0.8;
    names
        .map(|name| (strsim::jaro_winkler(word, name), name))
        .filter(|(similarity, _)| *similarity >= SIMILAR)
        .max_by(|left, right| left.0.total_cmp(&right.0))
        .map(|(_, name)| name)
}
