//! Ops that make one HTTP request.

mod input;
mod request;

pub(crate) use input::HttpInput;
pub(crate) use request::{HttpOutput, Requester};
