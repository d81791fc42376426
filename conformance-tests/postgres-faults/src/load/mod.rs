//! Load: workers as processes of their own, clients that keep them busy and interfere, and what must have come of it.

mod expected;
mod fleet;
mod sampler;
mod task;
mod traffic;
mod worker;

pub use expected::{Expected, check_reports};
pub use fleet::Fleet;
pub use sampler::{Sampler, Samples};
pub use task::{KINDS, Task};
pub use traffic::{Manners, Traffic};
pub use worker::{Line, Ran, WorkerConfig, run_worker};

/// The queues of the load, with the most ops that may be leased at once at each site.
pub const LIMITS: [(&str, usize); 2] = [("one", 1), ("four", 4)];

/// The queue without a limit.
pub const FREE: &str = "free";

/// The sites.
pub const SITES: [&str; 2] = ["east", "west"];

/// The limits as policies to store.
///
/// # Errors
/// Never, for names that are valid.
pub fn policies() -> crate::Result<Vec<leasehold_core::model::QueuePolicy>> {
    use leasehold_core::model::{QueueName, QueuePolicy};
    let policy = |(queue, limit): &(&str, usize)| {
        let queue = QueueName::new(*queue)?;
        Ok(QueuePolicy { max_in_flight: Some(u32::try_from(*limit)?), ..QueuePolicy::unlimited(queue) })
    };
    LIMITS.iter().map(policy).collect()
}
