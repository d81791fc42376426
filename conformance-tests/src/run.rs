//! Makes each case a named test.

use crate::{CASES, Case, Harness, Level, Need, World, recount};
use leasehold_core::store::BoxError;
use libtest_mimic::{Arguments, Conclusion, Failed, Trial};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

/// Runs the suite with the arguments of this process (those of any Rust test); returns the process's exit code.
pub fn run(harness: impl Harness) -> i32 {
    if run_with(harness, &Arguments::from_args()).has_failed() { FAILED } else { 0 }
}

/// How long an examination waits for a store that is busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// What libtest exits with.
const FAILED: i32 = 101;

/// Runs the suite with these arguments.
pub fn run_with(harness: impl Harness, arguments: &Arguments) -> Conclusion {
    let harness = Arc::new(harness);
    // A store of its own tells what the harness offers: abilities that are declared apart from it would drift.
    let probe = harness.open();
    let offers = |need: &Need| probe.as_ref().is_ok_and(|opened| opened.offers(*need));
    let trials = CASES
        .iter()
        .map(|case| {
            let lacking = probe.is_ok() && !case.needs.iter().all(offers);
            let harness = Arc::clone(&harness);
            Trial::test(case.name, move || run_case(case, harness.as_ref()).map_err(|error| failed(error.as_ref())))
                .with_ignored_flag(lacking)
        })
        .collect();
    drop(probe);
    libtest_mimic::run(arguments, trials)
}

/// Runs one case on a store of its own.
pub(crate) fn run_case(case: &Case, harness: &dyn Harness) -> Result<(), BoxError> {
    let opened = harness.open()?;
    if let Some(need) = case.needs.iter().find(|need| !opened.offers(**need)) {
        return Err(format!("the harness lacks what this case needs: {need}").into());
    }
    let mut world = World::new(opened);
    (case.run)(&mut world)?;
    match case.level {
        // A single step leaves to the verb around it what follows from it.
        Level::Step => Ok(()),
        Level::Verb => recount(&world).and_then(|()| sound(&world)),
    }
}

/// What operators are told of the store is what the suite finds: two accounts, written apart.
fn sound(world: &World) -> Result<(), BoxError> {
    let diagnosis = leasehold_core::doctor::examine(world.store().as_ref(), PATIENCE)?;
    if diagnosis.is_sound() {
        return Ok(());
    }
    Err(format!("the doctor finds {:?}, and of a write: {:?}", diagnosis.findings, diagnosis.write_fault).into())
}

/// An error with all its causes: a store's error alone says only how it was sorted.
fn failed(error: &(dyn Error + Send + Sync + 'static)) -> Failed {
    let mut text = error.to_string();
    let mut cause: Option<&(dyn Error + 'static)> = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text.into()
}
