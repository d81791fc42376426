//! The workflow's input: what the file says, and what the command line says instead.

use super::format::Format;
use super::problem::closest;
use serde_json::{Map, Value};
use std::path::Path;

/// Reads the values of `--input`: `name=text`, a JSON object, or `@file` with one. Later ones win.
pub(crate) fn parse_given(given: &[String]) -> Result<Map<String, Value>, String> {
    let mut merged = Map::new();
    for argument in given {
        let object = if let Some(path) = argument.strip_prefix('@') {
            let text = std::fs::read_to_string(path).map_err(|error| format!("--input {argument}: cannot be read: {error}"))?;
            let format = Format::of(Path::new(path)).unwrap_or(Format::Json);
            format.parse(&text).map_err(|error| format!("--input {argument}: {error}"))?
        } else if argument.trim_start().starts_with('{') {
            Format::Json.parse(argument).map_err(|error| format!("--input {argument}: not a JSON object: {error}"))?
        } else if let Some((name, text)) = argument.split_once('=').filter(|(name, _)| !name.is_empty()) {
            Value::Object(Map::from_iter([(name.to_owned(), Value::String(text.to_owned()))]))
        } else {
            return Err(format!("--input {argument}: write name=text, a JSON object such as '{{\"n\": 5}}', or @file"));
        };
        let Value::Object(object) = object else {
            return Err(format!("--input {argument}: an input is an object of names and values"));
        };
        merged.extend(object);
    }
    Ok(merged)
}

/// The file's input with what was `given` in its place. Only what the file declares can be given: a misspelled name
/// would make another workflow that nobody meant.
pub(crate) fn merge(declared: &Map<String, Value>, given: &Map<String, Value>) -> Result<Map<String, Value>, String> {
    if let Some(unknown) = given.keys().find(|name| !declared.contains_key(*name)) {
        let names: Vec<&str> = declared.keys().map(String::as_str).collect();
        let advice = match closest(unknown, names.iter().copied()) {
            Some(name) => format!("did you mean \"{name}\"?"),
            None if names.is_empty() => "it declares no input at all; add it there below [input], with a default".to_owned(),
            None => format!("it declares {}", names.join(", ")),
        };
        return Err(format!("--input: the file declares no input \"{unknown}\": {advice}"));
    }
    let mut merged = declared.clone();
    merged.extend(given.clone());
    Ok(merged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn given(arguments: &[&str]) -> Result<Value, String> {
        parse_given(&arguments.iter().map(|&argument| argument.to_owned()).collect::<Vec<_>>()).map(Value::Object)
    }

    #[test]
    fn texts_objects_and_files_are_read_and_later_ones_win() {
        assert_eq!(given(&["n=5", "s=a=b"]).unwrap(), json!({"n": "5", "s": "a=b"}));
        assert_eq!(given(&["n=5", r#"{"n": 5, "m": [true]}"#]).unwrap(), json!({"n": 5, "m": [true]}));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("i.toml");
        std::fs::write(&path, "n = 7").unwrap();
        assert_eq!(given(&[&format!("@{}", path.display())]).unwrap(), json!({"n": 7}));
        for bad in ["", "=x", "n", "@/no/such/file", "{", "[1]"] {
            assert!(given(&[bad]).unwrap_err().contains("--input"), "{bad}");
        }
    }

    #[test]
    fn only_declared_inputs_can_be_given() {
        let object = |value: Value| value.as_object().unwrap().clone();
        let declared = object(json!({"pages": 1, "who": "a"}));
        assert_eq!(Value::Object(merge(&declared, &object(json!({"who": "b"}))).unwrap()), json!({"pages": 1, "who": "b"}));
        assert!(merge(&declared, &object(json!({"page": 1}))).unwrap_err().contains("did you mean \"pages\"?"));
        assert!(merge(&declared, &object(json!({"zzz": 1}))).unwrap_err().contains("it declares pages, who"));
        assert!(merge(&Map::new(), &object(json!({"a": 1}))).unwrap_err().contains("declares no input at all"));
    }
}
