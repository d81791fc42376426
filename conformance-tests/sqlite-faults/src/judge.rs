//! Holds what was acknowledged against the file: nothing lost, nothing made up, nothing torn.

use crate::Result;
use crate::worker::Acked;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use leasehold_conformance::{Opened, World, recount};
use leasehold_core::store::{Clock, ManualClock, Store, SystemClock};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

#[derive(QueryableByName)]
struct Line {
    #[diesel(sql_type = Text)]
    line: String,
}

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = BigInt)]
    count: i64,
}

/// Looks at a file beside the store, with SQL of its own.
pub struct Judge {
    conn: SqliteConnection,
    path: String,
}

impl std::fmt::Debug for Judge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Judge").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Judge {
    /// Of the store in `file`.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn new(file: &Path) -> Result<Self> {
        let path = crate::victim::argument(file)?.to_owned();
        Ok(Self { conn: SqliteConnection::establish(&path)?, path })
    }

    fn lines(&mut self, sql: &str) -> Result<Vec<String>> {
        let lines: Vec<Line> = diesel::sql_query(sql).load(&mut self.conn)?;
        Ok(lines.into_iter().map(|line| line.line).collect())
    }

    fn count(&mut self, sql: &str) -> Result<i64> {
        Ok(diesel::sql_query(sql).get_result::<Count>(&mut self.conn)?.count)
    }

    /// How many workflows there are.
    ///
    /// # Errors
    /// The database's.
    pub fn workflows(&mut self) -> Result<i64> {
        self.count("SELECT count(*) AS count FROM workflows")
    }

    /// How many attempts were lost with their workers.
    ///
    /// # Errors
    /// The database's.
    pub fn abandoned(&mut self) -> Result<i64> {
        self.count("SELECT count(*) AS count FROM attempts WHERE outcome = 'abandoned'")
    }

    /// Checks that the file is sound, and that it holds each of `acked`.
    ///
    /// # Errors
    /// All that is wrong.
    pub fn check(&mut self, acked: &[Acked]) -> Result<()> {
        let sound = self.lines("SELECT integrity_check AS line FROM pragma_integrity_check()")?;
        if sound != ["ok"] {
            return Err(format!("the file is not sound: {sound:?}").into());
        }
        let workflows: HashSet<String> = self.lines("SELECT id AS line FROM workflows")?.into_iter().collect();
        let ended = "SELECT w.id || ' ' || o.id || ' ' || a.fence AS line
                       FROM attempts AS a JOIN ops AS o ON o.seq = a.op JOIN workflows AS w ON w.seq = a.workflow
                      WHERE a.outcome = 'succeeded' AND a.result = a.fence AND o.status = 'succeeded'";
        let ended: HashSet<String> = self.lines(ended)?.into_iter().collect();
        let lost = acked.iter().filter(|acked| match acked {
            Acked::Created(workflow) => !workflows.contains(workflow),
            Acked::Succeeded { workflow, op, fence } => !ended.contains(&format!("{workflow} {op} {fence}")),
        });
        let lost: Vec<String> = lost.map(ToString::to_string).collect();
        if lost.is_empty() { Ok(()) } else { Err(format!("acknowledged and lost: {}", lost.join(", ")).into()) }
    }

    /// Checks that every workflow has ended well, with `ops` ops each of which succeeded once, and that every derived
    /// fact follows from the graph.
    ///
    /// # Errors
    /// All that is wrong.
    pub fn check_end(&mut self, store: Arc<dyn Store>, ops: usize) -> Result<()> {
        let wrong = self.lines(&format!(
            "SELECT w.id || ' is ' || w.status || ' with ' || count(o.seq) || ' ops' AS line
               FROM workflows AS w LEFT JOIN ops AS o ON o.workflow = w.seq AND o.status = 'succeeded'
              GROUP BY w.seq HAVING w.status <> 'succeeded' OR count(o.seq) <> {ops}
              UNION ALL
             SELECT 'op ' || op || ' has ' || count(*) || ' successes' AS line
               FROM attempts WHERE outcome = 'succeeded' GROUP BY op HAVING count(*) <> 1
              UNION ALL
             SELECT 'op ' || op || ' is still leased' AS line FROM leases"
        ))?;
        if !wrong.is_empty() {
            return Err(wrong.join("; ").into());
        }
        // The recount moves no clock; the store keeps its own.
        recount(&World::new(Opened::new(store, Arc::new(ManualClock::at(SystemClock.now())))))
    }
}
