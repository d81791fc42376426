//! Many workers at once, on one store (Q1, L1, S3, S7).

use super::race::at_once;
use crate::case::cases;
use crate::verbs::{completion, failure, limit};
use crate::{Outcome, Scenario, World};
use leasehold_core::model::RetryPolicy;
use leasehold_core::state::WorkflowStatus;
use leasehold_core::store::BoxError;
use leasehold_core::transitions::Ended;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

cases! {
    a_limit_is_not_exceeded_at_any_instant proves ["Q1"];
    a_rate_is_not_exceeded_by_many_claims proves ["Q1"];
    many_workers_drain_a_graph_and_every_op_succeeds_once proves ["L1", "S3", "S7", "Q1"];
    many_handles_drain_a_graph_and_every_op_succeeds_once proves ["L1", "S3", "S7", "B3"] needs [SecondHandle];
}

/// Layers of ops with edges to two of the layer above, some failing once.
fn drained_by_many(worlds: &[&World]) -> Outcome {
    const LAYERS: usize = 6;
    const WIDTH: usize = 8;
    let Some(world) = worlds.first() else { return Err("somebody must work".into()) };
    let retry =
        RetryPolicy { jitter: leasehold_core::model::Jitter::None, base: crate::scenario::microseconds(1), ..RetryPolicy::default() };
    let mut scenario = Scenario::new();
    for layer in 0..LAYERS {
        for at in 0..WIDTH {
            scenario = scenario.op(&format!("{layer}.{at}")).kind("k").retry(retry);
            if layer > 0 {
                scenario = scenario.after(&[&format!("{}.{at}", layer - 1), &format!("{}.{}", layer - 1, (at + 1) % WIDTH)]);
            }
        }
    }
    let planted = scenario.build(world)?;
    let ended = AtomicUsize::new(0);
    std::thread::scope(|scope| -> Outcome {
        let workers: Vec<_> = worlds
            .iter()
            .enumerate()
            .map(|(number, w)| {
                let ended = &ended;
                scope.spawn(move || -> Outcome {
                    let worker = format!("w{number}");
                    while ended.load(Ordering::SeqCst) < LAYERS * WIDTH {
                        for op in w.claim(&worker, 3)? {
                            let fails = op.failures == 0 && op.op_id.as_str().ends_with('3');
                            let item = if fails { failure(&op) } else { completion(&op, "null") };
                            match w.finish_one(item)? {
                                Ended::Succeeded => drop(ended.fetch_add(1, Ordering::SeqCst)),
                                Ended::Retried { .. } => w.clock().advance(crate::scenario::microseconds(2))?,
                                other => panic!("a live lease got {other:?}"),
                            }
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    let row = world.workflow(&planted.id)?;
    assert_eq!((row.status, row.counters.succeeded), (WorkflowStatus::Succeeded, i64::try_from(LAYERS * WIDTH)?));
    Ok(())
}

/// Workers claim and complete; whenever one looks, no more leases than the limit are there.
fn a_limit_is_not_exceeded_at_any_instant(w: &mut World) -> Outcome {
    const LIMIT: u32 = 3;
    const OPS: usize = 90;
    w.set_policies(&[limit("q", LIMIT)])?;
    let scenario = (0..OPS).fold(Scenario::new(), |scenario, at| scenario.op(&at.to_string()).kind(&format!("k{}", at % 3)).queue("q"));
    let planted = scenario.build(w)?;
    let done = AtomicUsize::new(0);
    let watching = AtomicBool::new(true);
    std::thread::scope(|scope| -> Outcome {
        let watcher = scope.spawn(|| -> Result<usize, BoxError> {
            let mut looks = 0;
            while watching.load(Ordering::SeqCst) {
                let leases = w.read(|tx| tx.totals())?.leases_live;
                assert!(leases <= i64::from(LIMIT), "{leases} leases at once");
                looks += 1;
            }
            Ok(looks)
        });
        let workers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| -> Outcome {
                    while done.load(Ordering::SeqCst) < OPS {
                        for op in w.claim("w1", 2)? {
                            w.complete_one(&op, "1")?;
                            done.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        let worked: Outcome =
            workers.into_iter().try_for_each(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        watching.store(false, Ordering::SeqCst);
        let looks = watcher.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        worked?;
        assert!(looks > 0, "somebody looked");
        Ok(())
    })?;
    assert_eq!(w.workflow(&planted.id)?.status, WorkflowStatus::Succeeded);
    Ok(())
}

fn a_rate_is_not_exceeded_by_many_claims(w: &mut World) -> Outcome {
    w.set_policies(&[crate::verbs::rate("q", 1.0, 5)])?;
    let scenario = (0..40).fold(Scenario::new(), |scenario, at| scenario.op(&at.to_string()).kind("k").queue("q"));
    scenario.build(w)?;
    for expected in [5, 2] {
        let (first, second) = at_once(
            || Ok((0..4).map(|_| w.claim("w1", 3).map(|ops| ops.len())).sum::<Result<usize, _>>()?),
            || Ok((0..4).map(|_| w.claim("w2", 3).map(|ops| ops.len())).sum::<Result<usize, _>>()?),
        )?;
        // A claim passes over a gate that another holds, so what both left is fetched in peace.
        let rest = (0..3).map(|_| w.claim("w3", 3).map(|ops| ops.len())).sum::<Result<usize, _>>()?;
        assert_eq!(first + second + rest, expected, "tokens are spent once");
        w.clock().advance(leasehold_core::model::Micros::from_secs(2))?;
    }
    Ok(())
}

fn many_workers_drain_a_graph_and_every_op_succeeds_once(w: &mut World) -> Outcome {
    drained_by_many(&[w, w, w])
}

fn many_handles_drain_a_graph_and_every_op_succeeds_once(w: &mut World) -> Outcome {
    let (second, third) = (w.second_handle()?, w.second_handle()?);
    drained_by_many(&[w, &second, &third])
}
