//! Races that have one right end, whatever isolation level the server gives by default (S7, S6, S9): two transitions begin
//! in the same instant on two connections, thousands of times.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use leasehold_core::client::{Op, Workflow};
use leasehold_core::model::{Micros, OpSpec, WorkflowId};
use leasehold_core::store::rows::ClaimedOp;
use leasehold_core::transitions::{ClaimRequest, Ended, Finish, TransitionError};
use leasehold_test_faults::audit::audit;
use leasehold_test_faults::database::{SCHEMA, TestDatabase};
use leasehold_test_faults::hand::{Hand, failure, setback, success};
use leasehold_test_faults::{Dice, long, seed};
use std::collections::HashMap;
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::Instant;

/// Workflows made and claimed at once.
const BATCH: usize = 100;

/// How many of 10,000 rounds a race is run for where the full size was not asked for.
const SHORT: usize = 200;

fn default_isolation(url: &str) -> String {
    #[derive(QueryableByName)]
    struct Setting {
        #[diesel(sql_type = Text)]
        setting: String,
    }
    let sql = "SELECT current_setting('transaction_isolation') AS setting";
    diesel::sql_query(sql).get_result::<Setting>(&mut PgConnection::establish(url).unwrap()).unwrap().setting
}

/// Two hands on one store, on connections whose default isolation level is the one under test.
struct Ring {
    database: TestDatabase,
    left: Hand,
    right: Hand,
    dice: Dice,
    rounds: usize,
    start: Instant,
    /// How many pairs were raced, and in how many the two were under way at the same time.
    raced: usize,
    overlapped: usize,
}

impl Ring {
    fn new(isolation: &str) -> Self {
        let database = TestDatabase::new().unwrap();
        let option = format!("-c default_transaction_isolation={}", isolation.replace(' ', "\\ "));
        let plain = database.url().clone().with("options", &option);
        assert_eq!(default_isolation(&plain.to_string()), isolation);
        let url = plain.with("schema", SCHEMA).to_string();
        let left = Hand::connect(&url, "left").unwrap();
        let right = Hand::connect(&url, "right").unwrap();
        let rounds = if long() { 10_000 } else { SHORT };
        Self { database, left, right, dice: Dice::new(seed()), rounds, start: Instant::now(), raced: 0, overlapped: 0 }
    }

    fn batches(&self) -> usize {
        self.rounds.div_ceil(BATCH)
    }

    /// Runs `left` and `right` on each item in the same instant, give or take what the dice add, so that sometimes the one
    /// and sometimes the other is ahead; returns what each answered.
    fn race<T: Sync, L: Send, R: Send>(
        &mut self,
        items: &[T],
        left: impl Fn(&Hand, &T) -> L + Send,
        right: impl Fn(&Hand, &T) -> R + Send,
    ) -> Vec<(L, R)> {
        self.race_behind(items, |_, _| (), left, right)
    }

    /// [`Ring::race`], with a step of the right hand's before each start.
    fn race_behind<T: Sync, L: Send, R: Send>(
        &mut self,
        items: &[T],
        before: impl Fn(&Hand, &T) + Send,
        left: impl Fn(&Hand, &T) -> L + Send,
        right: impl Fn(&Hand, &T) -> R + Send,
    ) -> Vec<(L, R)> {
        let delays: Vec<(u64, u64)> = items.iter().map(|_| (self.dice.roll(300), self.dice.roll(300))).collect();
        let (gate, delays) = (Gate::default(), &delays);
        let (left_hand, right_hand, gate) = (&self.left, &self.right, &gate);
        let (lefts, rights) = thread::scope(|scope| {
            let lefts = scope.spawn(move || {
                let _open = Opened(gate);
                let each = items.iter().zip(delays).map(|(item, (micros, _))| Leg::run(gate, *micros, || left(left_hand, item)));
                each.collect::<Vec<Leg<L>>>()
            });
            let _open = Opened(gate);
            let rights = items.iter().zip(delays).map(|(item, (_, micros))| {
                before(right_hand, item);
                Leg::run(gate, *micros, || right(right_hand, item))
            });
            let rights: Vec<Leg<R>> = rights.collect();
            (lefts.join().unwrap(), rights)
        });
        self.raced += items.len();
        self.overlapped += lefts.iter().zip(&rights).filter(|(left, right)| left.began < right.ended && right.began < left.ended).count();
        lefts.into_iter().zip(rights).map(|(left, right)| (left.answer, right.answer)).collect()
    }

    /// Claims everything that is ready, by workflow and op.
    fn claim(&self) -> HashMap<(WorkflowId, String), ClaimedOp> {
        let mut all = HashMap::new();
        loop {
            let ops = self.left.claim(1_000).unwrap();
            if ops.is_empty() {
                return all;
            }
            all.extend(ops.into_iter().map(|op| ((op.workflow_id.clone(), op.op_id.to_string()), op)));
        }
    }

    /// How many rows of this state there are among the ops `op` of all workflows.
    fn count(&self, op: &str, state: &str) -> usize {
        #[derive(QueryableByName)]
        struct Count {
            #[diesel(sql_type = BigInt)]
            count: i64,
        }
        let sql = format!("SELECT count(*) AS count FROM ops AS o WHERE o.id = '{op}' AND {state}");
        let count: Count = diesel::sql_query(sql).get_result(&mut self.database.connect().unwrap()).unwrap();
        usize::try_from(count.count).unwrap()
    }

    /// The whole store is as it must be, and no deadlock had to be broken.
    fn finish(self) {
        let took = self.start.elapsed();
        let summary = audit(&mut self.database.connect().unwrap(), &[]).unwrap();
        drop((self.left, self.right));
        let Self { rounds, raced, overlapped, .. } = self;
        eprintln!("{rounds} rounds in {took:?}, {overlapped} of {raced} pairs at the same time: {summary:?}");
        // On a machine with one free core they still take turns inside each other's waits.
        assert!(overlapped * 4 >= raced, "one after the other is no race");
        assert_eq!(self.database.deadlocks().unwrap(), 0, "no deadlock");
    }
}

/// Where two wait for each other, again and again; open for good once one of them is gone.
#[derive(Default)]
struct Gate {
    /// How many have come, and whether one has gone.
    state: Mutex<(u64, bool)>,
    changed: Condvar,
}

impl Gate {
    fn wait(&self) {
        let mut state = self.state.lock().unwrap();
        state.0 += 1;
        let both = state.0.next_multiple_of(2);
        self.changed.notify_all();
        let alone = |(come, gone): &mut (u64, bool)| *come < both && !*gone;
        drop(self.changed.wait_while(state, alone).unwrap());
    }
}

/// Opens the gate when its side of a race ends, also by a panic: the other would wait for ever.
struct Opened<'g>(&'g Gate);

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        self.0.state.lock().unwrap().1 = true;
        self.0.changed.notify_all();
    }
}

/// One side of a race.
struct Leg<T> {
    began: Instant,
    ended: Instant,
    answer: T,
}

impl<T> Leg<T> {
    /// Acts `micros` behind the start that both wait for.
    fn run(gate: &Gate, micros: u64, act: impl FnOnce() -> T) -> Self {
        gate.wait();
        let from = Instant::now();
        while from.elapsed().as_micros() < u128::from(micros) {
            std::hint::spin_loop();
        }
        let began = Instant::now();
        let answer = act();
        Self { began, ended: Instant::now(), answer }
    }
}

/// Ready, exactly once: what can be claimed and by one claim only.
const READY: &str = "o.status = 'open' AND o.unmet = 0 AND o.broken = 0 AND (SELECT count(*) FROM ready AS r WHERE r.op = o.seq) = 1";

fn op(id: &str) -> Op {
    Op::new(id, "k")
}

fn parts(claimed: &mut HashMap<(WorkflowId, String), ClaimedOp>, ids: &[WorkflowId], ops: [&str; 2]) -> Vec<[ClaimedOp; 2]> {
    ids.iter()
        .map(|id| ops.map(|op| claimed.remove(&(id.clone(), op.to_owned())).unwrap_or_else(|| panic!("{op} of {id} is ready"))))
        .collect()
}

fn a_diamond_closes_once(isolation: &str) {
    let mut ring = Ring::new(isolation);
    for batch in 1..=ring.batches() {
        let diamond = || Workflow::new("diamond").op(op("b")).op(op("c")).op(op("d").after_all(["b", "c"]));
        let ids = ring.left.create((0..BATCH).map(|_| diamond())).unwrap();
        let pairs = parts(&mut ring.claim(), &ids, ["b", "c"]);
        let ends = ring.race(&pairs, |hand, [b, _]| hand.finish(success(b)).unwrap(), |hand, [_, c]| hand.finish(success(c)).unwrap());
        assert!(ends.iter().all(|ends| *ends == (Ended::Succeeded, Ended::Succeeded)));
        assert_eq!(ring.count("d", READY), BATCH, "each child is ready, once (batch {batch})");
        let children: Vec<Finish> = ring.claim().values().map(success).collect();
        assert!(children.iter().all(|child| child.lease.fence.0 == 1));
        ring.right.finish_all(&children).unwrap();
    }
    ring.finish();
}

fn a_shared_subtree_is_blocked_twice_and_repaired_twice(isolation: &str) {
    let mut ring = Ring::new(isolation);
    for batch in 1..=ring.batches() {
        let flow = || {
            let shared = Workflow::new("shared").op(op("b")).op(op("c")).op(op("d").after_all(["b", "c"]));
            shared.op(op("e").after("d")).op(op("f").after("d").after("c")).op(op("g").after_all(["e", "f"]))
        };
        let ids = ring.left.create((0..BATCH).map(|_| flow())).unwrap();
        let pairs = parts(&mut ring.claim(), &ids, ["b", "c"]);
        ring.race(&pairs, |hand, [b, _]| hand.finish(failure(b)).unwrap(), |hand, [_, c]| hand.finish(failure(c)).unwrap());
        assert_eq!(ring.count("d", "o.status = 'blocked' AND o.broken = 2"), BATCH, "batch {batch}");
        assert_eq!(ring.count("g", "o.status = 'blocked' AND o.broken = 2"), BATCH);

        ring.race(&ids, |hand, id| hand.retry(id, "b").unwrap(), |hand, id| hand.retry(id, "c").unwrap());
        for below in ["d", "e", "f", "g"] {
            let waiting = "o.status = 'pending' AND o.broken = 0 AND o.unmet > 0";
            assert_eq!(ring.count(below, waiting), BATCH, "{below} waits again (batch {batch})");
        }
        // One fails again while the other succeeds; then that one is repaired too.
        let pairs = parts(&mut ring.claim(), &ids, ["b", "c"]);
        ring.race(&pairs, |hand, [b, _]| hand.finish(failure(b)).unwrap(), |hand, [_, c]| hand.finish(success(c)).unwrap());
        assert_eq!(ring.count("d", "o.status = 'blocked' AND o.broken = 1 AND o.unmet = 1"), BATCH);
        for id in &ids {
            ring.left.retry(id, "b").unwrap();
        }
        let repaired: Vec<Finish> = ring.claim().values().map(success).collect();
        ring.left.finish_all(&repaired).unwrap();
        assert_eq!(ring.count("d", READY), BATCH);
        for id in &ids {
            ring.left.cancel(id).unwrap();
        }
    }
    ring.finish();
}

fn a_child_added_while_its_parent_ends_is_woken(isolation: &str) {
    let mut ring = Ring::new(isolation);
    for batch in 1..=ring.batches() {
        // The second op keeps the workflow running, whoever is first.
        let ids = ring.left.create((0..BATCH).map(|_| Workflow::new("grown").op(op("p")).op(op("keep")))).unwrap();
        let pairs = parts(&mut ring.claim(), &ids, ["p", "keep"]);
        let child = |id: &str| -> OpSpec { op(id).after("p").build().unwrap() };
        let ends = ring.race(
            &pairs,
            |hand, [p, _]| hand.finish(success(p)).unwrap(),
            |hand, [p, _]| hand.add(&p.workflow_id, vec![child("new"), op("newer").after("new").build().unwrap()]).unwrap(),
        );
        assert!(ends.iter().all(|(ended, added)| *ended == Ended::Succeeded && added.len() == 2));
        assert_eq!(ring.count("new", READY), BATCH, "each added child is ready, once (batch {batch})");

        // A child added at the moment its parent fails is blocked, and wakes with the repair.
        let ends = ring.race(
            &pairs,
            |hand, [_, keep]| hand.finish(failure(keep)).unwrap(),
            |hand, [keep, _]| hand.add(&keep.workflow_id, vec![op("late").after("keep").build().unwrap()]).unwrap(),
        );
        assert!(ends.iter().all(|(ended, _)| matches!(ended, Ended::Failed { .. })));
        assert_eq!(ring.count("late", "o.status = 'blocked' AND o.broken = 1"), BATCH);
        for id in &ids {
            ring.right.cancel(id).unwrap();
        }
    }
    ring.finish();
}

fn a_cancel_wins_or_comes_too_late_and_nothing_survives_it(isolation: &str) {
    let mut ring = Ring::new(isolation);
    let (mut completed, mut promoted, mut claimed) = (0, 0, 0);
    for batch in 1..=ring.batches() {
        // A kind of its own, so that the right hand claims nothing of another workflow.
        let flow = |at: usize| {
            let op = |id: &str| Op::new(id, format!("k{at}"));
            let flow = Workflow::new("canceled").metadata(&at).op(op("run")).op(op("again"));
            flow.op(op("next").after("run")).op(op("last").after("next"))
        };
        let ids = ring.left.create((0..BATCH).map(flow)).unwrap();
        let pairs = parts(&mut ring.claim(), &ids, ["run", "again"]);
        let ends = ring.race_behind(
            &pairs,
            // "again" waits for its next attempt, due at once: on its way from `delayed` through `ready` to a lease.
            |hand, [_, again]| {
                let ended = hand.finish(setback(again, Micros::new(1).unwrap())).unwrap();
                assert!(matches!(ended, Ended::Retried { .. }), "{ended:?}");
            },
            |hand, [run, _]| hand.cancel(&run.workflow_id).unwrap(),
            |hand, [run, _]| {
                let claim = || {
                    let promoted = hand.promote(1).unwrap();
                    let request = ClaimRequest { kinds: Some(vec![run.kind.clone()]), ..hand.claim_request(10) };
                    (promoted, hand.claim_with(&request).unwrap().ops)
                };
                // Now the claim is next to the cancel, now the completion.
                if run.lease.key.op.0 % 3 == 0 {
                    let ended = hand.finish(success(run)).unwrap();
                    (ended, claim())
                } else {
                    let claim = claim();
                    (hand.finish(success(run)).unwrap(), claim)
                }
            },
        );
        for (canceled, (ended, (moved, taken))) in ends {
            match ended {
                Ended::Succeeded => completed += 1,
                Ended::LeaseLost => {}
                other => panic!("completing an op of a workflow that is canceled: {other:?}"),
            }
            assert!(canceled.ops >= 2, "the last two never ran");
            promoted += moved;
            claimed += taken.iter().filter(|op| op.op_id.as_str() == "again").count();
            // Whatever was claimed is revoked.
            for op in &taken {
                assert!(op.op_id.as_str() != "next" || ended == Ended::Succeeded, "its parent had not succeeded");
                assert_eq!(ring.right.finish(success(op)).unwrap(), Ended::LeaseLost);
            }
        }
        for table in ["ready", "delayed", "leases"] {
            let here = format!("EXISTS (SELECT 1 FROM {table} AS t WHERE t.op = o.seq)");
            for op in ["run", "again", "next", "last"] {
                assert_eq!(ring.count(op, &here), 0, "{op} survived in {table} (batch {batch})");
            }
        }
        // Nothing can be added to it, or retried in it.
        let id = ids.first().unwrap();
        assert!(matches!(ring.left.add(id, vec![op("x").build().unwrap()]), Err(TransitionError::WorkflowStatus { .. })));
        assert!(matches!(ring.left.retry(id, "again"), Err(TransitionError::WorkflowStatus { .. })));
    }
    eprintln!("of {} rounds {completed} completions, {promoted} promotions and {claimed} claims were first", ring.rounds);
    let won_some = |count: usize| count > 0 && count < ring.rounds;
    assert!(won_some(completed) && won_some(promoted as usize) && won_some(claimed), "each race was one");
    ring.finish();
}

/// A race as a test for each default isolation level.
macro_rules! at_each_isolation_level {
    ($($race:ident),*) => {
        mod read_committed { $(#[test] fn $race() { super::$race("read committed"); })* }
        mod repeatable_read { $(#[test] fn $race() { super::$race("repeatable read"); })* }
        mod serializable { $(#[test] fn $race() { super::$race("serializable"); })* }
    };
}

at_each_isolation_level!(
    a_diamond_closes_once,
    a_shared_subtree_is_blocked_twice_and_repaired_twice,
    a_child_added_while_its_parent_ends_is_woken,
    a_cancel_wins_or_comes_too_late_and_nothing_survives_it
);
