//! Leasehold is a durable workflow engine that lives inside a Rust program. A workflow is a graph of ops; workers lease
//! ready ops, run the application's handlers, and commit results under proof of ownership. It starts embedded on SQLite
//! and grows to many hosts on Postgres with the same code.
//!
//! ```
//! use leasehold::prelude::*;
//!
//! async fn greet(_ctx: OpContext, name: String) -> Result<String, HandlerError> {
//!     Ok(format!("Hello, {name}!"))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = leasehold::connect("memory:").await?;
//! let engine = Engine::builder(store).handler("greet", greet).build().await?;
//! let flow = engine.client().start(Workflow::new("greeting").op(Op::new("hello", "greet").input("world"))).await?;
//! engine.run_until_idle().await?;
//! assert_eq!(flow.result::<String>("hello").await?, "Hello, world!");
//! # Ok(())
//! # }
//! ```
//!
//! - [`connect`] opens a store by URL; [`prelude`] has what most programs name.
//! - [`engine`]: [`Engine`](engine::Engine) runs handlers; [`OpContext`](engine::OpContext) is what a handler knows.
//! - [`client`]: [`Client`](client::Client) starts, repairs and reads workflows, with or without an engine.
//! - [`doctor`]: recomputes what follows from the graph and repairs it, and says why an op does not go on.
//! - [`model`], [`state`], [`store`]: values, the one transition table, and the contract of a backend.
//!
//! - `sqlite`, `postgres`: the stores themselves, for what only one of them has, such as transactions of the application's.
//!
//! # Features
//! `sqlite` (default) and `postgres` bring one backend each; `memory:` is always there.

mod connect;
pub mod prelude;

pub use connect::{ConnectError, connect, connect_existing};
pub use leasehold_core::{client, doctor, engine, memory, model, state, store, transitions};
#[cfg(feature = "postgres")]
pub use leasehold_postgres as postgres;
#[cfg(feature = "sqlite")]
pub use leasehold_sqlite as sqlite;

/// The README, whose programs are tested.
#[cfg(all(doctest, feature = "sqlite"))]
#[doc = include_str!("../README.md")]
struct Readme;
