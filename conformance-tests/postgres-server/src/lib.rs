//! A Postgres for Leasehold's tests, found or started in one of three ways:
//!
//! 1. the server whose URL is in `LEASEHOLD_TEST_POSTGRES_URL`;
//! 2. a container of the image in `LEASEHOLD_TEST_POSTGRES_IMAGE` (by default an official one), where a Docker daemon
//!    answers and has the image or can get it, and this crate was built with its feature `container`;
//! 3. a private cluster in a temporary folder, from server binaries found on this machine.
//!
//! `LEASEHOLD_TEST_POSTGRES=url|container|binaries` insists on one. Where none works the tests fail with what was tried
//! and what to install; they never pass by skipping. There is one [`Server`] a process, which goes away with it, also when it is
//! killed. Each test has a [`TestSchema`] of its own, dropped at its end, and may put a [`DatabaseClock`] in the place of
//! the database's.

mod clock;
mod cluster;
#[cfg(feature = "container")]
mod container;
mod schema;
mod server;
mod watchdog;

pub use clock::DatabaseClock;
pub use cluster::Cluster;
pub use schema::TestSchema;
pub use server::{NoServer, Server};
