//! The tables, as plain SQL gives them.

use super::Summary;
use crate::Result;
use diesel::pg::PgConnection;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};
use std::collections::{BTreeMap, HashMap};

/// A workflow's row.
#[derive(Debug, Clone, QueryableByName)]
pub(super) struct Workflow {
    #[diesel(sql_type = BigInt)]
    pub(super) seq: i64,
    #[diesel(sql_type = Text)]
    pub(super) id: String,
    #[diesel(sql_type = Text)]
    pub(super) status: String,
    #[diesel(sql_type = BigInt)]
    pub(super) cancel_requested: i64,
    #[diesel(sql_type = BigInt)]
    pub(super) pending: i64,
    #[diesel(sql_type = BigInt)]
    pub(super) blocked: i64,
    #[diesel(sql_type = BigInt)]
    pub(super) open: i64,
    #[diesel(sql_type = BigInt)]
    pub(super) waiting: i64,
    #[diesel(sql_type = BigInt)]
    pub(super) succeeded: i64,
    #[diesel(sql_type = BigInt)]
    pub(super) failed: i64,
    #[diesel(sql_type = BigInt)]
    pub(super) canceled: i64,
    #[diesel(sql_type = BigInt)]
    pub(super) created_at_us: i64,
    #[diesel(sql_type = BigInt)]
    pub(super) updated_at_us: i64,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(super) finished_at_us: Option<i64>,
}

/// An op's row, with its queue.
#[derive(Debug, Clone, QueryableByName)]
pub(super) struct Op {
    #[diesel(sql_type = BigInt)]
    pub(super) seq: i64,
    #[diesel(sql_type = BigInt)]
    pub(super) workflow: i64,
    #[diesel(sql_type = Text)]
    pub(super) id: String,
    #[diesel(sql_type = BigInt)]
    pub(super) lane: i64,
    #[diesel(sql_type = Text)]
    pub(super) site: String,
    #[diesel(sql_type = Text)]
    pub(super) queue: String,
    #[diesel(sql_type = Text)]
    pub(super) status: String,
    #[diesel(sql_type = BigInt)]
    pub(super) unmet: i64,
    #[diesel(sql_type = BigInt)]
    pub(super) broken: i64,
    #[diesel(sql_type = BigInt)]
    pub(super) fence: i64,
    #[diesel(sql_type = BigInt)]
    pub(super) failures: i64,
    #[diesel(sql_type = BigInt)]
    pub(super) losses: i64,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(super) finished_at_us: Option<i64>,
}

/// A dependency.
#[derive(Debug, Clone, QueryableByName)]
pub(super) struct Edge {
    #[diesel(sql_type = BigInt)]
    pub(super) child: i64,
    #[diesel(sql_type = BigInt)]
    pub(super) parent: i64,
    #[diesel(sql_type = BigInt)]
    pub(super) required: i64,
}

/// A row of `ready` or `delayed`.
#[derive(Debug, Clone, QueryableByName)]
pub(super) struct Queued {
    #[diesel(sql_type = BigInt)]
    pub(super) op: i64,
    #[diesel(sql_type = BigInt)]
    pub(super) lane: i64,
    #[diesel(sql_type = BigInt)]
    pub(super) fence: i64,
    #[diesel(sql_type = BigInt)]
    pub(super) failures: i64,
}

/// A lease that is there.
#[derive(Debug, Clone, QueryableByName)]
pub(super) struct Lease {
    #[diesel(sql_type = BigInt)]
    pub(super) op: i64,
    #[diesel(sql_type = BigInt)]
    pub(super) workflow: i64,
    #[diesel(sql_type = BigInt)]
    pub(super) fence: i64,
    #[diesel(sql_type = BigInt)]
    pub(super) acquired_at_us: i64,
    #[diesel(sql_type = BigInt)]
    pub(super) expires_at_us: i64,
}

/// That an op waits.
#[derive(Debug, Clone, QueryableByName)]
pub(super) struct Wait {
    #[diesel(sql_type = BigInt)]
    pub(super) op: i64,
    #[diesel(sql_type = BigInt)]
    pub(super) workflow: i64,
    #[diesel(sql_type = BigInt)]
    pub(super) fence: i64,
}

/// A line of the ledger.
#[derive(Debug, Clone, QueryableByName)]
pub(super) struct Attempt {
    #[diesel(sql_type = BigInt)]
    pub(super) op: i64,
    #[diesel(sql_type = BigInt)]
    pub(super) fence: i64,
    #[diesel(sql_type = BigInt)]
    pub(super) workflow: i64,
    #[diesel(sql_type = Text)]
    pub(super) token: String,
    #[diesel(sql_type = Text)]
    pub(super) worker: String,
    #[diesel(sql_type = BigInt)]
    pub(super) acquired_at_us: i64,
    #[diesel(sql_type = BigInt)]
    pub(super) ended_at_us: i64,
    #[diesel(sql_type = Text)]
    pub(super) outcome: String,
    #[diesel(sql_type = BigInt)]
    pub(super) has_result: i64,
}

/// A line of the history.
#[derive(Debug, Clone, QueryableByName)]
pub(super) struct Event {
    #[diesel(sql_type = BigInt)]
    pub(super) at_us: i64,
    #[diesel(sql_type = Text)]
    pub(super) kind: String,
    #[diesel(sql_type = BigInt)]
    pub(super) workflow: i64,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(super) op: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(super) fence: Option<i64>,
}

/// Everything that is judged, of one instant.
#[derive(Debug, Clone, Default)]
pub struct Tables {
    pub(super) workflows: BTreeMap<i64, Workflow>,
    pub(super) ops: BTreeMap<i64, Op>,
    pub(super) edges: Vec<Edge>,
    pub(super) ready: Vec<Queued>,
    pub(super) delayed: Vec<Queued>,
    pub(super) leases: Vec<Lease>,
    pub(super) waits: Vec<Wait>,
    /// By op and fence.
    pub(super) attempts: Vec<Attempt>,
    /// By number.
    pub(super) events: Vec<Event>,
}

impl Tables {
    /// Reads them in one snapshot, through a connection whose search path leads to the store.
    ///
    /// # Errors
    /// What the server said.
    pub fn read(conn: &mut PgConnection) -> Result<Self> {
        let mut tables = conn.build_transaction().repeatable_read().read_only().run(Self::load)?;
        tables.attempts.sort_unstable_by_key(|attempt| (attempt.op, attempt.fence));
        Ok(tables)
    }

    fn load(conn: &mut PgConnection) -> QueryResult<Self> {
        let workflows: Vec<Workflow> = diesel::sql_query(
            "SELECT seq, id, status, cancel_requested, pending, blocked, open, waiting, succeeded, failed, canceled,
                    created_at_us, updated_at_us, finished_at_us FROM workflows",
        )
        .load(conn)?;
        let ops: Vec<Op> = diesel::sql_query(
            "SELECT o.seq, o.workflow, o.id, o.lane, coalesce(l.site, '?') AS site, coalesce(l.queue, '?') AS queue, o.status,
                    o.unmet, o.broken, o.fence, o.failures, o.losses, o.finished_at_us
               FROM ops AS o LEFT JOIN lanes AS l ON l.key = o.lane",
        )
        .load(conn)?;
        Ok(Self {
            workflows: workflows.into_iter().map(|row| (row.seq, row)).collect(),
            ops: ops.into_iter().map(|row| (row.seq, row)).collect(),
            edges: diesel::sql_query("SELECT child, parent, required FROM op_dependencies").load(conn)?,
            ready: diesel::sql_query("SELECT op, lane, fence, failures FROM ready").load(conn)?,
            delayed: diesel::sql_query("SELECT op, lane, fence, failures FROM delayed").load(conn)?,
            leases: diesel::sql_query("SELECT op, workflow, fence, acquired_at_us, expires_at_us FROM leases").load(conn)?,
            waits: diesel::sql_query("SELECT op, workflow, fence FROM waits").load(conn)?,
            attempts: diesel::sql_query(
                "SELECT op, fence, workflow, token, worker, acquired_at_us, ended_at_us, outcome,
                        (result IS NOT NULL)::int::bigint AS has_result FROM attempts",
            )
            .load(conn)?,
            events: diesel::sql_query("SELECT at_us, kind, workflow, op, fence FROM events ORDER BY seq").load(conn)?,
        })
    }

    /// How much there is of everything.
    pub fn summary(&self) -> Summary {
        Summary {
            workflows: self.workflows.len(),
            ops: self.ops.len(),
            attempts: self.attempts.len(),
            abandoned: self.attempts.iter().filter(|attempt| attempt.outcome == "abandoned").count(),
            events: self.events.len(),
            leases: self.leases.len(),
        }
    }

    /// The worker that recorded each op's success, with the fence it had: what workers' own reports are held against.
    pub fn successes(&self) -> impl Iterator<Item = Success<'_>> {
        self.attempts.iter().filter(|attempt| attempt.outcome == "succeeded").map(|attempt| Success {
            workflow: self.workflows.get(&attempt.workflow).map_or("?", |row| row.id.as_str()),
            op: self.ops.get(&attempt.op).map_or("?", |row| row.id.as_str()),
            fence: attempt.fence,
            worker: &attempt.worker,
        })
    }

    /// The ledger of each op, by fence.
    pub(super) fn ledgers(&self) -> HashMap<i64, Vec<&Attempt>> {
        let mut ledgers: HashMap<i64, Vec<&Attempt>> = HashMap::with_capacity(self.ops.len());
        for attempt in &self.attempts {
            ledgers.entry(attempt.op).or_default().push(attempt);
        }
        ledgers
    }

    /// An op as people know it.
    pub(super) fn name(&self, op: i64) -> String {
        self.ops.get(&op).map_or_else(
            || format!("op {op}, which has no row"),
            |row| format!("op {}/{}", self.workflows.get(&row.workflow).map_or("?", |workflow| workflow.id.as_str()), row.id),
        )
    }
}

/// A success as the ledger tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Success<'t> {
    /// The workflow's id.
    pub workflow: &'t str,
    /// The op's id.
    pub op: &'t str,
    /// The attempt's number.
    pub fence: i64,
    /// Who recorded it.
    pub worker: &'t str,
}
