//! Hints between processes that share a store: an optional ability.
//!
//! A hint saves the wait for the next look, and nothing depends on it: whoever looks by itself now and then finds all there is.

use std::fmt::Debug;
use std::sync::Arc;

/// What there may be to look for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hint {
    /// There may be something to claim.
    Work,
    /// Some op was canceled, and its handler may run somewhere; there may be work as well.
    Canceled,
}

/// Whoever looks when told to.
pub trait Listener: Debug + Send + Sync {
    /// Something may have changed. Called on a thread of the store's, so it returns at once and does not call the store.
    fn hear(&self, hint: Hint);
}

/// Carries hints from one process to the others.
///
/// # Contract
/// Hints may be lost, late, merged into one, doubled or false. A store that can tell leaves out its own.
pub trait Hints: Debug + Send + Sync {
    /// From now on passes hints of others on to `listener`, as long as that lives. Once they come it is told so by a
    /// first hint: what changed before may have been missed.
    fn listen(&self, listener: &Arc<dyn Listener>);

    /// Tells others, after the commit that changed something. Returns at once, whatever becomes of it.
    fn tell(&self, hint: Hint);
}
