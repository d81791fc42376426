//! One open transaction.

use crate::connection::Link;
use crate::error::{self, Failure};
use crate::finality::{Finality, Mark};
use crate::options::PostgresOptions;
use diesel::connection::SimpleConnection;
use diesel::pg::PgConnection;
use diesel::query_dsl::methods::{ExecuteDsl, LoadQuery};
use diesel::result::QueryResult;
use leasehold_core::model::Timestamp;
use leasehold_core::store::{StoreError, StoreResult, Tx, TxKind};
use leasehold_sql::rows::{Number, Row, read_all};
use leasehold_sql::{rejected, statement};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long a transaction may stand still between two steps before the server ends it: a process that hangs with locks
/// in its hands must not stop the others.
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);

/// The same for upkeep, which holds the leader's row: a leader that is frozen with it must not keep its successor out for
/// longer than it would have led.
const UPKEEP_IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// What the transactions of one store have in common.
#[derive(Debug)]
pub(crate) struct Session {
    begin: String,
    begin_read: String,
    begin_upkeep: String,
    pub(crate) finality: Finality,
    pub(crate) statements: AtomicU64,
    #[cfg(feature = "faults")]
    pub(crate) fault: Option<crate::Fault>,
}

impl Session {
    pub(crate) fn new(options: &PostgresOptions) -> Self {
        // Whether a transaction may write is left to the server: who makes a primary read-only means it.
        Self {
            begin: begin("READ COMMITTED", options, IDLE_TIMEOUT),
            begin_read: begin("REPEATABLE READ READ ONLY", options, IDLE_TIMEOUT),
            begin_upkeep: begin("READ COMMITTED", options, UPKEEP_IDLE_TIMEOUT),
            finality: Finality::default(),
            statements: AtomicU64::new(0),
            #[cfg(feature = "faults")]
            fault: None,
        }
    }

    /// What begins a transaction that reads the present at every statement.
    pub(crate) fn begin(&self) -> &str {
        &self.begin
    }
}

/// Everything that a transaction needs travels with its BEGIN in one message: nothing is kept in the session, where a
/// pooler would lose it. Temporary tables come last in the search path, so that none hides one of ours; compiling
/// statements to machine code costs more than any of them.
fn begin(isolation: &str, options: &PostgresOptions, idle: Duration) -> String {
    format!(
        "BEGIN ISOLATION LEVEL {isolation}; SET LOCAL search_path TO {}; SET LOCAL statement_timeout TO {}; \
         SET LOCAL lock_timeout TO {}; SET LOCAL idle_in_transaction_session_timeout TO {}; SET LOCAL jit TO off",
        search_path(options),
        options.statement_timeout.as_millis(),
        options.lock_timeout.as_millis(),
        idle.as_millis(),
    )
}

/// Where the store's tables and functions are found, and nothing else.
pub(crate) fn search_path(options: &PostgresOptions) -> String {
    format!("{}, pg_temp", options.schema.quoted())
}

/// What a transaction runs on.
enum Line<'c> {
    /// A connection of the store's, which the transaction begins and ends.
    Own { link: &'c mut Link, reconnect: &'c dyn Fn() -> StoreResult<Link> },
    /// A connection of the application's, inside a transaction that it began and will end.
    Lent(&'c mut PgConnection),
}

impl Line<'_> {
    fn conn(&mut self) -> &mut PgConnection {
        match self {
            Self::Own { link, .. } => &mut link.conn,
            Self::Lent(conn) => conn,
        }
    }

    fn begin(&mut self, begin: &str) -> StoreResult<()> {
        match self {
            Self::Own { link, reconnect } => begin_on(link, begin, *reconnect),
            Self::Lent(_) => Err(rejected("the application's transaction cannot be begun again")),
        }
    }

    fn note_broken(&mut self) {
        // Whether its own connection can still be used is the application's to judge.
        if let Self::Own { link, .. } = self {
            link.broken = true;
        }
    }

    fn is_broken(&self) -> bool {
        matches!(self, Self::Own { link, .. } if link.broken)
    }
}

/// One transaction; it begins with its first step.
pub(crate) struct PgTx<'c> {
    line: Line<'c>,
    session: &'c Session,
    kind: TxKind,
    open: bool,
    failed: Option<Failure>,
    /// How far events and updates were final before this transaction began, if a step asked.
    mark: Option<Mark>,
    /// A step needs the mark and the transaction has begun without one: it must run again, with the mark first.
    wants_mark: bool,
    /// An update by this transaction is later than this one, besides those that it can see.
    floor: Option<i64>,
    /// The workflows and gates whose rows this transaction holds.
    pub(crate) workflows: BTreeSet<i64>,
    pub(crate) gates: BTreeSet<i64>,
}

impl<'c> PgTx<'c> {
    pub(crate) fn new(link: &'c mut Link, session: &'c Session, reconnect: &'c dyn Fn() -> StoreResult<Link>, kind: TxKind) -> Self {
        Self::over(Line::Own { link, reconnect }, session, kind)
    }

    /// The steps on a connection of the application's, whose transaction is open and stays so.
    /// Where it does not see the present, `floor` is the latest update that is committed now.
    pub(crate) fn lent(conn: &'c mut PgConnection, session: &'c Session, floor: Option<i64>) -> Self {
        Self { open: true, floor, ..Self::over(Line::Lent(conn), session, TxKind::Client) }
    }

    fn over(line: Line<'c>, session: &'c Session, kind: TxKind) -> Self {
        Self {
            line,
            session,
            kind,
            open: false,
            failed: None,
            mark: None,
            wants_mark: false,
            floor: None,
            workflows: BTreeSet::new(),
            gates: BTreeSet::new(),
        }
    }

    // ---- what steps are made of ----

    /// The statement to run: the one given, unless a test has this store broken.
    #[cfg_attr(not(feature = "faults"), expect(clippy::unused_self, reason = "only a broken store has others"))]
    pub(crate) fn sql(&self, sound: &'static str) -> &'static str {
        #[cfg(feature = "faults")]
        if let Some(fault) = self.session.fault {
            return crate::faults::broken(fault, sound);
        }
        sound
    }

    /// Runs a statement and reads its rows.
    pub(crate) fn load<'q, R, Q>(&mut self, query: Q) -> StoreResult<Vec<R::Value>>
    where
        R: Row,
        Q: LoadQuery<'q, PgConnection, R>,
    {
        let rows = self.rows(query)?;
        read_all::<R>(rows).map_err(|error| self.fail(error))
    }

    /// Runs a statement and hands out its rows as they are.
    pub(crate) fn rows<'q, R, Q>(&mut self, query: Q) -> StoreResult<Vec<R>>
    where
        Q: LoadQuery<'q, PgConnection, R>,
    {
        self.statement(|conn| query.internal_load(conn)?.collect())
    }

    /// Runs a statement and says how many rows it touched.
    pub(crate) fn execute<Q>(&mut self, query: Q) -> StoreResult<usize>
    where
        Q: ExecuteDsl<PgConnection>,
    {
        self.statement(|conn| Q::execute(query, conn))
    }

    fn statement<T>(&mut self, run: impl FnOnce(&mut PgConnection) -> QueryResult<T>) -> StoreResult<T> {
        if let Some(failure) = &self.failed {
            return Err(failure.again());
        }
        self.begin()?;
        self.session.statements.fetch_add(1, Ordering::Relaxed);
        run(self.line.conn()).map_err(|error| self.fail_with(error))
    }

    /// Ends the transaction's luck: every further step fails.
    pub(crate) fn fail(&mut self, error: StoreError) -> StoreError {
        if self.failed.is_none() {
            self.failed = Some(Failure::of(&error));
        }
        error
    }

    fn fail_with(&mut self, error: diesel::result::Error) -> StoreError {
        let (error, link) = error::sorted_on(self.line.conn(), error);
        if link == error::Link::Dropped {
            self.line.note_broken();
        }
        self.fail(error)
    }

    /// Refuses a write to what this transaction does not hold locked: on another store, or another day, it would race.
    pub(crate) fn require<'k>(&mut self, what: &str, held: bool, key: &'k i64) -> StoreResult<&'k i64> {
        if held { Ok(key) } else { Err(self.fail(rejected(format!("{what} {key} is changed without being locked")))) }
    }

    /// When an update at `at` took place, as readers of updates see it.
    pub(crate) fn update_at(&self, at: Timestamp) -> i64 {
        let floor = self.floor.map_or(i64::MIN, |latest| latest.saturating_add(1));
        at.as_micros().max(floor)
    }

    /// From here on no lock is waited for longer than a moment.
    pub(crate) fn wait_briefly(&mut self) -> StoreResult<()> {
        self.statement(|conn| conn.batch_execute("SET LOCAL lock_timeout TO 100"))
    }

    // ---- begin and end ----

    fn begin(&mut self) -> StoreResult<()> {
        if self.open {
            return Ok(());
        }
        let begin = match self.kind {
            TxKind::Read => &self.session.begin_read,
            TxKind::Maintenance => &self.session.begin_upkeep,
            TxKind::Claim | TxKind::Commit | TxKind::Heartbeat | TxKind::Client => &self.session.begin,
        };
        self.line.begin(begin).map_err(|error| self.fail(error))?;
        self.open = true;
        Ok(())
    }

    /// How far events and updates are final for what this transaction reads. The mark must be older than its snapshot;
    /// where it is not, the step fails, and [`Self::must_run_again`] says so.
    pub(crate) fn mark(&mut self) -> StoreResult<Mark> {
        if let Some(failure) = &self.failed {
            return Err(failure.again());
        }
        if let Some(mark) = self.mark {
            return Ok(mark);
        }
        if self.open {
            self.wants_mark = true;
            return Err(self.fail(StoreError::Conflict("the transaction runs again behind a reader's mark".into())));
        }
        self.take_mark()
    }

    /// Takes the mark before the transaction begins.
    pub(crate) fn take_mark(&mut self) -> StoreResult<Mark> {
        self.line.begin(self.session.begin()).map_err(|error| self.fail(error))?;
        self.open = true;
        let taken = self.session.finality.advance(self.line.conn()).map_err(|error| self.fail_with(error))?;
        self.commit()?;
        self.mark = Some(taken);
        Ok(taken)
    }

    pub(crate) const fn must_run_again(&self) -> bool {
        self.wants_mark
    }

    /// Why the transaction cannot commit, if a step has failed.
    pub(crate) fn failure(&self) -> Option<StoreError> {
        self.failed.as_ref().map(Failure::again)
    }

    pub(crate) fn commit(&mut self) -> StoreResult<()> {
        if !std::mem::take(&mut self.open) {
            return Ok(());
        }
        self.line.conn().batch_execute("COMMIT").map_err(|error| self.fail_with(error))
    }

    /// Rolls back; where that fails the connection is closed, which makes the server do it.
    pub(crate) fn roll_back(&mut self) {
        if !std::mem::take(&mut self.open) || self.line.is_broken() {
            return;
        }
        if let Err(error) = self.line.conn().batch_execute("ROLLBACK") {
            tracing::debug!(%error, "the connection is closed instead of a rollback");
            self.line.note_broken();
        }
    }
}

/// Sends BEGIN. A connection that has died since its last transaction is replaced once: nothing was asked of it yet.
fn begin_on(link: &mut Link, begin: &str, reconnect: &dyn Fn() -> StoreResult<Link>) -> StoreResult<()> {
    let mut tried = send_begin(link, begin);
    if link.used && matches!(tried, Err(StoreError::Unavailable(_))) {
        *link = reconnect()?;
        tried = send_begin(link, begin);
    }
    link.used = true;
    tried
}

fn send_begin(link: &mut Link, begin: &str) -> StoreResult<()> {
    let sent = if link.untranslated {
        link.conn.batch_execute(&format!("{begin}; SET LOCAL lc_messages TO 'C'"))
    } else {
        link.conn.batch_execute(begin)
    };
    sent.map_err(|error| {
        // Whatever went wrong half-way through the message, a fresh connection is surely outside a transaction.
        link.broken = true;
        error::sorted_on(&mut link.conn, error).0
    })
}

impl Tx for PgTx<'_> {
    fn now(&mut self) -> StoreResult<Timestamp> {
        const NOW: &str = "SELECT now_us() AS number";
        let rows: Vec<Number> = self.rows(statement(NOW))?;
        let micros = rows.first().and_then(|row| row.number).unwrap_or(i64::MAX);
        Timestamp::from_micros(micros).map_err(|error| self.fail(StoreError::Rejected(error.into())))
    }
}
