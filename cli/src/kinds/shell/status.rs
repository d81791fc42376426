//! What a command's exit status says.
//!
//! | status | the op |
//! | --- | --- |
//! | 0 | succeeds |
//! | 65 (`EX_DATAERR`) | fails for good: its input is wrong, and another attempt would meet the same |
//! | 126, 127 | fails for good: the shell could not run the command, or did not find it |
//! | 75 (`EX_TEMPFAIL`), any other, ended by a signal | is tried again while its retry policy allows it |

use crate::kinds::failure::Failure;
use nix::sys::signal::Signal;
use serde_json::json;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// The command says that its input is wrong.
const DATA_ERROR: i32 = 65;
/// The shell could not run what it found.
const NOT_EXECUTABLE: i32 = 126;
/// The shell found no such command.
const NOT_FOUND: i32 = 127;

/// So much standard output of a failed attempt is kept with its error.
const STDOUT_KEPT: usize = 1024;

/// The exit code of a success, or the failure that another status is.
pub(super) fn judge(status: ExitStatus, stdout: &str, stderr: &str) -> Result<i32, Failure> {
    if status.success() {
        return Ok(0);
    }
    let details = json!({
        "exit_code": status.code(),
        "signal": status.signal().map(signal_name),
        "stdout_tail": tail(stdout, STDOUT_KEPT),
        "stderr_tail": stderr,
    });
    let said = stderr.lines().rev().map(str::trim).find(|line| !line.is_empty());
    let with_last_line = |message: String| said.map_or_else(|| message.clone(), |line| format!("{message}: {line}"));
    let failure = match (status.code(), status.signal()) {
        (Some(DATA_ERROR), _) => Failure::permanent("data_error", with_last_line("exit status 65 (wrong input)".into())),
        (Some(NOT_EXECUTABLE), _) => Failure::permanent("not_executable", with_last_line("exit status 126 (cannot be run)".into())),
        (Some(NOT_FOUND), _) => Failure::permanent("not_found", with_last_line("exit status 127 (no such command)".into())),
        (Some(code), _) => Failure::retryable("exit_status", with_last_line(format!("exit status {code}"))),
        (None, Some(signal)) => Failure::retryable("signal", with_last_line(format!("ended by {}", signal_name(signal)))),
        (None, None) => Failure::retryable("exit_status", format!("ended as {status}")),
    };
    Err(failure.details(details))
}

fn signal_name(number: i32) -> String {
    Signal::try_from(number).map_or_else(|_| format!("signal {number}"), |signal| signal.as_str().to_owned())
}

fn tail(text: &str, limit: usize) -> &str {
    let mut start = text.len().saturating_sub(limit);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    text.get(start..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold::model::ErrorClass;

    fn of(raw: i32) -> Result<i32, Failure> {
        judge(ExitStatus::from_raw(raw), "out", "first\nlast word\n\n")
    }

    #[test]
    fn statuses_mean_what_the_table_says() {
        assert_eq!(of(0).unwrap(), 0);
        for (code, class) in [
            (1, ErrorClass::Retryable),
            (65, ErrorClass::Permanent),
            (75, ErrorClass::Retryable),
            (126, ErrorClass::Permanent),
            (127, ErrorClass::Permanent),
            (255, ErrorClass::Retryable),
        ] {
            let failure = of(code << 8).unwrap_err();
            assert_eq!(failure.class, class, "{code}");
            assert!(failure.message.ends_with(": last word"), "{}", failure.message);
            assert_eq!(failure.details["exit_code"], code);
        }
        let killed = of(9).unwrap_err();
        assert_eq!((killed.class, killed.details["signal"].as_str()), (ErrorClass::Retryable, Some("SIGKILL")));
    }

    #[test]
    fn a_tail_begins_at_a_character() {
        assert_eq!(tail("aüb", 2), "b");
        assert_eq!(tail("aüb", 3), "üb");
        assert_eq!(tail("", 3), "");
    }
}
