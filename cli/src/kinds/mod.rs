//! The op kinds that the program runs by itself.

pub(crate) mod failure;
pub(crate) mod handlers;
pub(crate) mod http;
pub(crate) mod output;
pub(crate) mod shell;

use leasehold::model::KindName;

/// A built-in kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BuiltIn {
    Shell,
    Http,
}

impl BuiltIn {
    pub(crate) const ALL: [Self; 2] = [Self::Shell, Self::Http];

    /// As files and stores spell it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Shell => "shell",
            Self::Http => "http",
        }
    }

    pub(crate) fn name(self) -> KindName {
        match KindName::new(self.as_str()) {
            Ok(name) => name,
            Err(_) => unreachable!("the names of the built-in kinds are valid"),
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// The fields that only ops of this kind have.
    pub(crate) const fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Shell => shell::ShellInput::FIELDS,
            Self::Http => http::HttpInput::FIELDS,
        }
    }
}

/// What is wrong with a kind's own fields: field and message.
pub(crate) type Complaints = Vec<(String, String)>;
