//! Names and keys. Public ids are text that people choose; keys are 64-bit numbers that the store gives out.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use uuid::Uuid;

/// The longest name or id, in bytes of UTF-8: long enough for a URL, short enough for every index.
pub const NAME_BYTES_MAX: usize = 255;

/// Why a text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing was given.
    #[error("{what} is empty")]
    Empty {
        /// What the text was to name.
        what: &'static str,
    },
    /// More than [`NAME_BYTES_MAX`] bytes.
    #[error("{what} has {bytes} bytes; the most is {NAME_BYTES_MAX}")]
    TooLong {
        /// What the text was to name.
        what: &'static str,
        /// How long it is.
        bytes: usize,
    },
    /// A control character, which no log line, URL or shell carries safely.
    #[error("{what} {text:?} holds a control character")]
    Control {
        /// What the text was to name.
        what: &'static str,
        /// The text.
        text: String,
    },
}

fn check(what: &'static str, text: &str) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty { what });
    }
    if text.len() > NAME_BYTES_MAX {
        return Err(NameError::TooLong { what, bytes: text.len() });
    }
    if text.chars().any(char::is_control) {
        return Err(NameError::Control { what, text: text.to_owned() });
    }
    Ok(())
}

macro_rules! name {
    ($(#[$meta:meta])* $name:ident, $what:literal) => {
        $(#[$meta])*
        ///
        /// One to [`NAME_BYTES_MAX`] bytes of UTF-8 without control characters; compared byte by byte.
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks `text`.
            ///
            /// # Errors
            /// [`NameError`] when it is empty, too long or holds a control character.
            pub fn new(text: impl Into<Arc<str>>) -> Result<Self, NameError> {
                let text = text.into();
                check($what, &text)?;
                Ok(Self(text))
            }
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                Self::new(text)
            }
        }
        impl TryFrom<&str> for $name {
            type Error = NameError;
            fn try_from(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }
        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0.as_ref().to_owned()
            }
        }
        impl std::str::FromStr for $name {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }
    };
}

name!(
    /// Names one workflow, unique in its store.
    WorkflowId, "workflow id"
);
name!(
    /// What a workflow does; many workflows share a name.
    WorkflowName, "workflow name"
);
name!(
    /// Names one op, unique in its workflow.
    OpId, "op id"
);
name!(
    /// Which handler runs an op.
    KindName, "op kind"
);
name!(
    /// Where ops wait; admission limits are keyed on it.
    QueueName, "queue"
);
name!(
    /// A free partition key: a host, a tenant, a provider.
    SiteName, "site"
);
name!(
    /// A label that an op may ask of the worker that runs it.
    AgentName, "agent"
);
name!(
    /// At most one op of a workflow carries a given one.
    DedupKey, "dedup key"
);
name!(
    /// What a worker calls itself: a label, never proof of anything.
    WorkerName, "worker name"
);
name!(
    /// The person or thing that a workflow's data is about.
    SubjectId, "subject"
);
name!(
    /// Names one artifact of an op.
    ArtifactName, "artifact name"
);
name!(
    /// Names a group of records.
    CollectionName, "collection"
);
name!(
    /// Names one record in its collection.
    RecordKey, "record key"
);

/// The queue of an op that names none, and the site of a workflow that names none.
pub const DEFAULT_NAME: &str = "default";

impl Default for QueueName {
    fn default() -> Self {
        Self(DEFAULT_NAME.into())
    }
}
impl Default for SiteName {
    fn default() -> Self {
        Self(DEFAULT_NAME.into())
    }
}

macro_rules! key {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub i64);
    };
}

key!(
    /// The store's key of a workflow.
    WorkflowSeq
);
key!(
    /// The store's key of an op, unique in the store.
    OpSeq
);
key!(
    /// The store's number of an event; a later commit may carry a smaller one (Postgres).
    EventSeq
);
key!(
    /// Counts the leases of one op: grows with every lease, never repeats, never restarts. Also the attempt's number.
    Fence
);
key!(
    /// The key of a lane: a hash of its site, queue, kind and agent.
    LaneKey
);
key!(
    /// The key of a gate: a hash of its site and queue, the row that a limit is serialised on.
    GateKey
);

key!(
    /// Counts the leaders of a store's maintenance: grows with each, and tells an old one's writes from the present one's.
    Epoch
);

impl Fence {
    /// Before the first lease.
    pub const NONE: Self = Self(0);
    /// The next lease's fence.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The secret that proves a lease. One claim gives all its ops the same token, so the pair (op, token) names one lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LeaseToken(Uuid);

impl LeaseToken {
    /// A new random token. Made once per claim, before any try, so that a claim whose reply was lost finds its leases.
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }
}
impl fmt::Display for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_simple().fmt(f)
    }
}
impl std::str::FromStr for LeaseToken {
    type Err = uuid::Error;
    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        Uuid::parse_str(text).map(Self)
    }
}

impl From<RequestId> for LeaseToken {
    /// The token of what a call does in one go, without a claim: made before its first try, as the call's id was.
    fn from(request: RequestId) -> Self {
        Self(request.0)
    }
}

/// Names one call of an operator or a client, so that its repetition is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestId(Uuid);

impl RequestId {
    /// A new random id. Made once per call, before any try.
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }
}
impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_simple().fmt(f)
    }
}
impl std::str::FromStr for RequestId {
    type Err = uuid::Error;
    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        Uuid::parse_str(text).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_checked_where_it_enters() {
        assert!(OpId::new("ü/é 100%").is_ok());
        assert_eq!(OpId::new(""), Err(NameError::Empty { what: "op id" }));
        assert!(OpId::new("a\0b").is_err());
        assert!(OpId::new("x".repeat(NAME_BYTES_MAX)).is_ok());
        assert!(OpId::new("x".repeat(NAME_BYTES_MAX + 1)).is_err());
    }
}
