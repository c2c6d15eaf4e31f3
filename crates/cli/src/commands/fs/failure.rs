use hearth_client::{Error, ErrorKind};

use super::local_checksums::BadChecksum;

/// Reason why a command, or one of its arguments, failed. Printed in Hadoop's wording.
#[derive(Debug)]
pub enum Failure {
    /// Invalid command line.
    Usage(String),
    /// Failure of a path, as the user wrote it.
    Path { shown: String, what: String },
    /// Anything else, as one line.
    Message(String),
    /// An exit code without a message.
    Exit(u8),
    /// Standard output is closed or full. The reason is reported once, at the end.
    OutputEnded,
}

impl Failure {
    pub fn path(shown: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Path { shown: shown.into(), what: what.into() }
    }

    pub fn not_found(shown: impl Into<String>) -> Self {
        Self::path(shown, "No such file or directory")
    }

    /// The directory that should contain `shown` does not exist. `uri`: the complete URI.
    pub fn parent_not_found(shown: &str, uri: &str) -> Self {
        Self::path(shown, format!("No such file or directory: `{uri}'"))
    }

    /// A failure that concerns two paths.
    pub fn pair(from: &str, to: &str, what: &str) -> Self {
        Self::Message(format!("`{from}' to `{to}': {what}"))
    }

    pub fn exists(shown: impl Into<String>) -> Self {
        Self::path(shown, "File exists")
    }

    pub fn is_directory(shown: impl Into<String>) -> Self {
        Self::path(shown, "Is a directory")
    }

    pub fn not_directory(shown: impl Into<String>) -> Self {
        Self::path(shown, "Is not a directory")
    }

    /// A file system error about `shown`.
    pub fn of(shown: &str, error: Error) -> Self {
        match error.kind() {
            // The NameNode's text names the path that it was asked for, not the one that the user wrote.
            ErrorKind::NotFound if error.exception().is_none() => Self::not_found(shown),
            _ => error.into(),
        }
    }

    /// Any error with its causes, as one line.
    pub fn from_any(error: anyhow::Error) -> Self {
        match error.downcast::<Error>() {
            Ok(error) => error.into(),
            Err(error) => Self::Message(format!("{error:#}")),
        }
    }

    /// A local file system error about `shown`.
    pub fn local(shown: &str, error: std::io::Error) -> Self {
        use std::io::ErrorKind::*;
        match error.kind() {
            NotFound => Self::not_found(shown),
            AlreadyExists => Self::exists(shown),
            IsADirectory => Self::is_directory(shown),
            NotADirectory => Self::not_directory(shown),
            DirectoryNotEmpty => Self::Message(format!("Directory {shown} is not empty")),
            // The error names the file itself.
            InvalidData if error.get_ref().is_some_and(|source| source.is::<BadChecksum>()) => {
                Self::Message(error.to_string())
            }
            PermissionDenied => Self::Message(format!("{shown} (Permission denied)")),
            _ => Self::path(shown, error.to_string()),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        // One line with the error and its causes. For a refusal: only the first line of the NameNode's message.
        if error.exception().is_some() {
            return Self::Message(error.to_string().lines().next().unwrap_or_default().to_owned());
        }
        Self::Message(format!("{:#}", anyhow::Error::from(error)))
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Path { shown, what } => write!(f, "`{shown}': {what}"),
            Self::Usage(text) | Self::Message(text) => f.write_str(text),
            Self::Exit(code) => write!(f, "exit code {code}"),
            Self::OutputEnded => f.write_str("standard output is closed or full"),
        }
    }
}
