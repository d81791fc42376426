//! JSON as text: checked once where it enters, then stored and returned as given (B8).

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// The deepest nesting of a JSON text, so that no reader's stack is at risk (the limit of `serde_json`).
pub const JSON_DEPTH_MAX: usize = 127;

/// A JSON text that every backend stores unchanged.
///
/// It is valid, holds no NUL character, nests at most [`JSON_DEPTH_MAX`] deep, and its numbers survive a reader with
/// 64-bit integers and doubles: integers lie in the range of `i64` or `u64`, others are finite.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Json(Arc<str>);

/// Why a text is refused as JSON.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// Not JSON, or nested too deep.
    #[error("not valid JSON")]
    Syntax(#[source] serde_json::Error),
    /// A value that does not serialise.
    #[error("the value does not serialise to JSON")]
    Serialise(#[source] serde_json::Error),
    /// A stored value of another shape than asked for.
    #[error("the JSON value has another shape than {wanted}")]
    Shape {
        /// The type asked for.
        wanted: &'static str,
        /// What did not fit.
        #[source]
        source: serde_json::Error,
    },
    /// Nested deeper than [`JSON_DEPTH_MAX`].
    #[error("the JSON text nests deeper than {JSON_DEPTH_MAX} levels")]
    Depth,
    /// A NUL character, which Postgres cannot hold.
    #[error("the JSON text holds a NUL character (\\u0000), which cannot be stored; remove or encode it")]
    Nul,
    /// A number that would come back changed.
    #[error("the number {number} cannot be kept exactly; send it as a string")]
    Number {
        /// The number as written.
        number: String,
    },
}

impl Json {
    /// The JSON value `null`.
    pub fn null() -> Self {
        Self("null".into())
    }

    /// Checks `text`.
    ///
    /// # Errors
    /// [`JsonError`] when it is not JSON or cannot be kept exactly.
    pub fn parse(text: impl Into<Arc<str>>) -> Result<Self, JsonError> {
        let text = text.into();
        serde_json::from_str::<serde::de::IgnoredAny>(&text).map_err(JsonError::Syntax)?;
        check_exact(&text)?;
        Ok(Self(text))
    }

    /// Serialises `value`.
    ///
    /// # Errors
    /// [`JsonError`] when it does not serialise or cannot be kept exactly.
    pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Self, JsonError> {
        let text = serde_json::to_string(value).map_err(JsonError::Serialise)?;
        check_exact(&text)?;
        Ok(Self(text.into()))
    }

    /// Reads the text as a `T`.
    ///
    /// # Errors
    /// [`JsonError::Shape`] when the value has another shape.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, JsonError> {
        serde_json::from_str(&self.0).map_err(|source| JsonError::Shape { wanted: std::any::type_name::<T>(), source })
    }

    /// A text that a store gives back: it was checked when it was written.
    pub fn from_stored(text: String) -> Self {
        Self(text.into())
    }

    /// The text as given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether both texts say the same, whatever their spelling.
    pub fn same_value(&self, other: &Self) -> bool {
        self == other
            || matches!(
                (serde_json::from_str::<serde_json::Value>(&self.0), serde_json::from_str::<serde_json::Value>(&other.0)),
                (Ok(left), Ok(right)) if left == right
            )
    }
}

/// Finds, in text that is known to be JSON, a NUL escape, too deep nesting, or a number that 64 bits do not keep.
fn check_exact(text: &str) -> Result<(), JsonError> {
    let mut depth = 0_usize;
    let mut bytes = text.bytes().enumerate().peekable();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => loop {
                match bytes.next() {
                    None | Some((_, b'"')) => break,
                    Some((escape, b'\\')) => {
                        if text.as_bytes().get(escape..escape + 6) == Some(b"\\u0000") {
                            return Err(JsonError::Nul);
                        }
                        bytes.next();
                    }
                    Some(_) => {}
                }
            },
            b'-' | b'0'..=b'9' => {
                let mut end = at + 1;
                while let Some((next, _)) = bytes.next_if(|(_, b)| matches!(b, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-')) {
                    end = next + 1;
                }
                check_number(text.get(at..end).unwrap_or_default())?;
            }
            b'[' | b'{' => {
                depth += 1;
                if depth > JSON_DEPTH_MAX {
                    return Err(JsonError::Depth);
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

fn check_number(number: &str) -> Result<(), JsonError> {
    let exact = if number.bytes().any(|byte| matches!(byte, b'.' | b'e' | b'E')) {
        number.parse::<f64>().is_ok_and(f64::is_finite)
    } else {
        number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok()
    };
    if exact { Ok(()) } else { Err(JsonError::Number { number: number.to_owned() }) }
}

impl Default for Json {
    fn default() -> Self {
        Self::null()
    }
}
impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
/// As the value itself, not as a string that holds JSON.
impl Serialize for Json {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value: &serde_json::value::RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        value.serialize(serializer)
    }
}
impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        Self::encode(&value).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_kept_exactly_is_refused() {
        for good in [
            r#"{"id":9007199254740993,"max":18446744073709551615,"min":-9223372036854775808,"z":-0.0,"x":1e308}"#,
            r#""\\u0000 is text here""#,
            "[]",
        ] {
            assert_eq!(Json::parse(good).unwrap().as_str(), good);
        }
        assert!(matches!(Json::parse(r#"{"a":"x\u0000y"}"#), Err(JsonError::Nul)));
        assert!(matches!(Json::parse("123456789012345678901234567890"), Err(JsonError::Number { .. })));
        assert!(Json::parse("1e400").is_err());
        assert!(matches!(Json::parse("{a:1}"), Err(JsonError::Syntax(_))));
        let nested = |depth: usize| Json::parse("[".repeat(depth) + &"]".repeat(depth));
        assert!(nested(JSON_DEPTH_MAX).is_ok_and(|json| json.decode::<serde_json::Value>().is_ok()));
        assert!(matches!(nested(JSON_DEPTH_MAX + 1), Err(JsonError::Depth)));
        assert!(matches!(Json::encode("a\0b"), Err(JsonError::Nul)));
    }

    #[test]
    fn spelling_does_not_make_a_value_differ() {
        let (a, b) = (Json::parse(r#"{"a":1,"b":2}"#).unwrap(), Json::parse(r#"{ "b": 2, "a": 1 }"#).unwrap());
        assert!(a.same_value(&b));
        assert!(!a.same_value(&Json::null()));
    }
}
