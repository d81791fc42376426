//! Opening the store.

use crate::args::GlobalArgs;
use crate::exit::CliError;
use crate::output::shell_word;
use leasehold::store::Store;
use std::path::Path;
use std::sync::Arc;

/// The folder of the store that is used if none is named.
const DEFAULT_FOLDER: &str = ".leasehold";
const DEFAULT_URL: &str = "sqlite:.leasehold/leasehold.db";
const DEFAULT_FILE: &str = ".leasehold/leasehold.db";

/// Whether the default store may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    Create,
    Refuse,
}

/// Where the store is, as it may be shown: without a password.
pub(crate) fn shown(given: &GlobalArgs) -> String {
    without_password(given.store.as_deref().unwrap_or(DEFAULT_URL))
}

/// What a command that is suggested needs, besides, to mean the same store.
pub(crate) fn option(given: &GlobalArgs) -> String {
    given.store.as_deref().map_or_else(String::new, |url| format!(" --store {}", shell_word(&without_password(url))))
}

/// Opens the store that the command line names, else the one in the current folder.
pub(crate) async fn open(given: &GlobalArgs, missing: Missing) -> Result<Arc<dyn Store>, CliError> {
    if given.store.is_none() {
        match missing {
            Missing::Create => prepare_default_folder()?,
            Missing::Refuse if Path::new(DEFAULT_FILE).exists() => {}
            Missing::Refuse => {
                return Err(CliError::Usage(format!(
                    "there is no store here: {DEFAULT_FILE} does not exist; go to the folder where `leasehold run` was started, or name a store with --store"
                )));
            }
        }
    }
    let url = given.store.as_deref().unwrap_or(DEFAULT_URL);
    let opened = match missing {
        Missing::Create => leasehold::connect(url).await,
        Missing::Refuse => leasehold::connect_existing(url).await,
    };
    opened.map_err(|source| CliError::Connect { url: shown(given), source })
}

fn without_password(url: &str) -> String {
    let hidden = || {
        let (scheme, rest) = url.split_once("://")?;
        let authority = rest.split('/').next()?;
        let (user, host) = authority.rsplit_once('@')?;
        let (user, _) = user.split_once(':')?;
        Some(format!("{scheme}://{user}:***@{host}{}", rest.get(authority.len()..)?))
    };
    hidden().unwrap_or_else(|| url.to_owned())
}

/// Makes the folder of the default store, which version control is to leave alone.
fn prepare_default_folder() -> Result<(), CliError> {
    let folder = Path::new(DEFAULT_FOLDER);
    std::fs::create_dir_all(folder).map_err(CliError::system(format!("the folder {DEFAULT_FOLDER} cannot be made")))?;
    let ignore = folder.join(".gitignore");
    match std::fs::File::create_new(&ignore) {
        Ok(mut file) => {
            std::io::Write::write_all(&mut file, b"*\n").map_err(CliError::system(format!("{} cannot be written", ignore.display())))
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        // A folder that takes no files will be told of by the store, with more to say.
        Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_shown() {
        assert_eq!(without_password("postgres://me:a@b:c@host:5432/db?x=y"), "postgres://me:***@host:5432/db?x=y");
        for plain in ["postgres://me@host/db", "postgres://host/db", "sqlite:a@b:c.db", "memory:"] {
            assert_eq!(without_password(plain), plain);
        }
    }
}
