//! Stores that are broken on purpose, each in one way: a suite that lets one pass has a case too few (B6).

mod kill;
mod tx;

pub use kill::{Broken, run_broken, run_mutants};

use crate::{Harness, Opened};
use leasehold_core::store::{BoxError, Hints, Store, StoreInfo, StoreResult, Tx, TxKind};
use std::fmt;
use std::sync::Arc;
use tx::MutantTx;

macro_rules! mutants {
    ($($(#[$doc:meta])* $name:ident killed_by $case:ident;)*) => {
        /// One way to break a store.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Mutant {
            $($(#[$doc])* $name,)*
        }
        impl Mutant {
            /// Every mutant.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The case that is named for it and must fail on it.
            pub const fn killed_by(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($case),)*
                }
            }
        }
    };
}

mutants! {
    /// A lease is taken by its op alone: whoever names the op ends another's attempt.
    TokenNotCompared killed_by a_take_needs_the_exact_op_token_and_fence;
    /// A live lease is taken whether or not it has expired.
    ExpiryNotCompared killed_by a_live_take_ends_at_the_expiry_exactly;
    /// A lease that expires now counts as alive.
    EqualityIsAlive killed_by a_live_take_ends_at_the_expiry_exactly;
    /// Recovery takes leases that are alive.
    RecoversTheLiving killed_by a_heartbeat_between_listing_and_taking_wins;
    /// An op comes back with the fence it had.
    FenceNotRaised killed_by every_lease_has_a_higher_fence;
    /// A workflow's open counter is not lowered when an op ends.
    CounterNotSubtracted killed_by counters_are_right_after_every_transition;
    /// What a completion frees is written by another transaction, which a crash in between loses.
    DependentsOutsideTheTransaction killed_by a_child_is_ready_when_its_last_parent_has_succeeded;
    /// A recovery pass takes all there is.
    RecoveryUnbounded killed_by a_recovery_is_bounded_and_the_rest_stays_for_the_next;
    /// A lost worker is not counted.
    LossNotCounted killed_by the_last_loss_fails_the_op_with_worker_lost;
    /// A failure is not counted.
    FailureNotCounted killed_by the_last_attempt_fails_the_op;
    /// Cancel looks at `ready` and forgets the leases.
    CancelLeavesLeases killed_by a_cancel_revokes_leases_and_ends_their_attempts;
    /// Text is cut at its first character beyond ASCII.
    TextCutAtUnicode killed_by any_text_of_an_error_can_be_recorded;
    /// A failed transaction is reported as done.
    ErrorSwallowed killed_by a_refused_write_leaves_nothing_of_itself;
    /// A body that failed is committed.
    FailedBodyCommits killed_by a_body_that_fails_leaves_no_trace;
    /// A renewal may shorten a lease.
    RenewalShortens killed_by a_heartbeat_never_shortens_a_lease;
    /// A guarded change applies whatever the row says.
    GuardIgnored killed_by a_change_applies_only_while_the_row_says_its_from;
    /// A claim takes one more than its limit.
    ClaimTakesTooMany killed_by a_claim_takes_no_more_than_its_capacity;
    /// A claim asks for one op of a gate that is full.
    LimitIgnored killed_by a_queue_never_runs_more_than_its_limit;
    /// What comes later is promoted now.
    PromotesTooEarly killed_by a_retry_comes_when_its_policy_says_and_not_before;
    /// The way down ends at the children.
    PropagationStopsAtChildren killed_by a_failure_blocks_everything_below_it_and_nothing_else;
    /// The ledger is not written.
    LedgerNotWritten killed_by a_repeated_completion_gets_its_first_answer;
    /// Operators' calls are not remembered.
    ActNotKept killed_by a_repeated_retry_gets_its_first_answer;
    /// A token bucket is never emptied.
    BucketNotStored killed_by a_burst_starts_at_once_and_the_rest_as_tokens_flow;
    /// A lost claim is not found again.
    LostClaimForgotten killed_by a_claim_that_is_repeated_gets_the_same_leases;
    /// An update does not move the workflow in the order of updates.
    UpdateOrderStands killed_by every_transition_moves_its_workflow_behind_the_cursor;
    /// That an op was dispatched is not kept.
    DispatchNotStored killed_by a_dispatched_op_whose_worker_is_lost_waits_for_a_verdict;
    /// Whoever names the op dispatches it.
    DispatchUnguarded killed_by a_dispatch_with_another_token_is_lost;
    /// A wake-up is not due at its instant.
    EqualityIsNotDue killed_by an_op_is_woken_at_its_instant_and_not_before;
    /// A wait is over before it is due.
    DueNotCompared killed_by a_clock_that_went_back_after_the_listing_wakes_nobody;
    /// A later wait of the op is taken for the one that was listed.
    WaitNotCompared killed_by a_wait_that_was_replaced_since_it_was_listed_is_left_alone;
    /// A wake-up that has fired stays.
    WaitRowStays killed_by waking_twice_fires_nothing_twice;
    /// A pass wakes all there is.
    WakingUnbounded killed_by waking_is_bounded_and_the_rest_stays_for_the_next;
    /// What an op waited for is not kept.
    WakeForgotten killed_by a_woken_op_knows_what_it_waited_for_in_all_later_attempts;
    /// An edge whose parent is gone passes for none.
    LooseEdgesUnseen killed_by an_edge_to_an_op_that_is_not_there_is_seen_and_nothing_is_guessed;
    /// The way up ends at the parents.
    UpstreamStopsAtParents killed_by why_names_the_failed_op_through_any_depth;
    /// Events are dropped.
    EventsDropped killed_by every_verb_leaves_its_events;
    /// Nobody looks whether the clock is behind.
    MarkNotCompared killed_by a_clock_that_is_far_behind_holds_claims_promotion_recovery_and_wake_ups;
    /// The mark follows the clock wherever it goes.
    MarkMovesBack killed_by the_mark_never_moves_back_by_itself;
    /// Whoever led once may always write.
    EpochNotCompared killed_by an_old_epoch_writes_nothing_however_often_it_tries;
    /// Whoever asks leads.
    EveryoneIsElected killed_by of_two_that_stand_at_once_one_leads;
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A store with one fault, around a sound one.
#[derive(Debug)]
pub struct MutantStore {
    inner: Arc<dyn Store>,
    mutant: Mutant,
}

impl MutantStore {
    /// Breaks `inner` by `mutant`.
    pub fn new(inner: Arc<dyn Store>, mutant: Mutant) -> Self {
        Self { inner, mutant }
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for MutantStore {
    fn transact(&self, kind: TxKind, body: &mut dyn FnMut(&mut dyn Tx) -> StoreResult<()>) -> StoreResult<()> {
        let mut of_body = Ok(());
        let ran = self.inner.transact(kind, &mut |inner| {
            let result = body(&mut MutantTx { inner, mutant: self.mutant });
            if self.mutant == Mutant::FailedBodyCommits && result.is_err() {
                of_body = result;
                return Ok(());
            }
            result
        });
        match self.mutant {
            Mutant::ErrorSwallowed => Ok(()),
            Mutant::FailedBodyCommits => ran.and(of_body),
            _ => ran,
        }
    }

    fn describe(&self) -> StoreResult<StoreInfo> {
        self.inner.describe()
    }

    fn try_write(&self) -> StoreResult<()> {
        self.inner.try_write()
    }

    fn hints(&self) -> Option<Arc<dyn Hints>> {
        self.inner.hints()
    }
}

/// A harness whose stores are broken by one mutant.
pub struct MutantHarness {
    sound: Arc<dyn Harness>,
    mutant: Mutant,
}

impl MutantHarness {
    /// Breaks every store that `sound` makes.
    pub fn new(sound: Arc<dyn Harness>, mutant: Mutant) -> Self {
        Self { sound, mutant }
    }
}

impl fmt::Debug for MutantHarness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MutantHarness").field("mutant", &self.mutant).finish_non_exhaustive()
    }
}

impl Harness for MutantHarness {
    fn open(&self) -> Result<Opened, BoxError> {
        let mut opened = self.sound.open()?;
        opened.store = Arc::new(MutantStore::new(opened.store, self.mutant));
        Ok(opened)
    }
}
