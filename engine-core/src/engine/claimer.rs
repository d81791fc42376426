//! The claim loop: asks for all free capacity in one call, and again at once while there is more (Q2, L10).

use super::attempt;
use super::notice::{Notice, NoticeKind};
use super::observer::Ticket;
use super::recovery::{self, PROMOTE_MAX};
use super::retrying::{Pauses, retry};
use super::session::Session;
use super::upkeep;
use crate::client::with_causes;
use crate::model::{LeaseToken, QueueName, SiteName};
use crate::store::{StoreError, StoreExt, TxKind};
use crate::transitions::{self, ClaimCursor, ClaimReport, ClaimRequest, Pass};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// When a claim loop ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// Never: it runs until the session stops, and waits for a store that is away.
    Stopped,
    /// After one claim.
    Once,
    /// When nothing can be claimed and nothing runs.
    Idle,
}

/// Runs as long as `until` says.
///
/// # Errors
/// Only with [`Until::Once`] and [`Until::Idle`]: the store failed for longer than the engine's patience, or for good.
pub(super) fn claim_loop(session: &Arc<Session>, until: Until) -> Result<(), StoreError> {
    let mut claimer = Claimer { session, cursor: ClaimCursor::default(), idle: false, tend_at: Instant::now(), limited: HashSet::new() };
    match until {
        Until::Stopped => {
            claimer.run_until_stopped();
            Ok(())
        }
        Until::Once | Until::Idle => claimer.run_by_hand(until),
    }
}

struct Claimer<'s> {
    session: &'s Arc<Session>,
    cursor: ClaimCursor,
    /// Observers were told that there is nothing to do.
    idle: bool,
    /// When to look after expired leases and delayed ops next.
    tend_at: Instant,
    /// Queues that observers know to wait for tokens.
    limited: HashSet<(SiteName, QueueName)>,
}

/// The shortest wait for a token: a fast bucket fills while the claim before is on its way.
const TOKEN_WAIT_MIN: Duration = Duration::from_millis(1);

/// A claim that is tried until it is known how it ended.
struct Try {
    token: LeaseToken,
    /// Before the first try: no lease of this token began earlier.
    began: Instant,
    repeated: bool,
}

impl Try {
    fn new() -> Self {
        Self { token: LeaseToken::random(), began: Instant::now(), repeated: false }
    }
}

/// What one round found.
struct Round {
    /// Whether the next round is to follow at once.
    more: bool,
    /// Whether there was nothing to claim while nothing ran.
    idle: bool,
    /// Whether the clock cannot be relied on: there may be work, and it waits.
    held: bool,
}

impl Claimer<'_> {
    fn run_until_stopped(&mut self) {
        let (mut pauses, mut attempt) = (Pauses::new(), Try::new());
        while let Some(room) = self.session.slots.wait_for_room() {
            match self.round(room, &mut attempt) {
                Ok(round) => {
                    (pauses, attempt) = (Pauses::new(), Try::new());
                    self.rest(&round);
                }
                Err(error) => {
                    tracing::warn!(error = with_causes(&error), "claim failed; trying again");
                    if !self.session.slots.pause(pauses.next()) {
                        break;
                    }
                }
            }
        }
        if attempt.repeated {
            self.give_back(&attempt);
        }
    }

    /// Gives back what the last claim may have leased: it was told to stop before it was known how that one ended.
    fn give_back(&self, attempt: &Try) {
        let settings = &self.session.settings;
        match settings.store.with(TxKind::Read, |tx| tx.claimed_by(attempt.token)) {
            // Nothing begins any more, so each is given back at once.
            Ok(ops) => attempt::begin(self.session, ops, &[], attempt.began),
            Err(error) => {
                tracing::warn!(error = with_causes(&error), "what a failed claim leased cannot be given back; its leases run out");
            }
        }
    }

    fn run_by_hand(&mut self, until: Until) -> Result<(), StoreError> {
        let patience = self.session.settings.patience;
        while let Some(room) = self.session.slots.wait_for_room() {
            let mut attempt = Try::new();
            let round = retry(patience, || self.round(room, &mut attempt))?;
            if until == Until::Once || round.idle {
                return Ok(());
            }
            self.rest(&round);
        }
        Ok(())
    }

    /// Waits for a reason to claim again.
    fn rest(&mut self, round: &Round) {
        if round.idle && !round.held && !self.idle {
            self.session.settings.hub.notices().tell(|| Notice::new(NoticeKind::Idle));
        }
        self.idle = round.idle && !round.held;
        if !round.more && self.session.slots.wait_for_work(self.tend_at) {
            // Something became due: it is moved before the claim.
            self.tend_at = Instant::now();
        }
    }

    /// Recovers, wakes and promotes when it is time, claims, and begins what it got.
    fn round(&mut self, room: u32, attempt: &mut Try) -> Result<Round, StoreError> {
        let session = self.session;
        let settings = &session.settings;
        // Read before the claim: an end that is settled in between may have made something ready that the claim missed.
        let open_before = session.slots.open();
        let mut behind = false;
        if self.tend_at <= Instant::now() {
            behind = self.tend()?;
            self.tend_at = Instant::now() + if behind { Duration::ZERO } else { settings.poll };
        }
        let report = self.claim(room, attempt)?;
        self.cursor = report.cursor;
        let held = report.held.is_some();
        if let Some(clock) = report.held {
            session.clock_behind(clock)?;
        }
        if let Some(wait) = report.next_token_in {
            session.slots.hint_token(wait.max(TOKEN_WAIT_MIN));
        }
        let nothing = report.ops.is_empty();
        attempt::begin(session, report.ops, &report.suspects, attempt.began);
        let more = behind || report.more;
        Ok(Round { more, idle: nothing && !more && open_before == 0, held })
    }

    /// Recovers, wakes and promotes what may be in the claim's way, whoever leads; whether more is known to be left.
    fn tend(&self) -> Result<bool, StoreError> {
        let session = self.session;
        let behind = match upkeep::tend(session, None)? {
            Pass::Done(more) => match recovery::promote(&session.settings, PROMOTE_MAX, None)? {
                Pass::Done(promoted) => {
                    session.settings.clock.right();
                    return Ok(more || promoted == PROMOTE_MAX);
                }
                Pass::ClockBehind(behind) => behind,
                Pass::NotLeader => unreachable!("it goes by no epoch"),
            },
            Pass::ClockBehind(behind) => behind,
            Pass::NotLeader => unreachable!("it goes by no epoch"),
        };
        session.clock_behind(behind).map(|()| false)
    }

    /// Claims up to `room` ops, and tells observers.
    fn claim(&mut self, room: u32, attempt: &mut Try) -> Result<ClaimReport, StoreError> {
        let settings = &self.session.settings;
        let span = tracing::debug_span!(
            "claim",
            messaging.system = "leasehold",
            messaging.operation.name = "receive",
            messaging.client.id = settings.worker.as_str(),
            messaging.batch.message_count = tracing::field::Empty
        );
        let _entered = span.enter();
        let request = ClaimRequest {
            token: attempt.token,
            worker: settings.worker.clone(),
            lease: settings.lease,
            capacity: room,
            kinds: Some(settings.handlers.keys().cloned().collect()),
            agents: settings.agents.clone(),
            cursor: self.cursor,
            suspects: !self.session.held.has_suspect(),
            repeated: std::mem::replace(&mut attempt.repeated, true),
            tolerance: settings.clock.tolerance,
        };
        let notices = settings.hub.notices();
        let mut ticket: Option<Ticket> = None;
        let report = settings.store.with(TxKind::Claim, |tx| {
            ticket = None;
            let report = transitions::claim(tx, &request)?;
            ticket = Some(notices.ticket());
            Ok::<_, StoreError>(report)
        })?;
        span.record("messaging.batch.message_count", report.ops.len());
        if let Some(ticket) = ticket.filter(|_| notices.heard()) {
            let leased = report.ops.iter().map(|op| {
                let at = Some(op.lease.acquired_at);
                Notice { at, ..Notice::of_claimed(NoticeKind::OpLeased, op) }
            });
            // Told once while it lasts, however often a claim meets it.
            let limited: HashSet<(SiteName, QueueName)> = report.rate_limited.iter().cloned().collect();
            let newly = limited.difference(&self.limited).map(|(site, queue)| Notice {
                queue: Some(queue.clone()),
                site: Some(site.clone()),
                ..Notice::new(NoticeKind::QueueRateLimited)
            });
            ticket.tell(leased.chain(newly).collect());
            self.limited = limited;
        }
        Ok(report)
    }
}
