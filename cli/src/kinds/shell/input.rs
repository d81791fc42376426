//! What a shell op says: the fields of the file are also what is stored as the op's input.

use crate::file::amount::Size;
use crate::kinds::Complaints;
use crate::kinds::output::{OUTPUT_LIMIT, OUTPUT_LIMIT_MAX};
use leasehold::model::{ArtifactName, OpId};
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// A shell op's own fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShellInput {
    /// What to run.
    pub(crate) command: Command,
    /// Where; relative to the folder that leasehold was started in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cwd: Option<String>,
    /// Variables added to leasehold's own environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) env: BTreeMap<String, String>,
    /// What the process reads; nothing if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stdin: Option<Stdin>,
    /// How much of its standard output is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) output_limit: Option<Size>,
    /// Files it leaves behind that become the op's artifacts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) artifacts: Vec<String>,
}

/// A command: a line for the shell, or a program and its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum Command {
    Line(String),
    Words(Vec<String>),
}

/// What a process reads from its standard input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum Stdin {
    /// This text.
    Text(String),
    /// What another op gave.
    From(StdinFrom),
}

/// An op to read from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StdinFrom {
    /// The op; it must be in `after`.
    pub(crate) from: OpId,
    /// Its artifact of this name instead of its output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) artifact: Option<ArtifactName>,
}

/// The program sets these; a file may not.
pub(crate) const RESERVED_PREFIX: &str = "LEASEHOLD_";

impl ShellInput {
    pub(crate) const FIELDS: &'static [&'static str] = &["command", "cwd", "env", "stdin", "output_limit", "artifacts"];

    /// What its fields' types do not rule out.
    pub(crate) fn check(&self) -> Complaints {
        let mut complaints = Complaints::new();
        let empty = match &self.command {
            Command::Line(line) => line.trim().is_empty(),
            Command::Words(words) => words.first().is_none_or(String::is_empty),
        };
        if empty {
            complaints.push(("command".into(), "the command is empty: write a line for sh, or a program and its arguments".into()));
        }
        for name in self.env.keys() {
            if name.is_empty() || name.contains('=') {
                complaints.push(("env".into(), format!("{name:?} is no name of a variable")));
            } else if name.starts_with(RESERVED_PREFIX) {
                complaints.push((
                    format!("env.{name}"),
                    format!("leasehold sets the variables that begin with {RESERVED_PREFIX}: choose another name"),
                ));
            }
        }
        for path in self.artifacts.iter().filter(|path| std::path::Path::new(path).file_name().is_none()) {
            complaints.push(("artifacts".into(), format!("{path:?} names no file")));
        }
        complaints.extend(check_output_limit(self.output_limit));
        complaints
    }

    /// The op whose output it reads, and the field that says so.
    pub(crate) fn reads_from(&self) -> Option<(&'static str, OpId)> {
        match &self.stdin {
            Some(Stdin::From(from)) => Some(("stdin.from", from.from.clone())),
            Some(Stdin::Text(_)) | None => None,
        }
    }

    /// How much of its standard output is kept.
    pub(crate) fn output_limit(&self) -> usize {
        self.output_limit.map_or(OUTPUT_LIMIT, |size| size.0)
    }
}

/// A complaint when an op wants to keep more than a result can hold.
pub(crate) fn check_output_limit(limit: Option<Size>) -> Option<(String, String)> {
    let limit = limit?.0;
    (limit > OUTPUT_LIMIT_MAX).then(|| {
        let message = format!("a result holds at most {}KiB of output; keep more as an artifact or in a file", OUTPUT_LIMIT_MAX / 1024);
        ("output_limit".to_owned(), message)
    })
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

struct CommandVisitor;

impl<'de> Visitor<'de> for CommandVisitor {
    type Value = Command;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a line for sh, or a list of a program and its arguments")
    }
    fn visit_str<E: Error>(self, line: &str) -> Result<Command, E> {
        Ok(Command::Line(line.to_owned()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Command, A::Error> {
        let mut words = Vec::new();
        while let Some(word) = items.next_element()? {
            words.push(word);
        }
        Ok(Command::Words(words))
    }
}

impl<'de> Deserialize<'de> for Command {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CommandVisitor)
    }
}

struct StdinVisitor;

impl<'de> Visitor<'de> for StdinVisitor {
    type Value = Stdin;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, or a table such as { from = \"op\" }")
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<Stdin, E> {
        Ok(Stdin::Text(text.to_owned()))
    }
    fn visit_map<A: serde::de::MapAccess<'de>>(self, members: A) -> Result<Stdin, A::Error> {
        StdinFrom::deserialize(serde::de::value::MapAccessDeserializer::new(members)).map(Stdin::From)
    }
}

impl<'de> Deserialize<'de> for Stdin {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StdinVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn input(value: Value) -> Result<ShellInput, String> {
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_stored_reads_back_as_it_was() {
        for value in [
            json!({"command": "echo a"}),
            json!({"command": ["echo", "a b"], "cwd": "x", "env": {"A": "1"}, "stdin": "text", "output_limit": 10, "artifacts": ["a/b"]}),
            json!({"command": "cat", "stdin": {"from": "a", "artifact": "b"}}),
        ] {
            assert_eq!(serde_json::to_value(input(value.clone()).unwrap()).unwrap(), value);
        }
    }

    #[test]
    fn what_types_allow_and_sense_does_not_is_complained_of() {
        let complaints = |value| input(value).unwrap().check().into_iter().map(|(field, _)| field).collect::<Vec<_>>();
        assert_eq!(complaints(json!({"command": " "})), ["command"]);
        assert_eq!(complaints(json!({"command": []})), ["command"]);
        assert_eq!(complaints(json!({"command": "a", "env": {"LEASEHOLD_OP": "x"}})), ["env.LEASEHOLD_OP"]);
        assert_eq!(complaints(json!({"command": "a", "env": {"": "x", "a=b": "x"}})), ["env", "env"]);
        assert_eq!(complaints(json!({"command": "a", "artifacts": [".."]})), ["artifacts"]);
        assert_eq!(complaints(json!({"command": "a", "output_limit": "1MiB"})), ["output_limit"]);
        assert!(complaints(json!({"command": "a", "env": {"A": ""}})).is_empty());
    }

    #[test]
    fn a_wrong_type_is_told_what_is_expected() {
        assert!(input(json!({"command": 5})).unwrap_err().contains("a line for sh, or a list"));
        assert!(input(json!({"command": "a", "stdin": 5})).unwrap_err().contains("{ from = \"op\" }"));
        assert!(input(json!({"command": "a", "stdin": {"form": "b"}})).unwrap_err().contains("unknown field `form`"));
    }
}
