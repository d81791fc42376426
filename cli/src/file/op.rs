//! One op as a workflow file, or a line that a shell op emits, says it.

use super::amount::Span;
use super::problem::{Problem, read, unknown_fields};
use crate::kinds::{BuiltIn, http::HttpInput, shell::ShellInput};
use leasehold::model::{Backoff, DedupKey, Dependency, Effect, Jitter, Json, Micros, OpId, OpSpec, QueueName, RetryPolicy, SiteName};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::num::NonZeroU32;

/// The fields that ops of every kind have.
const COMMON_FIELDS: &[&str] = &[
    "id",
    "kind",
    "queue",
    "site",
    "priority",
    "after",
    "after_settled",
    "before",
    "retry",
    "effect",
    "time_limit",
    "dedup_key",
    "metadata",
];

/// An http op that says nothing may take this long: a server that never answers must not hold it for ever.
const HTTP_TIME_LIMIT: Micros = Micros::from_secs(300);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CommonFields {
    id: OpId,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(default)]
    queue: QueueName,
    site: Option<SiteName>,
    #[serde(default)]
    priority: i32,
    #[serde(default)]
    after: Vec<OpId>,
    #[serde(default)]
    after_settled: Vec<OpId>,
    #[serde(default)]
    before: Vec<OpId>,
    #[serde(default)]
    retry: RetryFields,
    #[serde(default)]
    effect: Effect,
    time_limit: Option<Span>,
    dedup_key: Option<DedupKey>,
    metadata: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RetryFields {
    max_attempts: Option<NonZeroU32>,
    backoff: Option<Backoff>,
    base: Option<Span>,
    cap: Option<Span>,
    jitter: Option<Jitter>,
    max_lost: Option<NonZeroU32>,
}

impl RetryFields {
    fn policy(&self, effect: Effect) -> RetryPolicy {
        let default = RetryPolicy::default();
        RetryPolicy {
            max_attempts: self.max_attempts.map_or(default.max_attempts, NonZeroU32::get),
            backoff: self.backoff.unwrap_or(default.backoff),
            base: self.base.map_or(default.base, |span| span.0),
            cap: self.cap.map_or(default.cap, |span| span.0),
            jitter: self.jitter.unwrap_or(default.jitter),
            max_lost: self.max_lost.map_or(default.max_lost, NonZeroU32::get),
            effect,
        }
    }
}

/// Reads one op; `place` is what to call it while its id is not known. `None` when there are problems.
pub(crate) fn parse_op(value: Value, place: &str, problems: &mut Vec<Problem>) -> Option<OpSpec> {
    let before = problems.len();
    let Value::Object(fields) = value else {
        problems.push(Problem::new(place, "an op is a table of fields, at least id, kind and what the kind needs"));
        return None;
    };
    let place = match fields.get("id") {
        Some(Value::String(id)) => format!("op \"{id}\""),
        _ => place.to_owned(),
    };
    let kind = parse_kind(&fields, &place, problems)?;
    let known: Vec<&str> = COMMON_FIELDS.iter().chain(kind.fields()).copied().collect();
    unknown_fields(fields.keys(), &known, &place, problems);

    let (common, own): (Map<String, Value>, Map<String, Value>) =
        fields.into_iter().filter(|(key, _)| known.contains(&key.as_str())).partition(|(key, _)| COMMON_FIELDS.contains(&key.as_str()));
    let common: Option<CommonFields> = read(Value::Object(common), &place, problems);
    let input = parse_input(kind, Value::Object(own), common.as_ref(), &place, problems);
    let (common, input) = (common?, input?);
    let metadata = match common.metadata.as_ref().map(Json::encode) {
        None => Json::null(),
        Some(Ok(metadata)) => metadata,
        Some(Err(error)) => {
            problems.push(Problem::of_field(&place, "metadata", error.to_string()));
            return None;
        }
    };
    let required = common.after.iter().map(|on| Dependency { on: on.clone(), required: true });
    let settled = common.after_settled.iter().map(|on| Dependency { on: on.clone(), required: false });
    let spec = OpSpec {
        queue: common.queue,
        site: common.site,
        priority: common.priority,
        input,
        metadata,
        after: required.chain(settled).collect(),
        before: common.before,
        retry: common.retry.policy(common.effect),
        dedup_key: common.dedup_key,
        time_limit: match kind {
            BuiltIn::Shell => common.time_limit.map(|span| span.0),
            BuiltIn::Http => Some(common.time_limit.map_or(HTTP_TIME_LIMIT, |span| span.0)),
        },
        ..OpSpec::new(common.id, kind.name())
    };
    (problems.len() == before).then_some(spec)
}

fn parse_kind(fields: &Map<String, Value>, place: &str, problems: &mut Vec<Problem>) -> Option<BuiltIn> {
    let problem = match fields.get("kind") {
        Some(Value::String(kind)) => match BuiltIn::from_name(kind) {
            Some(kind) => return Some(kind),
            None => Problem::of_field(place, "kind", format!("there is no kind \"{kind}\": write \"shell\" or \"http\"")),
        },
        Some(_) => Problem::of_field(place, "kind", "the kind is a text: write \"shell\" or \"http\""),
        None => Problem::new(place, "the field \"kind\" is missing: write kind = \"shell\" or kind = \"http\""),
    };
    problems.push(problem);
    None
}

/// What the op's handler will get: the kind's own fields, checked.
fn parse_input(kind: BuiltIn, own: Value, common: Option<&CommonFields>, place: &str, problems: &mut Vec<Problem>) -> Option<Json> {
    let (encoded, complaints, reads) = match kind {
        BuiltIn::Shell => {
            let input: ShellInput = read(own, place, problems)?;
            (Json::encode(&input), input.check(), input.reads_from())
        }
        BuiltIn::Http => {
            let input: HttpInput = read(own, place, problems)?;
            (Json::encode(&input), input.check(), input.reads_from())
        }
    };
    problems.extend(complaints.into_iter().map(|(field, message)| Problem::of_field(place, field, message)));
    if let (Some((field, op)), Some(common)) = (reads, common)
        && !common.after.contains(&op)
    {
        let message = format!("it reads the output of \"{op}\", so \"{op}\" must be in the op's \"after\"");
        problems.push(Problem::of_field(place, field, message));
    }
    match encoded {
        Ok(input) => Some(input),
        Err(error) => {
            problems.push(Problem::new(place, error.to_string()));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(value: Value) -> Result<OpSpec, Vec<String>> {
        let mut problems = Vec::new();
        let spec = parse_op(value, "op number 1", &mut problems);
        spec.ok_or_else(|| problems.iter().map(ToString::to_string).collect())
    }
    fn refusal(value: Value) -> String {
        parse(value).unwrap_err().join("\n")
    }

    #[test]
    fn every_common_field_reaches_the_spec() {
        let spec = parse(json!({
            "id": "a", "kind": "shell", "command": "true", "queue": "q", "site": "eu", "priority": -3,
            "after": ["b"], "after_settled": ["c"], "before": ["d"], "time_limit": "5m", "dedup_key": "k", "metadata": {"x": 1},
            "effect": "once",
            "retry": {"max_attempts": 7, "backoff": "linear", "base": "250ms", "cap": "10s", "jitter": "none", "max_lost": 2},
        }))
        .unwrap();
        assert_eq!((spec.id.as_str(), spec.kind.as_str(), spec.queue.as_str(), spec.priority), ("a", "shell", "q", -3));
        assert_eq!(spec.site.unwrap().as_str(), "eu");
        let after: Vec<_> = spec.after.iter().map(|dependency| (dependency.on.as_str(), dependency.required)).collect();
        assert_eq!(after, [("b", true), ("c", false)]);
        assert_eq!(spec.before.first().unwrap().as_str(), "d");
        assert_eq!(spec.time_limit, Some(Micros::from_secs(300)));
        assert_eq!(spec.dedup_key.unwrap().as_str(), "k");
        assert_eq!(spec.metadata.as_str(), r#"{"x":1}"#);
        let expected = RetryPolicy {
            max_attempts: 7,
            backoff: Backoff::Linear,
            base: Micros::from_millis(250),
            cap: Micros::from_secs(10),
            jitter: Jitter::None,
            max_lost: 2,
            effect: Effect::Once,
        };
        assert_eq!(spec.retry, expected);
    }

    #[test]
    fn an_unknown_field_is_refused_with_the_closest_known_one() {
        let told = refusal(json!({"id": "a", "kind": "shell", "comand": "true", "afer": ["b"]}));
        assert!(told.contains(r#"op "a": unknown field "comand"; did you mean "command"?"#), "{told}");
        assert!(told.contains(r#"unknown field "afer"; did you mean "after"?"#), "{told}");
        assert!(refusal(json!({"id": "a", "kind": "shell", "command": "x", "zzz": 1})).contains("the fields are id, kind"));
        assert!(refusal(json!({"id": "a", "kind": "shell", "command": "x", "url": "http://a"})).contains("unknown field \"url\""));
    }

    #[test]
    fn a_wrong_value_names_op_and_field() {
        let told = refusal(json!({"id": "a", "kind": "shell", "command": "x", "retry": {"base": "soon"}}));
        assert!(told.starts_with(r#"op "a": field "retry.base": "soon" is not a duration"#), "{told}");
        let told = refusal(json!({"id": "a", "kind": "shell", "command": "x", "time_limit": 5}));
        assert!(told.contains("write \"5s\" for seconds"), "{told}");
        assert!(refusal(json!({"id": "a", "kind": "shell"})).contains("missing field `command`"));
        assert!(refusal(json!({"kind": "shell", "command": "x"})).starts_with("op number 1: missing field `id`"));
        assert!(refusal(json!({"id": "a", "command": "x"})).contains("write kind = \"shell\""));
        assert!(refusal(json!({"id": "a", "kind": "perl"})).contains("there is no kind \"perl\""));
        assert!(refusal(json!({"id": "", "kind": "shell", "command": "x"})).contains("op id is empty"));
        assert!(refusal(json!("a")).contains("an op is a table"));
        assert!(refusal(json!({"id": "a", "kind": "shell", "command": "x", "retry": {"max_attempts": 0}})).contains("retry.max_attempts"));
    }

    #[test]
    fn what_is_read_from_an_op_must_be_waited_for() {
        let op = |after: Value| json!({"id": "a", "kind": "shell", "command": "cat", "stdin": {"from": "b"}, "after": after});
        assert!(refusal(op(json!(["c"]))).contains("\"b\" must be in the op's \"after\""));
        assert!(parse(op(json!(["b"]))).is_ok());
    }

    #[test]
    fn an_http_op_has_a_time_limit_even_if_it_names_none() {
        let spec = parse(json!({"id": "a", "kind": "http", "url": "http://127.0.0.1/"})).unwrap();
        assert_eq!(spec.time_limit, Some(HTTP_TIME_LIMIT));
    }
}
