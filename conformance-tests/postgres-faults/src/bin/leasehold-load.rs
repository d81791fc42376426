//! A worker of the load tests: `leasehold-load CONFIG`, with a `WorkerConfig` as JSON. It works until its standard input
//! ends.

use leasehold_test_faults::load::{WorkerConfig, run_worker};
use std::process::ExitCode;

fn main() -> ExitCode {
    let config = std::env::args().nth(1).unwrap_or_default();
    let done = serde_json::from_str::<WorkerConfig>(&config).map_err(Into::into).and_then(|config| run_worker(&config));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("leasehold-load: {error:?}");
            ExitCode::FAILURE
        }
    }
}
