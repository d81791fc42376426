//! Single steps of the storage contract: what their rustdoc promises.

pub(super) mod claim;
pub(super) mod graph;
pub(super) mod lease;
pub(super) mod read;
pub(super) mod transact;
pub(super) mod write;
