//! Operators' calls: who, why, and the first answer for whoever repeats one (L12, P8).

use super::TransitionError;
use crate::model::{Json, RequestId, Timestamp};
use crate::store::rows::Act;
use crate::store::{StoreError, Tx};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Who acts, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// A name for the history.
    pub name: String,
    /// The reason for the history.
    pub reason: Option<String>,
}

impl Actor {
    /// An actor that gives no reason.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), reason: None }
    }
}

/// The answer to the same call made before, if it was.
pub(super) fn replay<T: DeserializeOwned>(tx: &mut dyn Tx, request: RequestId, question: &str) -> Result<Option<T>, TransitionError> {
    let Some(act) = tx.act(request)? else {
        return Ok(None);
    };
    if act.question != question {
        return Err(TransitionError::RequestReused(request));
    }
    let answer = act.answer.decode().map_err(|error| StoreError::Rejected(Box::new(error)))?;
    Ok(Some(answer))
}

/// The act to write with its answer.
pub(super) fn act<T: Serialize>(
    request: RequestId,
    question: String,
    actor: &Actor,
    answer: &T,
    at: Timestamp,
) -> Result<Act, TransitionError> {
    let answer = Json::encode(answer).map_err(|error| StoreError::Rejected(Box::new(error)))?;
    Ok(Act { request, question, answer, actor: actor.name.clone(), at })
}
