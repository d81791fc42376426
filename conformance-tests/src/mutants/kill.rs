//! Sets the suite on the mutants.

use super::{Mutant, MutantHarness};
use crate::run::run_case;
use crate::{CASES, Case, Harness};
use libtest_mimic::{Arguments, Conclusion, Failed, Trial};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// How often a case may miss a mutant: where two transactions are to meet, a slow machine may keep them apart.
const TRIES: usize = 5;

/// A store that is broken on purpose, and the case that is named for it.
pub struct Broken {
    /// What is wrong with it.
    pub name: String,
    /// The case that must fail on it, and pass on the sound store.
    pub killed_by: &'static str,
    /// Makes it.
    pub harness: Arc<dyn Harness>,
}

impl fmt::Debug for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broken").field("name", &self.name).field("killed_by", &self.killed_by).finish_non_exhaustive()
    }
}

/// Makes each mutant of the stores that `sound` makes a test, which passes when the case named for the mutant fails on it
/// and passes on the sound store. With `LEASEHOLD_MUTANTS=all` in the environment every case is tried, and those that
/// kill are printed.
pub fn run_mutants<H: Harness>(sound: H, arguments: &Arguments) -> Conclusion {
    let sound: Arc<dyn Harness> = Arc::new(sound);
    let broken = |mutant: &Mutant| Broken {
        name: mutant.to_string(),
        killed_by: mutant.killed_by(),
        harness: Arc::new(MutantHarness::new(Arc::clone(&sound), *mutant)),
    };
    run_broken(&sound, Mutant::ALL.iter().map(broken), arguments)
}

/// The same with stores that are broken inside, as no wrapper can: statements of a database's own.
pub fn run_broken(sound: &Arc<dyn Harness>, broken: impl IntoIterator<Item = Broken>, arguments: &Arguments) -> Conclusion {
    let all = std::env::var("LEASEHOLD_MUTANTS").is_ok_and(|value| value == "all");
    let trial = |broken: Broken| {
        let sound = Arc::clone(sound);
        Trial::test(format!("{}_is_killed_by_{}", broken.name, broken.killed_by), move || judge(&broken, sound.as_ref(), all))
    };
    libtest_mimic::run(arguments, broken.into_iter().map(trial).collect())
}

fn judge(broken: &Broken, sound: &dyn Harness, all: bool) -> Result<(), Failed> {
    let Broken { name, killed_by, harness } = broken;
    if all {
        // What the sound store cannot run shows nothing about the broken one.
        let sound = CASES.iter().filter(|case| passes(case, sound));
        let killers: Vec<&str> = sound.filter(|case| !passes(case, harness.as_ref())).map(|case| case.name).collect();
        eprintln!("{name} is killed by {} cases: {killers:?}", killers.len());
    }
    let named = CASES.iter().find(|case| case.name == *killed_by);
    let Some(case) = named else {
        return Err(format!("there is no case {killed_by:?}").into());
    };
    if !passes(case, sound) {
        return Err(format!("{killed_by} fails on the sound store, so its failure shows nothing").into());
    }
    if (0..TRIES).all(|_| passes(case, harness.as_ref())) {
        return Err(format!("{name} survives {killed_by}").into());
    }
    Ok(())
}

/// Cases tell a fault by an error or by a panic of an assertion.
fn passes(case: &Case, harness: &dyn Harness) -> bool {
    catch_unwind(AssertUnwindSafe(|| run_case(case, harness).is_ok())).unwrap_or(false)
}
