//! What this process calls itself in leases, and whether another that did so is gone.
//!
//! Only what is shown depends on it: who owns a lease is decided by its token and its expiry.

use leasehold::model::{WorkerName, storable_text};
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::{Pid, gethostname};

/// `leasehold/HOST/PID`.
pub(crate) fn own_name() -> WorkerName {
    let name = format!("leasehold/{}/{}", host(), std::process::id());
    match WorkerName::new(name) {
        Ok(name) => name,
        Err(_) => unreachable!("a host's name is short and holds no control characters once it was cleaned"),
    }
}

fn host() -> String {
    const HOST_BYTES_MAX: usize = 64;
    let name = gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_default();
    let clean: String = name.chars().map(|c| if c.is_control() || c == '/' { '-' } else { c }).collect();
    storable_text(&clean, HOST_BYTES_MAX)
}

/// Whether `worker` was a process of this host that does not run any more. Of other hosts nothing is known.
pub(crate) fn is_gone(worker: &WorkerName) -> bool {
    let mut parts = worker.as_str().splitn(3, '/');
    let (Some("leasehold"), Some(of), Some(pid)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    of == host() && pid.parse().is_ok_and(|pid: i32| pid > 1 && kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_process_of_this_host_that_has_ended_is_gone() {
        assert!(!is_gone(&own_name()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        let named = |host: &str, pid: &str| WorkerName::new(format!("leasehold/{host}/{pid}")).unwrap();
        assert!(is_gone(&named(&host(), &pid.to_string())));
        assert!(!is_gone(&named("another-host", &pid.to_string())));
        for pid in ["0", "1", "-1", "x", "99999999999"] {
            assert!(!is_gone(&named(&host(), pid)), "{pid}");
        }
        assert!(!is_gone(&WorkerName::new("w1").unwrap()));
    }
}
