//! Steps that look at rows as they are.

use crate::graph::{ops, workflows};
use crate::tx::PgTx;
use diesel::sql_types::{Array, BigInt, Text};
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
             (SELECT count(*) FROM lanes AS l JOIN gates AS g ON g.key = l.gate WHERE l.key = o.lane) AS lane_known
              FROM ops AS o ",
            $of
        )
    };
}
pub(crate) const FACTS_OF_WORKFLOW: &str = op_facts!("WHERE o.workflow = $1 AND o.seq > $2 ORDER BY o.seq LIMIT $3");
pub(crate) const FACTS_OF_OPS: &str = op_facts!("WHERE o.seq = ANY($1) ORDER BY o.seq");

// Each table gives its page before the four are put together.
pub(crate) const HOT_KEYS: &str = "
    SELECT op AS seq FROM (SELECT op FROM ready WHERE op > $1 ORDER BY op LIMIT $2) AS r
     UNION
    SELECT op FROM (SELECT op FROM delayed WHERE op > $1 ORDER BY op LIMIT $2) AS d
     UNION
    SELECT op FROM (SELECT op FROM leases WHERE op > $1 ORDER BY op LIMIT $2) AS l
     UNION
    SELECT op FROM (SELECT op FROM waits WHERE op > $1 ORDER BY op LIMIT $2) AS w
     ORDER BY seq
     LIMIT $2";

pub(crate) const PLACES: &str = "
    SELECT op, lane, priority::bigint AS priority, due_at_us, fence, failures::bigint AS failures, 0::bigint AS delayed
      FROM ready WHERE op = ANY($1)
     UNION ALL
    SELECT op, lane, priority::bigint, due_at_us, fence, failures::bigint, 1::bigint
      FROM delayed WHERE op = ANY($1)";

pub(crate) const LOOSE_EDGES: &str = "
    SELECT d.child, d.parent, d.required
      FROM op_dependencies AS d
     WHERE d.child = ANY($1)
       AND NOT EXISTS (SELECT 1 FROM ops AS p WHERE p.seq = d.parent)
     ORDER BY d.child, d.parent";

pub(crate) const COUNT_OPS: &str =
    concat!("SELECT o.workflow, ", op_counts!(), " FROM ops AS o WHERE o.workflow = ANY($1) GROUP BY o.workflow");

/// The edges into the ops `n.op`, with their parents. OFFSET 0 keeps each sub-select as it stands, one look into an index
/// a row: the planner cannot know how many ops a walk reaches.
macro_rules! edges_in {
    () => {
        " CROSS JOIN LATERAL (
              SELECT e.child, e.parent, e.required FROM op_dependencies AS e WHERE e.child = n.op OFFSET 0) AS d
          CROSS JOIN LATERAL (
              SELECT c.seq, c.id, c.status FROM ops AS c WHERE c.seq = d.parent OFFSET 0) AS p"
    };
}

// UNION, not UNION ALL: each op is expanded once, however many paths lead to it.
pub(crate) const UPSTREAM_THROUGH: &str = concat!(
    "WITH RECURSIVE node AS (
         SELECT f.op FROM unnest($1) AS f (op)
         UNION
         SELECT p.seq FROM node AS n",
    edges_in!(),
    " WHERE p.status = ANY($2))
     SELECT d.child, d.required, d.parent, p.id AS parent_id, p.status AS parent_status FROM node AS n",
    edges_in!()
);

impl InspectTx for PgTx<'_> {
    fn op_facts(&mut self, of: &FactsOf<'_>) -> StoreResult<Vec<OpFacts>> {
        match of {
            FactsOf::Workflow { workflow, after, limit } => {
                let query = statement(FACTS_OF_WORKFLOW)
                    .bind::<BigInt, _>(workflow.0)
                    .bind::<BigInt, _>(after.map_or(i64::MIN, |after| after.0))
                    .bind::<BigInt, _>(i64::from(*limit));
                self.load::<rows::Facts, _>(query)
            }
            FactsOf::Ops([]) => Ok(Vec::new()),
            FactsOf::Ops(seqs) => self.load::<rows::Facts, _>(statement(FACTS_OF_OPS).bind::<Array<BigInt>, _>(ops(seqs))),
        }
    }

    fn hot_keys(&mut self, after: Option<OpSeq>, limit: u32) -> StoreResult<Vec<OpSeq>> {
        let query = statement(HOT_KEYS).bind::<BigInt, _>(after.map_or(i64::MIN, |after| after.0)).bind::<BigInt, _>(i64::from(limit));
        self.load::<rows::Seq, _>(query)
    }

    fn places(&mut self, seqs: &[OpSeq]) -> StoreResult<Vec<Place>> {
        if seqs.is_empty() {
            return Ok(Vec::new());
        }
        self.load::<rows::Placed, _>(statement(PLACES).bind::<Array<BigInt>, _>(ops(seqs)))
    }

    fn loose_edges(&mut self, children: &[OpSeq]) -> StoreResult<Vec<Edge>> {
        if children.is_empty() {
            return Ok(Vec::new());
        }
        self.load::<rows::Edge, _>(statement(LOOSE_EDGES).bind::<Array<BigInt>, _>(ops(children)))
    }

    fn count_ops(&mut self, seqs: &[WorkflowSeq]) -> StoreResult<Vec<(WorkflowSeq, Counters)>> {
        if seqs.is_empty() {
            return Ok(Vec::new());
        }
        self.load::<rows::OpCounts, _>(statement(COUNT_OPS).bind::<Array<BigInt>, _>(workflows(seqs)))
    }

    fn upstream_through(&mut self, from: &[OpSeq], through: &[StoredStatus]) -> StoreResult<Vec<UpstreamEdge>> {
        if from.is_empty() {
            return Ok(Vec::new());
        }
        let through: Vec<&str> = through.iter().map(|status| status.as_str()).collect();
        let query = statement(UPSTREAM_THROUGH).bind::<Array<BigInt>, _>(ops(from)).bind::<Array<Text>, _>(through);
        self.load::<rows::Upstream, _>(query)
    }
}
