//! Several stores that go through one history together.

use super::chance::Chance;
use super::command::{Act, Command};
use super::graph::{QUEUES, RETRY, graph};
use super::shown::shown;
use crate::scenario::{LEASE, json, name};
use crate::verbs::{abandonment, claim_request, completion, failure, giving_back, limit, permanent_failure, rate, suspension};
use crate::{Opened, Outcome, Planted, World, start};
use leasehold_core::memory::MemoryStore;
use leasehold_core::model::{Micros, QueuePolicy, Record, WorkflowId, WorkflowSpec};
use leasehold_core::store::rows::{ClaimedOp, LeaseKey};
use leasehold_core::store::{BoxError, Clock, ManualClock, Store};
use leasehold_core::transitions::{ClaimRequest, End, Finish, HeartbeatOutcome, OpVerdict, RetryTarget, Until};
use std::fmt::Debug;
use std::sync::Arc;

/// Stores that go through the same histories; the first is the one that the others are held against.
#[derive(Debug)]
pub struct Lockstep {
    worlds: Vec<(String, World)>,
    /// What workers hold: of each lease the one in every store, in turn.
    held: Vec<Vec<ClaimedOp>>,
    workflows: Vec<WorkflowId>,
    made: usize,
    additions: usize,
    /// What the first of this history's workflows is numbered behind.
    before: usize,
}

/// The in-memory store, which says what is right.
pub fn specification() -> World {
    let clock = Arc::new(ManualClock::at(start()));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::clone(&clock) as Arc<dyn Clock>));
    World::new(Opened::new(store, clock))
}

impl Lockstep {
    /// Stores that are empty and whose clocks stand alike, each with a name for messages.
    pub fn new(worlds: Vec<(String, World)>) -> Self {
        Self { worlds, held: Vec::new(), workflows: Vec::new(), made: 0, additions: 0, before: 0 }
    }

    /// Ends whatever an earlier history left, so that another can begin on the same stores.
    ///
    /// # Errors
    /// A store's.
    pub fn clear(&mut self) -> Outcome {
        let policies: Vec<QueuePolicy> = QUEUES.iter().map(|queue| QueuePolicy::unlimited(name(*queue))).collect();
        let latest = self.worlds.iter().map(|(_, world)| world.now()).max().unwrap_or_else(start);
        for (_, world) in &self.worlds {
            for id in &self.workflows {
                // What has succeeded needs no end.
                if let Ok(planted) = Planted::find(world, id) {
                    let _ = world.cancel(&planted);
                }
            }
            world.set_policies(&policies)?;
            world.clock().set(latest)?;
        }
        self.held.clear();
        self.workflows.clear();
        self.before = self.made;
        Ok(())
    }

    /// Runs a history, and compares what is stored after each `compare_each` commands and at the end.
    ///
    /// # Errors
    /// Where the stores differ, with the number of the command.
    pub fn run(&mut self, history: &[Command], compare_each: usize) -> Outcome {
        for (at, command) in history.iter().enumerate() {
            let told = |error: BoxError| BoxError::from(format!("command {at} ({command:?}): {error}"));
            self.step(*command).map_err(told)?;
            if (at + 1).is_multiple_of(compare_each) {
                self.compare().map_err(told)?;
            }
        }
        self.compare()
    }

    /// Runs one command on every store.
    ///
    /// # Errors
    /// What differs.
    pub fn step(&mut self, command: Command) -> Outcome {
        let mut chance = Chance(command.seed);
        match command.act {
            Act::Create => self.create(&mut chance),
            Act::Claim => self.claim(&mut chance),
            Act::Finish => self.finish(&mut chance),
            Act::Heartbeat => self.heartbeat(),
            Act::Recover => self.recover(),
            Act::Wake => self.wake(),
            Act::Dispatch => self.dispatch(&mut chance),
            Act::Operate => self.operate(&mut chance),
            Act::Limit => self.limit(&mut chance),
            Act::PassTime => self.pass_time(&mut chance),
        }
    }

    /// Holds all that is stored of this history against the first store.
    ///
    /// # Errors
    /// The first line that differs.
    pub fn compare(&self) -> Outcome {
        let newest = u32::try_from(self.made - self.before)?;
        let mut expected: Option<Vec<String>> = None;
        for (store, world) in &self.worlds {
            let lines = shown(world, newest)?;
            let Some(expected) = &expected else {
                expected = Some(lines);
                continue;
            };
            let differs = lines.iter().zip(expected).find(|(real, expected)| real != expected);
            if let Some((real, expected)) = differs {
                return Err(format!("{store} differs:\n  it has   {real}\n  expected {expected}").into());
            }
            if lines.len() != expected.len() {
                return Err(format!("{store} has {} lines, {} were expected", lines.len(), expected.len()).into());
            }
        }
        Ok(())
    }

    /// Runs the same on all; the answers must be equal, refusals too. A refusal is an answer: it is `None`.
    fn all<T: PartialEq + Debug>(&self, what: &str, verb: impl Fn(usize, &World) -> Result<T, BoxError>) -> Result<Option<T>, BoxError> {
        let mut expected: Option<Result<T, String>> = None;
        for (at, (store, world)) in self.worlds.iter().enumerate() {
            let real = verb(at, world).map_err(|error| error.to_string());
            let Some(expected) = &expected else {
                expected = Some(real);
                continue;
            };
            if real != *expected {
                return Err(format!("{what}: {store} answers {real:?}, expected {expected:?}").into());
            }
        }
        Ok(expected.and_then(Result::ok))
    }

    fn planted(&self, chance: &mut Chance) -> Result<Option<Planted>, BoxError> {
        let Some((_, first)) = self.worlds.first() else { return Ok(None) };
        chance.pick(&self.workflows).map(|id| Planted::find(first, id)).transpose()
    }

    fn create(&mut self, chance: &mut Chance) -> Outcome {
        self.made += 1;
        let Some((_, first)) = self.worlds.first() else { return Ok(()) };
        let spec: WorkflowSpec = graph(chance, "a", &[]).id(&format!("w{}", self.made)).spec(first);
        self.all("create", |_, w| Ok(w.create(spec.clone())?))?;
        self.workflows.push(spec.id);
        Ok(())
    }

    fn claim(&mut self, chance: &mut Chance) -> Outcome {
        let capacity = u32::try_from(1 + chance.below(6))?;
        let kinds = chance.one_in(3).then(|| vec![name(format!("k{}", chance.below(3)))]);
        let request = ClaimRequest { kinds, ..claim_request("w1", capacity) };
        let got = std::cell::RefCell::new(Vec::new());
        self.all("claim", |_, w| {
            let mut ops = w.claim_with(&request)?.ops;
            ops.sort_by(|a, b| (&a.workflow_id, &a.op_id).cmp(&(&b.workflow_id, &b.op_id)));
            let show = |op: &ClaimedOp| {
                let (lease, due_at) = (&op.lease, op.due_at);
                format!("{}/{} {:?} {} {} {due_at}", op.workflow_id, op.op_id, lease.key.fence, lease.expires_at, op.failures)
            };
            let told: Vec<String> = ops.iter().map(show).collect();
            got.borrow_mut().push(ops);
            Ok(told)
        })?;
        let mut stores: Vec<std::vec::IntoIter<ClaimedOp>> = got.into_inner().into_iter().map(Vec::into_iter).collect();
        loop {
            let lease: Vec<ClaimedOp> = stores.iter_mut().filter_map(Iterator::next).collect();
            if lease.is_empty() {
                return Ok(());
            }
            self.held.push(lease);
        }
    }

    /// Ends some of what is held, alive or not, each in its own way.
    fn finish(&mut self, chance: &mut Chance) -> Outcome {
        let mut batches: Vec<Vec<Finish>> = vec![Vec::new(); self.worlds.len()];
        for _ in 0..=chance.below(4) {
            if self.held.is_empty() {
                break;
            }
            let lease = self.held.swap_remove(chance.below(self.held.len()));
            let how = chance.below(12);
            for (batch, claimed) in batches.iter_mut().zip(&lease) {
                batch.push(match how {
                    0 | 1 => failure(claimed),
                    2 => permanent_failure(claimed),
                    3 => giving_back(claimed),
                    4 => suspension(claimed, Until::For(Micros::from_secs(5))),
                    5 => abandonment(claimed),
                    _ => recording(claimed),
                });
            }
            if chance.one_in(4) {
                // It is tried again later, as after a lost reply.
                self.held.push(lease);
            }
        }
        self.all("finish", |at, w| Ok(w.finish(batches.get(at).map(Vec::as_slice).unwrap_or_default())?)).map(drop)
    }

    fn heartbeat(&self) -> Outcome {
        self.all("heartbeat", |at, w| {
            let keys: Vec<LeaseKey> = self.held.iter().filter_map(|lease| lease.get(at)).map(|claimed| claimed.lease.key).collect();
            let show = |outcome: &HeartbeatOutcome| match outcome {
                HeartbeatOutcome::Held(lease) => format!("held until {}", lease.expires_at),
                other => format!("{other:?}"),
            };
            Ok(w.heartbeat(&keys)?.iter().map(show).collect::<Vec<_>>())
        })
        .map(drop)
    }

    /// Dispatches some of what is held, alive or not.
    fn dispatch(&self, chance: &mut Chance) -> Outcome {
        let some: Vec<&Vec<ClaimedOp>> = self.held.iter().filter(|_| chance.one_in(2)).collect();
        self.all("dispatch", |at, w| {
            let keys: Vec<LeaseKey> = some.iter().filter_map(|lease| lease.get(at)).map(|claimed| claimed.lease.key).collect();
            Ok(w.dispatch(&keys)?)
        })
        .map(drop)
    }

    /// A verdict on the last attempt of any op, whether one is wanted or not.
    fn settle(&self, of: &Planted, op: &str, how: usize) -> Outcome {
        let verdict = match how {
            0 => OpVerdict::Retry,
            1 => OpVerdict::Succeed { result: json("[2]") },
            _ => OpVerdict::Fail { message: "no".to_owned() },
        };
        self.all("settle", |_, w| {
            let found = Planted::find(w, &of.id)?;
            let fence = w.view(found.op(op))?.state.fence;
            Ok(w.settle(&found, op, fence, verdict.clone())?)
        })
        .map(drop)
    }

    fn recover(&self) -> Outcome {
        // All of them: which of those that expired at one instant come first is a store's own affair.
        self.all("recover", |_, w| {
            let mut ops: Vec<String> = w.recover(10_000)?.ops.iter().map(|op| format!("{}/{} {}", op.workflow, op.op, op.status)).collect();
            ops.sort();
            Ok(ops)
        })
        .map(drop)
    }

    fn wake(&self) -> Outcome {
        self.all("wake", |_, w| {
            let show = |op: &leasehold_core::transitions::WokenOp| format!("{}/{} {:?}", op.workflow, op.op, op.wait.fence);
            let mut ops: Vec<String> = w.wake(10_000)?.ops.iter().map(show).collect();
            ops.sort();
            Ok(ops)
        })
        .map(drop)
    }

    fn operate(&mut self, chance: &mut Chance) -> Outcome {
        let Some(planted) = self.planted(chance)? else { return Ok(()) };
        let find = |w: &World| Planted::find(w, &planted.id);
        let ids: Vec<String> = planted.ops.keys().cloned().collect();
        match chance.below(11) {
            0 => self
                .all("cancel", |_, w| {
                    let canceled = w.cancel(&find(w)?)?;
                    Ok((canceled.ops, canceled.running))
                })
                .map(drop),
            1..=3 => self
                .all("retry all", |_, w| {
                    let mut ops = w.retry(&find(w)?, RetryTarget::AllFailed)?;
                    ops.sort();
                    Ok(ops)
                })
                .map(drop),
            4 | 5 => {
                let op = chance.pick(&ids).cloned().unwrap_or_default();
                self.all("retry", |_, w| Ok(w.retry_op(&find(w)?, &op)?)).map(drop)
            }
            6..=8 => {
                let op = chance.pick(&ids).cloned().unwrap_or_default();
                self.settle(&planted, &op, chance.below(3))
            }
            _ => {
                self.additions += 1;
                let mut added = graph(chance, &format!("b{}.", self.additions), &ids);
                if chance.one_in(3)
                    && let Some(target) = chance.pick(&ids)
                {
                    added = added.op(&format!("b{}.before", self.additions)).before(&[target]).retry(RETRY);
                }
                self.all("add", |_, w| {
                    let show = |op: &leasehold_core::transitions::AddedOp| format!("{} {} {} {}", op.id, op.holder, op.status, op.created);
                    let mut told: Vec<String> = w.add(&find(w)?, &added)?.iter().map(show).collect();
                    told.sort();
                    Ok(told)
                })
                .map(drop)
            }
        }
    }

    fn limit(&self, chance: &mut Chance) -> Outcome {
        let queue = chance.pick(&QUEUES).copied().unwrap_or("p");
        let policy = if chance.one_in(2) {
            limit(queue, u32::try_from(chance.below(4))?)
        } else {
            rate(queue, 0.5, u32::try_from(1 + chance.below(3))?)
        };
        self.all("policy", |_, w| Ok(w.set_policies(std::slice::from_ref(&policy))?)).map(drop)
    }

    fn pass_time(&self, chance: &mut Chance) -> Outcome {
        let by = Micros::new(1 + i64::try_from(chance.below(9_000_000))?)?;
        for (_, w) in &self.worlds {
            match by.get() % 13 {
                0 => w.clock().go_back(Micros::new(by.get() % 2_000_000 + 1)?)?,
                1 => w.clock().advance(LEASE)?,
                _ => w.clock().advance(by)?,
            }
        }
        Ok(())
    }
}

/// A completion that leaves a record.
fn recording(claimed: &ClaimedOp) -> Finish {
    let record = Record { collection: name("c"), key: name(claimed.op_id.as_str()), value: json(&claimed.lease.key.fence.0.to_string()) };
    let end = End::Complete { result: json("[1]"), artifacts: Vec::new(), records: vec![record], emitted: None };
    Finish { end, ..completion(claimed, "0") }
}
