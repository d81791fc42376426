//! Readers of events and updates lose nothing that commits late (O3, O4).

use crate::common::{World, event, insert_workflow, workflow};
use leasehold_core::model::{EventSeq, WorkflowSeq};
use leasehold_core::store::rows::{UpdateCursor, WriteSet};
use leasehold_core::store::{StoreError, StoreExt, TxKind, Wait};
use leasehold_postgres::PostgresStore;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

fn events(store: &PostgresStore, after: Option<EventSeq>) -> Vec<(EventSeq, String)> {
    let rows = store.with(TxKind::Read, |tx| tx.events_since(after, None, 1_000)).unwrap();
    rows.into_iter().map(|row| (row.seq, row.event.detail.unwrap_or_default())).collect()
}

fn details(store: &PostgresStore) -> Vec<String> {
    events(store, None).into_iter().map(|(_, detail)| detail).collect()
}

fn updated(store: &PostgresStore) -> Vec<WorkflowSeq> {
    let rows = store.with(TxKind::Read, |tx| tx.workflows_since(None, 1_000)).unwrap();
    rows.into_iter().map(|row| row.seq).collect()
}

#[test]
fn what_an_open_transaction_could_still_precede_is_not_returned_yet() {
    let world = World::new();
    let first = workflow(&world.store, "first");
    assert_eq!(details(&world.store), ["first"]);
    let (wrote, wrote_rx) = mpsc::channel();
    let (commit, commit_rx) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let slow = scope.spawn(|| {
            let commit_rx = commit_rx;
            world.store.with(TxKind::Client, |tx| {
                let seq = insert_workflow(tx, "slow")?;
                wrote.send(()).unwrap();
                commit_rx.recv().unwrap();
                Ok::<_, StoreError>(seq)
            })
        });
        wrote_rx.recv().unwrap();
        let quick = workflow(&world.store, "quick");
        assert_eq!(details(&world.store), ["first"], "the slow one's number is lower");
        assert_eq!(updated(&world.store), [first]);
        commit.send(()).unwrap();
        let slow = slow.join().unwrap().unwrap();
        assert_eq!(details(&world.store), ["first", "slow", "quick"]);
        assert_eq!(updated(&world.store).into_iter().collect::<BTreeSet<_>>(), BTreeSet::from([first, slow, quick]));
    });
}

#[test]
fn a_reader_is_not_delayed_by_transactions_elsewhere_on_the_server() {
    use diesel::connection::SimpleConnection;
    let world = World::new();
    let mut elsewhere = world.schema.connect().unwrap();
    elsewhere.batch_execute("BEGIN; SELECT pg_current_xact_id(); CREATE TABLE theirs (x BIGINT)").unwrap();
    workflow(&world.store, "w");
    assert_eq!(details(&world.store), ["w"]);
    elsewhere.batch_execute("ROLLBACK").unwrap();
}

#[test]
fn a_read_that_asks_for_events_late_runs_again_and_sees_one_snapshot() {
    let world = World::new();
    workflow(&world.store, "w");
    let mut runs = 0;
    let (totals, events, updates) = world
        .store
        .with(TxKind::Read, |tx| {
            runs += 1;
            let totals = tx.totals()?;
            Ok::<_, StoreError>((totals, tx.events_since(None, None, 10)?, tx.workflows_since(None, 10)?))
        })
        .unwrap();
    assert_eq!((totals.workflows[0].1, events.len(), updates.len(), runs), (1, 1, 1, 2));
}

#[test]
fn a_follower_of_racing_writers_sees_every_event_and_every_last_update() {
    const WRITERS: usize = 6;
    const WRITES: usize = 60;
    let world = World::new();
    let flows: Vec<WorkflowSeq> = (0..WRITERS).map(|writer| workflow(&world.store, &format!("w{writer}"))).collect();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let follower = scope.spawn(|| {
            let (mut seen, mut after) = (Vec::new(), None);
            let (mut cursor, mut last): (Option<UpdateCursor>, std::collections::BTreeMap<WorkflowSeq, i64>) =
                (None, std::collections::BTreeMap::default());
            loop {
                let last_round = done.load(Ordering::SeqCst);
                let page = events(&world.store, after);
                after = page.last().map(|(seq, _)| *seq).or(after);
                seen.extend(page.into_iter().map(|(_, detail)| detail));
                for row in world.store.with(TxKind::Read, |tx| tx.workflows_since(cursor, 100)).unwrap() {
                    cursor = Some(UpdateCursor { updated_at: row.updated_at, seq: row.seq });
                    last.insert(row.seq, row.counters.pending);
                }
                if last_round {
                    return (seen, last);
                }
            }
        });
        let writers: Vec<_> = flows
            .iter()
            .enumerate()
            .map(|(writer, flow)| {
                let store = &world.store;
                scope.spawn(move || {
                    for write in 1..=WRITES {
                        let mut change = crate::common::change(*flow);
                        change.counters.pending = i64::try_from(write).unwrap();
                        let set = WriteSet {
                            events: vec![event(*flow, &format!("{writer}/{write}"))],
                            workflows: vec![change],
                            ..WriteSet::default()
                        };
                        store
                            .with(TxKind::Client, |tx| {
                                tx.lock_workflows(&[*flow], Wait::Block)?;
                                tx.write(&set).map(drop)
                            })
                            .unwrap();
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::SeqCst);
        let (seen, last) = follower.join().unwrap();
        assert_eq!(seen.len(), WRITERS * WRITES + WRITERS);
        assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), seen.len());
        assert!(last.values().all(|pending| *pending == i64::try_from(WRITES).unwrap()), "{last:?}");
        assert_eq!(last.len(), WRITERS);
    });
}

#[test]
fn updates_get_later_though_the_clock_goes_back() {
    let world = World::new();
    let flow = workflow(&world.store, "w");
    let update = |at| {
        let mut change = crate::common::change(flow);
        change.at = crate::common::at(at);
        let set = WriteSet { workflows: vec![change], ..WriteSet::default() };
        let write = |tx: &mut dyn leasehold_core::store::Tx| {
            tx.lock_workflows(&[flow], Wait::Block)?;
            tx.write(&set)
        };
        world.store.with(TxKind::Client, write).unwrap();
        world.store.with(TxKind::Read, |tx| tx.workflows_since(None, 1)).unwrap()[0].updated_at.as_micros()
    };
    assert_eq!(update(crate::common::START + 50), crate::common::START + 50);
    assert_eq!(update(crate::common::START - 50), crate::common::START + 51);
    assert_eq!(update(crate::common::START + 51), crate::common::START + 52);
}
