//! The engine of Leasehold, without a database: the [model], the [state machine](state), the [storage contract](store),
//! the [transitions] over it, an [in-memory store](memory) that is their executable specification, the [engine] that runs
//! handlers, the [doctor] that recomputes what follows from the graph, and the [client] that applications and operators
//! call.
//!
//! Applications depend on the `leasehold` crate; authors of backends depend on this one.

pub mod client;
pub mod doctor;
pub mod engine;
pub mod memory;
pub mod model;
pub mod state;
pub mod store;
pub mod transitions;
