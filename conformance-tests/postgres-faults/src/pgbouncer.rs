//! A real pooler, `PgBouncer`, in transaction mode.

use crate::Result;
use crate::url::{Endpoint, ServerUrl};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long it may take until it answers.
const PATIENCE: Duration = Duration::from_secs(10);

/// The user and group `nobody`, which has this number on every Linux.
const NOBODY: u32 = 65_534;

/// A pooler on a port of its own, in front of one server; it ends with this value.
#[derive(Debug)]
pub struct PgBouncer {
    url: String,
    address: SocketAddr,
    /// How it is started.
    command: Command,
    process: Child,
    folder: TempDir,
}

impl PgBouncer {
    /// Starts one that has `connections` connections to the server at `url` and lends one to each transaction.
    ///
    /// # Errors
    /// When the program is not installed, with what to install; or what it said.
    pub fn start(url: &str, connections: u32) -> Result<Self> {
        let program = find()?;
        let url = ServerUrl::parse(url)?;
        // Not the environment's temporary folder: another user must get there.
        let folder = tempfile::Builder::new().prefix("leasehold-pooler-").tempdir_in("/tmp")?;
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let config = folder.path().join("pgbouncer.ini");
        fs::write(&config, settings(&url, folder.path(), port, connections)?)?;
        fs::set_permissions(&config, fs::Permissions::from_mode(0o600))?;
        let mut command = Command::new(program);
        command.arg(&config).current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // The program refuses to run as root.
        if fs::metadata("/proc/self")?.uid() == 0 {
            let (user, group) = unprivileged(&url)?;
            for path in [folder.path(), &config] {
                chown(path, Some(user), Some(group))?;
            }
            command.uid(user).gid(group);
        }
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let url = url.at(address).without("sslmode").to_string();
        let mut pooler = Self { url, address, process: command.spawn()?, command, folder };
        pooler.wait()?;
        Ok(pooler)
    }

    /// Kills it, and starts it again at the same address.
    ///
    /// # Errors
    /// What it said.
    pub fn crash_and_restart(&mut self) -> Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        // A process that was killed leaves its file behind, and would not start beside it.
        fs::remove_file(self.folder.path().join("pid"))?;
        self.process = self.command.spawn()?;
        self.wait()
    }

    /// How clients reach the server through it. What it costs a client is said in the store's own options.
    pub fn url(&self) -> &str {
        &self.url
    }

    fn wait(&mut self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if TcpStream::connect(self.address).is_ok() {
                return Ok(());
            }
            let ended = self.process.try_wait()?;
            if ended.is_some() || Instant::now() > deadline {
                let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
                return Err(format!("pgbouncer does not start ({ended:?}): {log}").into());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Where distributions put it; `/usr/sbin` is not in every user's PATH.
fn find() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    let found = folders.map(|folder| folder.join("pgbouncer")).find(|program| program.is_file());
    found.ok_or_else(|| "this test needs PgBouncer, and there is none in PATH or /usr/sbin: apt-get install pgbouncer".into())
}

/// Whom to be instead of root: a server that listens on a socket in a folder of its own lets only the folder's owner in.
fn unprivileged(url: &ServerUrl) -> Result<(u32, u32)> {
    let owner = match url.endpoint()? {
        Endpoint::Unix(socket) => fs::metadata(socket).map(|socket| (socket.uid(), socket.gid()))?,
        Endpoint::Tcp(..) => (NOBODY, NOBODY),
    };
    Ok(if owner.0 == 0 { (NOBODY, NOBODY) } else { owner })
}

fn settings(url: &ServerUrl, folder: &Path, port: u16, connections: u32) -> Result<String> {
    let (host, server_port) = url.host_and_port()?;
    let password = url.password().map_or_else(String::new, |password| format!(" password={}", quoted(&password)));
    let folder = folder.display();
    Ok(format!(
        "[databases]\n\
         * = host={host} port={server_port} user={user}{password}\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         unix_socket_dir =\n\
         auth_type = any\n\
         pool_mode = transaction\n\
         default_pool_size = {connections}\n\
         max_client_conn = 500\n\
         logfile = {folder}/log\n\
         pidfile = {folder}/pid\n",
        user = quoted(&url.user()),
    ))
}

fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}
