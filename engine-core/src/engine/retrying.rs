//! Trying again what the store could not do just now (L12): with the same ids, ever slower, under one deadline.

use crate::store::StoreError;
use crate::transitions::TransitionError;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

/// An error that says whether the same call may succeed soon.
pub(crate) trait Transient {
    /// Whether it may.
    fn is_transient(&self) -> bool;
}
impl Transient for StoreError {
    fn is_transient(&self) -> bool {
        Self::is_transient(self)
    }
}
impl Transient for TransitionError {
    fn is_transient(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_transient())
    }
}

/// How long to pause between tries: doubled each time up to a cap, and drawn from its upper half so that processes
/// that failed together do not come back together.
#[derive(Debug)]
pub(crate) struct Pauses {
    next: Duration,
}

impl Pauses {
    /// Short enough that a lost race costs nothing.
    const FIRST: Duration = Duration::from_millis(5);
    /// Long enough that a database that is away is left alone.
    const LONGEST: Duration = Duration::from_secs(1);

    pub(crate) const fn new() -> Self {
        Self { next: Self::FIRST }
    }

    /// The pause before the next try.
    pub(crate) fn next(&mut self) -> Duration {
        let whole = self.next;
        self.next = (whole * 2).min(Self::LONGEST);
        let half = whole / 2;
        half + half.mul_f64(random_fraction())
    }
}

/// From 0 to 1, different in every call and process.
#[expect(clippy::cast_precision_loss, reason = "a pause needs no more than a few bits")]
fn random_fraction() -> f64 {
    // The standard library's hasher is seeded anew for every state.
    RandomState::new().hash_one(0_u8) as f64 / u64::MAX as f64
}

/// Runs `call` until it succeeds, fails for good, or `patience` is over; then the last error. Blocks while it pauses.
pub(crate) fn retry<T, E: Transient>(patience: Duration, mut call: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    let deadline = Instant::now() + patience;
    let mut pauses = Pauses::new();
    loop {
        match call() {
            Err(error) if error.is_transient() => {
                let pause = pauses.next();
                if Instant::now() + pause >= deadline {
                    return Err(error);
                }
                std::thread::sleep(pause);
            }
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_succeed_is_tried_again() {
        let mut tries = 0;
        let busy = || StoreError::Busy("held".into());
        let answer = retry(Duration::from_mins(1), || {
            tries += 1;
            if tries < 3 { Err(busy()) } else { Ok(tries) }
        });
        assert_eq!(answer.unwrap(), 3);
        let mut tries = 0;
        let refused: Result<(), _> = retry(Duration::from_mins(1), || {
            tries += 1;
            Err(StoreError::Rejected("bad".into()))
        });
        assert!(refused.is_err() && tries == 1);
        let over: Result<(), _> = retry(Duration::ZERO, || Err(busy()));
        assert!(matches!(over, Err(StoreError::Busy(_))));
    }

    #[test]
    fn pauses_grow_to_a_cap() {
        let mut pauses = Pauses::new();
        let all: Vec<Duration> = (0..20).map(|_| pauses.next()).collect();
        assert!(all.iter().all(|pause| *pause <= Pauses::LONGEST));
        assert!(all.first().unwrap() <= &Pauses::FIRST && all.last().unwrap() >= &(Pauses::LONGEST / 2));
    }
}
