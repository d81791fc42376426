//! What an http op says: the fields of the file are also what is stored as the op's input.

use crate::file::amount::Size;
use crate::kinds::Complaints;
use crate::kinds::output::OUTPUT_LIMIT;
use crate::kinds::shell::check_output_limit;
use leasehold::model::OpId;
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Method, Url};
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// An http op's own fields.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HttpInput {
    /// How; `GET` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) method: Option<String>,
    /// Where.
    pub(crate) url: String,
    /// Headers to send.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) headers: BTreeMap<String, HeaderText>,
    /// A body of text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) body: Option<String>,
    /// A body of JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) json: Option<Value>,
    /// The output of this op as the body; it must be in `after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) body_from: Option<OpId>,
    /// The statuses that are a success; 200-299 if absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) expect: Vec<StatusRange>,
    /// How much of the response's body is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) output_limit: Option<Size>,
}

/// A header's value: a text, or a variable of the environment, read when the request is made and stored nowhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum HeaderText {
    Text(String),
    Env(HeaderEnv),
}

/// A variable of the environment as a header's value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeaderEnv {
    /// The variable.
    pub(crate) env: String,
    /// What stands before its value, such as `Bearer `.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) prefix: String,
}

/// One status, or all from one to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StatusRange {
    first: u16,
    last: u16,
}

/// Leasehold sets this header; a file may not.
pub(crate) const IDEMPOTENCY_KEY: &str = "idempotency-key";

impl HttpInput {
    pub(crate) const FIELDS: &'static [&'static str] = &["method", "url", "headers", "body", "json", "body_from", "expect", "output_limit"];

    /// What its fields' types do not rule out.
    pub(crate) fn check(&self) -> Complaints {
        let mut complaints = Complaints::new();
        if let Err(message) = self.url() {
            complaints.push(("url".into(), message));
        }
        if let Err(message) = self.method() {
            complaints.push(("method".into(), message));
        }
        for (name, value) in &self.headers {
            let field = || format!("headers.{name}");
            match HeaderName::try_from(name.as_str()) {
                Err(_) => complaints.push((field(), "this is no name of a header".into())),
                Ok(name) if name == IDEMPOTENCY_KEY => {
                    complaints.push((field(), "leasehold sets this header, with a key that stays the same on every attempt".into()));
                }
                Ok(_) => {}
            }
            match value {
                HeaderText::Text(text) if HeaderValue::try_from(text.as_str()).is_err() => {
                    complaints.push((field(), "a header's value holds no control characters".into()));
                }
                HeaderText::Env(from) if from.env.is_empty() || from.env.contains(['=', '\0']) => {
                    complaints.push((field(), format!("{:?} is no name of a variable", from.env)));
                }
                HeaderText::Text(_) | HeaderText::Env(_) => {}
            }
        }
        let bodies = [self.body.is_some(), self.json.is_some(), self.body_from.is_some()];
        if bodies.into_iter().filter(|given| *given).count() > 1 {
            complaints.push(("body".into(), "an op has one body: write only one of body, json and body_from".into()));
        }
        complaints.extend(check_output_limit(self.output_limit));
        complaints
    }

    /// The op whose output it reads, and the field that says so.
    pub(crate) fn reads_from(&self) -> Option<(&'static str, OpId)> {
        self.body_from.clone().map(|op| ("body_from", op))
    }

    /// Where.
    pub(crate) fn url(&self) -> Result<Url, String> {
        let url = Url::parse(&self.url).map_err(|error| format!("{:?} is not a URL: {error}", self.url))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!("{:?} is neither an http nor an https URL", self.url));
        }
        Ok(url)
    }

    /// How.
    pub(crate) fn method(&self) -> Result<Method, String> {
        match &self.method {
            None => Ok(Method::GET),
            Some(name) if name.bytes().all(|byte| byte.is_ascii_uppercase()) => {
                Method::from_bytes(name.as_bytes()).map_err(|_| format!("{name:?} is no HTTP method"))
            }
            Some(name) => Err(format!("{name:?} is no HTTP method: write it in capitals, such as POST")),
        }
    }

    /// Whether `status` is a success.
    pub(crate) fn expects(&self, status: u16) -> bool {
        if self.expect.is_empty() {
            return (200..300).contains(&status);
        }
        self.expect.iter().any(|range| (range.first..=range.last).contains(&status))
    }

    /// Whether it wants to see a redirect instead of following it.
    pub(crate) fn expects_redirect(&self) -> bool {
        self.expect.iter().any(|range| range.first < 400 && range.last >= 300)
    }

    /// How much of the response's body is kept.
    pub(crate) fn output_limit(&self) -> usize {
        self.output_limit.map_or(OUTPUT_LIMIT, |size| size.0)
    }
}

impl StatusRange {
    fn new(first: u16, last: u16) -> Result<Self, String> {
        if (100..1000).contains(&first) && (first..1000).contains(&last) {
            Ok(Self { first, last })
        } else {
            Err(format!("{first}-{last} is no range of HTTP statuses"))
        }
    }
}

impl Serialize for StatusRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.first == self.last {
            self.first.serialize(serializer)
        } else {
            serializer.collect_str(&format_args!("{}-{}", self.first, self.last))
        }
    }
}

struct StatusRangeVisitor;

impl Visitor<'_> for StatusRangeVisitor {
    type Value = StatusRange;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a status such as 204, or a range such as \"200-299\"")
    }
    fn visit_u64<E: Error>(self, status: u64) -> Result<StatusRange, E> {
        let status = u16::try_from(status).map_err(|_| E::custom(format!("{status} is no HTTP status")))?;
        StatusRange::new(status, status).map_err(|_| E::custom(format!("{status} is no HTTP status")))
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<StatusRange, E> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.trim().parse(), last.trim().parse()) {
            (Ok(first), Ok(last)) => StatusRange::new(first, last).map_err(E::custom),
            _ => Err(E::custom(format!("{text:?} is no range of HTTP statuses such as \"200-299\""))),
        }
    }
}

impl<'de> Deserialize<'de> for StatusRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StatusRangeVisitor)
    }
}

struct HeaderTextVisitor;

impl<'de> Visitor<'de> for HeaderTextVisitor {
    type Value = HeaderText;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, or a table such as { env = \"API_TOKEN\", prefix = \"Bearer \" }")
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<HeaderText, E> {
        Ok(HeaderText::Text(text.to_owned()))
    }
    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<HeaderText, A::Error> {
        HeaderEnv::deserialize(serde::de::value::MapAccessDeserializer::new(members)).map(HeaderText::Env)
    }
}

impl<'de> Deserialize<'de> for HeaderText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(HeaderTextVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn input(value: Value) -> HttpInput {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn what_is_stored_reads_back_as_it_was() {
        for value in [
            json!({"url": "http://a/"}),
            json!({
                "method": "PUT", "url": "https://a/b?c=d", "expect": [204, "400-404"], "output_limit": 0, "json": {"a": [1]},
                "headers": {"Accept": "text/plain", "Authorization": {"env": "TOKEN", "prefix": "Bearer "}},
            }),
        ] {
            assert_eq!(serde_json::to_value(input(value.clone())).unwrap(), value);
        }
    }

    #[test]
    fn what_types_allow_and_sense_does_not_is_complained_of() {
        let complaints = |value| input(value).check().into_iter().map(|(field, _)| field).collect::<Vec<_>>();
        assert_eq!(complaints(json!({"url": "ftp://a/"})), ["url"]);
        assert_eq!(complaints(json!({"url": "not a url"})), ["url"]);
        assert_eq!(complaints(json!({"url": "http://a/", "method": "post"})), ["method"]);
        assert_eq!(complaints(json!({"url": "http://a/", "headers": {"a b": "x"}})), ["headers.a b"]);
        assert_eq!(complaints(json!({"url": "http://a/", "headers": {"A": "x\ny"}})), ["headers.A"]);
        assert_eq!(complaints(json!({"url": "http://a/", "headers": {"Idempotency-Key": "x"}})), ["headers.Idempotency-Key"]);
        assert_eq!(complaints(json!({"url": "http://a/", "body": "x", "json": 1})), ["body"]);
        assert!(complaints(json!({"url": "http://a/", "body": "x", "method": "POST"})).is_empty());
    }

    #[test]
    fn the_expected_statuses_are_single_ones_and_ranges() {
        let default = input(json!({"url": "http://a/"}));
        assert!(default.expects(204) && !default.expects(302) && !default.expects_redirect());
        let own = input(json!({"url": "http://a/", "expect": [302, "400-404"]}));
        assert!(own.expects(302) && own.expects(404) && !own.expects(200) && own.expects_redirect());
        for bad in [json!(20), json!(70_000), json!("x"), json!("300-200"), json!("200-"), json!(-1)] {
            assert!(serde_json::from_value::<HttpInput>(json!({"url": "http://a/", "expect": [bad]})).is_err());
        }
    }
}
