//! Disks that are full, or take no writes (B3, P3). They are mounts of a process's own, which only root can make: without
//! that right these tests show as ignored.

use leasehold_test_sqlite_faults::victim::{Victim, argument};
use leasehold_test_sqlite_faults::{Error, Result};
use libtest_mimic::{Arguments, Failed, Trial};
use std::path::Path;
use std::process::{Command, ExitCode};

const PROGRAM: &str = env!("CARGO_BIN_EXE_leasehold-sqlite-fault");

fn main() -> ExitCode {
    let may_mount = Command::new("unshare").args(["--mount", "true"]).output().is_ok_and(|ran| ran.status.success());
    let test = |name: &str, run: fn() -> Result<()>| {
        let run = move || run().map_err(|error| Failed::from(error.to_string()));
        Trial::test(name, run).with_ignored_flag(!may_mount)
    };
    let tests = vec![
        test("a_disk_that_fills_up_loses_nothing_and_work_goes_on_once_there_is_space", full_disk),
        test("a_file_on_a_read_only_disk_is_read_only", read_only_disk),
        test("a_file_of_somebody_else_is_read_only", file_of_another),
        test("a_file_in_a_folder_that_takes_no_files_is_read_only", file_in_a_closed_folder),
        test("a_store_that_cannot_be_made_in_a_folder_names_the_folder", no_file_in_a_closed_folder),
    ];
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}

/// Runs the program's `act` on `path` behind `prepare`, a line of shell in which `$1` is the path, in mounts of its own.
fn in_own_mounts(prepare: &str, act: &str, path: &Path) -> Result<String> {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-ec", &format!("{prepare}; exec \"$2\" \"$3\" \"$1\""), "sh"]);
    command.args([argument(path)?, PROGRAM, act]);
    let (victim, first) = Victim::spawn(command)?;
    victim.finish()?;
    Ok(first)
}

fn full_disk() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let said = in_own_mounts("mount -t tmpfs -o size=8m tmpfs \"$1\"", "fill", folder.path())?;
    eprintln!("{said}");
    Ok(())
}

/// A store that was made in good order, in a folder.
fn made() -> Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("store.db");
    drop(leasehold_test_sqlite_faults::worker::open(&path)?);
    Ok(folder)
}

fn says(said: &str, sort: &str) -> Result<()> {
    eprintln!("{said}");
    if said.starts_with(sort) { Ok(()) } else { Err(Error::from(format!("{sort} was expected, not {said}"))) }
}

fn read_only_disk() -> Result<()> {
    let folder = made()?;
    let path = folder.path().join("store.db");
    let mount = "d=$(dirname \"$1\"); mount --bind \"$d\" \"$d\"; mount -o remount,bind,ro \"$d\"";
    says(&in_own_mounts(mount, "open", &path)?, "ReadOnly(ReadOnlyFolder")
}

/// Runs `open` as nobody behind `prepare`, a line of shell in which `$1` is the file's path and `$2` its folder.
fn as_nobody(prepare: &str) -> Result<String> {
    let folder = made()?;
    let path = folder.path().join("store.db");
    // The program lies where only root may go, so it is given as an open file.
    let script = format!("{prepare}; exec setpriv --reuid=65534 --regid=65534 --clear-groups /proc/self/fd/9 open \"$1\" 9<\"$3\"");
    let mut command = Command::new("sh");
    command.args(["-ec", &script, "sh", argument(&path)?, argument(folder.path())?, PROGRAM]);
    let (victim, first) = Victim::spawn(command)?;
    victim.finish()?;
    Ok(first)
}

fn file_of_another() -> Result<()> {
    says(&as_nobody("chmod 777 \"$2\"")?, "ReadOnly")
}

fn file_in_a_closed_folder() -> Result<()> {
    says(&as_nobody("chmod 666 \"$1\"; chmod 755 \"$2\"")?, "ReadOnly")
}

fn no_file_in_a_closed_folder() -> Result<()> {
    says(&as_nobody("rm \"$1\"; chmod 755 \"$2\"")?, "ReadOnly(ReadOnlyFolder")
}
