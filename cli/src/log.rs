//! What the library logs, for whoever looks into trouble.

use crate::screen::LogWriter;
use tracing_subscriber::EnvFilter;

/// Names what is logged, such as `leasehold_core=debug`; errors only if it is not set.
const VARIABLE: &str = "LEASEHOLD_LOG";

/// Logs to standard error from now on.
pub(crate) fn start(writer: LogWriter) {
    let filter = EnvFilter::try_from_env(VARIABLE).unwrap_or_else(|_| EnvFilter::new("error"));
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(move || writer.clone()).with_ansi(false);
    // Fails when somebody logs already, as in tests.
    let _ = logs.try_init();
}
