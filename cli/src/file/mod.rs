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
