//! What is measured, a suite a file.

mod backlog;
mod drain;
mod enqueue;
mod graph;
mod heartbeat;
mod latency;
mod recovery;
mod soak;

use crate::Failure;
use crate::args::{Settings, Suite};
use crate::floor::Drain;
use crate::place::Place;
use crate::report::{Line, Report};
use std::collections::BTreeMap;
use std::time::Duration;

/// What a suite works with, and what it has found so far.
pub(crate) struct Bench<'s> {
    pub(crate) place: Place,
    pub(crate) settings: &'s Settings,
    pub(crate) lines: Vec<Line>,
    pub(crate) notes: BTreeMap<String, String>,
}

/// Runs a suite.
pub(crate) async fn run(suite: &Suite) -> Result<Report, Failure> {
    let settings = suite.settings();
    let place = Place::open(&settings.store)?;
    let mut notes = place.settings()?;
    notes.insert("rounds".to_owned(), settings.rounds.to_string());
    let mut bench = Bench { place, settings, lines: Vec::new(), notes };
    match suite {
        Suite::Drain(_) => drain::run(&mut bench).await?,
        Suite::Enqueue(_) => enqueue::run(&mut bench).await?,
        Suite::Latency(_) => latency::run(&mut bench).await?,
        Suite::Graph(_) => graph::run(&mut bench).await?,
        Suite::Backlog(_) => backlog::run(&mut bench).await?,
        Suite::Recovery(_) => recovery::run(&mut bench).await?,
        Suite::Heartbeat(_) => heartbeat::run(&mut bench).await?,
        Suite::Soak(_) => soak::run(&mut bench).await?,
    }
    Ok(Report { suite: suite.name().to_owned(), store: bench.place.name().to_owned(), settings: bench.notes, lines: bench.lines })
}

impl Bench<'_> {
    /// A target, by store.
    pub(crate) fn by_store<T>(&self, sqlite: T, postgres: T) -> T {
        match self.place {
            Place::Sqlite { .. } => sqlite,
            Place::Postgres { .. } => postgres,
        }
    }

    /// Says on the error output what is under way.
    pub(crate) fn tell(&mut self, line: Line) {
        eprintln!("  {}: {:.0} {}, ratio {:.2}", line.name, line.engine, line.unit, line.ratio.unwrap_or(f64::NAN));
        self.lines.push(line);
    }

    /// The number of connections that suits the floor best, by a short try of each.
    pub(crate) fn best_connections(&self, ops: u64, batch: u32) -> Result<usize, Failure> {
        let mut best = (1, Duration::MAX);
        for connections in self.place.fresh().floor()?.connections() {
            let place = self.place.fresh();
            let took = place.floor()?.drain(Drain { ops, batch, connections: *connections })?;
            if took < best.1 {
                best = (*connections, took);
            }
        }
        Ok(best.0)
    }
}
