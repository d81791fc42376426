//! Ops that a command asks for, a line of JSON each in the file that `LEASEHOLD_EMIT` names.

use crate::file::format::Format;
use crate::file::op::parse_op;
use crate::file::problem::Problem;
use crate::kinds::failure::Failure;
use leasehold::model::{OpError, OpSpec};
use std::path::Path;

/// A file longer than this is refused: it would be held in memory whole, and stored in one transaction.
const EMIT_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Enough of them to see the pattern.
const PROBLEMS_SHOWN: usize = 5;

/// Reads the ops that `op` asks for.
pub(super) async fn read(file: &Path, op: &str) -> Result<Vec<OpSpec>, Failure> {
    let refuse = |message: String| Failure::permanent(OpError::BAD_EMISSION, message);
    let size = match tokio::fs::metadata(file).await {
        Ok(found) => found.len(),
        // A command may remove its own file: then it asks for nothing.
        Err(_) => return Ok(Vec::new()),
    };
    if size > EMIT_BYTES_MAX {
        return Err(refuse(format!("the emitted ops have {size} bytes, over the limit of {EMIT_BYTES_MAX}")));
    }
    let bytes = tokio::fs::read(file).await.map_err(|error| refuse(format!("the file of emitted ops cannot be read: {error}")))?;
    let text = String::from_utf8(bytes).map_err(|_| refuse("the file of emitted ops is not UTF-8".to_owned()))?;
    parse(&text, op).map_err(|problems| {
        let shown: Vec<String> = problems.iter().take(PROBLEMS_SHOWN).map(ToString::to_string).collect();
        let more = problems.len().saturating_sub(PROBLEMS_SHOWN);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        refuse(format!("emitted ops were refused: {}{more}", shown.join("; ")))
    })
}

fn parse(text: &str, op: &str) -> Result<Vec<OpSpec>, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut specs = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let place = format!("line {} emitted by op \"{op}\"", at + 1);
        match Format::Json.parse(line) {
            Ok(value) => specs.extend(parse_op(value, &place, &mut problems)),
            Err(message) => problems.push(Problem::new(place, format!("this is not an op in JSON: {message}"))),
        }
    }
    if problems.is_empty() { Ok(specs) } else { Err(problems) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_an_op_as_in_a_file() {
        let lines = "{\"id\":\"a\",\"kind\":\"shell\",\"command\":[\"true\"],\"before\":[\"report\"]}\n\n{\"id\":\"b\",\"kind\":\"http\",\"url\":\"http://a/\",\"after\":[\"a\"]}";
        let specs = parse(lines, "list").unwrap();
        let ids: Vec<&str> = specs.iter().map(|spec| spec.id.as_str()).collect();
        assert_eq!(ids, ["a", "b"]);
        assert_eq!(specs.first().unwrap().before.first().unwrap().as_str(), "report");
    }

    #[test]
    fn a_bad_line_is_named_by_its_number_and_all_are_told() {
        let problems = parse("{}\n{\n{\"id\":\"c\",\"kind\":\"shell\",\"comand\":\"x\"}\n", "list").unwrap_err();
        let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert!(told.first().unwrap().starts_with("line 1 emitted by op \"list\": the field \"kind\" is missing"), "{told:?}");
        assert!(told.get(1).unwrap().starts_with("line 2 emitted by op \"list\": this is not an op in JSON"), "{told:?}");
        assert!(told.get(2).unwrap().contains("op \"c\": unknown field \"comand\""), "{told:?}");
    }
}
