//! The walk over all states.

use super::act::Act;
use super::check::{Denied, denied, state_holds, step_holds};
use super::picture::Picture;
use super::state::{Bounds, State};
use crate::Scenario;
use crate::mutants::Mutant;
use crate::verbs::{IN_THE_WAY, completion};
use leasehold_core::model::{Backoff, Effect, Jitter, Micros, RetryPolicy};
use leasehold_core::store::BoxError;
use leasehold_core::transitions::Finish;
use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Two attempts, two losses, and no chance.
pub(super) const RETRY: RetryPolicy = RetryPolicy {
    max_attempts: 2,
    backoff: Backoff::Fixed,
    base: Micros::from_secs(30),
    cap: Micros::from_secs(30),
    jitter: Jitter::None,
    max_lost: 2,
    effect: Effect::Repeatable,
};

/// A graph whose ops get two attempts and are given up after two lost workers.
#[must_use]
pub fn retried(mut graph: Scenario) -> Scenario {
    graph.ops.iter_mut().for_each(|op| op.spec.retry = RETRY);
    graph
}

/// What an exploration has seen.
#[derive(Debug, Clone, Copy, Default)]
pub struct Explored {
    /// Different states.
    pub states: usize,
    /// Acts that were run.
    pub acts: usize,
    /// States that were driven to the end of their workflow.
    pub driven: usize,
    /// Whether that was all there is within the bounds.
    pub complete: bool,
}

/// A history that must not be, the shortest there is.
#[derive(Debug)]
pub struct Broken {
    /// What is wrong at its end.
    pub what: String,
    /// What happened, from the first state on.
    pub trail: Vec<Act>,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} after {:?}", self.what, self.trail)
    }
}
impl std::error::Error for Broken {}

/// How a state was reached: the act, and the place of the state before it.
type Way = Option<(usize, Act)>;

/// Runs everything that can happen on `graph` within `bounds`, on a store broken by `mutant` if there is one.
///
/// # Errors
/// The shortest history at whose end something is wrong.
pub fn explore(graph: &Scenario, bounds: &Bounds, mutant: Option<Mutant>) -> Result<Explored, Broken> {
    let mut ways: Vec<Way> = vec![None];
    let first = State::first(graph, bounds, mutant).map_err(|error| broken(&ways, None, &error))?;
    let picture = first.picture().map_err(|error| broken(&ways, None, &error))?;
    let mut seen: HashSet<u64> = HashSet::from([first.fingerprint(&picture)]);
    let mut explored = Explored { states: 1, complete: true, ..Explored::default() };
    let mut open: VecDeque<(usize, State, Picture)> = VecDeque::from([(0, first, picture)]);
    while let Some((at, state, picture)) = open.pop_front() {
        for act in Act::possible(&state, &picture, bounds) {
            explored.acts += 1;
            let way = Some((at, act));
            let (next, after) = guarded(|| step(act, &state, &picture)).map_err(|error| broken(&ways, way, &error))?;
            if !seen.insert(next.fingerprint(&after)) {
                continue;
            }
            explored.states += 1;
            guarded(|| state_holds(&next, &after)).map_err(|error| broken(&ways, way, &error))?;
            if explored.states.is_multiple_of(bounds.drive_each) {
                explored.driven += 1;
                guarded(|| drive(&next)).map_err(|error| broken(&ways, way, &error))?;
            }
            ways.push(way);
            if explored.states >= bounds.states {
                return Ok(Explored { complete: false, ..explored });
            }
            open.push_back((ways.len() - 1, next, after));
        }
    }
    Ok(explored)
}

/// A debug assertion of the engine is a finding like any other.
fn guarded<T>(run: impl FnOnce() -> Result<T, Denied>) -> Result<T, Denied> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(text.unwrap_or_else(|| "a panic".to_owned()).into())
    })
}

fn step(act: Act, state: &State, picture: &Picture) -> Result<(State, Picture), Denied> {
    let next = act.apply(state, picture)?;
    let after = next.picture()?;
    step_holds(picture, &after)?;
    if matches!(act, Act::CompleteCutOff(_)) {
        denied(state.fingerprint(picture) != next.fingerprint(&after), "a transaction that was cut off left something behind")?;
    }
    Ok((next, after))
}

/// From everywhere some way leads to the end: dead workers are recovered, and all there is gets done.
fn drive(from: &State) -> Result<(), BoxError> {
    /// More than the ops, their attempts and losses together.
    const ROUNDS_MAX: usize = 40;
    let (mut state, mut world) = from.fork(from.now);
    for _ in 0..ROUNDS_MAX {
        let picture = state.picture()?;
        if picture.workflow.is_ended() && picture.ops.iter().all(|op| op.view.lease.is_none()) {
            return Ok(());
        }
        // Both hold while the clock is behind; it steps on below.
        world.recover_by(IN_THE_WAY, 100)?;
        world.wake_by(IN_THE_WAY, 100)?;
        let batch: Vec<Finish> = world.claim("driver", 100)?.iter().map(|op| completion(op, "1")).collect();
        if batch.is_empty() {
            (state, world) = state.fork(state.later());
        } else {
            world.finish(&batch)?;
        }
    }
    Err("no way leads from here to the end of the workflow".into())
}

fn broken(ways: &[Way], last: Way, error: &BoxError) -> Broken {
    let mut trail = Vec::new();
    let mut way = last;
    while let Some((before, act)) = way {
        trail.push(act);
        way = ways.get(before).copied().flatten();
    }
    trail.reverse();
    let mut what = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        what = format!("{what}: {error}");
        cause = error.source();
    }
    Broken { what, trail }
}
