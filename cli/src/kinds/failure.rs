//! Why an attempt of a built-in kind failed.

use leasehold::model::ErrorClass;
use serde_json::Value;
use std::time::Duration;

/// A failed attempt: a stable code for programs, a message for people, details for both.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Failure {
    pub(crate) class: ErrorClass,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) details: Value,
    /// How long to wait before the next attempt, where the other side said so.
    pub(crate) delay: Option<Duration>,
}

impl Failure {
    pub(crate) fn retryable(code: &'static str, message: impl Into<String>) -> Self {
        Self { class: ErrorClass::Retryable, code, message: message.into(), details: Value::Null, delay: None }
    }
    pub(crate) fn permanent(code: &'static str, message: impl Into<String>) -> Self {
        Self { class: ErrorClass::Permanent, ..Self::retryable(code, message) }
    }
    pub(crate) fn details(self, details: Value) -> Self {
        Self { details, ..self }
    }
    pub(crate) fn after(self, delay: Option<Duration>) -> Self {
        Self { delay, ..self }
    }
}
