//! What an engine and its clients in one process tell each other at once: hints that save a poll, and observers' notices.
//! Nothing depends on a hint; the store alone says what is true.

use super::notice::Notice;
use super::observer::{Closing, Notices, Observer, Ticket};
use crate::model::WorkflowId;
use crate::store::rows::EventKind;
use crate::store::{Hint, Hints, Listener, Store, StoreError, StoreExt, Tx, TxKind};
use crate::transitions;
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::Notify;

/// Somebody who looks for work, and looks at once when told that there may be some.
pub(crate) trait Bell: Debug + Send + Sync {
    /// There may be something to claim.
    fn ring(&self);
    /// Some op was canceled, and its handler may run here.
    fn canceled(&self);
}

/// The meeting point of an engine, its sessions and its clients.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    notices: Notices,
    bells: Mutex<Vec<Weak<dyn Bell>>>,
    waiters: Mutex<HashMap<WorkflowId, Weak<Notify>>>,
    /// Other processes.
    others: Option<Arc<dyn Hints>>,
    /// Dropped last: ends the observers' thread.
    _closing: Option<Closing>,
}

impl Hub {
    /// A hub that nobody in this process observes.
    pub(crate) fn of(store: &dyn Store) -> Self {
        Self { others: store.hints(), ..Self::default() }
    }

    /// A hub with `observers`.
    ///
    /// # Errors
    /// When the observers' thread cannot be made.
    pub(crate) fn with_observers(store: &dyn Store, observers: Vec<Arc<dyn Observer>>) -> std::io::Result<Self> {
        let (notices, closing) = Notices::to(observers)?;
        Ok(Self { notices, _closing: closing, ..Self::of(store) })
    }

    /// From now on `listener` hears what other processes tell, as long as it lives.
    pub(crate) fn listen_to_others(&self, listener: &Arc<dyn Listener>) {
        if let Some(others) = &self.others {
            others.listen(listener);
        }
    }

    /// The line that observers hear.
    pub(crate) const fn notices(&self) -> &Notices {
        &self.notices
    }

    /// From now on `bell` rings when there may be work, as long as it lives.
    pub(crate) fn add_bell(&self, bell: &Arc<dyn Bell>) {
        let mut bells = self.bells.lock().unwrap_or_else(PoisonError::into_inner);
        bells.retain(|bell| bell.strong_count() > 0);
        bells.push(Arc::downgrade(bell));
    }

    /// Tells all claim loops that there may be work, those of other processes as well.
    pub(crate) fn ring_everywhere(&self) {
        self.ring();
        self.tell_others(Hint::Work);
    }

    /// Tells this process's claim loops.
    fn ring(&self) {
        self.bells().for_each(|bell| bell.ring());
    }

    fn tell_others(&self, hint: Hint) {
        if let Some(others) = &self.others {
            others.tell(hint);
        }
    }

    fn bells(&self) -> impl Iterator<Item = Arc<dyn Bell>> {
        let bells: Vec<_> = self.bells.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).collect();
        bells.into_iter()
    }

    /// What is notified when this process changes the workflow `id`.
    pub(crate) fn waiter(&self, id: &WorkflowId) -> Arc<Notify> {
        let mut waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waiter) = waiters.get(id).and_then(Weak::upgrade) {
            return waiter;
        }
        waiters.retain(|_, waiter| waiter.strong_count() > 0);
        let waiter = Arc::new(Notify::new());
        waiters.insert(id.clone(), Arc::downgrade(&waiter));
        waiter
    }

    /// Passes on what a commit changed: wakes who waits for its workflows, and the claim loops.
    fn hint(&self, told: &[transitions::Notice]) {
        {
            let waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
            if !waiters.is_empty() {
                let changed = told.iter().filter(|notice| notice.kind == EventKind::WorkflowUpdated);
                for waiter in changed.filter_map(|notice| waiters.get(notice.workflow.as_ref()?)).filter_map(Weak::upgrade) {
                    waiter.notify_waiters();
                }
            }
        }
        if told.is_empty() {
            return;
        }
        let canceled = told.iter().any(|notice| notice.kind == EventKind::OpCanceled);
        if canceled {
            self.bells().for_each(|bell| bell.canceled());
        }
        self.ring();
        self.tell_others(if canceled { Hint::Canceled } else { Hint::Work });
    }

    /// Tells what a transaction changed that the application began and has committed. Observers hear of it in the order in
    /// which they are told: its place among the commits of others is not known here.
    pub(crate) fn tell_committed(&self, told: Vec<transitions::Notice>) {
        self.hint(&told);
        if self.notices.heard() {
            self.notices.ticket().tell(told.into_iter().map(Into::into).collect());
        }
    }

    /// Runs one transaction and then tells what it changed: hints at once, observers in commit order.
    ///
    /// `told` takes the transition's notices out of its report; `enrich` adds to each what this process knows of it.
    ///
    /// # Errors
    /// What the body or the store returned.
    pub(crate) fn transact<T, E: From<StoreError>>(
        &self,
        store: &dyn Store,
        kind: TxKind,
        mut body: impl FnMut(&mut dyn Tx) -> Result<T, E>,
        told: impl FnOnce(&mut T) -> Vec<transitions::Notice>,
        enrich: impl Fn(&T, Notice) -> Notice,
    ) -> Result<T, E> {
        let mut ticket: Option<Ticket> = None;
        let mut done = store.with(kind, |tx| {
            ticket = None;
            let done = body(tx)?;
            ticket = Some(self.notices.ticket());
            Ok::<T, E>(done)
        })?;
        let told = told(&mut done);
        self.hint(&told);
        if let Some(ticket) = ticket.filter(|_| self.notices.heard()) {
            ticket.tell(told.into_iter().map(|told| enrich(&done, told.into())).collect());
        }
        Ok(done)
    }
}
