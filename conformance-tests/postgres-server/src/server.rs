//! The one server of a test process.

use crate::cluster::Cluster;
#[cfg(feature = "container")]
use crate::container::Container;
use std::sync::OnceLock;

/// The image of the second way, when the environment names none.
#[cfg(feature = "container")]
const DEFAULT_IMAGE: &str = "postgres:17-alpine";

/// No way led to a server.
#[derive(Clone, thiserror::Error)]
#[error("{0}")]
pub struct NoServer(pub(crate) String);

/// As it is shown, because tests unwrap it.
impl std::fmt::Debug for NoServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A server that this process may use.
#[derive(Debug)]
pub struct Server {
    url: String,
    // Kept for what ends with them.
    _kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Given,
    #[cfg(feature = "container")]
    Container {
        _container: Box<Container>,
    },
    Cluster {
        _cluster: Cluster,
    },
}

impl Server {
    /// The server of this process; the first call finds or starts it.
    ///
    /// # Errors
    /// [`NoServer`] with all that was tried, and what to install.
    pub fn shared() -> Result<&'static Self, NoServer> {
        static SHARED: OnceLock<Result<Server, NoServer>> = OnceLock::new();
        SHARED.get_or_init(Self::find).as_ref().map_err(Clone::clone)
    }

    fn find() -> Result<Self, NoServer> {
        let insisted = variable("LEASEHOLD_TEST_POSTGRES");
        let ways: &[&str] = match insisted.as_deref() {
            None => &["url", "container", "binaries"],
            Some("url") => &["url"],
            Some("container") => &["container"],
            Some("binaries") => &["binaries"],
            Some(other) => return Err(NoServer(format!("LEASEHOLD_TEST_POSTGRES={other} is not url, container or binaries"))),
        };
        let mut tried = String::from("no Postgres for the tests:");
        for way in ways {
            match Self::by(way) {
                Ok(server) => return Ok(server),
                Err(reason) => tried = format!("{tried}\n  {way}: {reason}"),
            }
        }
        Err(NoServer(format!(
            "{tried}\nInstall the server's binaries (Debian: apt-get install postgresql), or start Docker, \
             or set LEASEHOLD_TEST_POSTGRES_URL=postgres://USER:PASSWORD@HOST/DATABASE of a user who may create schemas."
        )))
    }

    fn by(way: &str) -> Result<Self, String> {
        match way {
            "url" => {
                let url = variable("LEASEHOLD_TEST_POSTGRES_URL").ok_or("LEASEHOLD_TEST_POSTGRES_URL is not set")?;
                Ok(Self { url, _kind: Kind::Given })
            }
            #[cfg(not(feature = "container"))]
            "container" => Err("this program was built without containers".to_owned()),
            #[cfg(feature = "container")]
            "container" => {
                let image = variable("LEASEHOLD_TEST_POSTGRES_IMAGE").unwrap_or_else(|| DEFAULT_IMAGE.to_owned());
                let container = Container::start(&image)?;
                Ok(Self { url: container.url().to_owned(), _kind: Kind::Container { _container: Box::new(container) } })
            }
            _ => {
                let cluster = Cluster::start()?;
                Ok(Self { url: cluster.url().to_owned(), _kind: Kind::Cluster { _cluster: cluster } })
            }
        }
    }

    /// How libpq reaches it, as a superuser unless the URL was given.
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// A variable of the environment that is set and not empty.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
