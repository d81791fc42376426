//! A workflow as an application describes it.

use super::op::Op;
use super::problem::{InvalidSpec, Problem, with_causes};
use crate::model::{Digest, IdentityError, Json, SiteName, SubjectId, WorkflowId, WorkflowName, WorkflowSpec, derived_id, fresh_id};
use serde::Serialize;
use std::sync::Arc;

/// A workflow as an application describes it: a name, an input and a graph of [ops](Op).
///
/// What is wrong with it is collected and reported together, by [`Workflow::build`] or where it is started.
///
/// # Examples
/// ```
/// use leasehold_core::client::{Op, Workflow};
/// use serde_json::json;
/// let flow = Workflow::new("digest")
///     .input(&json!({"path": "."}))
///     .op(Op::new("list", "shell"))
///     .op(Op::new("report", "shell").after("list"));
/// assert_eq!(flow.build()?.ops.len(), 2);
/// # Ok::<(), leasehold_core::client::InvalidSpec>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a workflow does nothing until it is started"]
pub struct Workflow {
    name: Arc<str>,
    id: Option<Arc<str>>,
    digest: Option<Digest>,
    input: Json,
    metadata: Json,
    site: Option<Arc<str>>,
    subject: Option<Arc<str>>,
    ops: Vec<Op>,
    problems: Vec<String>,
}

impl Workflow {
    /// A workflow that does what `name` says.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            id: None,
            digest: None,
            input: Json::null(),
            metadata: Json::null(),
            site: None,
            subject: None,
            ops: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// Its id, in place of a new one. Starting a second workflow with the same id is refused.
    pub fn id(mut self, id: impl Into<Arc<str>>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// What makes two requests the same workflow: of two with equal name and identity, the second attaches to the first.
    ///
    /// Key order, white space and number spelling do not matter (RFC 8785). The identity itself is not stored.
    pub fn identity<T: Serialize + ?Sized>(mut self, identity: &T) -> Self {
        match Digest::of(identity) {
            Ok(digest) => self.digest = Some(digest),
            Err(error @ (IdentityError::Number { .. } | IdentityError::Serialise(_))) => self.problems.push(with_causes(&error)),
        }
        self
    }

    /// What it is started with; its ops' handlers get their own inputs.
    pub fn input<T: Serialize + ?Sized>(mut self, input: &T) -> Self {
        self.input = self.encode("input", input);
        self
    }

    /// What people and tools attach to it.
    pub fn metadata<T: Serialize + ?Sized>(mut self, metadata: &T) -> Self {
        self.metadata = self.encode("metadata", metadata);
        self
    }

    /// The site of its ops that name none.
    pub fn site(mut self, site: impl Into<Arc<str>>) -> Self {
        self.site = Some(site.into());
        self
    }

    /// Whom its data is about.
    pub fn subject(mut self, subject: impl Into<Arc<str>>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// Adds `op`.
    pub fn op(mut self, op: Op) -> Self {
        self.ops.push(op);
        self
    }

    /// Adds all of `ops`.
    pub fn ops(mut self, ops: impl IntoIterator<Item = Op>) -> Self {
        self.ops.extend(ops);
        self
    }

    /// The same with a definition's input and site where it has none of its own.
    pub(super) fn or_defaults(mut self, input: &Json, site: Option<&str>) -> Self {
        if self.input == Json::null() {
            self.input = input.clone();
        }
        self.site = self.site.or_else(|| site.map(Into::into));
        self
    }

    pub(super) fn has_identity(&self) -> bool {
        self.digest.is_some()
    }

    fn encode<T: Serialize + ?Sized>(&mut self, what: &str, value: &T) -> Json {
        Json::encode(value).unwrap_or_else(|error| {
            self.problems.push(format!("the workflow's {what}: {}", with_causes(&error)));
            Json::null()
        })
    }

    /// Checks it and returns what the engine takes. An id that was not given is derived from the identity, or new.
    ///
    /// # Errors
    /// [`InvalidSpec`] with everything that is wrong with the workflow and its ops.
    pub fn build(self) -> Result<WorkflowSpec, InvalidSpec> {
        let mut problems: Vec<Problem> = Vec::new();
        let mut found = self.problems;
        let name = WorkflowName::new(self.name).map_err(|error| found.push(error.to_string())).ok();
        let id = self.id.map(|id| WorkflowId::new(id).map_err(|error| found.push(error.to_string())).ok());
        let site = self.site.map(|site| SiteName::new(site).map_err(|error| found.push(error.to_string())).ok());
        let subject = self.subject.map(|subject| SubjectId::new(subject).map_err(|error| found.push(error.to_string())).ok());
        problems.extend(found.into_iter().map(|message| Problem { op: None, message }));
        let mut ops = Vec::with_capacity(self.ops.len());
        for op in self.ops {
            ops.extend(op.build_into(&mut problems));
        }
        let Some(name) = name.filter(|_| problems.is_empty()) else {
            return Err(InvalidSpec { problems });
        };
        let id = id.flatten().unwrap_or_else(|| match &self.digest {
            Some(digest) => derived_id(&name, digest),
            None => fresh_id(),
        });
        Ok(WorkflowSpec {
            id,
            name,
            digest: self.digest,
            input: self.input,
            metadata: self.metadata,
            site: site.flatten().unwrap_or_default(),
            subject: subject.flatten(),
            ops,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn everything_wrong_is_told_at_once_and_names_its_op() {
        let refused = Workflow::new("w")
            .site("")
            .op(Op::new("a", "").time_limit(std::time::Duration::ZERO))
            .op(Op::new("b", "k").input("x\0y"))
            .build()
            .unwrap_err();
        let ops: Vec<Option<&str>> = refused.problems.iter().map(|problem| problem.op.as_deref()).collect();
        assert_eq!(ops, [None, Some("a"), Some("a"), Some("b")]);
        assert!(refused.to_string().contains("op \"b\": its input: the JSON text holds a NUL character"), "{refused}");
    }

    #[test]
    fn an_identity_gives_the_id_and_none_gives_a_new_one() {
        let with = |identity: &serde_json::Value| Workflow::new("w").identity(identity).build().unwrap();
        assert_eq!(with(&json!({"a": 1, "b": 2})).id, with(&json!({"b": 2, "a": 1.0})).id);
        assert_ne!(with(&json!(1)).id, with(&json!(2)).id);
        assert_ne!(Workflow::new("w").build().unwrap().id, Workflow::new("w").build().unwrap().id);
        assert!(Workflow::new("w").identity(&json!(9_007_199_254_740_993_u64)).build().is_err());
    }
}
