//! The promises, in files by concern. Files under `steps` are about single steps of the storage contract, the others
//! about the engine's verbs on top of it.

mod add;
mod admission;
mod agreement;
mod boundary;
mod budget;
mod cancel;
mod claim;
mod complete;
mod create;
mod doctor;
mod downtime;
mod effect;
mod emit;
mod events;
mod fail;
mod faults;
mod graph;
mod hints;
mod identity;
mod maintenance;
mod overlap;
mod own;
mod race;
mod rate;
mod reads;
mod recover;
mod retry;
mod steps;
mod stress;
mod suspects;
mod time;
mod wait;

use crate::Case;

const FILES: &[&[Case]] = &[
    steps::transact::CASES,
    steps::graph::CASES,
    steps::write::CASES,
    steps::lease::CASES,
    steps::claim::CASES,
    steps::lanes::CASES,
    steps::read::CASES,
    steps::time::CASES,
    steps::inspect::CASES,
    create::CASES,
    identity::CASES,
    graph::CASES,
    add::CASES,
    emit::CASES,
    claim::CASES,
    boundary::CASES,
    complete::CASES,
    fail::CASES,
    recover::CASES,
    wait::CASES,
    effect::CASES,
    retry::CASES,
    cancel::CASES,
    admission::CASES,
    rate::CASES,
    time::CASES,
    maintenance::CASES,
    events::CASES,
    reads::CASES,
    doctor::CASES,
    race::CASES,
    overlap::CASES,
    own::CASES,
    hints::CASES,
    stress::CASES,
    suspects::CASES,
    downtime::CASES,
    budget::CASES,
    faults::CASES,
    agreement::CASES,
];

/// Every case there is.
pub const CASES: &[Case] = &joined::<{ count() }>();

#[expect(clippy::indexing_slicing, reason = "the compiler runs it, and stops at an index out of bounds")]
const fn count() -> usize {
    let mut count = 0;
    let mut at = 0;
    while at < FILES.len() {
        count += FILES[at].len();
        at += 1;
    }
    count
}

#[expect(clippy::indexing_slicing, reason = "the compiler runs it, and stops at an index out of bounds")]
const fn joined<const N: usize>() -> [Case; N] {
    let mut cases = [FILES[0][0]; N];
    let (mut file, mut at, mut to) = (0, 0, 0);
    while file < FILES.len() {
        while at < FILES[file].len() {
            cases[to] = FILES[file][at];
            to += 1;
            at += 1;
        }
        (file, at) = (file + 1, 0);
    }
    cases
}
