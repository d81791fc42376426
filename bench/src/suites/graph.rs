//! Graphs, drained: what an op and an edge cost, against an op of a drain without edges.

use super::Bench;
use crate::Failure;
use crate::clock::micros;
use crate::engine::{self, KIND, layered, plain};
use crate::report::{Line, Target};
use leasehold::client::{Op, Workflow};

/// How many handlers run at once.
const CONCURRENCY: usize = 100;

/// Graphs that are alike.
struct Shape {
    name: String,
    graphs: u64,
    graph: Box<dyn Fn() -> Workflow>,
}

pub(super) async fn run(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let ops = bench.settings.ops_or(10_000);
    let side = (ops / 2).isqrt().max(2);
    let fan = 100.min(ops);
    let shapes = [
        Shape { name: "chains of 10".to_owned(), graphs: (ops / 10).max(1), graph: Box::new(|| chain(10)) },
        Shape { name: format!("fan-out of {fan} and join"), graphs: (ops / fan).max(1), graph: Box::new(move || fan_out(fan)) },
        Shape { name: format!("{side} layers of {side}"), graphs: 1, graph: Box::new(move || layers(side)) },
        Shape { name: format!("fan-in of {ops}"), graphs: 1, graph: Box::new(move || fan_in(ops)) },
    ];
    for shape in shapes {
        if bench.settings.wants(&shape.name) {
            against_plain(bench, &shape, ops).await?;
        }
    }
    let name = "one graph of 100,000 ops against 1,000, cost of an op";
    if bench.settings.wants(name) {
        let large = bench.settings.ops_or(100_000);
        let small = 1_000.min(large);
        let (mut smalls, mut larges) = (Vec::new(), Vec::new());
        for _ in 0..bench.settings.rounds {
            smalls.push(cost(bench, (large / small / 4).max(1), &|| layered(small)).await?);
            larges.push(cost(bench, 1, &|| layered(large)).await?);
        }
        bench.tell(Line::against(name, "µs", &smalls, &larges).target(Target::AtMost(1.3)).note("the floor is the small graph"));
    }
    Ok(())
}

async fn against_plain(bench: &mut Bench<'_>, shape: &Shape, ops: u64) -> Result<(), Failure> {
    let (mut plains, mut graphs) = (Vec::new(), Vec::new());
    for _ in 0..bench.settings.rounds {
        plains.push(cost(bench, 100.min(ops), &|| plain((ops / 100).max(1))).await?);
        graphs.push(cost(bench, shape.graphs, &shape.graph).await?);
    }
    let line = Line::against(&shape.name, "µs", &plains, &graphs).target(Target::AtMost(2.0));
    bench.tell(line.note("of an op or edge; the floor is an op of a drain without edges"));
    Ok(())
}

/// What an op or an edge costs, in microseconds.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
async fn cost(bench: &Bench<'_>, graphs: u64, graph: &dyn Fn() -> Workflow) -> Result<f64, Failure> {
    let one = graph().build()?;
    let edges: usize = one.ops.iter().map(|op| op.after.len()).sum();
    let (ops, edges) = (u64::try_from(one.ops.len())? * graphs, u64::try_from(edges)? * graphs);
    let place = bench.place.fresh();
    let store = engine::new_store(&place.url()).await?;
    engine::create(store.as_ref(), (0..graphs).map(|_| graph()))?;
    drop(store);
    Ok(micros(engine::drain(&place.url(), ops, CONCURRENCY).await?.0) / (ops + edges) as f64)
}

fn chain(steps: u64) -> Workflow {
    let step = |at: u64| {
        let op = Op::new(format!("step-{at}"), KIND);
        if at == 0 { op } else { op.after(format!("step-{}", at - 1)) }
    };
    Workflow::new("chain").ops((0..steps).map(step))
}

fn fan_out(width: u64) -> Workflow {
    let leaf = |at: u64| format!("leaf-{at}");
    let flow = Workflow::new("fan-out").op(Op::new("first", KIND));
    flow.ops((0..width).map(|at| Op::new(leaf(at), KIND).after("first"))).op(Op::new("join", KIND).after_all((0..width).map(leaf)))
}

fn layers(side: u64) -> Workflow {
    let id = |layer: u64, at: u64| format!("op-{layer}-{at}");
    let ops = (0..side).flat_map(move |layer| {
        (0..side).map(move |at| {
            let op = Op::new(id(layer, at), KIND);
            if layer == 0 { op } else { op.after_all((0..side).map(|parent| id(layer - 1, parent))) }
        })
    });
    Workflow::new("layers").ops(ops)
}

fn fan_in(width: u64) -> Workflow {
    let flow = plain(width);
    flow.op(Op::new("join", KIND).after_all((0..width).map(|at| format!("op-{at}"))))
}
