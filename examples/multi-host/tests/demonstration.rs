//! Runs the demonstration. It needs root and network namespaces; where there are none it fails and says so, unless
//! `LEASEHOLD_TEST_HOSTS=off`, which shows it as ignored.

use libtest_mimic::{Arguments, Failed, Trial};
use std::path::Path;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let off = std::env::var("LEASEHOLD_TEST_HOSTS").is_ok_and(|value| value == "off");
    let trial = Trial::test("a_host_that_was_cut_off_loses_its_leases_and_every_verb_of_them", demonstrate).with_ignored_flag(off);
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code()
}

fn demonstrate() -> Result<(), Failed> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("run.sh");
    let ran = Command::new(script).env("MULTI_HOST_PROGRAM", env!("CARGO_BIN_EXE_multi-host")).output()?;
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    if ran.status.success() {
        return Ok(());
    }
    Err(format!("{}\n{out}\n{err}\nLEASEHOLD_TEST_HOSTS=off leaves this test out", ran.status).into())
}
