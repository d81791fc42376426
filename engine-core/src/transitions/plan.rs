//! A graph, checked and put in order before any transaction (S9).

use super::{GraphError, TransitionError};
use crate::model::{DedupKey, Digest, Lane, Limits, OpId, OpSpec, SiteName, check_size};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// Ops of one call, checked: ids are distinct, no op waits for itself or in a circle, sizes are within their limits.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The ops, parents before children.
    pub(super) ops: Vec<PlannedOp>,
    /// Edges between them, by child: (child, parent) → required.
    pub(super) inside: BTreeMap<(usize, usize), bool>,
    /// Ops of the call that carry the dedup key of an earlier one: they attach to it.
    pub(super) attached: Vec<(OpId, usize)>,
}

/// One op of a plan.
#[derive(Debug, Clone)]
pub(super) struct PlannedOp {
    pub(super) spec: OpSpec,
    pub(super) digest: Digest,
    /// Ops outside the call that it waits for.
    pub(super) after: Vec<(OpId, bool)>,
    /// Ops outside the call that shall wait for it.
    pub(super) before: Vec<OpId>,
    /// An op outside the call that it waits for, itself or through others of the call.
    rests_on: Option<OpId>,
}

impl Plan {
    /// Checks `ops`. Dependencies on ops that are not among them are kept for the transaction to find.
    ///
    /// # Errors
    /// [`GraphError`] or [`TooLarge`](crate::model::TooLarge), with the ids named.
    pub fn new(ops: Vec<OpSpec>, limits: &Limits) -> Result<Self, TransitionError> {
        if ops.len() > limits.ops_per_call {
            return Err(GraphError::TooManyOps { given: ops.len(), limit: limits.ops_per_call }.into());
        }
        for op in &ops {
            check_size(format!("the input of op {:?}", op.id), op.input.as_str().len(), limits.input_bytes)?;
            check_size(format!("the metadata of op {:?}", op.id), op.metadata.as_str().len(), limits.input_bytes)?;
        }
        let given = Given::new(ops)?;
        let order = given.order()?;
        Ok(given.in_order(&order))
    }

    /// How many ops it has, those attached to others not counted.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Checks that nothing outside the call is named: what a new workflow needs.
    pub(super) fn check_closed(&self) -> Result<(), GraphError> {
        for op in &self.ops {
            if let Some((missing, _)) = op.after.first() {
                return Err(GraphError::UnknownDependency { op: op.spec.id.clone(), missing: missing.clone() });
            }
            if let Some(missing) = op.before.first() {
                return Err(GraphError::UnknownBefore { op: op.spec.id.clone(), missing: missing.clone() });
            }
        }
        Ok(())
    }

    /// Checks that no added op can close a circle through ops that are there: one that is put before such an op may
    /// rest on none, `emitter` excepted, which runs and so is upstream of whatever still waits.
    pub(super) fn check_no_hidden_cycle(&self, emitter: Option<&OpId>) -> Result<(), GraphError> {
        for op in self.ops.iter().filter(|op| !op.before.is_empty()) {
            if let Some(on) = op.rests_on.as_ref().filter(|on| Some(*on) != emitter) {
                return Err(GraphError::BeforeAndAfter { op: op.spec.id.clone(), on: on.clone() });
            }
        }
        Ok(())
    }
}

impl PlannedOp {
    /// Where it waits, on a workflow or under a parent at `site`.
    pub(super) fn lane(&self, site: &SiteName) -> Lane {
        let spec = &self.spec;
        Lane::new(spec.site.clone().unwrap_or_else(|| site.clone()), spec.queue.clone(), spec.kind.clone(), spec.agent.clone())
    }
}

/// The ops as given, with what their ids resolve to.
struct Given {
    ops: Vec<OpSpec>,
    /// Which op each one is: itself, or the earlier one with its dedup key.
    stands_for: Vec<usize>,
    /// (child, parent) → required.
    inside: BTreeMap<(usize, usize), bool>,
    after: Vec<Vec<(OpId, bool)>>,
    before: Vec<Vec<OpId>>,
}

impl Given {
    fn new(ops: Vec<OpSpec>) -> Result<Self, GraphError> {
        let mut by_id: HashMap<&OpId, usize> = HashMap::with_capacity(ops.len());
        let mut by_key: HashMap<&DedupKey, usize> = HashMap::new();
        let mut stands_for = Vec::with_capacity(ops.len());
        for (at, op) in ops.iter().enumerate() {
            if by_id.insert(&op.id, at).is_some() {
                return Err(GraphError::DuplicateOp(op.id.clone()));
            }
            stands_for.push(op.dedup_key.as_ref().map_or(at, |key| *by_key.entry(key).or_insert(at)));
        }
        let mut inside = BTreeMap::new();
        let (mut after, mut before) = (vec![Vec::new(); ops.len()], vec![Vec::new(); ops.len()]);
        let resolve = |id: &OpId| by_id.get(id).and_then(|at| stands_for.get(*at)).copied();
        for (child, op) in ops.iter().enumerate().filter(|(at, _)| stands_for.get(*at) == Some(at)) {
            let mut seen: HashMap<&OpId, bool> = HashMap::new();
            for dependency in &op.after {
                *seen.entry(&dependency.on).or_insert(false) |= dependency.required;
            }
            for dependency in &op.after {
                // A doubled edge counts as one, required if either is.
                let Some(required) = seen.remove(&dependency.on) else { continue };
                match resolve(&dependency.on) {
                    Some(parent) if parent == child => return Err(GraphError::SelfDependency(op.id.clone())),
                    Some(parent) => *inside.entry((child, parent)).or_insert(false) |= required,
                    None => push_at(&mut after, child, (dependency.on.clone(), required)),
                }
            }
            let mut named = HashSet::new();
            for target in op.before.iter().filter(|target| named.insert(*target)) {
                match resolve(target) {
                    Some(later) if later == child => return Err(GraphError::SelfDependency(op.id.clone())),
                    Some(later) => {
                        inside.insert((later, child), true);
                    }
                    None => push_at(&mut before, child, target.clone()),
                }
            }
        }
        Ok(Self { ops, stands_for, inside, after, before })
    }

    /// The ops that stand for themselves, parents before children and otherwise as given.
    fn order(&self) -> Result<Vec<usize>, GraphError> {
        let mut waits = vec![0_usize; self.ops.len()];
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); self.ops.len()];
        for (child, parent) in self.inside.keys() {
            if let Some(count) = waits.get_mut(*child) {
                *count += 1;
            }
            push_at(&mut children, *parent, *child);
        }
        let own = |at: &usize| self.stands_for.get(*at) == Some(at);
        let free = |waits: &[usize], at: &usize| waits.get(*at) == Some(&0);
        let mut queue: VecDeque<usize> = (0..self.ops.len()).filter(own).filter(|at| free(&waits, at)).collect();
        let mut order = Vec::with_capacity(self.ops.len());
        while let Some(at) = queue.pop_front() {
            order.push(at);
            for child in children.get(at).into_iter().flatten() {
                if let Some(count) = waits.get_mut(*child) {
                    *count -= 1;
                    if *count == 0 {
                        queue.push_back(*child);
                    }
                }
            }
        }
        if order.len() == (0..self.ops.len()).filter(own).count() { Ok(order) } else { Err(GraphError::Cycle(self.circle(&waits))) }
    }

    /// One circle among the ops that still wait: every one of them has a parent that still waits, so walking up must
    /// come back to where it was.
    fn circle(&self, waits: &[usize]) -> Vec<OpId> {
        let stuck = |at: usize| waits.get(at).is_some_and(|count| *count > 0);
        let parent_of =
            |at: usize| self.inside.range((at, 0)..=(at, usize::MAX)).map(|((_, parent), _)| *parent).find(|parent| stuck(*parent));
        let mut path: Vec<usize> = Vec::new();
        let mut seen: HashMap<usize, usize> = HashMap::new();
        let mut next = (0..self.ops.len()).find(|at| stuck(*at));
        while let Some(at) = next {
            if let Some(start) = seen.insert(at, path.len()) {
                path.drain(..start);
                break;
            }
            path.push(at);
            next = parent_of(at);
        }
        // Walked from child to parent; told from parent to child.
        path.iter().rev().filter_map(|at| self.ops.get(*at)).map(|op| op.id.clone()).collect()
    }

    fn in_order(mut self, order: &[usize]) -> Plan {
        let mut place: HashMap<usize, usize> = HashMap::with_capacity(order.len());
        for (new, old) in order.iter().enumerate() {
            place.insert(*old, new);
        }
        let inside: BTreeMap<(usize, usize), bool> = self
            .inside
            .iter()
            .filter_map(|((child, parent), required)| Some(((*place.get(child)?, *place.get(parent)?), *required)))
            .collect();
        let attached = self
            .ops
            .iter()
            .zip(self.stands_for.iter().enumerate())
            .filter(|(_, (at, holder))| at != *holder)
            .filter_map(|(op, (_, holder))| Some((op.id.clone(), *place.get(holder)?)))
            .collect();
        let mut specs: Vec<Option<OpSpec>> = std::mem::take(&mut self.ops).into_iter().map(Some).collect();
        let mut ops: Vec<PlannedOp> = Vec::with_capacity(order.len());
        for old in order {
            let (Some(spec), Some(after), Some(before)) =
                (specs.get_mut(*old).and_then(Option::take), self.after.get_mut(*old), self.before.get_mut(*old))
            else {
                continue;
            };
            let new = ops.len();
            let (after, before) = (std::mem::take(after), std::mem::take(before));
            let rests_on = after.first().map(|(on, _)| on.clone()).or_else(|| {
                let parents = inside.range((new, 0)..=(new, usize::MAX)).map(|((_, parent), _)| *parent);
                parents.filter_map(|parent| ops.get(parent)).find_map(|parent| parent.rests_on.clone())
            });
            ops.push(PlannedOp { digest: spec_digest(&spec), spec, after, before, rests_on });
        }
        Plan { ops, inside, attached }
    }
}

/// The digest by which a repeated id is judged to be the same op.
fn spec_digest(spec: &OpSpec) -> Digest {
    match serde_json::to_vec(spec) {
        Ok(bytes) => Digest::of_bytes(&bytes),
        Err(_) => unreachable!("a spec holds only names, numbers and checked JSON"),
    }
}

fn push_at<T>(lists: &mut [Vec<T>], at: usize, item: T) {
    if let Some(list) = lists.get_mut(at) {
        list.push(item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Dependency, KindName};

    fn op(id: &str, after: &[&str]) -> OpSpec {
        let mut spec = OpSpec::new(OpId::new(id).unwrap(), KindName::new("k").unwrap());
        spec.after = after.iter().map(|on| Dependency { on: OpId::new(*on).unwrap(), required: true }).collect();
        spec
    }

    fn refused(ops: Vec<OpSpec>) -> String {
        Plan::new(ops, &Limits::default()).unwrap_err().to_string()
    }

    #[test]
    fn a_circle_is_named_from_parent_to_child() {
        let message = refused(vec![op("z", &[]), op("a", &["c", "z"]), op("b", &["a"]), op("c", &["b"]), op("d", &["c"])]);
        assert!(
            ["\"a\" → \"b\" → \"c\" → \"a\"", "\"b\" → \"c\" → \"a\" → \"b\"", "\"c\" → \"a\" → \"b\" → \"c\""]
                .iter()
                .any(|c| message.contains(c)),
            "{message}"
        );
    }

    #[test]
    fn bad_graphs_are_refused_with_their_ids() {
        assert!(refused(vec![op("a", &[]), op("a", &[])]).contains("\"a\" is there twice"));
        assert!(refused(vec![op("a", &["a"])]).contains("\"a\" depends on itself"));
        let open = Plan::new(vec![op("a", &["b"])], &Limits::default()).unwrap();
        assert_eq!(
            open.check_closed(),
            Err(GraphError::UnknownDependency { op: OpId::new("a").unwrap(), missing: OpId::new("b").unwrap() })
        );
    }

    #[test]
    fn parents_come_first_and_a_doubled_edge_is_one() {
        let mut join = op("join", &["b", "a", "b"]);
        join.after.push(Dependency { on: OpId::new("a").unwrap(), required: false });
        let plan = Plan::new(vec![join, op("a", &[]), op("b", &["a"])], &Limits::default()).unwrap();
        let ids: Vec<&str> = plan.ops.iter().map(|op| op.spec.id.as_str()).collect();
        assert_eq!(ids, ["a", "b", "join"]);
        assert_eq!(plan.inside, BTreeMap::from([((1, 0), true), ((2, 0), true), ((2, 1), true)]));
    }

    #[test]
    fn the_second_with_a_dedup_key_stands_for_the_first() {
        let key = |mut spec: OpSpec| {
            spec.dedup_key = Some(DedupKey::new("k").unwrap());
            spec
        };
        let plan = Plan::new(vec![key(op("a", &[])), key(op("b", &[])), op("c", &["b"])], &Limits::default()).unwrap();
        assert_eq!(plan.len(), 2);
        assert_eq!(plan.attached, [(OpId::new("b").unwrap(), 0)]);
        assert_eq!(plan.inside, BTreeMap::from([((1, 0), true)]));
    }

    #[test]
    fn an_op_put_before_another_rests_on_nothing_that_is_there() {
        let mut last = op("n2", &["n1"]);
        last.before = vec![OpId::new("there").unwrap()];
        let plan = Plan::new(vec![op("n1", &["x"]), last], &Limits::default()).unwrap();
        let x = OpId::new("x").unwrap();
        assert!(plan.check_no_hidden_cycle(None).is_err());
        assert!(plan.check_no_hidden_cycle(Some(&x)).is_ok());
    }
}
