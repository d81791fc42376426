//! The one fixture builder: what stands in the store before a case begins.

use leasehold_core::model::{
    AgentName, DedupKey, Dependency, Digest, Effect, Fence, Json, KindName, Micros, OpId, OpSpec, QueueName, RetryPolicy, SiteName,
    SubjectId, Timestamp, WorkflowName, WorkflowSpec,
};
use leasehold_core::state::StoredStatus;

/// How long a scenario's leases last.
pub(crate) const LEASE: Micros = Micros::from_secs(30);

/// A duration of a literal.
pub(crate) fn microseconds(n: i64) -> Micros {
    match Micros::new(n) {
        Ok(micros) => micros,
        Err(error) => panic!("{error}"),
    }
}

/// What a scenario's op has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stands {
    /// Pending, blocked or ready, as its dependencies say.
    AsDerived,
    Succeeded,
    Failed,
    LeasedBy(String),
    /// Only [`Scenario::plant`] can put it there.
    Row(StoredStatus),
}

#[derive(Debug, Clone)]
pub(crate) struct ScenarioOp {
    pub(crate) spec: OpSpec,
    pub(crate) stands: Stands,
    pub(crate) due_at: Option<Timestamp>,
    pub(crate) queue_fence: Fence,
}

/// One workflow with its ops; every field is optional, and what a field implies is worked out.
///
/// Methods that describe an op are about the last one that [`Scenario::op`] began.
#[derive(Debug, Clone)]
pub struct Scenario {
    pub(crate) workflow: WorkflowSpec,
    pub(crate) named: bool,
    pub(crate) ops: Vec<ScenarioOp>,
}

/// Makes a name of a literal; a case's text that is none is a defect of the case.
pub(crate) fn name<T: TryFrom<String>>(text: impl Into<String>) -> T {
    let text = text.into();
    let Ok(name) = T::try_from(text.clone()) else { panic!("{text:?} is not a name") };
    name
}

/// Makes JSON of a literal.
pub(crate) fn json(text: &str) -> Json {
    match Json::parse(text) {
        Ok(json) => json,
        Err(error) => panic!("{text} is not JSON: {error}"),
    }
}

impl Default for Scenario {
    fn default() -> Self {
        Self::new()
    }
}

impl Scenario {
    /// A workflow without ops.
    pub fn new() -> Self {
        let workflow = WorkflowSpec {
            id: name("unnamed"),
            name: name("scenario"),
            digest: None,
            input: Json::null(),
            metadata: Json::null(),
            site: SiteName::default(),
            subject: None,
            ops: Vec::new(),
        };
        Self { workflow, named: false, ops: Vec::new() }
    }

    // ---- the workflow ----

    /// Its id; without one each build makes its own.
    #[must_use]
    pub fn id(mut self, id: &str) -> Self {
        self.workflow.id = name(id);
        self.named = true;
        self
    }
    /// Its name.
    #[must_use]
    pub fn called(mut self, workflow: &str) -> Self {
        self.workflow.name = name::<WorkflowName>(workflow);
        self
    }
    /// Its identity's digest: that of this text.
    #[must_use]
    pub fn identity(mut self, text: &str) -> Self {
        self.workflow.digest = Some(Digest::of_bytes(text.as_bytes()));
        self
    }
    /// Its input.
    #[must_use]
    pub fn started_with(mut self, input: &str) -> Self {
        self.workflow.input = json(input);
        self
    }
    /// Its metadata.
    #[must_use]
    pub fn workflow_metadata(mut self, metadata: &str) -> Self {
        self.workflow.metadata = json(metadata);
        self
    }
    /// The site of ops that name none.
    #[must_use]
    pub fn at_site(mut self, site: &str) -> Self {
        self.workflow.site = name(site);
        self
    }
    /// Whom it is about.
    #[must_use]
    pub fn about(mut self, subject: &str) -> Self {
        self.workflow.subject = Some(name::<SubjectId>(subject));
        self
    }

    // ---- its ops ----

    /// Begins an op. Its kind is its id, so that it can be claimed by itself.
    #[must_use]
    pub fn op(mut self, id: &str) -> Self {
        let spec = OpSpec::new(name(id), name(id));
        self.ops.push(ScenarioOp { spec, stands: Stands::AsDerived, due_at: None, queue_fence: Fence::NONE });
        self
    }
    /// Begins `count` ops named `prefix0`, `prefix1` …, all of the kind `prefix`.
    #[must_use]
    pub fn ops(mut self, prefix: &str, count: usize) -> Self {
        for at in 0..count {
            self = self.op(&format!("{prefix}{at}")).kind(prefix);
        }
        self
    }
    fn last(mut self, change: impl FnOnce(&mut ScenarioOp)) -> Self {
        match self.ops.last_mut() {
            Some(op) => change(op),
            None => panic!("the scenario describes an op before it begins one"),
        }
        self
    }
    /// It waits for these to succeed.
    #[must_use]
    pub fn after(self, parents: &[&str]) -> Self {
        self.depends(parents, true)
    }
    /// It waits for these to settle.
    #[must_use]
    pub fn after_settled(self, parents: &[&str]) -> Self {
        self.depends(parents, false)
    }
    fn depends(self, parents: &[&str], required: bool) -> Self {
        self.last(|op| op.spec.after.extend(parents.iter().map(|on| Dependency { on: name(*on), required })))
    }
    /// These wait for it.
    #[must_use]
    pub fn before(self, children: &[&str]) -> Self {
        self.last(|op| op.spec.before.extend(children.iter().map(|id| name::<OpId>(*id))))
    }
    /// Its kind; its id without one.
    #[must_use]
    pub fn kind(self, kind: &str) -> Self {
        self.last(|op| op.spec.kind = name::<KindName>(kind))
    }
    /// Its queue.
    #[must_use]
    pub fn queue(self, queue: &str) -> Self {
        self.last(|op| op.spec.queue = name::<QueueName>(queue))
    }
    /// Its site.
    #[must_use]
    pub fn site(self, site: &str) -> Self {
        self.last(|op| op.spec.site = Some(name(site)))
    }
    /// The agent it names.
    #[must_use]
    pub fn agent(self, agent: &str) -> Self {
        self.last(|op| op.spec.agent = Some(name::<AgentName>(agent)))
    }
    /// Its priority.
    #[must_use]
    pub fn priority(self, priority: i32) -> Self {
        self.last(|op| op.spec.priority = priority)
    }
    /// Its input.
    #[must_use]
    pub fn input(self, input: &str) -> Self {
        self.last(|op| op.spec.input = json(input))
    }
    /// Its metadata.
    #[must_use]
    pub fn metadata(self, metadata: &str) -> Self {
        self.last(|op| op.spec.metadata = json(metadata))
    }
    /// When it is tried again.
    #[must_use]
    pub fn retry(self, retry: RetryPolicy) -> Self {
        self.last(|op| op.spec.retry = retry)
    }
    /// Its effect must not be repeated.
    #[must_use]
    pub fn effect_once(self) -> Self {
        self.last(|op| op.spec.retry.effect = Effect::Once)
    }
    /// Its dedup key.
    #[must_use]
    pub fn dedup_key(self, key: &str) -> Self {
        self.last(|op| op.spec.dedup_key = Some(name::<DedupKey>(key)))
    }
    /// How long an attempt may run.
    #[must_use]
    pub fn time_limit(self, limit: Micros) -> Self {
        self.last(|op| op.spec.time_limit = Some(limit))
    }

    // ---- what has become of them ----

    /// It has succeeded.
    #[must_use]
    pub fn succeeded(self) -> Self {
        self.last(|op| op.stands = Stands::Succeeded)
    }
    /// It has failed for good.
    #[must_use]
    pub fn failed(self) -> Self {
        self.last(|op| op.stands = Stands::Failed)
    }
    /// `worker` holds its lease, for `LEASE` from now.
    #[must_use]
    pub fn leased_by(self, worker: &str) -> Self {
        self.last(|op| op.stands = Stands::LeasedBy(worker.to_owned()))
    }
    /// Its row says this, whatever its dependencies say.
    #[must_use]
    pub(crate) fn row(self, status: StoredStatus) -> Self {
        self.last(|op| op.stands = Stands::Row(status))
    }
    /// It may be claimed from `due_at` on; later than now it waits in `delayed`.
    #[must_use]
    pub(crate) fn due(self, due_at: Timestamp) -> Self {
        self.last(|op| op.due_at = Some(due_at))
    }
    /// Its place in the queue says that its last attempt had this fence.
    #[must_use]
    pub(crate) fn queued_with_fence(self, fence: i64) -> Self {
        self.last(|op| op.queue_fence = Fence(fence))
    }
}
