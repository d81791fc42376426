//! The store: transactions on borrowed connections.

use crate::connection::{Connections, Link};
use crate::hint::Herald;
use crate::migrate;
use crate::options::PostgresOptions;
use crate::tx::{PgTx, Session, search_path};
use diesel::QueryableByName;
use diesel::pg::{Pg, PgConnection};
use diesel::sql_types::Text;
use leasehold_core::store::{Hints, Store, StoreError, StoreInfo, StoreResult, Tx, TxKind};
use leasehold_sql::statement;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Keeps workflows in one schema of a Postgres database. Any number of stores, processes and hosts may share it.
///
/// # Examples
/// ```no_run
/// use leasehold_core::store::{Store, StoreError};
/// use leasehold_postgres::PostgresStore;
///
/// let store = PostgresStore::connect("postgres://app@db.example/work?sslmode=require&schema=jobs")?;
/// println!("{}", store.describe()?.version);
/// # Ok::<(), StoreError>(())
/// ```
#[derive(Debug)]
pub struct PostgresStore {
    options: Arc<PostgresOptions>,
    connections: Connections,
    session: Session,
    hints: Option<Arc<Herald>>,
}

#[derive(QueryableByName)]
struct ServerVersion {
    #[diesel(sql_type = Text)]
    version: String,
}

impl PostgresStore {
    /// [`Self::open`] by URL.
    ///
    /// # Errors
    /// [`StoreError::Rejected`] for a URL that is not understood; as [`Self::open`] otherwise.
    pub fn connect(url: &str) -> StoreResult<Self> {
        Self::open(PostgresOptions::parse(url).map_err(|error| StoreError::Rejected(error.into()))?)
    }

    /// Opens a store, and creates its schema or brings it up to date.
    ///
    /// # Errors
    /// As [`migrate`](migrate::migrate).
    pub fn open(options: PostgresOptions) -> StoreResult<Self> {
        migrate(&options)?;
        Self::open_existing(options)
    }

    /// Opens a store that exists, and changes nothing of its schema.
    ///
    /// # Errors
    /// [`StoreError::Schema`] when the schema is not there or does not fit this program; [`StoreError`] when the
    /// database cannot be reached.
    pub fn open_existing(options: PostgresOptions) -> StoreResult<Self> {
        let options = Arc::new(options);
        let connections = Connections::new(&options);
        let hints = options.hints.then(|| Arc::new(Herald::new(connections.connector().clone(), &options.schema)));
        let store = Self { connections, session: Session::new(&options), options, hints };
        migrate::check(store.schema_version()?)?;
        Ok(store)
    }

    /// The same store, broken: for tests of the conformance suite.
    #[cfg(feature = "faults")]
    #[must_use]
    pub fn with_fault(mut self, fault: crate::Fault) -> Self {
        self.session.fault = Some(fault);
        self
    }

    /// How many statements the steps of this store's transactions have sent; BEGIN and COMMIT are not among them.
    pub fn statements(&self) -> u64 {
        self.session.statements.load(Ordering::Relaxed)
    }

    pub(crate) const fn session(&self) -> &Session {
        &self.session
    }

    pub(crate) fn search_path(&self) -> String {
        search_path(&self.options)
    }

    /// Lends a connection of the store's, outside any transaction.
    pub(crate) fn borrow<T>(&self, kind: TxKind, run: impl FnOnce(&mut PgConnection) -> T) -> StoreResult<T> {
        self.connections.with(kind, |link| run(&mut link.conn))
    }

    /// The first row of a read, in a transaction of its own.
    pub(crate) fn read_now<R>(&self, sql: &'static str) -> StoreResult<Option<R>>
    where
        R: QueryableByName<Pg> + 'static,
    {
        let mut first = None;
        self.run(TxKind::Read, &mut |tx| {
            first = tx.rows::<R, _>(statement(sql))?.into_iter().next();
            Ok(())
        })?;
        Ok(first)
    }

    fn schema_version(&self) -> StoreResult<Option<migrate::SchemaVersion>> {
        let mut found = None;
        self.run(TxKind::Read, &mut |tx| {
            found = migrate::schema_version(tx)?;
            Ok(())
        })?;
        Ok(found)
    }

    /// Runs `body` in a transaction. A panic in it rolls back, gives the connection back and goes on.
    fn run(&self, kind: TxKind, body: &mut dyn FnMut(&mut PgTx<'_>) -> StoreResult<()>) -> StoreResult<()> {
        match self.connections.with(kind, |link| self.run_on(link, kind, body))? {
            Ok(result) => result,
            Err(panic) => resume_unwind(panic),
        }
    }

    fn run_on(
        &self,
        link: &mut Link,
        kind: TxKind,
        body: &mut dyn FnMut(&mut PgTx<'_>) -> StoreResult<()>,
    ) -> std::thread::Result<StoreResult<()>> {
        let reconnect = || self.connections.connector().open();
        let mut mark_first = false;
        // One that has run a transaction before may lead to a server that was the primary then.
        let mut may_be_stale = link.used && kind != TxKind::Read;
        loop {
            let mut tx = PgTx::new(link, &self.session, &reconnect, kind);
            if mark_first && let Err(error) = tx.take_mark() {
                tx.roll_back();
                return Ok(Err(error));
            }
            let ran = catch_unwind(AssertUnwindSafe(|| body(&mut tx)));
            // A mark that was there from the start cannot be wanted again.
            if tx.must_run_again() && ran.is_ok() {
                tx.roll_back();
                mark_first = true;
                continue;
            }
            // The body may have kept the reason to itself.
            let refused = matches!(tx.failure(), Some(StoreError::ReadOnly(_)));
            let ended = match ran {
                Ok(Ok(())) => tx.failure().map_or_else(|| tx.commit(), Err),
                Ok(Err(error)) => Err(error),
                Err(panic) => {
                    tx.roll_back();
                    return Err(panic);
                }
            };
            tx.roll_back();
            if std::mem::take(&mut may_be_stale) && refused {
                // Nothing was written there. A new connection finds the new primary, or the same refusal.
                match reconnect() {
                    Ok(fresh) => *link = fresh,
                    Err(error) => return Ok(Err(error)),
                }
                continue;
            }
            return Ok(ended);
        }
    }
}

impl Store for PostgresStore {
    fn transact(&self, kind: TxKind, body: &mut dyn FnMut(&mut dyn Tx) -> StoreResult<()>) -> StoreResult<()> {
        self.run(kind, &mut |tx| body(tx))
    }

    fn describe(&self) -> StoreResult<StoreInfo> {
        const VERSION: &str = "SELECT current_setting('server_version') AS version";
        let mut info = StoreInfo { backend: "postgres", location: self.options.location(), version: String::new(), schema: 0 };
        self.run(TxKind::Read, &mut |tx| {
            let versions: Vec<ServerVersion> = tx.rows(statement(VERSION))?;
            info.version = versions.into_iter().map(|row| row.version).collect();
            info.schema = migrate::schema_version(tx)?.map_or(0, |schema| schema.version);
            Ok(())
        })?;
        Ok(info)
    }

    fn try_write(&self) -> StoreResult<()> {
        const CHANGE_NOTHING: &str = "UPDATE schema_info SET version = version";
        self.run(TxKind::Client, &mut |tx| tx.execute(statement(CHANGE_NOTHING)).map(drop))
    }

    fn hints(&self) -> Option<Arc<dyn Hints>> {
        self.hints.as_ref().map(|hints| Arc::clone(hints) as Arc<dyn Hints>)
    }
}
