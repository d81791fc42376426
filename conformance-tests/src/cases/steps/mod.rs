//! Single steps of the storage contract: what their rustdoc promises.

pub(crate) mod claim;
pub(crate) mod graph;
pub(crate) mod inspect;
pub(crate) mod lanes;
pub(crate) mod lease;
pub(crate) mod read;
pub(crate) mod time;
pub(crate) mod transact;
pub(crate) mod write;
