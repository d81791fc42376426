//! Faults for Leasehold's tests on Postgres.
//!
//! - [`proxy`] stands between a client and a server, and loses the answer to a COMMIT or falls silent.
//! - [`pgbouncer`] starts a real pooler in transaction mode.
//! - [`load`] is a worker as a process of its own, a fleet of them, and the clients that keep it busy.
//! - [`hand`] makes single transitions on a connection of its own, for races.
//! - [`audit`] reads the tables and judges by them alone, without the engine's logic, whether the promises were kept.
//!
//! `LEASEHOLD_LONG=1` runs the tests at their full size; without it they are sized for a run at every commit.

pub mod audit;
pub mod database;
pub mod hand;
pub mod load;
pub mod pgbouncer;
pub mod proxy;
pub mod url;

/// An error of a test's helper: what went wrong, for a person.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// What a test's helper returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Whether the tests run at their full size.
pub fn long() -> bool {
    std::env::var_os("LEASEHOLD_LONG").is_some_and(|value| !value.is_empty() && value != "0")
}

/// A seed for the randomness of a test: `LEASEHOLD_SEED`, or one of the moment, printed so that a failure can be repeated.
pub fn seed() -> u64 {
    let given = std::env::var("LEASEHOLD_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| u64::from(uuid::Uuid::new_v4().as_fields().0));
    eprintln!("LEASEHOLD_SEED={seed}");
    seed
}

/// A small generator of numbers that look random: the same ones for the same seed.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// Starts from `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// From 0 up to, without, `sides`.
    pub const fn roll(&mut self, sides: u64) -> u64 {
        if sides == 0 { 0 } else { self.next() % sides }
    }

    /// Whether one of `in_many` chances came up.
    pub const fn one_in(&mut self, in_many: u64) -> bool {
        self.roll(in_many) == 0
    }
}
