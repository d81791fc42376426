//! What runs an op: the application's function for one kind.

use super::context::OpContext;
use crate::client::with_causes;
use crate::model::{ErrorClass, Json, Micros, OpError, storable_text};
use crate::transitions::Until;
use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::time::Duration;

/// Runs the ops of one kind. Most are plain async functions; see [`typed`].
///
/// # Contract
/// An op may run more than once: after a crash, a lost lease or an error. [`OpContext::idempotency_key`] is the same on
/// every attempt, for outside systems that can recognise it. A handler that should stop sees it by
/// [`OpContext::cancellation`]; one that does not stop is dropped at its next `.await`.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Runs one attempt.
    async fn run(&self, ctx: OpContext) -> Result<Json, HandlerError>;
}

/// Why an attempt failed, and what is to happen then.
///
/// Every `std::error::Error` becomes one by `?`: retryable, with the code `error`. (So this type is not such an error itself.)
///
/// # Examples
/// ```
/// use leasehold_core::engine::HandlerError;
/// use std::time::Duration;
/// let busy = HandlerError::retryable("the provider is busy").code("busy").after(Duration::from_secs(30));
/// let broken = HandlerError::permanent("there is no such page").code("not_found");
/// # let _ = (busy, broken);
/// ```
#[derive(Debug, Clone)]
pub struct HandlerError {
    /// What is kept of it. Long texts are cut and unstorable characters replaced when it is recorded.
    pub error: OpError,
    /// Whether another attempt is worth it.
    pub class: ErrorClass,
    /// How long to wait before it, in place of the op's policy.
    pub delay: Option<Micros>,
    /// That it is no failure: the op waits, until then.
    pub(super) until: Option<Until>,
}

/// The longest code of an error: a word for programs, not a text.
const CODE_BYTES_MAX: usize = 255;

impl HandlerError {
    /// An error that another attempt may not meet.
    pub fn retryable(message: impl Into<String>) -> Self {
        Self { error: OpError::new(OpError::GENERIC, message), class: ErrorClass::Retryable, delay: None, until: None }
    }

    /// An error that every attempt would meet: the op fails.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self { class: ErrorClass::Permanent, ..Self::retryable(message) }
    }

    /// The same with a stable code for programs.
    #[must_use]
    pub fn code(mut self, code: impl Into<String>) -> Self {
        self.error.code = code.into();
        self
    }

    /// The same with details for programs. Details that cannot be stored are replaced by the reason.
    #[must_use]
    pub fn details<T: Serialize + ?Sized>(mut self, details: &T) -> Self {
        self.error.details = Json::encode(details).unwrap_or_else(|error| unkept(&with_causes(&error)));
        self
    }

    /// The same, tried again no sooner than `delay` from its recording. One past year 9999 is no delay: the op fails.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        /// No delay at all is the shortest one there is.
        const AT_ONCE: Duration = Duration::from_micros(1);
        let longest = Micros::from_secs(u32::MAX).saturating_mul(u32::MAX);
        self.delay = Some(Micros::try_from(delay.max(AT_ONCE)).unwrap_or(longest));
        self
    }

    /// What a handler returns for its op to wait.
    pub(super) fn waiting(until: Until) -> Self {
        Self { until: Some(until), ..Self::retryable("the op waits").code("waiting") }
    }

    /// Whether it is no failure, but asks for the op to wait.
    pub const fn is_wait(&self) -> bool {
        self.until.is_some()
    }

    /// What is recorded: everything storable, and the texts within `error_bytes`.
    pub(super) fn storable(&self, error_bytes: usize) -> OpError {
        let OpError { code, message, details } = &self.error;
        let code = if code.is_empty() { OpError::GENERIC } else { code };
        let details = if details.as_str().len() > error_bytes {
            unkept(&format!("the details had {} bytes, over the limit of {error_bytes}", details.as_str().len()))
        } else {
            details.clone()
        };
        OpError { code: storable_text(code, CODE_BYTES_MAX), message: storable_text(message, error_bytes), details }
    }
}

fn unkept(reason: &str) -> Json {
    /// Inside every sensible error limit, so that the replacement does not need replacing.
    const REASON_BYTES_MAX: usize = 200;
    Json::encode(&serde_json::json!({ "details_not_kept": storable_text(reason, REASON_BYTES_MAX) })).unwrap_or_default()
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.error.code, self.error.message)
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for HandlerError {
    fn from(error: E) -> Self {
        Self::retryable(with_causes(&error))
    }
}

/// Makes a [`Handler`] of an async function from a typed input to a typed result.
///
/// An input of another shape fails the attempt for good with the code `bad_input`, a result that cannot be stored with `bad_result`.
///
/// # Examples
/// ```
/// use leasehold_core::engine::{HandlerError, OpContext, typed};
/// async fn double(_ctx: OpContext, n: i64) -> Result<i64, HandlerError> {
///     n.checked_mul(2).ok_or_else(|| HandlerError::permanent("too large"))
/// }
/// let handler = typed(double);
/// # let _ = handler;
/// ```
pub fn typed<F, Fut, In, Out, E>(function: F) -> impl Handler
where
    F: Fn(OpContext, In) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Out, E>> + Send + 'static,
    In: DeserializeOwned + Send + 'static,
    Out: Serialize + Send + 'static,
    E: Into<HandlerError> + Send + 'static,
{
    Typed { function, shape: PhantomData }
}

struct Typed<F, In, Out, E> {
    function: F,
    shape: PhantomData<fn(In) -> Result<Out, E>>,
}

#[async_trait]
impl<F, Fut, In, Out, E> Handler for Typed<F, In, Out, E>
where
    F: Fn(OpContext, In) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Out, E>> + Send + 'static,
    In: DeserializeOwned + Send + 'static,
    Out: Serialize + Send + 'static,
    E: Into<HandlerError> + Send + 'static,
{
    async fn run(&self, ctx: OpContext) -> Result<Json, HandlerError> {
        let input = ctx.input().decode::<In>().map_err(|error| HandlerError::permanent(with_causes(&error)).code(OpError::BAD_INPUT))?;
        let output = (self.function)(ctx, input).await.map_err(Into::into)?;
        Json::encode(&output).map_err(|error| HandlerError::permanent(with_causes(&error)).code(OpError::BAD_RESULT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_error_becomes_retryable_with_its_causes() {
        #[derive(Debug, thiserror::Error)]
        #[error("no page")]
        struct NoPage(#[source] std::num::ParseIntError);
        let error: HandlerError = NoPage("x".parse::<i32>().unwrap_err()).into();
        assert_eq!(error.error.message, "no page: invalid digit found in string");
        assert_eq!((error.error.code.as_str(), error.class), ("error", ErrorClass::Retryable));
    }

    #[test]
    fn what_is_recorded_is_storable_and_within_its_limit() {
        let error = HandlerError::retryable("a\0".repeat(100)).code("").details(&"x".repeat(100));
        let kept = error.storable(64);
        assert_eq!(kept.code, "error");
        assert!(kept.message.len() <= 64 && !kept.message.contains('\0'));
        assert!(kept.details.as_str().contains("over the limit of 64"));
        assert!(HandlerError::retryable("m").details("nul\0").error.details.as_str().contains("NUL"));
    }
}
