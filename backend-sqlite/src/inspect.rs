//! Steps that look at rows as they are.

use crate::graph::of_ops;
use crate::set;
use crate::tx::SqliteTx;
use diesel::sql_types::{BigInt, Text};
use leasehold_core::model::{OpSeq, WorkflowSeq};
use leasehold_core::state::{Counters, StoredStatus};
use leasehold_core::store::rows::{Edge, UpstreamEdge};
use leasehold_core::store::{FactsOf, InspectTx, OpFacts, Place, StoreResult};
use leasehold_sql::{op_columns, op_counts, rows, statement};

macro_rules! op_facts {
    ($of:literal) => {
        concat!(
            "SELECT ",
            op_columns!(),
            ", o.finished_at_us,
             (SELECT count(*) FROM lanes AS l CROSS JOIN gates AS g ON g.key = l.gate WHERE l.key = o.lane) AS lane_known
              FROM ops AS o ",
            $of
        )
    };
}
pub(crate) const FACTS_OF_WORKFLOW: &str = op_facts!("WHERE o.workflow = ?1 AND o.seq > ?2 ORDER BY o.seq LIMIT ?3 + 0");
pub(crate) const FACTS_OF_OPS: &str = op_facts!("WHERE o.seq IN (SELECT value FROM json_each(?1)) ORDER BY o.seq");

// Each table gives its page before the four are put together.
pub(crate) const HOT_KEYS: &str = "
    SELECT op AS seq FROM (SELECT op FROM ready WHERE op > ?1 ORDER BY op LIMIT ?2 + 0)
     UNION
    SELECT op FROM (SELECT op FROM delayed WHERE op > ?1 ORDER BY op LIMIT ?2 + 0)
     UNION
    SELECT op FROM (SELECT op FROM leases WHERE op > ?1 ORDER BY op LIMIT ?2 + 0)
     UNION
    SELECT op FROM (SELECT op FROM waits WHERE op > ?1 ORDER BY op LIMIT ?2 + 0)
     ORDER BY seq
     LIMIT ?2 + 0";

pub(crate) const PLACES: &str = "
    SELECT op, lane, priority, due_at_us, fence, failures, 0 AS delayed
      FROM ready WHERE op IN (SELECT value FROM json_each(?1))
     UNION ALL
    SELECT op, lane, priority, due_at_us, fence, failures, 1 AS delayed
      FROM delayed WHERE op IN (SELECT value FROM json_each(?1))";

pub(crate) const LOOSE_EDGES: &str = "
    SELECT d.child, d.parent, d.required
      FROM op_dependencies AS d
     WHERE d.child IN (SELECT value FROM json_each(?1))
       AND NOT EXISTS (SELECT 1 FROM ops AS p WHERE p.seq = d.parent)
     ORDER BY d.child, d.parent";

pub(crate) const COUNT_OPS: &str = concat!(
    "SELECT o.workflow, ",
    op_counts!(),
    " FROM ops AS o WHERE o.workflow IN (SELECT value FROM json_each(?1)) GROUP BY o.workflow"
);

// UNION keeps each node once; CROSS JOIN fixes the order: from a node to its edges to their parents.
pub(crate) const UPSTREAM_THROUGH: &str = "
    WITH RECURSIVE node (op) AS (
        SELECT value FROM json_each(?1)
        UNION
        SELECT d.parent
          FROM node
         CROSS JOIN op_dependencies AS d ON d.child = node.op
         CROSS JOIN ops AS p ON p.seq = d.parent
         WHERE p.status IN (SELECT value FROM json_each(?2)))
    SELECT d.child, d.required, d.parent, p.id AS parent_id, p.status AS parent_status
      FROM node
     CROSS JOIN op_dependencies AS d ON d.child = node.op
     CROSS JOIN ops AS p ON p.seq = d.parent";

impl InspectTx for SqliteTx<'_> {
    fn op_facts(&mut self, of: &FactsOf<'_>) -> StoreResult<Vec<OpFacts>> {
        self.read(|tx| match of {
            FactsOf::Workflow { workflow, after, limit } => {
                let query = statement(FACTS_OF_WORKFLOW)
                    .bind::<BigInt, _>(workflow.0)
                    .bind::<BigInt, _>(after.map_or(i64::MIN, |after| after.0))
                    .bind::<BigInt, _>(i64::from(*limit));
                tx.load::<rows::Facts, _>(query)
            }
            FactsOf::Ops(ops) => tx.load_set::<rows::Facts>(FACTS_OF_OPS, of_ops(ops)),
        })
    }

    fn hot_keys(&mut self, after: Option<OpSeq>, limit: u32) -> StoreResult<Vec<OpSeq>> {
        let query = statement(HOT_KEYS).bind::<BigInt, _>(after.map_or(i64::MIN, |after| after.0)).bind::<BigInt, _>(i64::from(limit));
        self.read(|tx| tx.load::<rows::Seq, _>(query))
    }

    fn places(&mut self, ops: &[OpSeq]) -> StoreResult<Vec<Place>> {
        self.read(|tx| tx.load_set::<rows::Placed>(PLACES, of_ops(ops)))
    }

    fn loose_edges(&mut self, children: &[OpSeq]) -> StoreResult<Vec<Edge>> {
        self.read(|tx| tx.load_set::<rows::Edge>(LOOSE_EDGES, of_ops(children)))
    }

    fn count_ops(&mut self, workflows: &[WorkflowSeq]) -> StoreResult<Vec<(WorkflowSeq, Counters)>> {
        self.read(|tx| tx.load_set::<rows::OpCounts>(COUNT_OPS, set::values(workflows.iter().map(|workflow| workflow.0))))
    }

    fn upstream_through(&mut self, from: &[OpSeq], through: &[StoredStatus]) -> StoreResult<Vec<UpstreamEdge>> {
        if from.is_empty() {
            return self.read(|_| Ok(Vec::new()));
        }
        // One parameter whatever its size: two walks would return the edges they share twice.
        let through = set::whole(&set::values(through.iter().map(|status| status.as_str())));
        let query = statement(UPSTREAM_THROUGH).bind::<Text, _>(set::whole(&of_ops(from))).bind::<Text, _>(through);
        self.read(|tx| tx.load::<rows::Upstream, _>(query))
    }
}
