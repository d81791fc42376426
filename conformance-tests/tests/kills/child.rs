//! The process that is killed.

use crate::boundary::{Boundary, REACHED, Side};
use crate::place::Ground;
use crate::verb::{Call, Verb};
use leasehold_core::store::BoxError;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;

const VERB: &str = "LEASEHOLD_TEST_KILL_VERB";
const SIDE: &str = "LEASEHOLD_TEST_KILL_SIDE";
const URL: &str = "LEASEHOLD_TEST_KILL_URL";

/// What a child is told.
pub(crate) struct Order {
    verb: Verb,
    side: Side,
    url: String,
}

impl Order {
    pub(crate) fn from_environment() -> Option<Self> {
        let verb = Verb::from_name(&std::env::var(VERB).ok()?)?;
        Some(Self { verb, side: Side::from_name(&std::env::var(SIDE).ok()?)?, url: std::env::var(URL).ok()? })
    }

    /// Performs the verb up to the boundary and waits there for its end.
    pub(crate) fn obey(self) -> ! {
        let inner = Ground::open_at(&self.url).unwrap();
        let call = Call::read(self.verb, inner.as_ref()).unwrap();
        let store = Arc::new(Boundary { inner, side: self.side });
        let answer = call.perform(store.as_ref(), false);
        panic!("the verb ended without a commit: {answer:?}");
    }
}

/// Starts a child, waits until it stands at the boundary, and kills it.
pub(crate) fn run_to_its_death(ground: &Ground, verb: Verb, side: Side) -> Result<(), BoxError> {
    let mut child = Command::new(std::env::current_exe()?)
        .env(VERB, verb.name())
        .env(SIDE, side.name())
        .env(URL, ground.url()?)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().ok_or("the child has no output")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    // SIGKILL: nothing of it runs any more.
    child.kill()?;
    child.wait()?;
    if line.trim() == REACHED { Ok(()) } else { Err(format!("the child died before the boundary: {line:?}").into()) }
}
