//! A process of the fault tests: `leasehold-sqlite-fault work FILE` works until it is killed; `hold FILE` holds the file's
//! write lock until its standard input ends; `open FILE` opens the store and writes; `fill FOLDER` fills the disk that the
//! folder is on.

use leasehold_test_sqlite_faults::{Result, disk, lock, worker};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done: Result<()> = match arguments.as_slice() {
        ["work", file] => worker::work_until_killed(Path::new(file)),
        ["hold", file] => lock::hold(Path::new(file)),
        ["open", file] => disk::open_and_write(Path::new(file)),
        ["fill", folder] => disk::fill(Path::new(folder)),
        _ => Err("usage: leasehold-sqlite-fault work|hold|open|fill PATH".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("leasehold-sqlite-fault: {error:?}");
            ExitCode::FAILURE
        }
    }
}
