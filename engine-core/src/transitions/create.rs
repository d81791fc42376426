//! Makes workflows, or attaches to those that are there (I1, I2, S9).

use super::journal::{About, Journal};
use super::{GraphError, Notice, Plan, TransitionError};
use crate::model::{Fence, Lane, LaneKey, Limits, OpSeq, RequestId, Timestamp, WorkflowId, WorkflowSeq, WorkflowSpec, check_size};
use crate::state::{Counters, OpStatus, WorkflowStatus, share};
use crate::store::rows::{Edge, EventKind, NewOp, NewWorkflow, QueuedOp, WorkflowChange, WorkflowRow, WriteSet};
use crate::store::{StoreError, Tx};
use std::collections::{BTreeMap, HashMap};

/// Whether a workflow that is there already is an error or an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateMode {
    /// Make a new one; one that is there is an error.
    Start,
    /// Make it, or attach to the one with this id, name and identity, in whatever status it is.
    Ensure,
}

/// One workflow to create, checked. Its ids are made before the first try, so a repetition finds its own row.
#[derive(Debug, Clone)]
pub struct CreateRequest {
    spec: WorkflowSpec,
    plan: Plan,
    request: RequestId,
    mode: CreateMode,
}

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    /// The workflow's id.
    pub id: WorkflowId,
    /// What happened.
    pub outcome: CreateOutcome,
}

/// What became of a call.
#[derive(Debug)]
pub struct CreateReport {
    /// For each request in turn: what happened, or [`TransitionError::IdentityConflict`] or [`TransitionError::WorkflowExists`].
    pub outcomes: Vec<Result<Created, TransitionError>>,
    /// What observers hear.
    pub notices: Vec<Notice>,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateOutcome {
    /// It was made by this request.
    Created,
    /// It was there; nothing was changed.
    Attached {
        /// Where it stands.
        status: WorkflowStatus,
        /// Whether it was made with another input than this request brings.
        input_differs: bool,
    },
}

impl CreateRequest {
    /// Checks `spec` and its graph.
    ///
    /// # Errors
    /// [`TransitionError::Graph`] or [`TransitionError::TooLarge`], with the op named.
    pub fn new(mut spec: WorkflowSpec, request: RequestId, mode: CreateMode, limits: &Limits) -> Result<Self, TransitionError> {
        let ops = std::mem::take(&mut spec.ops);
        if ops.is_empty() {
            return Err(GraphError::Empty(spec.id).into());
        }
        check_size(format!("the input of workflow {:?}", spec.id), spec.input.as_str().len(), limits.input_bytes)?;
        check_size(format!("the metadata of workflow {:?}", spec.id), spec.metadata.as_str().len(), limits.input_bytes)?;
        let plan = Plan::new(ops, limits)?;
        plan.check_closed()?;
        Ok(Self { spec, plan, request, mode })
    }

    /// The id it asks for.
    pub fn id(&self) -> &WorkflowId {
        &self.spec.id
    }

    fn row(&self, created_at: Timestamp) -> NewWorkflow {
        let spec = &self.spec;
        NewWorkflow {
            id: spec.id.clone(),
            request: self.request,
            name: spec.name.clone(),
            digest: spec.digest,
            input: spec.input.clone(),
            metadata: spec.metadata.clone(),
            site: spec.site.clone(),
            subject: spec.subject.clone(),
            created_at,
        }
    }

    /// What a workflow that is there means for this request.
    fn judge(&self, found: &WorkflowRow) -> Result<Created, TransitionError> {
        let outcome = if found.request == self.request {
            CreateOutcome::Created
        } else if found.name != self.spec.name || found.digest != self.spec.digest {
            let spell = |digest: Option<crate::model::Digest>| digest.map_or_else(|| "none".to_owned(), |digest| digest.to_string());
            return Err(TransitionError::IdentityConflict {
                id: found.id.clone(),
                found_name: found.name.clone(),
                found_digest: spell(found.digest),
                given_name: self.spec.name.clone(),
                given_digest: spell(self.spec.digest),
            });
        } else if self.mode == CreateMode::Start {
            return Err(TransitionError::WorkflowExists(found.id.clone()));
        } else {
            CreateOutcome::Attached { status: found.status, input_differs: !found.input.same_value(&self.spec.input) }
        };
        Ok(Created { id: found.id.clone(), outcome })
    }
}

/// Creates each of `requests`, or attaches to what is there; each is judged on its own, and an answer is only about
/// committed workflows. A second request for the same id in one call is judged against the first.
///
/// # Errors
/// [`StoreError`] when the store failed: nothing was written.
pub fn create(tx: &mut dyn Tx, requests: &[CreateRequest]) -> Result<CreateReport, StoreError> {
    let now = tx.now()?;
    let mut first: BTreeMap<&WorkflowId, &CreateRequest> = BTreeMap::new();
    for request in requests {
        first.entry(request.id()).or_insert(request);
    }
    let rows: Vec<NewWorkflow> = first.values().map(|request| request.row(now)).collect();
    let inserted: HashMap<WorkflowId, WorkflowSeq> = tx.insert_workflows(&rows)?.into_iter().collect();
    let new: Vec<(WorkflowSeq, &CreateRequest)> = first.iter().filter_map(|(id, request)| Some((*inserted.get(*id)?, *request))).collect();

    let mut graphs = Graphs { now, set: WriteSet::default(), lanes: BTreeMap::new(), journal: Journal::new(now, None) };
    let mut seqs = tx.reserve_ops(new.iter().map(|(_, request)| request.plan.len()).sum())?.into_iter();
    for (seq, request) in &new {
        graphs.add(*seq, request, &mut seqs)?;
    }
    let Graphs { mut set, lanes, journal, .. } = graphs;
    set.lanes = lanes.into_values().flat_map(|lane| [lane.apart(), lane]).collect();
    set.events = journal.events;
    tx.write(&set)?;

    // Judged behind the write: a second request of this call for a workflow of this call finds it.
    let created_by = |request: &CreateRequest| {
        inserted.contains_key(request.id()) && first.get(request.id()).is_some_and(|maker| maker.request == request.request)
    };
    let others: Vec<WorkflowId> = requests.iter().filter(|request| !created_by(request)).map(|request| request.id().clone()).collect();
    let found: HashMap<WorkflowId, WorkflowRow> = tx.workflows(&others)?.into_iter().map(|row| (row.id.clone(), row)).collect();
    let outcomes = requests
        .iter()
        .map(|request| match found.get(request.id()) {
            Some(row) if !created_by(request) => request.judge(row),
            _ => Ok(Created { id: request.id().clone(), outcome: CreateOutcome::Created }),
        })
        .collect();
    Ok(CreateReport { outcomes, notices: journal.notices })
}

/// The first graphs of new workflows.
struct Graphs {
    now: Timestamp,
    set: WriteSet,
    lanes: BTreeMap<LaneKey, Lane>,
    journal: Journal,
}

impl Graphs {
    fn add(&mut self, workflow: WorkflowSeq, request: &CreateRequest, seqs: &mut impl Iterator<Item = OpSeq>) -> Result<(), StoreError> {
        let plan = &request.plan;
        let own: Vec<OpSeq> = seqs.take(plan.len()).collect();
        let seq = |at: usize| own.get(at).copied().ok_or_else(|| StoreError::Rejected("the store reserved too few ops".into()));
        let mut unmet = vec![0; plan.len()];
        for ((child, parent), required) in &plan.inside {
            if let Some(count) = unmet.get_mut(*child) {
                // Nothing of a new graph has run: every parent is pending or ready, and both hold a child back alike.
                *count += share(*required, OpStatus::Pending).unmet;
            }
            self.set.edges.push(Edge { child: seq(*child)?, parent: seq(*parent)?, required: *required });
        }
        let mut counters = Counters::default();
        for (at, (op, unmet)) in plan.ops.iter().zip(unmet).enumerate() {
            let status = if unmet == 0 { OpStatus::Ready } else { OpStatus::Pending }.stored();
            counters.add(status, 1);
            let lane = op.lane(&request.spec.site);
            if unmet == 0 {
                let (lane, priority) = (lane.key, op.spec.priority);
                self.set.ready.push(QueuedOp { op: seq(at)?, lane, priority, due_at: self.now, fence: Fence::NONE, failures: 0 });
            }
            self.lanes.entry(lane.key).or_insert_with(|| lane.clone());
            self.set.ops.push(NewOp {
                seq: seq(at)?,
                workflow,
                id: op.spec.id.clone(),
                parent: None,
                lane,
                priority: op.spec.priority,
                input: op.spec.input.clone(),
                metadata: op.spec.metadata.clone(),
                retry: op.spec.retry,
                dedup_key: op.spec.dedup_key.clone(),
                time_limit: op.spec.time_limit,
                spec: op.digest,
                status,
                unmet,
                broken: 0,
                created_at: self.now,
            });
        }
        self.set.workflows.push(WorkflowChange {
            seq: workflow,
            status: counters.derived(),
            cancel_requested: false,
            counters,
            finished_at: None,
            at: self.now,
        });
        let about = About { workflow: (workflow, &request.spec.id), op: None, fence: None };
        self.journal.tell(EventKind::WorkflowCreated, about, Some(request.spec.name.to_string()));
        Ok(())
    }
}
