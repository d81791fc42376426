//! An op as an application describes it.

use super::problem::{InvalidSpec, Problem, with_causes};
use crate::model::{
    AgentName, DedupKey, Dependency, Effect, Json, KindName, Micros, NameError, OpId, OpSpec, QueueName, RetryPolicy, SiteName,
};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// An op as an application describes it: its id, its kind and whatever else matters.
///
/// What is wrong with it is collected and reported together, where the op is handed over.
///
/// # Examples
/// ```
/// use leasehold_core::client::Op;
/// use serde_json::json;
/// let op = Op::new("report", "render").input(&json!({"format": "pdf"})).queue("cpu").after("list").priority(5);
/// assert_eq!(op.build()?.queue.as_str(), "cpu");
/// let refused = Op::new("", "render").queue("a\nb").build().unwrap_err();
/// assert_eq!(refused.problems.len(), 2);
/// # Ok::<(), leasehold_core::client::InvalidSpec>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "an op does nothing until it is added to a workflow"]
pub struct Op {
    id: Arc<str>,
    kind: Arc<str>,
    queue: Option<Arc<str>>,
    site: Option<Arc<str>>,
    agent: Option<Arc<str>>,
    priority: i32,
    input: Json,
    metadata: Json,
    after: Vec<(Arc<str>, bool)>,
    before: Vec<Arc<str>>,
    retry: RetryPolicy,
    effect: Option<Effect>,
    dedup_key: Option<Arc<str>>,
    time_limit: Option<Duration>,
    problems: Vec<String>,
}

impl Op {
    /// The op `id`, run by the handler of `kind`.
    pub fn new(id: impl Into<Arc<str>>, kind: impl Into<Arc<str>>) -> Self {
        Self {
            id: id.into(),
            kind: kind.into(),
            queue: None,
            site: None,
            agent: None,
            priority: 0,
            input: Json::null(),
            metadata: Json::null(),
            after: Vec::new(),
            before: Vec::new(),
            retry: RetryPolicy::default(),
            effect: None,
            dedup_key: None,
            time_limit: None,
            problems: Vec::new(),
        }
    }

    /// Its id, as given.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What its handler gets.
    pub fn input<T: Serialize + ?Sized>(mut self, input: &T) -> Self {
        self.input = self.encode("input", input);
        self
    }

    /// What people and tools attach to it.
    pub fn metadata<T: Serialize + ?Sized>(mut self, metadata: &T) -> Self {
        self.metadata = self.encode("metadata", metadata);
        self
    }

    /// Where it waits; limits count per site and queue.
    pub fn queue(mut self, queue: impl Into<Arc<str>>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Its site, in place of its workflow's.
    pub fn site(mut self, site: impl Into<Arc<str>>) -> Self {
        self.site = Some(site.into());
        self
    }

    /// The agent that must run it.
    pub fn agent(mut self, agent: impl Into<Arc<str>>) -> Self {
        self.agent = Some(agent.into());
        self
    }

    /// Higher is claimed first, inside one lane.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Waits until the op `id` has succeeded.
    pub fn after(mut self, id: impl Into<Arc<str>>) -> Self {
        self.after.push((id.into(), true));
        self
    }

    /// Waits until every one of `ids` has succeeded.
    pub fn after_all<I: Into<Arc<str>>>(mut self, ids: impl IntoIterator<Item = I>) -> Self {
        self.after.extend(ids.into_iter().map(|id| (id.into(), true)));
        self
    }

    /// Waits until the op `id` is settled, however it ends.
    pub fn after_settled(mut self, id: impl Into<Arc<str>>) -> Self {
        self.after.push((id.into(), false));
        self
    }

    /// Makes the op `id`, which has not begun, wait for this one as well.
    pub fn before(mut self, id: impl Into<Arc<str>>) -> Self {
        self.before.push(id.into());
        self
    }

    /// When a failed attempt is tried again.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = policy;
        self
    }

    /// Its effect must not be repeated blindly: once its handler has begun, an attempt of which nobody knows how it ended is
    /// not followed by another. The op waits for a [verdict](super::Client::settle_op) instead. See [`Effect::Once`].
    pub fn effect_once(mut self) -> Self {
        self.effect = Some(Effect::Once);
        self
    }

    /// A second op of the workflow with this key attaches to the first.
    pub fn dedup_key(mut self, key: impl Into<Arc<str>>) -> Self {
        self.dedup_key = Some(key.into());
        self
    }

    /// How long one attempt may run; then it fails as `timed_out`.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = Some(limit);
        self
    }

    fn encode<T: Serialize + ?Sized>(&mut self, what: &str, value: &T) -> Json {
        Json::encode(value).unwrap_or_else(|error| {
            self.problems.push(format!("its {what}: {}", with_causes(&error)));
            Json::null()
        })
    }

    /// Checks it and returns what the engine takes.
    ///
    /// # Errors
    /// [`InvalidSpec`] with everything that is wrong with it.
    pub fn build(self) -> Result<OpSpec, InvalidSpec> {
        let mut problems = Vec::new();
        let spec = self.build_into(&mut problems);
        match spec {
            Some(spec) if problems.is_empty() => Ok(spec),
            Some(_) | None => Err(InvalidSpec { problems }),
        }
    }

    /// [`Op::build`], adding what is wrong to `problems`; `None` only then.
    pub(super) fn build_into(self, problems: &mut Vec<Problem>) -> Option<OpSpec> {
        let label = self.id.to_string();
        let mut found: Vec<String> = self.problems;
        let id = named(&mut found, OpId::new(self.id));
        let kind = named(&mut found, KindName::new(self.kind));
        let queue = self.queue.map(|queue| named(&mut found, QueueName::new(queue)));
        let site = self.site.map(|site| named(&mut found, SiteName::new(site)));
        let agent = self.agent.map(|agent| named(&mut found, AgentName::new(agent)));
        let dedup_key = self.dedup_key.map(|key| named(&mut found, DedupKey::new(key)));
        let mut after: Vec<Dependency> = Vec::with_capacity(self.after.len());
        for (on, required) in self.after {
            after.extend(named(&mut found, OpId::new(on)).map(|on| Dependency { on, required }));
        }
        let mut before: Vec<OpId> = Vec::with_capacity(self.before.len());
        for id in self.before {
            before.extend(named(&mut found, OpId::new(id)));
        }
        let time_limit = self.time_limit.and_then(|limit| {
            Micros::try_from(limit).map_err(|error| found.push(format!("its time limit: {error}; give one above zero"))).ok()
        });
        if self.retry.max_attempts == 0 || self.retry.max_lost == 0 {
            found.push("its retry policy allows no attempt: max_attempts and max_lost are at least 1".to_owned());
        }
        if !found.is_empty() {
            problems.extend(found.into_iter().map(|message| Problem { op: Some(label.clone()), message }));
            return None;
        }
        Some(OpSpec {
            id: id?,
            kind: kind?,
            queue: queue.flatten().unwrap_or_default(),
            site: site.flatten(),
            agent: agent.flatten(),
            priority: self.priority,
            input: self.input,
            metadata: self.metadata,
            after,
            before,
            retry: RetryPolicy { effect: self.effect.unwrap_or(self.retry.effect), ..self.retry },
            dedup_key: dedup_key.flatten(),
            time_limit,
        })
    }
}

/// The name, or `None` and a line in `found`.
fn named<T>(found: &mut Vec<String>, name: Result<T, NameError>) -> Option<T> {
    name.map_err(|error| found.push(error.to_string())).ok()
}
