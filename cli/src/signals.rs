//! SIGINT and SIGTERM.
//!
//! SIGHUP is left alone: listening to it would undo `nohup`. A run whose terminal goes away is killed like by SIGKILL, which
//! it survives as well.

use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens from its making on; a signal in between is not lost.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// The name of the next one.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}
