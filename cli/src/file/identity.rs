//! What makes two runs the same workflow: the parsed file, the input (the file's with that of the command line), and the
//! contents of the files that the workflow lists. Never the environment, the time, or where the file lies.

use super::model::WorkflowFile;
use super::problem::{FileError, Problem};
use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Read};
use std::path::Path;

/// An identity as it is digested.
#[derive(Debug, Serialize)]
pub(crate) struct Identity<'a> {
    file: &'a Value,
    input: &'a Map<String, Value>,
    inputs: BTreeMap<&'a str, String>,
}

impl<'a> Identity<'a> {
    /// The identity of running `file`, which was read from `path`, with `input`. Blocks while it digests the listed files.
    pub(crate) fn of(path: &Path, file: &'a WorkflowFile, input: &'a Map<String, Value>) -> Result<Self, FileError> {
        let mut inputs = BTreeMap::new();
        let mut problems = Vec::new();
        for listed in &file.inputs {
            match digest(Path::new(listed)) {
                Ok(digest) => {
                    inputs.insert(listed.as_str(), digest);
                }
                Err(error) => {
                    let message = format!("\"{listed}\" cannot be read: {error}; paths begin at the folder in which leasehold is started");
                    problems.push(Problem::of_field("", "inputs", message));
                }
            }
        }
        if problems.is_empty() {
            Ok(Self { file: &file.parsed, input, inputs })
        } else {
            Err(FileError { path: path.to_owned(), problems })
        }
    }
}

/// The SHA-256 of a file's contents, whatever its size.
fn digest(path: &Path) -> io::Result<String> {
    let mut file = std::fs::File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = file.read(&mut buffer)?;
        match buffer.get(..count) {
            None | Some([]) => break,
            Some(bytes) => hash.update(bytes),
        }
    }
    let mut text = String::new();
    for byte in hash.finalize() {
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold::model::Digest;
    use serde_json::json;

    fn identity(parsed: &Value, given: &Value) -> Digest {
        let file = WorkflowFile::parse(parsed.clone()).unwrap();
        let given = given.as_object().unwrap().clone();
        Digest::of(&Identity::of(Path::new("x.toml"), &file, &given).unwrap()).unwrap()
    }

    #[test]
    fn file_input_and_listed_contents_make_the_identity() {
        let folder = tempfile::tempdir().unwrap();
        let listed = folder.path().join("data");
        std::fs::write(&listed, "one").unwrap();
        let parsed = |command: &str| json!({"name": "n", "inputs": [listed], "ops": [{"id": "a", "kind": "shell", "command": command}]});
        let first = identity(&parsed("true"), &json!({"k": "v"}));
        assert_eq!(first, identity(&parsed("true"), &json!({"k": "v"})));
        assert_ne!(first, identity(&parsed("false"), &json!({"k": "v"})));
        assert_ne!(first, identity(&parsed("true"), &json!({"k": "w"})));
        std::fs::write(&listed, "two").unwrap();
        assert_ne!(first, identity(&parsed("true"), &json!({"k": "v"})));
        std::fs::write(&listed, "one").unwrap();
        assert_eq!(first, identity(&parsed("true"), &json!({"k": "v"})));
    }

    #[test]
    fn a_listed_file_that_is_not_there_is_named() {
        let parsed = json!({"name": "n", "inputs": ["/no/such/file"], "ops": [{"id": "a", "kind": "shell", "command": "true"}]});
        let file = WorkflowFile::parse(parsed).unwrap();
        let error = Identity::of(Path::new("x.toml"), &file, &Map::new()).unwrap_err();
        assert!(error.to_string().starts_with("x.toml: field \"inputs\": \"/no/such/file\" cannot be read"), "{error}");
    }
}
