//! TOML, YAML and JSON, read into one kind of value.
//!
//! The three meet in a JSON value, so that the same workflow written in any of them is the same workflow. What JSON
//! cannot hold exactly, and a key that is there twice, is refused here instead of being changed in silence.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt;
use std::path::Path;

/// The formats a workflow file may have, by the end of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Toml,
    Yaml,
    Json,
}

impl Format {
    /// The format of the file at `path`, if its name tells.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        match extension.as_str() {
            "toml" => Some(Self::Toml),
            "yaml" | "yml" => Some(Self::Yaml),
            "json" => Some(Self::Json),
            _ => None,
        }
    }

    /// Parses `text`; the error is a sentence for people, with line and column where the format knows them.
    pub(crate) fn parse(self, text: &str) -> Result<Value, String> {
        let parsed: Result<StrictValue, String> = match self {
            Self::Toml => toml::from_str(text).map_err(|error| error.to_string()),
            Self::Yaml => serde_saphyr::from_str(text).map_err(|error| error.to_string()),
            Self::Json => serde_json::from_str(text).map_err(|error| error.to_string()),
        };
        parsed.map(|value| value.0).map_err(|message| message.trim_end().to_owned())
    }
}

/// A JSON value that lost nothing on the way.
struct StrictValue(Value);

impl<'de> Deserialize<'de> for StrictValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

/// Under this key the `toml` crate hands over a date.
const TOML_DATE: &str = "$__toml_private_datetime";

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON can hold")
    }
    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_none<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }
    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }
    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }
    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        /// From here on a double has no room for ones: an integer that came as a double may have been rounded (2^53).
        const EXACT: f64 = 9_007_199_254_740_992.0;
        match Number::from_f64(value) {
            Some(number) if value.abs() < EXACT => Ok(Value::Number(number)),
            Some(_) => Err(E::custom(format!("the number {value} cannot be kept exactly; put it in quotes"))),
            None => Err(E::custom("infinite numbers and nan are not JSON; put them in quotes")),
        }
    }
    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.visit_string(value.to_owned())
    }
    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        if value.contains('\0') {
            return Err(E::custom("the text holds a NUL character, which cannot be stored"));
        }
        Ok(Value::String(value))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(StrictValue(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            if key == TOML_DATE {
                return Err(A::Error::custom("dates have no form in JSON; put them in quotes"));
            }
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!("the key {key:?} is there twice")));
            }
            let StrictValue(value) = members.next_value()?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_three_formats_give_the_same_value() {
        let expected = json!({"name": "a", "n": 5, "x": 0.5, "list": [{"id": "b", "on": true}]});
        let toml = "name = 'a'\nn = 5\nx = 0.5\n[[list]]\nid = 'b'\non = true\n";
        let yaml = "name: a\nn: 5\nx: 0.5\nlist:\n  - id: b\n    on: true\n";
        assert_eq!(Format::Toml.parse(toml).unwrap(), expected);
        assert_eq!(Format::Yaml.parse(yaml).unwrap(), expected);
        assert_eq!(Format::Json.parse(&expected.to_string()).unwrap(), expected);
    }

    #[test]
    fn what_json_cannot_hold_is_refused_and_not_changed() {
        assert!(Format::Toml.parse("d = 2026-01-01").unwrap_err().contains("put them in quotes"));
        assert!(Format::Toml.parse("d = nan").unwrap_err().contains("nan"));
        assert!(Format::Json.parse(r#"{"n": 123456789012345678901234567890}"#).unwrap_err().contains("exactly"));
        assert!(Format::Yaml.parse("a: \"x\\0y\"").unwrap_err().contains("NUL"));
        assert_eq!(Format::Json.parse(r#"{"n": 18446744073709551615}"#).unwrap(), json!({"n": u64::MAX}));
    }

    #[test]
    fn a_key_that_is_there_twice_is_refused_in_every_format() {
        assert!(Format::Json.parse(r#"{"a": 1, "a": 2}"#).is_err());
        assert!(Format::Yaml.parse("a: 1\na: 2\n").is_err());
        assert!(Format::Toml.parse("a = 1\na = 2\n").is_err());
    }

    #[test]
    fn an_error_of_syntax_names_its_line() {
        assert!(Format::Toml.parse("a = 1\nb = = 2\n").unwrap_err().contains("line 2"));
        assert!(Format::Json.parse("{\n\"a\": }").unwrap_err().contains("line 2"));
        assert!(Format::Yaml.parse("a: 1\nb: [1, 2\n").unwrap_err().contains("line"));
    }
}
