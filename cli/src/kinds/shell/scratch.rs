//! The folder of one attempt: what the command may read, and where it leaves what it wants to hand over.

use super::input::RESERVED_PREFIX;
use leasehold::model::{Json, OpId};
use serde::Serialize;
use serde_json::Value;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A line of the file of results: what one of the op's dependencies gave.
#[derive(Debug, Clone, Serialize)]
struct ResultLine<'a> {
    op: &'a OpId,
    output: &'a Json,
}

/// One attempt's folder, removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    // Kept for its removal when it is dropped.
    _folder: TempDir,
    emit: PathBuf,
    artifacts: PathBuf,
    results: PathBuf,
    input: PathBuf,
    input_variables: Vec<(String, String)>,
}

impl Scratch {
    /// Makes the folder inside `parent`. Blocks.
    pub(crate) fn create(parent: &Path, input: &Json, results: &[(OpId, Json)]) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("op-").tempdir_in(parent)?;
        let at = |name: &str| folder.path().join(name);
        let (emit, artifacts, results_file, input_file) = (at("emit.jsonl"), at("artifacts"), at("results.jsonl"), at("input.json"));
        std::fs::create_dir(&artifacts)?;
        std::fs::File::create_new(&emit)?;
        std::fs::write(&input_file, input.as_str())?;
        let mut lines = BufWriter::new(std::fs::File::create_new(&results_file)?);
        for (op, output) in results {
            serde_json::to_writer(&mut lines, &ResultLine { op, output })?;
            lines.write_all(b"\n")?;
        }
        lines.flush()?;
        let input_variables = input_variables(input);
        Ok(Self { _folder: folder, emit, artifacts, results: results_file, input: input_file, input_variables })
    }

    /// Where the command writes ops to add.
    pub(crate) fn emit_file(&self) -> &Path {
        &self.emit
    }
    /// Where the command puts files that become artifacts.
    pub(crate) fn artifacts_folder(&self) -> &Path {
        &self.artifacts
    }
    /// What the op's dependencies gave, those that succeeded.
    pub(crate) fn results_file(&self) -> &Path {
        &self.results
    }
    /// The workflow's input.
    pub(crate) fn input_file(&self) -> &Path {
        &self.input
    }
    /// The workflow's input, a variable for each plain value.
    pub(crate) fn input_variables(&self) -> &[(String, String)] {
        &self.input_variables
    }
}

/// `LEASEHOLD_INPUT_NAME` for each member of the input that is a text, a number or a boolean and whose name a shell can hold.
fn input_variables(input: &Json) -> Vec<(String, String)> {
    /// Systems refuse a process whose variables are longer; the file has the value in any case.
    const VALUE_BYTES_MAX: usize = 32 * 1024;
    let Ok(Value::Object(members)) = input.decode::<Value>() else {
        return Vec::new();
    };
    let plain = members.into_iter().filter_map(|(name, value)| match value {
        Value::String(text) => Some((name, text)),
        Value::Number(number) => Some((name, number.to_string())),
        Value::Bool(on) => Some((name, on.to_string())),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    });
    plain
        .filter(|(name, value)| {
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-') && value.len() <= VALUE_BYTES_MAX
        })
        .map(|(name, value)| (format!("{RESERVED_PREFIX}INPUT_{}", name.replace('-', "_").to_ascii_uppercase()), value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_folder_holds_what_the_command_reads_and_is_gone_afterwards() {
        let parent = tempfile::tempdir().unwrap();
        let input = Json::encode(&json!({"n": 5, "dry-run": true, "who": "ü", "list": [1], "a b": "x"})).unwrap();
        let results = [(OpId::new("a").unwrap(), Json::parse(r#"{"stdout":"x\n"}"#).unwrap())];
        let scratch = Scratch::create(parent.path(), &input, &results).unwrap();
        let text = |path: &Path| std::fs::read_to_string(path).unwrap();
        assert_eq!(text(scratch.input_file()), input.as_str());
        let expected = r#"{"op":"a","output":{"stdout":"x\n"}}"#;
        assert_eq!(text(scratch.results_file()), format!("{expected}\n"));
        assert_eq!(text(scratch.emit_file()), "");
        let variables: Vec<_> = scratch.input_variables().iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(variables, ["LEASEHOLD_INPUT_DRY_RUN=true", "LEASEHOLD_INPUT_N=5", "LEASEHOLD_INPUT_WHO=ü"]);
        drop(scratch);
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
