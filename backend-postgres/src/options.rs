//! How to reach a store: a `postgres://` URL, with a few settings of our own in its query string.

use std::fmt;
use std::time::Duration;

/// The longest identifier that Postgres keeps whole, in bytes.
const IDENTIFIER_BYTES_MAX: usize = 63;

/// Settings that libpq gets unless the URL says otherwise. A host that has vanished is noticed in well under a minute,
/// instead of blocking a heartbeat for the two hours of TCP's own patience.
const LIBPQ_DEFAULTS: [(&str, &str); 6] = [
    ("application_name", "leasehold"),
    ("connect_timeout", "10"),
    ("keepalives_idle", "10"),
    ("keepalives_interval", "5"),
    ("keepalives_count", "3"),
    ("tcp_user_timeout", "30000"),
];

/// Why a URL or a setting is refused. No message holds the URL itself, which may carry a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// Another scheme.
    #[error("the store's URL must begin with postgres:// or postgresql://")]
    Scheme,
    /// A setting of ours with a value that it does not take.
    #[error("{name}={value} is not understood: it takes {takes}")]
    Value {
        /// The setting.
        name: &'static str,
        /// What was given.
        value: String,
        /// What it takes.
        takes: &'static str,
    },
    /// A name that no schema of a user may have.
    #[error("{name:?} cannot name a schema: {reason}")]
    Schema {
        /// What was given.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
}

/// The schema that holds a store's tables: any name that Postgres takes, always quoted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaName(String);

impl SchemaName {
    /// Where a store lives when nothing else is said.
    pub const DEFAULT: &'static str = "leasehold";

    /// Checks `name`.
    ///
    /// # Errors
    /// [`OptionsError::Schema`] when Postgres would cut or refuse it.
    pub fn new(name: impl Into<String>) -> Result<Self, OptionsError> {
        let name = name.into();
        let reason = if name.is_empty() {
            "it is empty"
        } else if name.len() > IDENTIFIER_BYTES_MAX {
            "it is longer than 63 bytes"
        } else if name.chars().any(char::is_control) {
            "it holds a control character"
        } else if name.starts_with("pg_") || name == "information_schema" {
            "the name belongs to the database itself"
        } else {
            return Ok(Self(name));
        };
        Err(OptionsError::Schema { name, reason })
    }
    /// The name as it is.
    pub fn as_str(&self) -> &str {
        &self.0
    }
    /// The name as SQL spells it, safe in any statement.
    pub fn quoted(&self) -> String {
        format!("\"{}\"", self.0.replace('"', "\"\""))
    }
}
impl Default for SchemaName {
    fn default() -> Self {
        Self(Self::DEFAULT.to_owned())
    }
}
impl fmt::Display for SchemaName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How to reach a store and how long to wait for it.
///
/// Everything but `schema`, `prepared_statements`, `hints`, `pool_size`, `pool_timeout_ms`, `statement_timeout_ms` and
/// `lock_timeout_ms` in the URL's query string goes to libpq as it is: `sslmode`, `sslrootcert`, `application_name`,
/// `target_session_attrs` and the rest.
///
/// # Examples
/// ```
/// use leasehold_postgres::PostgresOptions;
/// let options = PostgresOptions::parse("postgres://app:secret@db/work?sslmode=require&schema=jobs&prepared_statements=off")?;
/// assert_eq!(options.schema().as_str(), "jobs");
/// assert_eq!(options.location(), "postgres://app@db/work?schema=jobs");
/// # Ok::<(), leasehold_postgres::OptionsError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresOptions {
    url: String,
    location: String,
    pub(crate) schema: SchemaName,
    pub(crate) prepared_statements: bool,
    /// Whether processes tell each other of changes by NOTIFY, on a connection more.
    pub(crate) hints: bool,
    pub(crate) pool_size: u32,
    pub(crate) pool_timeout: Duration,
    pub(crate) statement_timeout: Duration,
    pub(crate) lock_timeout: Duration,
}

impl PostgresOptions {
    /// Reads a `postgres://` or `postgresql://` URL.
    ///
    /// # Errors
    /// [`OptionsError`] for another scheme, or a setting of ours that is not understood. libpq checks the rest when it connects.
    pub fn parse(url: &str) -> Result<Self, OptionsError> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        if !(base.starts_with("postgres://") || base.starts_with("postgresql://")) {
            return Err(OptionsError::Scheme);
        }
        let mut options = Self {
            url: String::new(),
            location: String::new(),
            schema: SchemaName::default(),
            prepared_statements: true,
            hints: true,
            pool_size: 8,
            pool_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(30),
            lock_timeout: Duration::from_secs(5),
        };
        let mut libpq: Vec<String> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !options.set(name, &decoded(value))? {
                libpq.push(pair.to_owned());
            }
        }
        for (name, value) in LIBPQ_DEFAULTS {
            if !libpq.iter().any(|pair| pair.split('=').next() == Some(name)) {
                libpq.push(format!("{name}={value}"));
            }
        }
        options.url = format!("{base}?{}", libpq.join("&"));
        options.location = without_password(base);
        Ok(options)
    }

    /// Takes one of our own settings; `false` for any other.
    fn set(&mut self, name: &str, value: &str) -> Result<bool, OptionsError> {
        match name {
            "schema" => self.schema = SchemaName::new(value)?,
            "prepared_statements" => self.prepared_statements = switch("prepared_statements", value)?,
            "hints" => self.hints = switch("hints", value)?,
            "pool_size" => self.pool_size = positive("pool_size", value)?,
            "pool_timeout_ms" => self.pool_timeout = millis("pool_timeout_ms", value)?,
            "statement_timeout_ms" => self.statement_timeout = millis("statement_timeout_ms", value)?,
            "lock_timeout_ms" => self.lock_timeout = millis("lock_timeout_ms", value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The same with its tables in `schema`.
    #[must_use]
    pub fn with_schema(self, schema: SchemaName) -> Self {
        Self { schema, ..self }
    }
    /// Where its tables are.
    pub const fn schema(&self) -> &SchemaName {
        &self.schema
    }
    /// Where the store is, without any password.
    pub fn location(&self) -> String {
        format!("{}?schema={}", self.location, self.schema)
    }
    /// What libpq gets.
    pub(crate) fn libpq_url(&self) -> &str {
        &self.url
    }
}

/// Without the URL, which may carry a password.
impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("location", &self.location())
            .field("prepared_statements", &self.prepared_statements)
            .field("pool_size", &self.pool_size)
            .field("pool_timeout", &self.pool_timeout)
            .field("statement_timeout", &self.statement_timeout)
            .field("lock_timeout", &self.lock_timeout)
            .finish_non_exhaustive()
    }
}

fn refused(name: &'static str, value: &str, takes: &'static str) -> OptionsError {
    OptionsError::Value { name, value: value.to_owned(), takes }
}

fn switch(name: &'static str, value: &str) -> Result<bool, OptionsError> {
    match value {
        "on" | "true" => Ok(true),
        "off" | "false" => Ok(false),
        _ => Err(refused(name, value, "on or off")),
    }
}

fn positive(name: &'static str, value: &str) -> Result<u32, OptionsError> {
    match value.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(refused(name, value, "a whole number above zero")),
    }
}

fn millis(name: &'static str, value: &str) -> Result<Duration, OptionsError> {
    positive(name, value).map(|ms| Duration::from_millis(u64::from(ms)))
}

/// `%20` and the like read as the bytes they stand for; what is no such escape stays.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        bytes.extend_from_slice(before.as_bytes());
        if let Some(byte) = after.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            bytes.push(byte);
            rest = after.get(2..).unwrap_or_default();
        } else {
            bytes.push(b'%');
            rest = after;
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The part before the query string, without the password of `user:password@`.
fn without_password(base: &str) -> String {
    let Some((scheme, rest)) = base.split_once("://") else {
        return base.to_owned();
    };
    let (authority, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
    let Some((user, host)) = authority.rsplit_once('@') else {
        return base.to_owned();
    };
    let user = user.split(':').next().unwrap_or_default();
    format!("{scheme}://{user}@{host}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_settings_are_taken_out_of_the_url_and_the_rest_goes_to_libpq() {
        let options = PostgresOptions::parse(
            "postgres://u:p@h:1/d?sslmode=verify-full&schema=a%20%22b%22&pool_size=3&application_name=mine&lock_timeout_ms=7",
        )
        .unwrap();
        assert_eq!(options.schema.quoted(), r#""a ""b""""#);
        assert_eq!((options.pool_size, options.lock_timeout), (3, Duration::from_millis(7)));
        let url = options.libpq_url();
        assert!(url.starts_with("postgres://u:p@h:1/d?sslmode=verify-full&application_name=mine&connect_timeout=10"), "{url}");
        assert!(!url.contains("schema") && !url.contains("pool_size") && !url.contains("=leasehold"), "{url}");
    }

    #[test]
    fn nothing_that_is_shown_holds_the_password() {
        for url in [
            "postgres://u:s3cret@h/d",
            "postgres://u:s3cr%40et@h:5/d?password=s3cret&sslmode=disable",
            "postgresql://u:s3cret@/d?host=/run",
        ] {
            let options = PostgresOptions::parse(url).unwrap();
            assert!(!format!("{options:?} {}", options.location()).contains("s3c"), "{options:?}");
        }
        let error = PostgresOptions::parse("mysql://u:s3cret@h/d").unwrap_err();
        assert!(!format!("{error:?} {error}").contains("s3c"));
    }

    #[test]
    fn what_is_not_understood_is_refused_by_name() {
        for (url, wanted) in [
            ("postgres://h/d?pool_size=0", "pool_size=0"),
            ("postgres://h/d?prepared_statements=maybe", "prepared_statements=maybe"),
            ("postgres://h/d?hints=", "hints="),
            ("postgres://h/d?schema=", "empty"),
            ("postgres://h/d?schema=pg_mine", "belongs to the database"),
            ("sqlite:x", "postgres://"),
        ] {
            let error = PostgresOptions::parse(url).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
        assert!(SchemaName::new("x".repeat(63)).is_ok() && SchemaName::new("x".repeat(64)).is_err());
    }
}
