//! Random histories through memory, SQLite and Postgres in one run: every answer and everything that is stored is equal,
//! and a history that fails is shortened to the least that still does.
//!
//! `LEASEHOLD_LONG=1` runs a thousand of 200 commands, comparing after each; `LEASEHOLD_SEED=n` runs the n-th choice.
#![expect(clippy::print_stderr, reason = "how much was run is what a reader of the log looks for")]

#[path = "harness/postgres.rs"]
mod postgres;
#[path = "harness/sqlite_memory.rs"]
mod sqlite_memory;

use leasehold_conformance::history::{Command, Lockstep, specification};
use leasehold_conformance::{Harness, World};
use proptest::collection::vec;
use proptest::prelude::{Strategy, any};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

struct Extent {
    histories: u32,
    shrinks: u32,
    commands: usize,
    compare_each: usize,
}

fn extent(short: Extent) -> Extent {
    let long = std::env::var_os("LEASEHOLD_LONG").is_some_and(|value| value == "1");
    if long { Extent { histories: 1_000, shrinks: 2_000, commands: 200, compare_each: 1 } } else { short }
}

fn seed() -> u64 {
    std::env::var("LEASEHOLD_SEED").map_or(1, |text| text.parse().unwrap_or_else(|_| panic!("LEASEHOLD_SEED={text:?} is not a number")))
}

fn agree(worlds: Vec<(String, World)>, extent: &Extent) {
    let seed = seed();
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { cases: extent.histories, failure_persistence: None, max_shrink_iters: extent.shrinks, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let command = (any::<u8>(), any::<u32>()).prop_map(|(which, seed)| Command::of(which.into(), seed.into()));
    let histories = vec(command, 1..=extent.commands);
    let lockstep = RefCell::new(Lockstep::new(worlds));
    let commands = RefCell::new(0_usize);
    let ran = runner.run(&histories, |history| {
        let mut lockstep = lockstep.borrow_mut();
        *commands.borrow_mut() += history.len();
        let run = catch_unwind(AssertUnwindSafe(|| lockstep.clear().and_then(|()| lockstep.run(&history, extent.compare_each))));
        match run {
            Ok(Ok(())) => Ok(()),
            Ok(Err(differs)) => Err(TestCaseError::fail(differs.to_string())),
            Err(_) => Err(TestCaseError::fail("a panic")),
        }
    });
    eprintln!("seed {seed}: {} histories, {} commands", extent.histories, commands.borrow());
    if let Err(failed) = ran {
        panic!("seed {seed}: {failed}");
    }
}

#[test]
fn memory_sqlite_and_postgres_answer_and_store_alike() {
    let extent = extent(Extent { histories: 20, shrinks: 500, commands: 60, compare_each: 10 });
    let sqlite = World::new(sqlite_memory::SqliteMemory.open().unwrap());
    let postgres = World::new(postgres::Postgres::default().open().unwrap());
    let worlds = vec![("memory".to_owned(), specification()), ("SQLite".to_owned(), sqlite), ("Postgres".to_owned(), postgres)];
    agree(worlds, &extent);
}

#[test]
fn memory_and_sqlite_answer_and_store_alike() {
    let extent = extent(Extent { histories: 60, shrinks: 500, commands: 200, compare_each: 1 });
    let sqlite = World::new(sqlite_memory::SqliteMemory.open().unwrap());
    agree(vec![("memory".to_owned(), specification()), ("SQLite".to_owned(), sqlite)], &extent);
}

/// A history that fails is found on a broken store, and shortened: else all of the above would show nothing.
#[test]
fn a_broken_store_is_told_from_the_specification_by_a_short_history() {
    use leasehold_conformance::mutants::{Mutant, MutantStore};
    for mutant in [Mutant::FailureNotCounted, Mutant::PropagationStopsAtChildren, Mutant::LossNotCounted, Mutant::EqualityIsAlive] {
        let opened = sqlite_memory::SqliteMemory.open().unwrap();
        let sound = World::new(opened);
        let broken = sound.through(std::sync::Arc::new(MutantStore::new(std::sync::Arc::clone(sound.store()), mutant)));
        let extent = Extent { histories: 200, shrinks: 60, commands: 120, compare_each: 10 };
        let found =
            catch_unwind(AssertUnwindSafe(|| agree(vec![("memory".to_owned(), specification()), (mutant.to_string(), broken)], &extent)));
        assert!(found.is_err(), "{mutant} was not found");
    }
}
