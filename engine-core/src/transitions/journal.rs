//! What a transition tells: events for the store, notices for observers.

use crate::model::{Fence, OpId, OpSeq, Timestamp, WorkflowId, WorkflowSeq};
use crate::store::rows::{EventKind, NewEvent};

/// What observers hear of one change, after its commit (O1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// When, by the store's clock.
    pub at: Timestamp,
    /// What.
    pub kind: EventKind,
    /// In which workflow; `None` for what is about the whole store.
    pub workflow: Option<WorkflowId>,
    /// To which op.
    pub op: Option<OpId>,
    /// In which attempt.
    pub fence: Option<Fence>,
    /// By whom: a worker or an operator.
    pub actor: Option<String>,
    /// The error's code, the new workflow status, or the operator's reason.
    pub detail: Option<String>,
}

/// Which op an entry is about.
#[derive(Debug, Clone, Copy)]
pub(super) struct About<'a> {
    pub(super) workflow: (WorkflowSeq, &'a WorkflowId),
    pub(super) op: Option<(OpSeq, &'a OpId)>,
    pub(super) fence: Option<Fence>,
}

/// Events and notices, side by side.
#[derive(Debug)]
pub(super) struct Journal {
    at: Timestamp,
    actor: Option<String>,
    pub(super) events: Vec<NewEvent>,
    pub(super) notices: Vec<Notice>,
}

impl Journal {
    pub(super) fn new(at: Timestamp, actor: Option<String>) -> Self {
        Self { at, actor, events: Vec::new(), notices: Vec::new() }
    }

    pub(super) fn set_actor(&mut self, actor: Option<String>) {
        self.actor = actor;
    }

    pub(super) fn tell(&mut self, kind: EventKind, about: About<'_>, detail: Option<String>) {
        let About { workflow: (workflow, workflow_id), op, fence } = about;
        self.notices.push(Notice {
            at: self.at,
            kind,
            workflow: Some(workflow_id.clone()),
            op: op.map(|(_, id)| id.clone()),
            fence,
            actor: self.actor.clone(),
            detail: detail.clone(),
        });
        let op = op.map(|(seq, _)| seq);
        self.events.push(NewEvent { at: self.at, kind, workflow: Some(workflow), op, fence, actor: self.actor.clone(), detail });
    }

    /// Tells what is about the whole store.
    pub(super) fn tell_of_store(&mut self, kind: EventKind, detail: Option<String>) {
        let (at, actor) = (self.at, self.actor.clone());
        self.notices.push(Notice { at, kind, workflow: None, op: None, fence: None, actor: actor.clone(), detail: detail.clone() });
        self.events.push(NewEvent { at, kind, workflow: None, op: None, fence: None, actor, detail });
    }
}
