//! A workflow file as a whole.

use super::op::parse_op;
use super::problem::{Problem, read, unknown_fields};
use leasehold::model::{OpId, OpSpec, QueueName, QueuePolicy, RateLimit, SiteName, SubjectId, WorkflowName};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::num::NonZeroU32;

const FIELDS: &[&str] = &["name", "description", "input", "inputs", "site", "subject", "metadata", "print", "queues", "ops"];

/// A workflow file, checked as far as one op can be: whether the ops make a graph is the library's to say.
#[derive(Debug, Clone)]
pub(crate) struct WorkflowFile {
    /// What the workflow does.
    pub(crate) name: WorkflowName,
    /// Its input, as far as the command line gives no other.
    pub(crate) input: Map<String, Value>,
    /// Files whose contents are part of its identity.
    pub(crate) inputs: Vec<String>,
    /// The site of ops that name none.
    pub(crate) site: Option<SiteName>,
    /// Whom its data is about.
    pub(crate) subject: Option<SubjectId>,
    /// What people and tools attach.
    pub(crate) metadata: Map<String, Value>,
    /// The op whose output is shown at the end.
    pub(crate) print: Option<OpId>,
    /// The limits of its queues.
    pub(crate) policies: Vec<QueuePolicy>,
    /// Its ops.
    pub(crate) ops: Vec<OpSpec>,
    /// The file as it was parsed: a part of its identity.
    pub(crate) parsed: Value,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    name: WorkflowName,
    #[serde(rename = "description")]
    _description: Option<String>,
    #[serde(default)]
    input: Map<String, Value>,
    #[serde(default)]
    inputs: Vec<String>,
    site: Option<SiteName>,
    subject: Option<SubjectId>,
    #[serde(default)]
    metadata: Map<String, Value>,
    print: Option<OpId>,
    #[serde(default)]
    queues: BTreeMap<QueueName, QueueFields>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct QueueFields {
    max_in_flight: Option<NonZeroU32>,
    rate: Option<RateFields>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RateFields {
    per_second: f64,
    burst: Option<NonZeroU32>,
}

impl WorkflowFile {
    /// Reads a parsed file; the error is everything that is wrong with it.
    pub(crate) fn parse(parsed: Value) -> Result<Self, Vec<Problem>> {
        let Value::Object(mut fields) = parsed.clone() else {
            return Err(vec![Problem::new("", "a workflow file is a table of fields, at least name and ops")]);
        };
        let mut problems = Vec::new();
        unknown_fields(fields.keys(), FIELDS, "", &mut problems);
        fields.retain(|key, _| FIELDS.contains(&key.as_str()));
        let ops = match fields.remove("ops") {
            Some(Value::Array(ops)) => parse_ops(ops, &mut problems),
            Some(_) => {
                problems.push(Problem::of_field("", "ops", "the ops are a list: in TOML begin each with a line [[ops]]"));
                Vec::new()
            }
            None => {
                problems.push(Problem::new("", "the workflow has no ops: write at least one, in TOML behind a line [[ops]]"));
                Vec::new()
            }
        };
        let fields: Option<Fields> = read(Value::Object(fields), "", &mut problems);
        let Some(fields) = fields else {
            return Err(problems);
        };
        let policies = policies(fields.queues, &mut problems);
        if let Some(print) = fields.print.as_ref().filter(|print| !ops.iter().any(|op| op.id == **print)) {
            problems.push(Problem::of_field("", "print", format!("there is no op \"{print}\" in this file")));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Self {
            name: fields.name,
            input: fields.input,
            inputs: fields.inputs,
            site: fields.site,
            subject: fields.subject,
            metadata: fields.metadata,
            print: fields.print,
            policies,
            ops,
            parsed,
        })
    }
}

fn parse_ops(ops: Vec<Value>, problems: &mut Vec<Problem>) -> Vec<OpSpec> {
    let numbered = ops.into_iter().enumerate();
    numbered.filter_map(|(at, op)| parse_op(op, &format!("op number {}", at + 1), problems)).collect()
}

fn policies(queues: BTreeMap<QueueName, QueueFields>, problems: &mut Vec<Problem>) -> Vec<QueuePolicy> {
    let mut policies = Vec::new();
    for (queue, fields) in queues {
        let place = format!("queue \"{queue}\"");
        let rate = fields.rate.map(|rate| RateLimit {
            per_second: rate.per_second,
            burst: rate.burst.map_or_else(|| default_burst(rate.per_second), NonZeroU32::get),
        });
        let policy = QueuePolicy { max_in_flight: fields.max_in_flight.map(NonZeroU32::get), rate, ..QueuePolicy::unlimited(queue) };
        match policy.check() {
            Ok(()) => policies.push(policy),
            Err(error) => problems.push(Problem::of_field(place, "rate", error.to_string())),
        }
    }
    policies
}

/// What one second brings, at least one.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and below one becomes one")]
fn default_burst(per_second: f64) -> u32 {
    (per_second.ceil() as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refusal(value: Value) -> String {
        let problems = WorkflowFile::parse(value).unwrap_err();
        problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }
    fn op(id: &str) -> Value {
        json!({"id": id, "kind": "shell", "command": "true"})
    }

    #[test]
    fn a_whole_file_is_read() {
        let file = WorkflowFile::parse(json!({
            "name": "n", "description": "d", "input": {"a": 1}, "inputs": ["x"], "site": "s", "subject": "p", "metadata": {"m": 1}, "print": "b",
            "queues": {"q": {"max_in_flight": 2, "rate": {"per_second": 2.5}}, "r": {}},
            "ops": [op("a"), op("b")],
        }))
        .unwrap();
        assert_eq!(file.ops.len(), 2);
        assert_eq!(file.print.unwrap().as_str(), "b");
        let queue = |name: &str| QueueName::new(name).unwrap();
        let rate = Some(RateLimit { per_second: 2.5, burst: 3 });
        assert_eq!(
            file.policies,
            [QueuePolicy { max_in_flight: Some(2), rate, ..QueuePolicy::unlimited(queue("q")) }, QueuePolicy::unlimited(queue("r"))]
        );
    }

    #[test]
    fn everything_wrong_is_told_at_once() {
        let told = refusal(json!({"nme": "n", "name": "n", "ops": [op("a"), {"id": "b"}, {"id": "c", "kind": "shell", "command": 5}]}));
        assert_eq!(told.lines().count(), 3, "{told}");
        assert!(told.contains("unknown field \"nme\"; did you mean \"name\"?"), "{told}");
        assert!(told.contains("op \"b\": the field \"kind\" is missing"), "{told}");
        assert!(told.contains("op \"c\": field \"command\": invalid type: integer"), "{told}");
    }

    #[test]
    fn limits_that_admit_nothing_are_refused() {
        let with = |queue: Value| refusal(json!({"name": "n", "ops": [op("a")], "queues": {"q": queue}}));
        assert!(with(json!({"max_in_flight": 0})).contains("queues.q.max_in_flight"));
        assert!(with(json!({"rate": {"per_second": 0}})).contains("queue \"q\": field \"rate\""));
        assert!(with(json!({"rate": {"per_second": 1, "burst": 0}})).contains("queues.q.rate.burst"));
        assert!(with(json!({"max": 1})).contains("unknown field `max`"));
    }

    #[test]
    fn what_a_file_needs_is_asked_for() {
        assert!(refusal(json!([])).contains("a table of fields"));
        assert!(refusal(json!({"name": "n"})).contains("no ops"));
        assert!(refusal(json!({"name": "n", "ops": {}})).contains("[[ops]]"));
        assert!(refusal(json!({"ops": [op("a")]})).contains("missing field `name`"));
        assert!(refusal(json!({"name": "n", "ops": [op("a")], "print": "x"})).contains("there is no op \"x\""));
    }
}
