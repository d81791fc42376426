//! Where everything stands between two acts.

use super::picture::Picture;
use crate::mutants::{Mutant, MutantStore};
use crate::scenario::LEASE;
use crate::{Opened, Planted, Scenario, World, start};
use leasehold_core::memory::MemoryStore;
use leasehold_core::model::{OpSeq, Timestamp};
use leasehold_core::store::rows::ClaimedOp;
use leasehold_core::store::{BoxError, Clock, ManualClock, Store};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// How far an exploration goes.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Workers, each of which holds one op at most.
    pub workers: usize,
    /// How often the clock steps on by a lease.
    pub steps_forward: u32,
    /// How often it steps back by half of one.
    pub steps_back: u32,
    /// How often an operator retries what failed.
    pub retries: u32,
    /// How often the workflow is canceled.
    pub cancels: u32,
    /// How many ops are added while it runs.
    pub additions: u32,
    /// Attempts of one op.
    pub attempts: i64,
    /// States after which it stops, and says that there was more.
    pub states: usize,
    /// Of each so many states one is driven to the end of its workflow.
    pub drive_each: usize,
}

/// Acts of which there are so many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Used {
    pub(super) forward: u32,
    pub(super) back: u32,
    pub(super) retries: u32,
    pub(super) cancels: u32,
    pub(super) additions: u32,
}

/// What a worker believes to hold.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) claimed: ClaimedOp,
    /// It has sent a completion and heard nothing.
    pub(super) sent: bool,
}

/// Where everything stands.
#[derive(Debug, Clone)]
pub struct State {
    store: Arc<MemoryStore>,
    mutant: Option<Mutant>,
    pub(super) now: Timestamp,
    pub(super) workers: Vec<Option<Held>>,
    pub(super) used: Used,
    pub(super) planted: Planted,
}

impl State {
    /// One workflow of these ops, of which nothing has begun.
    pub(super) fn first(graph: &Scenario, bounds: &Bounds, mutant: Option<Mutant>) -> Result<Self, BoxError> {
        let clock = Arc::new(ManualClock::at(start()));
        let store = Arc::new(MemoryStore::new(Arc::clone(&clock) as Arc<dyn Clock>));
        let world = World::new(Opened::new(Arc::clone(&store) as Arc<dyn Store>, clock));
        let planted = graph.build(&world)?;
        Ok(Self { store, mutant, now: start(), workers: vec![None; bounds.workers], used: Used::default(), planted })
    }

    /// A copy that goes its own way, with a world to act on it. The world's store is the broken one if there is a mutant.
    pub(super) fn fork(&self, now: Timestamp) -> (Self, World) {
        let clock = Arc::new(ManualClock::at(now));
        let store = Arc::new(self.store.fork(Arc::clone(&clock) as Arc<dyn Clock>));
        let sound = Arc::clone(&store) as Arc<dyn Store>;
        let seen: Arc<dyn Store> = match self.mutant {
            Some(mutant) => Arc::new(MutantStore::new(sound, mutant)),
            None => sound,
        };
        (Self { store, now, ..self.clone() }, World::new(Opened::new(seen, clock)))
    }

    /// A world that looks at the rows themselves, past any mutant.
    pub(super) fn sound(&self) -> World {
        let clock = Arc::new(ManualClock::at(self.now));
        World::new(Opened::new(Arc::clone(&self.store) as Arc<dyn Store>, clock))
    }

    pub(super) fn picture(&self) -> Result<Picture, BoxError> {
        Picture::of(&self.sound(), &self.planted)
    }

    /// The same for states from which the same can happen. Workers are alike, so their order does not count.
    pub(super) fn fingerprint(&self, picture: &Picture) -> u64 {
        let mut hasher = DefaultHasher::new();
        picture.fingerprint(self.now, &mut hasher);
        let mut workers: Vec<(OpSeq, i64, bool, bool)> = Vec::new();
        for held in self.workers.iter().flatten() {
            let key = held.claimed.lease.key;
            let stands = picture.op(key.op).and_then(|op| op.view.lease.as_ref()).is_some_and(|lease| lease.key == key);
            workers.push((key.op, key.fence.0, stands, held.sent));
        }
        workers.sort_unstable();
        workers.hash(&mut hasher);
        self.used.hash(&mut hasher);
        hasher.finish()
    }

    /// The instant a step of the clock leads to.
    pub(super) fn later(&self) -> Timestamp {
        self.now.after(LEASE).unwrap_or(self.now)
    }

    /// The instant a step back leads to.
    pub(super) fn earlier(&self) -> Timestamp {
        Timestamp::from_micros(self.now.as_micros() - LEASE.get() / 2).unwrap_or(self.now)
    }

    /// The first worker that holds nothing: it stands for all of them.
    pub(super) fn idle(&self) -> Option<usize> {
        self.workers.iter().position(Option::is_none)
    }

    pub(super) fn held(&self, worker: usize) -> Option<&Held> {
        self.workers.get(worker).and_then(Option::as_ref)
    }

    pub(super) fn set(&mut self, worker: usize, held: Option<Held>) {
        if let Some(place) = self.workers.get_mut(worker) {
            *place = held;
        }
    }
}
