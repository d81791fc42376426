//! How every call reaches the store: on a blocking thread, under one deadline.

use super::{Client, ClientError};
use crate::engine::{Transient, retry};
use crate::model::WorkflowId;
use crate::store::rows::WorkflowRow;
use crate::store::{Store, StoreError, StoreExt, Tx, TxKind};
use crate::transitions::{self, TransitionError};
use std::sync::Arc;

impl Client {
    /// Runs `work` on a blocking thread, again while it fails for the moment.
    ///
    /// Dropping the future does not stop work that has begun; whatever it does carries ids made before.
    pub(crate) async fn blocking<T, E>(
        &self,
        mut work: impl FnMut(&Arc<dyn Store>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, ClientError>
    where
        T: Send + 'static,
        E: Transient + Into<ClientError> + Send + 'static,
    {
        let (store, patience) = (Arc::clone(&self.core.store), self.core.patience);
        let done = tokio::task::spawn_blocking(move || retry(patience, || work(&store))).await;
        match done {
            Ok(done) => done.map_err(Into::into),
            Err(stopped) => match stopped.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(ClientError::ShuttingDown),
            },
        }
    }

    /// Runs a transition and tells what it changed.
    pub(super) async fn change<T: Send + 'static>(
        &self,
        mut body: impl FnMut(&mut dyn Tx) -> Result<T, TransitionError> + Send + 'static,
        told: impl Fn(&mut T) -> Vec<transitions::Notice> + Send + 'static,
    ) -> Result<T, ClientError> {
        let hub = Arc::clone(&self.core.hub);
        self.blocking(move |store| hub.transact(store.as_ref(), TxKind::Client, &mut body, &told, |_, notice| notice)).await
    }

    /// Reads in one transaction.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        mut body: impl FnMut(&mut dyn Tx) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, ClientError> {
        self.blocking(move |store| store.with(TxKind::Read, &mut body)).await
    }
}

/// Why a read failed: the store, or what the caller asked for is not there.
#[derive(Debug)]
pub(super) enum ReadError {
    Store(StoreError),
    Client(ClientError),
}
impl From<StoreError> for ReadError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
impl From<ClientError> for ReadError {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}
impl From<ReadError> for ClientError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Store(error) => Self::Store(error),
            ReadError::Client(error) => error,
        }
    }
}
impl Transient for ReadError {
    fn is_transient(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_transient())
    }
}

/// The row of the workflow `id`.
pub(super) fn workflow(tx: &mut dyn Tx, id: &WorkflowId) -> Result<WorkflowRow, ReadError> {
    Ok(tx.workflows(std::slice::from_ref(id))?.pop().ok_or_else(|| ClientError::no_workflow(id))?)
}
