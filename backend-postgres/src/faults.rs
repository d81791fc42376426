//! Statements that are broken on purpose, each in one way: what the conformance suite must notice (B6).
//!
//! Only with the feature `faults`, which nothing but this workspace's tests turns on; no URL and no setting reaches it.

use crate::claim::{CLAIM, COUNT_GATES, LOCK_GATES};
use crate::connection::lock;
use crate::graph::{DOWNSTREAM_CHILDREN, LOCK_FREE_WORKFLOWS, LOCK_WORKFLOWS};
use crate::lease::{CLEAR_DELAYED, CLEAR_LEASES, CLEAR_READY, EXTEND_LEASES, TAKE_LIVE_LEASES};
use leasehold_sql::lease_columns;
use std::collections::HashMap;
use std::fmt;
use std::sync::{LazyLock, Mutex};

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident killed_by $case:ident;)*) => {
        /// One way to break the statements.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Fault {
            $($(#[$doc])* $name,)*
        }
        impl Fault {
            /// Every fault.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The conformance case that must fail on it.
            pub const fn killed_by(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($case),)*
                }
            }
        }
    };
}

faults! {
    /// A workflow is read where it is to be locked.
    LockLeftOut killed_by an_end_beside_an_open_end_leaves_their_child_ready;
    /// The dependents of an op are read by the statement that waits for their workflow, and so as they were before.
    DependentsReadInTheLockingStatement killed_by an_end_beside_an_open_end_leaves_their_child_ready;
    /// A claim waits for rows that another took.
    SkipLockedLeftOut killed_by a_claim_passes_over_what_an_open_claim_took;
    /// A workflow that was to be left out is waited for.
    HeldWorkflowWaitedFor killed_by a_workflow_that_is_held_is_left_out_or_waited_for_but_briefly;
    /// Leases are counted by the statement that waits for their gate.
    LimitCountedInTheLockingStatement killed_by a_limit_holds_beside_an_open_claim;
    /// A completion is judged by the time at which it began to wait for its lease.
    ClockReadBeforeTheWait killed_by a_completion_is_judged_behind_the_lease_it_waited_for;
    /// A heartbeat is judged so.
    HeartbeatClockReadBeforeTheWait killed_by a_heartbeat_is_judged_behind_the_lease_it_waited_for;
    /// A lease's fence is counted on from the op's row.
    FenceFromTheOpsRow killed_by a_fence_comes_from_the_queue_and_not_from_the_op;
    /// A cancel clears all three tables at once, and misses what moves from one to the next.
    CancelByOnePass killed_by nothing_is_leased_behind_a_cancel_that_met_an_open_claim;
    /// The same, seen where a promotion moves.
    PromotedBehindOnePass killed_by nothing_is_ready_behind_a_cancel_that_met_an_open_promotion;
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What `fault` makes of the statement `sound`.
pub(crate) fn broken(fault: Fault, sound: &'static str) -> &'static str {
    // A text is made once, so that its prepared statement is kept like any other's.
    static TEXTS: LazyLock<Mutex<HashMap<(Fault, &'static str), &'static str>>> = LazyLock::new(Mutex::default);
    lock(&TEXTS).entry((fault, sound)).or_insert_with(|| rewrite(fault, sound).map_or(sound, |text| text.leak()))
}

fn rewrite(fault: Fault, sound: &'static str) -> Option<String> {
    let text = match (fault, sound) {
        (Fault::LockLeftOut | Fault::DependentsReadInTheLockingStatement, LOCK_WORKFLOWS) => without(sound, " FOR NO KEY UPDATE"),
        (Fault::DependentsReadInTheLockingStatement, DOWNSTREAM_CHILDREN) => replaced(
            sound,
            "SELECT d.parent",
            "WITH held AS MATERIALIZED (
                 SELECT w.seq FROM workflows AS w WHERE w.seq IN (SELECT workflow FROM ops WHERE seq = ANY($1))
                  ORDER BY w.seq FOR NO KEY UPDATE),
             locked AS MATERIALIZED (SELECT count(*) AS rows FROM held)
             SELECT d.parent",
        )
        .replacen(" FROM (SELECT DISTINCT", " FROM locked CROSS JOIN (SELECT DISTINCT", 1),
        (Fault::SkipLockedLeftOut, CLAIM) | (Fault::HeldWorkflowWaitedFor, LOCK_FREE_WORKFLOWS) => without(sound, " SKIP LOCKED"),
        (Fault::LimitCountedInTheLockingStatement, LOCK_GATES) => without(sound, " FOR NO KEY UPDATE SKIP LOCKED"),
        (Fault::LimitCountedInTheLockingStatement, COUNT_GATES) => format!("{sound} FOR NO KEY UPDATE OF l"),
        (Fault::ClockReadBeforeTheWait, TAKE_LIVE_LEASES) | (Fault::HeartbeatClockReadBeforeTheWait, EXTEND_LEASES) => clock_first(sound),
        (Fault::FenceFromTheOpsRow, CLAIM) => {
            replaced(&replaced(sound, "t.fence + 1", "o.fence + 1"), "SELECT workflow, id,", "SELECT fence, workflow, id,")
        }
        (Fault::CancelByOnePass | Fault::PromotedBehindOnePass, CLEAR_DELAYED | CLEAR_READY) => NOTHING.to_owned(),
        (Fault::CancelByOnePass | Fault::PromotedBehindOnePass, CLEAR_LEASES) => CLEAR_ALL.to_owned(),
        _ => return None,
    };
    Some(text)
}

/// The clock is asked for before the first lease is locked, and its answer kept.
fn clock_first(sound: &str) -> String {
    let text = replaced(sound, "WITH held", "WITH early AS MATERIALIZED (SELECT now_us() AS us), held");
    let text = replaced(&text, "FROM unnest", "FROM early CROSS JOIN unnest");
    replaced(&text, "SELECT now_us() AS us FROM (SELECT count(*)", "SELECT early.us FROM early, (SELECT count(*)")
}

fn without(sound: &str, part: &str) -> String {
    replaced(sound, part, "")
}

/// A fault that changes nothing would look like a suite that notices nothing.
fn replaced(sound: &str, part: &str, by: &str) -> String {
    assert!(sound.contains(part), "the statement does not hold {part:?} any more: {sound}");
    sound.replace(part, by)
}

const NOTHING: &str = "SELECT 1 WHERE $1::bigint[] IS NULL";

const CLEAR_ALL: &str = concat!(
    "WITH later AS (DELETE FROM delayed WHERE op = ANY(ARRAY(SELECT seq FROM ops WHERE workflow = ANY($1)))),
          now AS (DELETE FROM ready WHERE op = ANY(ARRAY(SELECT seq FROM ops WHERE workflow = ANY($1))))
     DELETE FROM leases WHERE workflow = ANY($1) RETURNING ",
    lease_columns!()
);
