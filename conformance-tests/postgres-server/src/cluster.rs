//! A private cluster from server binaries on this machine.

use crate::watchdog::Watchdog;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Where distributions keep the binaries, newest version first within each.
const FOLDERS: [&str; 4] = ["/usr/lib/postgresql", "/usr/pgsql", "/usr/local/pgsql", "/opt/homebrew/opt"];

/// A server of its own in a temporary folder, as a user without privileges, gone with this process. Its unix socket lies
/// in a folder that only that user may enter; over TCP it asks for a random password.
#[derive(Debug)]
pub struct Cluster {
    url: String,
    tcp_url: String,
    programs: Programs,
    folder: PathBuf,
    // Dropped last: it stops the server and removes the folder.
    _watchdog: Watchdog,
}

/// The server's programs, and the user they run as.
#[derive(Debug, Clone)]
struct Programs {
    folder: PathBuf,
    /// `None` is the user we are.
    user: Option<(u32, u32)>,
}

impl Cluster {
    /// Makes and starts one.
    ///
    /// # Errors
    /// What is missing, or what the server said.
    pub fn start() -> Result<Self, String> {
        Self::start_with("", &[])
    }

    /// The same with more lines in its `postgresql.conf`, and with `files` in its data folder for nobody else to read.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_with(settings: &str, files: &[(&str, &[u8])]) -> Result<Self, String> {
        let programs = Programs::find()?;
        // Not the environment's temporary folder: a socket's path is limited to 107 bytes, and another user must get there.
        let root =
            tempfile::Builder::new().prefix("leasehold-pg-").tempdir_in("/tmp").map_err(|error| format!("no temporary folder: {error}"))?;
        let folder = root.path().to_owned();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).map_err(|error| error.to_string())?;
        programs.give(&folder)?;

        let password = uuid::Uuid::new_v4().simple().to_string();
        let password_file = folder.join("password");
        fs::write(&password_file, &password).map_err(|error| error.to_string())?;
        programs.give(&password_file)?;
        let data = folder.join("data");
        let mut initdb = programs.command("initdb");
        initdb.arg("--pgdata").arg(&data).arg("--pwfile").arg(&password_file);
        initdb.args(["--username=postgres", "--auth-local=trust", "--auth-host=scram-sha-256"]);
        initdb.args(["--encoding=UTF8", "--locale=C", "--no-sync"]);
        let made = initdb.output().map_err(|error| format!("initdb does not run: {error}"))?;
        if !made.status.success() {
            return Err(format!("initdb failed: {}", String::from_utf8_lossy(&made.stderr).trim()));
        }

        for (name, content) in files {
            let path = data.join(name);
            let written = fs::write(&path, content).and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o600)));
            written.map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
            programs.give(&path)?;
        }
        let port = configure(&folder, &data, settings)?;
        let cluster = Self {
            url: format!("postgres://postgres@/postgres?host={}&port={port}", folder.display()),
            tcp_url: format!("postgres://postgres:{password}@127.0.0.1:{port}/postgres"),
            _watchdog: programs.watchdog(root)?,
            programs,
            folder,
        };
        cluster.control(&["start"])?;
        Ok(cluster)
    }

    /// Through its unix socket.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Through TCP on the loopback address, for proxies and poolers.
    pub fn tcp_url(&self) -> &str {
        &self.tcp_url
    }

    /// Ends the server as a power cut would, and starts it again.
    ///
    /// # Errors
    /// What the server said.
    pub fn crash_and_restart(&self) -> Result<(), String> {
        self.control(&["--mode=immediate", "restart"])
    }

    /// Ends every session in good order, and starts the server again.
    ///
    /// # Errors
    /// What the server said.
    pub fn restart(&self) -> Result<(), String> {
        self.control(&["--mode=fast", "restart"])
    }

    fn control(&self, act: &[&str]) -> Result<(), String> {
        let log = self.folder.join("log");
        let mut control = self.programs.command("pg_ctl");
        control.arg("--pgdata").arg(self.folder.join("data")).arg("--log").arg(&log).args(["--wait", "--timeout=60"]).args(act);
        // The server inherits what pg_ctl has open: a pipe would not end before it.
        let status = control.stdout(Stdio::null()).stderr(Stdio::null()).status();
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(_) => Err(format!("pg_ctl {} failed: {}", act.join(" "), fs::read_to_string(&log).unwrap_or_default())),
            Err(error) => Err(format!("pg_ctl does not run: {error}")),
        }
    }
}

/// Writes the settings of a server that lives for minutes; returns its port.
fn configure(folder: &Path, data: &Path, more: &str) -> Result<u16, String> {
    let free = TcpListener::bind(("127.0.0.1", 0)).and_then(|socket| socket.local_addr()).map_err(|error| error.to_string())?;
    let port = free.port();
    // What is lost in a crash of the machine is a test's; LEASEHOLD_TEST_POSTGRES_FSYNC=on makes it durable.
    let fsync = crate::server::variable("LEASEHOLD_TEST_POSTGRES_FSYNC").unwrap_or_else(|| "off".to_owned());
    let settings = format!(
        "\nlisten_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = '{}'\nfsync = {fsync}\nfull_page_writes = {fsync}\n\
         max_connections = 300\nmax_prepared_transactions = 0\nshared_buffers = '256MB'\nwal_level = minimal\nmax_wal_senders = 0\n\
         max_wal_size = '2GB'\n{more}",
        folder.display()
    );
    let path = data.join("postgresql.conf");
    let written = fs::read_to_string(&path).and_then(|old| fs::write(&path, old + &settings));
    written.map(|()| port).map_err(|error| format!("postgresql.conf cannot be written: {error}"))
}

impl Programs {
    fn find() -> Result<Self, String> {
        let folder =
            candidates().into_iter().find(|folder| ["initdb", "pg_ctl", "postgres"].iter().all(|name| folder.join(name).is_file()));
        let folder = folder.ok_or("no initdb, pg_ctl and postgres in PATH, in pg_config's folder or where distributions put them")?;
        // The server refuses to run as root.
        let user = if id(&["-u"])? == 0 { Some(unprivileged()?) } else { None };
        Ok(Self { folder, user })
    }

    fn command(&self, program: &str) -> Command {
        self.as_user(self.folder.join(program))
    }

    fn as_user(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir("/").stdin(Stdio::null());
        // A localised server would translate its messages, and the caller's settings for libpq are not for it.
        command.env_remove("LANG").env("LC_ALL", "C");
        for name in ["PGDATA", "PGHOST", "PGPORT", "PGUSER", "PGDATABASE", "PGOPTIONS"] {
            command.env_remove(name);
        }
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        command
    }

    fn give(&self, path: &Path) -> Result<(), String> {
        match self.user {
            Some((user, group)) => {
                chown(path, Some(user), Some(group)).map_err(|error| format!("{} cannot be given away: {error}", path.display()))
            }
            None => Ok(()),
        }
    }

    /// What stops the server and removes `root` when this process is gone.
    fn watchdog(&self, root: TempDir) -> Result<Watchdog, String> {
        let folder = root.keep();
        let script = "\"$1/pg_ctl\" --pgdata \"$2/data\" --mode=immediate --wait stop; rm -rf \"$2\"";
        let arguments = [self.folder.display().to_string(), folder.display().to_string()];
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        Watchdog::new(self.as_user("/bin/sh"), script, &arguments).map_err(|error| format!("no watchdog: {error}"))
    }
}

/// Folders that may hold the programs, best first.
fn candidates() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default();
    if let Ok(config) = Command::new("pg_config").arg("--bindir").output() {
        folders.push(PathBuf::from(String::from_utf8_lossy(&config.stdout).trim().to_owned()));
    }
    for base in FOLDERS {
        folders.push(Path::new(base).join("bin"));
        let versions = fs::read_dir(base).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path());
        let mut versions: Vec<(u32, PathBuf)> = versions.map(|path| (version_in(&path), path.join("bin"))).collect();
        versions.sort_unstable_by(|a, b| b.cmp(a));
        folders.extend(versions.into_iter().map(|(_, folder)| folder));
    }
    folders
}

/// The first number in a folder's name: `17`, `postgresql@16`.
fn version_in(path: &Path) -> u32 {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let digits: String = name.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}

/// The user and group to run as instead of root.
fn unprivileged() -> Result<(u32, u32), String> {
    let found = ["postgres", "nobody"].into_iter().find_map(|name| Some((id(&["-u", name]).ok()?, id(&["-g", name]).ok()?)));
    found.ok_or_else(|| "Postgres does not run as root, and there is neither a user postgres nor nobody".to_owned())
}

fn id(arguments: &[&str]) -> Result<u32, String> {
    let told = Command::new("id").args(arguments).output().map_err(|error| format!("id does not run: {error}"))?;
    String::from_utf8_lossy(&told.stdout).trim().parse().map_err(|_| format!("id {} tells no number", arguments.join(" ")))
}
