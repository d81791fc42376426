//! The real program, driven as people and scripts drive it.
#![expect(clippy::unwrap_used, reason = "what is not there fails the test, and that is the point")]

mod bad_files;
mod clock;
mod doctor;
mod examples;
mod http;
mod operate;
mod orders;
mod run;
mod sandbox;
mod shell;
mod stores;
