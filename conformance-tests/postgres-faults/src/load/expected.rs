//! What must have come of the load: nothing lost, nothing made up.

use super::task::Task;
use super::worker::{Line, Ran};
use crate::Result;
use crate::audit::Tables;
use diesel::pg::PgConnection;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use leasehold_core::model::WorkflowId;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Every workflow that was accepted, with its ops.
#[derive(Debug, Default)]
pub struct Expected {
    workflows: BTreeMap<String, Flow>,
}

#[derive(Debug, Default)]
struct Flow {
    ops: BTreeSet<String>,
    canceled: bool,
}

#[derive(QueryableByName)]
struct OpRow {
    #[diesel(sql_type = Text)]
    workflow: String,
    #[diesel(sql_type = Text)]
    status: String,
    #[diesel(sql_type = Text)]
    op: String,
    #[diesel(sql_type = Text)]
    op_status: String,
    #[diesel(sql_type = Text)]
    input: String,
    #[diesel(sql_type = BigInt)]
    children: i64,
    #[diesel(sql_type = BigInt)]
    emitted: i64,
}

impl Expected {
    pub(super) fn created(&mut self, id: &WorkflowId, ops: Vec<String>) {
        self.workflows.entry(id.to_string()).or_default().ops.extend(ops);
    }

    pub(super) fn added(&mut self, id: &WorkflowId, op: String) {
        self.workflows.entry(id.to_string()).or_default().ops.insert(op);
    }

    pub(super) fn canceled(&mut self, id: &WorkflowId) {
        self.workflows.entry(id.to_string()).or_default().canceled = true;
    }

    pub(super) fn add(&mut self, other: Self) {
        self.workflows.extend(other.workflows);
    }

    /// How many workflows there must be.
    pub fn len(&self) -> usize {
        self.workflows.len()
    }

    /// Whether there must be none.
    pub fn is_empty(&self) -> bool {
        self.workflows.is_empty()
    }

    /// Checks that the store holds exactly these workflows with these ops and what they emitted, and that each has
    /// succeeded unless it was canceled.
    ///
    /// # Errors
    /// What is missing, too much or undone.
    pub fn check(&self, conn: &mut PgConnection) -> Result<()> {
        let rows: Vec<OpRow> = diesel::sql_query(
            "SELECT w.id AS workflow, w.status, o.id AS op, o.status AS op_status, o.input,
                    (SELECT count(*) FROM ops AS c WHERE c.workflow = o.workflow AND c.parent = o.seq) AS children,
                    (o.parent IS NOT NULL)::int::bigint AS emitted
               FROM workflows AS w JOIN ops AS o ON o.workflow = w.seq",
        )
        .load(conn)?;
        let mut wrong = Vec::new();
        // What a handler of the load returns is its attempt's number.
        let torn = "SELECT w.id AS workflow, w.status, o.id AS op, a.outcome AS op_status, a.result AS input, 0::bigint AS children,
                           a.fence AS emitted
                      FROM attempts AS a JOIN ops AS o ON o.seq = a.op JOIN workflows AS w ON w.seq = a.workflow
                     WHERE a.outcome = 'succeeded' AND a.result <> a.fence::text";
        for row in diesel::sql_query(torn).load::<OpRow>(conn)? {
            wrong.push(format!("op {}/{} has the result {} of attempt {}", row.workflow, row.op, row.input, row.emitted));
        }
        let mut found: HashMap<&str, BTreeSet<&str>> = HashMap::new();
        for row in &rows {
            let Some(flow) = self.workflows.get(&row.workflow) else {
                wrong.push(format!("workflow {} was never asked for", row.workflow));
                continue;
            };
            let end = if flow.canceled { "canceled" } else { "succeeded" };
            if row.status != end {
                wrong.push(format!("workflow {} is {}, not {end}", row.workflow, row.status));
            }
            if row.emitted == 0 {
                found.entry(&row.workflow).or_default().insert(&row.op);
            }
            let task: Task = serde_json::from_str(&row.input)?;
            let emits = if row.op_status == "succeeded" { i64::try_from(task.emits)? } else { 0 };
            if row.children != emits {
                let (workflow, op, status) = (&row.workflow, &row.op, &row.op_status);
                wrong.push(format!("op {workflow}/{op} is {status} and emitted {} ops, not {emits}", row.children));
            }
        }
        for (id, flow) in &self.workflows {
            let found = found.remove(id.as_str()).unwrap_or_default();
            let wanted: BTreeSet<&str> = flow.ops.iter().map(String::as_str).collect();
            if found != wanted {
                let (lost, more): (Vec<_>, Vec<_>) = (wanted.difference(&found).collect(), found.difference(&wanted).collect());
                wrong.push(format!("workflow {id}: ops {lost:?} are lost, ops {more:?} were never asked for"));
            }
        }
        wrong.sort();
        wrong.dedup();
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ").into()) }
    }
}

/// Holds what the workers printed against the ledger: no attempt began twice, and each recorded success is one that its
/// worker had reported.
///
/// # Errors
/// What does not fit.
pub fn check_reports(tables: &Tables, reports: &[(String, Vec<Line>)]) -> Result<()> {
    let mut wrong = Vec::new();
    let mut begun: HashSet<&Ran> = HashSet::new();
    let mut done: HashSet<(&str, &str, &str, i64)> = HashSet::new();
    for (worker, lines) in reports {
        for line in lines {
            match line {
                Line::Begun(ran) if !begun.insert(ran) => wrong.push(format!("{ran:?} began twice, the second time in {worker}")),
                Line::Done(ran) => drop(done.insert((worker, &ran.workflow, &ran.op, ran.fence))),
                Line::Begun(_) | Line::Stopped { .. } => {}
            }
        }
    }
    for success in tables.successes() {
        if !done.contains(&(success.worker, success.workflow, success.op, success.fence)) {
            wrong.push(format!("{success:?} is in the ledger, its worker never finished it"));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ").into()) }
}
