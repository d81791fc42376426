//! Several processes on one file: nobody starves, and nobody hears of a lock.

use leasehold_core::model::{QueueName, QueuePolicy};
use leasehold_core::store::{StoreExt, SystemClock, TxKind};
use leasehold_sqlite::SqliteStore;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const FILE: &str = "LEASEHOLD_TEST_FILE";
const NUMBER: &str = "LEASEHOLD_TEST_NUMBER";
const PROCESSES: usize = 6;
const RUN: Duration = Duration::from_secs(4);

/// Not a test by itself: what each process does. Prints its commits and its longest wait.
#[test]
#[ignore = "the other test starts it as a process of its own"]
fn one_of_many() {
    let (Ok(file), Ok(number)) = (std::env::var(FILE), std::env::var(NUMBER)) else { return };
    let store = SqliteStore::open(Path::new(&file), Arc::new(SystemClock)).unwrap();
    let (begun, mut commits, mut longest) = (Instant::now(), 0_u32, Duration::ZERO);
    while begun.elapsed() < RUN {
        let policy = [QueuePolicy::unlimited(QueueName::new(format!("{number} {commits}")).unwrap())];
        let asked = Instant::now();
        store.with(TxKind::Client, |tx| tx.set_policies(&policy)).unwrap();
        longest = longest.max(asked.elapsed());
        commits += 1;
    }
    eprintln!("commits={commits} longest={}", longest.as_millis());
}

#[test]
fn processes_share_one_file_fairly() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store.db");
    let children: Vec<_> = (0..PROCESSES)
        .map(|number| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "one_of_many", "--ignored", "--nocapture"])
                .env(FILE, &file)
                .env(NUMBER, number.to_string())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut shares = Vec::new();
    for child in children {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{text}");
        let value = |name: &str| -> usize {
            let (_, rest) = text.split_once(name).unwrap();
            rest.split_whitespace().next().unwrap().parse().unwrap()
        };
        shares.push((value("commits="), value("longest=")));
    }
    let all: usize = shares.iter().map(|(commits, _)| commits).sum();
    let store = SqliteStore::open_existing(file.as_path(), Arc::new(SystemClock)).unwrap();
    assert_eq!(store.with(TxKind::Read, |tx| tx.policies()).unwrap().len(), all, "what was acknowledged is there");
    for (commits, longest) in &shares {
        assert!(commits * PROCESSES * 4 >= all, "less than a quarter of an equal share: {shares:?}");
        assert!(*longest < 2_000, "a wait of more than 2 s: {shares:?}");
    }
}
