//! Where a server is, read from and written into a `postgres://` URL.

use crate::Result;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The port of a URL that names none.
const DEFAULT_PORT: u16 = 5432;

/// A `postgres://` URL in its parts, each still percent-encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerUrl {
    user: String,
    password: Option<String>,
    host: String,
    port: Option<String>,
    database: String,
    parameters: Vec<(String, String)>,
}

/// Where to connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A host and a port.
    Tcp(String, u16),
    /// A socket file.
    Unix(PathBuf),
}

impl ServerUrl {
    /// Reads a URL with a user.
    ///
    /// # Errors
    /// For anything but `postgres://USER…`.
    pub fn parse(url: &str) -> Result<Self> {
        let rest = url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://"));
        let rest = rest.ok_or("the URL must begin with postgres://")?;
        let (base, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = base.split_once('/').unwrap_or((base, ""));
        let (login, address) = authority.rsplit_once('@').ok_or("the URL names no user")?;
        let (user, password) = login.split_once(':').map_or((login, None), |(user, password)| (user, Some(password)));
        // The colons of an IPv6 address stand inside brackets.
        let (host, port) = match address.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            Some(_) | None => (address, None),
        };
        let parameters = query.split('&').filter(|pair| !pair.is_empty());
        let parameters = parameters.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        Ok(Self {
            user: user.to_owned(),
            password: password.map(str::to_owned),
            host: host.to_owned(),
            port: port.map(str::to_owned),
            database: database.to_owned(),
            parameters: parameters.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        })
    }

    /// The value of a parameter, decoded.
    pub fn parameter(&self, name: &str) -> Option<String> {
        self.parameters.iter().rfind(|(given, _)| given == name).map(|(_, value)| decoded(value))
    }

    /// The user's name.
    pub fn user(&self) -> String {
        decoded(&self.user)
    }

    /// The password, if the URL holds one.
    pub fn password(&self) -> Option<String> {
        self.password.as_deref().map(decoded).or_else(|| self.parameter("password"))
    }

    /// The database's name: the user's when none is given, as libpq does it.
    pub fn database(&self) -> String {
        if self.database.is_empty() { self.user() } else { decoded(&self.database) }
    }

    /// The host, a name, an address or a folder with a socket, and the port.
    ///
    /// # Errors
    /// For a port that is no number.
    pub fn host_and_port(&self) -> Result<(String, u16)> {
        let host = self.parameter("host").unwrap_or_else(|| decoded(&self.host));
        let port = self.parameter("port").or_else(|| self.port.clone());
        let port = port.map_or(Ok(DEFAULT_PORT), |port| port.parse())?;
        Ok((if host.is_empty() { "localhost".to_owned() } else { host }, port))
    }

    /// Where it leads.
    ///
    /// # Errors
    /// As [`ServerUrl::host_and_port`].
    pub fn endpoint(&self) -> Result<Endpoint> {
        let (host, port) = self.host_and_port()?;
        if host.starts_with('/') {
            Ok(Endpoint::Unix(PathBuf::from(host).join(format!(".s.PGSQL.{port}"))))
        } else {
            Ok(Endpoint::Tcp(host.trim_start_matches('[').trim_end_matches(']').to_owned(), port))
        }
    }

    /// The same, leading to `address`.
    #[must_use]
    pub fn at(mut self, address: SocketAddr) -> Self {
        self.parameters.retain(|(name, _)| !["host", "port", "hostaddr"].contains(&name.as_str()));
        self.host = match address {
            SocketAddr::V4(address) => address.ip().to_string(),
            SocketAddr::V6(address) => format!("[{}]", address.ip()),
        };
        self.port = Some(address.port().to_string());
        self
    }

    /// The same with another database.
    #[must_use]
    pub fn on_database(mut self, name: &str) -> Self {
        self.database = encoded(name);
        self
    }

    /// The same with `name=value` in its query string, in place of what was there.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.parameters.retain(|(given, _)| given != name);
        self.parameters.push((name.to_owned(), encoded(value)));
        self
    }

    /// The same without the parameter `name`.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.parameters.retain(|(given, _)| given != name);
        self
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "postgres://{}", self.user)?;
        if let Some(password) = &self.password {
            write!(f, ":{password}")?;
        }
        write!(f, "@{}", self.host)?;
        if let Some(port) = &self.port {
            write!(f, ":{port}")?;
        }
        write!(f, "/{}", self.database)?;
        for (at, (name, value)) in self.parameters.iter().enumerate() {
            write!(f, "{}{name}={value}", if at == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        bytes.extend_from_slice(before.as_bytes());
        let escaped = after.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(escaped.unwrap_or(b'%'));
        rest = if escaped.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8_lossy(&bytes).into_owned()
}

fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.extend([byte >> 4, byte & 15].map(|digit| char::from_digit(digit.into(), 16).unwrap_or('0')));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_comes_apart_and_together() {
        let text = "postgres://app:s%40cret@db.example:6000/work?schema=a%20b&sslmode=disable";
        let url = ServerUrl::parse(text).unwrap();
        assert_eq!(url.to_string(), text);
        assert_eq!(url.endpoint().unwrap(), Endpoint::Tcp("db.example".to_owned(), 6000));
        assert_eq!((url.user(), url.password(), url.database()), ("app".to_owned(), Some("s@cret".to_owned()), "work".to_owned()));
        assert_eq!(url.parameter("schema").as_deref(), Some("a b"));
        assert_eq!(url.with("schema", "c d").without("sslmode").to_string(), "postgres://app:s%40cret@db.example:6000/work?schema=c%20d");
    }

    #[test]
    fn a_socket_is_an_endpoint_and_gives_way_to_an_address() {
        let url = ServerUrl::parse("postgres://postgres@/postgres?host=/tmp/pg&port=7000").unwrap();
        assert_eq!(url.endpoint().unwrap(), Endpoint::Unix(PathBuf::from("/tmp/pg/.s.PGSQL.7000")));
        assert_eq!(url.at(([127, 0, 0, 1], 9).into()).to_string(), "postgres://postgres@127.0.0.1:9/postgres");
    }
}
