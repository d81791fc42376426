//! A server in a container.

use crate::watchdog::Watchdog;
use diesel::prelude::*;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use testcontainers::core::IntoContainerPort;
use testcontainers::runners::SyncRunner;
use testcontainers::{GenericImage, ImageExt};

/// How long the server inside may take until it answers.
const PATIENCE: Duration = Duration::from_secs(90);

/// A running container, removed when this process is gone.
#[derive(Debug)]
pub(crate) struct Container {
    url: String,
    // The guard's own removal and the watchdog's do not disturb each other.
    _running: testcontainers::Container<GenericImage>,
    _watchdog: Watchdog,
}

impl Container {
    pub(crate) fn start(image: &str) -> Result<Self, String> {
        let image = image.to_owned();
        // The blocking runner must not start inside an async test.
        let started = thread::spawn(move || Self::start_here(&image)).join();
        started.unwrap_or_else(|_| Err("the container's start panicked".to_owned()))
    }

    fn start_here(image: &str) -> Result<Self, String> {
        let (name, tag) = image.rsplit_once(':').unwrap_or((image, "latest"));
        let password = uuid::Uuid::new_v4().simple().to_string();
        let running = GenericImage::new(name, tag)
            .with_exposed_port(5432.tcp())
            .with_env_var("POSTGRES_PASSWORD", &password)
            // Arguments of the server, as every Postgres image takes them.
            .with_cmd(["-c", "fsync=off", "-c", "full_page_writes=off", "-c", "max_connections=300", "-c", "shared_buffers=256MB"])
            .start()
            .map_err(|error| format!("the container of {image} does not start: {error}"))?;
        let watchdog = watchdog(running.id()).map_err(|error| format!("no watchdog: {error}"))?;
        let host = running.get_host().map_err(|error| error.to_string())?;
        let port = running.get_host_port_ipv4(5432).map_err(|error| error.to_string())?;
        let url = format!("postgres://postgres:{password}@{host}:{port}/postgres");
        wait_for(&url)?;
        Ok(Self { url, _running: running, _watchdog: watchdog })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

fn watchdog(id: &str) -> std::io::Result<Watchdog> {
    let script = "docker rm --force --volumes \"$1\" || \
                  curl --silent --unix-socket /var/run/docker.sock --request DELETE \"http://localhost/containers/$1?force=1&v=1\"";
    Watchdog::new(Command::new("/bin/sh"), script, &[id])
}

/// Waits until the server answers twice in a row over TCP: while an image sets itself up it may answer and go again.
fn wait_for(url: &str) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answers = || PgConnection::establish(url).and_then(|_| PgConnection::establish(url));
        match answers() {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > deadline => return Err(format!("the server in the container does not answer: {error}")),
            Err(_) => thread::sleep(Duration::from_millis(200)),
        }
    }
}
