//! Building an engine.

use super::Engine;
use super::clock::ClockWatch;
use super::context::OpContext;
use super::error::EngineError;
use super::handler::{Handler, HandlerError, typed};
use super::hub::Hub;
use super::observer::Observer;
use super::office::Office;
use super::probe::{Probe, ProbeAnswer, ProbeContext, probe};
use super::session::Settings;
use super::sweep::SetAside;
use crate::client::{CALL_PATIENCE, Client, Definition, InvalidSpec, Problem, Workflow};
use crate::model::{AgentName, KindName, Limits, Micros, QueuePolicy, WorkerName};
use crate::store::{Store, StoreExt, TxKind};
use crate::transitions::CLOCK_TOLERANCE;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

/// How long a lease lasts: short enough that a lost worker's ops run again soon, long enough for a store that is away for a moment.
pub const LEASE: Duration = Duration::from_secs(30);
/// How often leases are renewed.
pub const HEARTBEAT: Duration = Duration::from_secs(10);
/// How often an idle engine looks for work.
pub const POLL: Duration = Duration::from_millis(250);
/// How long a process leads the store's maintenance after it last said so; then another takes over.
pub const MAINTENANCE_TERM: Duration = Duration::from_secs(10);
/// How long a shutdown waits for running handlers before it tells them to stop.
pub const GRACE: Duration = Duration::from_secs(10);
/// How often probes are asked about ops that wait for a verdict.
pub const PROBE_EVERY: Duration = Duration::from_secs(30);
/// How long a handler that was told to stop may go on before it is dropped.
pub const STOP_WAIT: Duration = Duration::from_millis(500);

/// Builds an [`Engine`]. What is wrong is collected and told by [`EngineBuilder::build`].
#[must_use = "nothing is built before build()"]
pub struct EngineBuilder {
    store: Arc<dyn Store>,
    name: String,
    workers_max: usize,
    lease: Duration,
    heartbeat: Duration,
    poll: Duration,
    grace: Duration,
    stop_wait: Duration,
    patience: Duration,
    clock_tolerance: Duration,
    jump_grace: Option<Duration>,
    maintenance_term: Duration,
    limits: Limits,
    handlers: BTreeMap<KindName, Arc<dyn Handler>>,
    probes: BTreeMap<KindName, Probe>,
    probe_every: Duration,
    agents: Vec<AgentName>,
    policies: Vec<QueuePolicy>,
    observers: Vec<Arc<dyn Observer>>,
    definitions: Vec<Definition>,
    automatic: bool,
    strict_kinds: bool,
    problems: Vec<String>,
}

impl EngineBuilder {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            name: format!("worker-{}", std::process::id()),
            workers_max: available_parallelism().map_or(1, std::num::NonZero::get),
            lease: LEASE,
            heartbeat: HEARTBEAT,
            poll: POLL,
            grace: GRACE,
            stop_wait: STOP_WAIT,
            patience: CALL_PATIENCE,
            clock_tolerance: CLOCK_TOLERANCE,
            jump_grace: None,
            maintenance_term: MAINTENANCE_TERM,
            limits: Limits::default(),
            handlers: BTreeMap::new(),
            probes: BTreeMap::new(),
            probe_every: PROBE_EVERY,
            agents: Vec::new(),
            policies: Vec::new(),
            observers: Vec::new(),
            definitions: Vec::new(),
            automatic: true,
            strict_kinds: true,
            problems: Vec::new(),
        }
    }

    /// What the worker calls itself in leases and in the history: a label, never proof of anything.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// How many handlers may run at once; the number of cores if not said. A handler that waits costs no thread, so
    /// thousands are fine.
    pub const fn max_workers(mut self, max_workers: usize) -> Self {
        self.workers_max = max_workers;
        self
    }

    /// Also takes ops that name `agent`, in place of only those that name none; may be called for several.
    pub fn agent(mut self, agent: &str) -> Self {
        match AgentName::new(agent) {
            Ok(agent) => self.agents.push(agent),
            Err(error) => self.problems.push(error.to_string()),
        }
        self
    }

    /// How long a lease lasts, in place of [`LEASE`]: the ops of a process that dies run again after it.
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How often leases are renewed, in place of [`HEARTBEAT`]; at least three times a lease, whatever is said here.
    pub const fn heartbeat(mut self, heartbeat: Duration) -> Self {
        self.heartbeat = heartbeat;
        self
    }

    /// How often an idle engine looks for work that other processes made, in place of [`POLL`].
    pub const fn poll(mut self, poll: Duration) -> Self {
        self.poll = poll;
        self
    }

    /// How long a shutdown waits for running handlers, in place of [`GRACE`].
    pub const fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// How long a handler that was told to stop may go on, in place of [`STOP_WAIT`].
    pub const fn stop_wait(mut self, stop_wait: Duration) -> Self {
        self.stop_wait = stop_wait;
        self
    }

    /// How long calls and cycles by hand try again what the store cannot do just now, in place of [`CALL_PATIENCE`]. A
    /// started engine waits for its store for ever.
    pub const fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// How far the store's clock may be behind a time that it has shown before, in place of [`CLOCK_TOLERANCE`]. Beyond
    /// that nothing is claimed, recovered or woken until the clock is right again or [trusted](Client::trust_clock).
    pub const fn clock_tolerance(mut self, tolerance: Duration) -> Self {
        self.clock_tolerance = tolerance;
        self
    }

    /// How long workers that may be alive have to renew their leases when the store's time has jumped forward, as on a
    /// laptop that was asleep, in place of one heartbeat; also how far it must jump. Zero does not look for jumps: for
    /// tests, whose manual clock does nothing else.
    pub const fn jump_grace(mut self, grace: Duration) -> Self {
        self.jump_grace = Some(grace);
        self
    }

    /// How long this process leads the store's maintenance after it last said so, in place of [`MAINTENANCE_TERM`].
    pub const fn maintenance_term(mut self, term: Duration) -> Self {
        self.maintenance_term = term;
        self
    }

    /// How large things may be.
    pub const fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Runs ops of `kind` by an async function from a typed input to a typed result; see [`typed`].
    pub fn handler<F, Fut, In, Out, E>(self, kind: &str, function: F) -> Self
    where
        F: Fn(OpContext, In) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Out, E>> + Send + 'static,
        In: DeserializeOwned + Send + 'static,
        Out: Serialize + Send + 'static,
        E: Into<HandlerError> + Send + 'static,
    {
        self.raw_handler(kind, typed(function))
    }

    /// Runs ops of `kind` by `handler`.
    pub fn raw_handler(mut self, kind: &str, handler: impl Handler) -> Self {
        match KindName::new(kind) {
            Ok(kind) => {
                if self.handlers.insert(kind.clone(), Arc::new(handler)).is_some() {
                    self.problems.push(format!("there are two handlers for the kind {kind:?}: register one"));
                }
            }
            Err(error) => self.problems.push(error.to_string()),
        }
        self
    }

    /// Asks `function` about attempts of ops of `kind` that gave no answer and must not be repeated blindly
    /// ([`Op::effect_once`](crate::client::Op::effect_once)): whether the outside system has done it, say. It may be asked
    /// more than once, also at the same time by several processes; of their verdicts the first counts.
    ///
    /// # Examples
    /// ```
    /// use leasehold_core::client::OpVerdict;
    /// use leasehold_core::engine::{HandlerError, ProbeAnswer, ProbeContext};
    ///
    /// async fn was_it_paid(ctx: ProbeContext) -> Result<ProbeAnswer, HandlerError> {
    ///     // Here the bank would be asked for a payment with ctx.idempotency_key.
    ///     let found = ctx.attempt.0 > 1;
    ///     Ok(if found { ProbeAnswer::Known(OpVerdict::Retry) } else { ProbeAnswer::StillUnknown })
    /// }
    /// # let _ = was_it_paid;
    /// ```
    pub fn probe<F, Fut, E>(mut self, kind: &str, function: F) -> Self
    where
        F: Fn(ProbeContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ProbeAnswer, E>> + Send + 'static,
        E: Into<HandlerError>,
    {
        match KindName::new(kind) {
            Ok(kind) => {
                if self.probes.insert(kind.clone(), probe(function)).is_some() {
                    self.problems.push(format!("there are two probes for the kind {kind:?}: register one"));
                }
            }
            Err(error) => self.problems.push(error.to_string()),
        }
        self
    }

    /// How often probes are asked, in place of [`PROBE_EVERY`].
    pub const fn probe_every(mut self, probe_every: Duration) -> Self {
        self.probe_every = probe_every;
        self
    }

    /// Stores `policy` when the engine is built, in place of the one for the same site (or any) and queue.
    pub fn policy(mut self, policy: QueuePolicy) -> Self {
        self.policies.push(policy);
        self
    }

    /// Tells `observer` what happens in this process.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observers.push(Arc::new(observer));
        self
    }

    /// Registers a function from a typed input to a workflow under `name`, to start it by.
    pub fn definition<T, F>(self, name: &str, function: F) -> Self
    where
        T: DeserializeOwned,
        F: Fn(T) -> Workflow + Send + Sync + 'static,
    {
        self.define(Definition::new(name, function))
    }

    /// Registers `definition`, to start it by its name.
    pub fn define(mut self, definition: Definition) -> Self {
        if self.definitions.iter().any(|known| known.name() == definition.name()) {
            self.problems.push(format!("there are two definitions {:?}: register one", definition.name()));
        }
        self.definitions.push(definition);
        self
    }

    /// With `false` the engine does nothing by itself and is driven by hand only.
    pub const fn automatic(mut self, automatic: bool) -> Self {
        self.automatic = automatic;
        self
    }

    /// With `false` the engine's client takes ops of kinds that have no handler here, because another process runs them.
    pub const fn strict_kinds(mut self, strict_kinds: bool) -> Self {
        self.strict_kinds = strict_kinds;
        self
    }

    /// Builds the engine and stores its policies. Must run inside a tokio runtime, where the handlers will run.
    ///
    /// # Errors
    /// [`EngineError::Setup`] with everything that is wrong; [`EngineError::Store`] when the policies cannot be stored.
    pub async fn build(mut self) -> Result<Engine, EngineError> {
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| EngineError::NoRuntime)?;
        let mut problems = std::mem::take(&mut self.problems);
        let worker = WorkerName::new(self.name.clone()).map_err(|error| problems.push(error.to_string())).ok();
        let lease = Micros::try_from(self.lease).map_err(|error| problems.push(format!("the lease: {error}"))).ok();
        let term = Micros::try_from(self.maintenance_term).map_err(|error| problems.push(format!("the maintenance term: {error}"))).ok();
        for (what, duration) in
            [("the heartbeat", self.heartbeat), ("the poll interval", self.poll), ("the interval of probes", self.probe_every)]
        {
            if duration.is_zero() {
                problems.push(format!("{what} is zero: give it a duration above that"));
            }
        }
        if self.workers_max == 0 {
            problems.push("max_workers is zero: nothing would ever run".to_owned());
        }
        problems.extend(self.policies.iter().filter_map(|policy| policy.check().err()).map(|error| error.to_string()));
        let (Some(worker), Some(lease), Some(term), true) = (worker, lease, term, problems.is_empty()) else {
            let problems = problems.into_iter().map(|message| Problem { op: None, message }).collect();
            return Err(EngineError::Setup(InvalidSpec { problems }));
        };
        let hub = Arc::new(Hub::with_observers(self.store.as_ref(), self.observers).map_err(EngineError::Thread)?);
        let kinds = self.strict_kinds.then(|| self.handlers.keys().cloned().collect());
        let client = Client::of_engine(Arc::clone(&self.store), Arc::clone(&hub), self.limits, kinds, self.definitions)
            .with_patience(self.patience)
            .with_clock_tolerance(self.clock_tolerance);
        if !self.policies.is_empty() {
            let policies = self.policies;
            client.blocking(move |store| store.with(TxKind::Client, |tx| tx.set_policies(&policies))).await?;
        }
        let beat = self.heartbeat.min(self.lease / 3);
        let settings = Settings {
            store: self.store,
            hub,
            client,
            runtime,
            handlers: self.handlers,
            probes: self.probes,
            probe_every: self.probe_every,
            agents: self.agents,
            office: Office::new(worker.clone(), term),
            worker,
            workers_max: self.workers_max,
            lease,
            beat,
            poll: self.poll,
            grace: self.grace,
            stop_wait: self.stop_wait,
            patience: self.patience,
            limits: self.limits,
            automatic: self.automatic,
            clock: ClockWatch::new(self.clock_tolerance, self.jump_grace.unwrap_or(beat)),
            leases_aside: SetAside::default(),
            waits_aside: SetAside::default(),
        };
        Ok(Engine { settings: Arc::new(settings) })
    }
}

impl fmt::Debug for EngineBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineBuilder").field("name", &self.name).field("kinds", &self.handlers.keys()).finish_non_exhaustive()
    }
}
