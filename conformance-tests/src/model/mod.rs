//! A model check of the transitions: everything that can happen, in every order, on small graphs.
//!
//! A [`State`] is a fork of the in-memory store with its clock and what each worker believes to hold. [`explore`] runs
//! every [`Act`] that is possible in a state, by the engine's real transitions, and goes on from each state that it has not
//! seen before, breadth first. After each act the outcome is compared with what the state before allowed, and the state
//! after it with the invariants. So a fault comes with the shortest history that leads to it.
//!
//! The crates that do this in general were weighed: their states are values that are hashed and cloned, and so is this one,
//! whose hash must leave out tokens and times of the history; what remains of them is the walk, which is a page here.

mod act;
mod check;
mod explore;
mod picture;
mod state;

pub use act::Act;
pub use explore::{Broken, Explored, explore, retried};
pub use state::{Bounds, State};
