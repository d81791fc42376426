//! Workflow files: reading them, and what makes two runs of one the same workflow.

pub(crate) mod amount;
pub(crate) mod format;
pub(crate) mod identity;
pub(crate) mod input;
pub(crate) mod model;
pub(crate) mod op;
pub(crate) mod problem;

use format::Format;
use model::WorkflowFile;
use problem::FileError;
use std::path::Path;

/// A file longer than this is not a workflow that somebody wrote.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Reads the workflow file at `path`. Blocks.
pub(crate) fn load(path: &Path) -> Result<WorkflowFile, FileError> {
    let refuse = |message: String| FileError::new(path, message);
    let format =
        Format::of(path).ok_or_else(|| refuse("a workflow file's name ends in .toml, .yaml, .yml or .json: rename the file".to_owned()))?;
    let found = std::fs::metadata(path).map_err(|error| refuse(format!("cannot be read: {error}")))?;
    if !found.is_file() {
        return Err(refuse("is not a file: give the path of a workflow file".to_owned()));
    }
    if found.len() > FILE_BYTES_MAX {
        return Err(refuse(format!("has {} bytes; a workflow file has at most {FILE_BYTES_MAX}", found.len())));
    }
    let text = std::fs::read_to_string(path).map_err(|error| refuse(format!("cannot be read: {error}")))?;
    let value = format.parse(&text).map_err(refuse)?;
    WorkflowFile::parse(value).map_err(|problems| FileError { path: path.to_owned(), problems })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Pieces that workflow files are made of, in any order.
    fn nearly_files() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(vec![
            "name = 'w'\n",
            "name: w\n",
            "{\"name\": \"w\", \"ops\": [",
            "[[ops]]\n",
            "ops:\n",
            "  - id: a\n",
            "id = 'a'\n",
            "kind = 'shell'\n",
            "    kind: shell\n",
            "command = 'true'\n",
            "    command: [a, 1]\n",
            "after = ['a']\n",
            "{\"id\": \"a\"},",
            "]}",
            "[queues.q]\n",
            "max_in_flight = -1\n",
            "rate = { per_second = 1e400 }\n",
            "retry = { max_attempts = 99999999999 }\n",
            "&x [*x]\n",
            "? ",
            "!!binary |\n",
            "\u{0}",
            "\"",
            "'",
            "\\",
            "time_limit = '9999999999999h'\n",
            "- ",
            ": ",
            "\t",
            "\n",
        ]);
        prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_text_is_a_workflow_or_refused_with_a_reason(text in prop_oneof![".*", nearly_files()]) {
            for format in [Format::Toml, Format::Yaml, Format::Json] {
                match format.parse(&text) {
                    Ok(value) => if let Err(problems) = WorkflowFile::parse(value) {
                        prop_assert!(!problems.is_empty(), "a refusal says why");
                    },
                    Err(reason) => prop_assert!(!reason.is_empty(), "a refusal says why"),
                }
            }
        }
    }
}
