//! Sets the suite on the mutants.

use super::{Mutant, MutantHarness};
use crate::run::run_case;
use crate::{CASES, Case, Harness};
use libtest_mimic::{Arguments, Conclusion, Failed, Trial};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Makes each mutant of the stores that `sound` makes a test, which passes when the case named for the mutant fails on it
/// and passes on the sound store. With `LEASEHOLD_MUTANTS=all` in the environment every case is tried, and those that
/// kill are printed.
pub fn run_mutants<H: Harness>(sound: H, arguments: &Arguments) -> Conclusion {
    let sound: Arc<dyn Harness> = Arc::new(sound);
    let all = std::env::var("LEASEHOLD_MUTANTS").is_ok_and(|value| value == "all");
    let trial = |mutant: &Mutant| {
        let (mutant, sound) = (*mutant, Arc::clone(&sound));
        Trial::test(format!("{mutant}_is_killed_by_{}", mutant.killed_by()), move || judge(mutant, &sound, all))
    };
    libtest_mimic::run(arguments, Mutant::ALL.iter().map(trial).collect())
}

fn judge(mutant: Mutant, sound: &Arc<dyn Harness>, all: bool) -> Result<(), Failed> {
    let broken = MutantHarness::new(Arc::clone(sound), mutant);
    if all {
        // What the sound store cannot run shows nothing about the broken one.
        let sound = CASES.iter().filter(|case| passes(case, sound.as_ref()));
        let killers: Vec<&str> = sound.filter(|case| !passes(case, &broken)).map(|case| case.name).collect();
        eprintln!("{mutant} is killed by {} cases: {killers:?}", killers.len());
    }
    let named = CASES.iter().find(|case| case.name == mutant.killed_by());
    let Some(case) = named else {
        return Err(format!("there is no case {:?}", mutant.killed_by()).into());
    };
    if !passes(case, sound.as_ref()) {
        return Err(format!("{} fails on the sound store, so its failure shows nothing", case.name).into());
    }
    if passes(case, &broken) {
        return Err(format!("{mutant} survives {}", case.name).into());
    }
    Ok(())
}

/// Cases tell a fault by an error or by a panic of an assertion.
fn passes(case: &Case, harness: &dyn Harness) -> bool {
    catch_unwind(AssertUnwindSafe(|| run_case(case, harness).is_ok())).unwrap_or(false)
}
