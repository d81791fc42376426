//! A process that holds the file's write lock.

use crate::Result;
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use std::io::{Read, Write};
use std::path::Path;

/// Takes the write lock of `file`, says so, and keeps it until standard input ends.
///
/// # Errors
/// The database's.
pub fn hold(file: &Path) -> Result<()> {
    let mut conn = SqliteConnection::establish(crate::victim::argument(file)?)?;
    conn.batch_execute("PRAGMA busy_timeout = 10000; BEGIN IMMEDIATE")?;
    writeln!(std::io::stdout(), "held")?;
    std::io::stdin().lock().read_to_end(&mut Vec::new())?;
    conn.batch_execute("ROLLBACK")?;
    Ok(())
}
