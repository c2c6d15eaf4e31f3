//! Conversion of the client's errors to the exceptions that WebHDFS answers.

use std::error::Error as _;

use hearth_client::Error;
use hearth_web::webhdfs::Exception;

pub(crate) const INVALID_PATH: &str = "org.apache.hadoop.fs.InvalidPathException";

/// Returns the NameNode's exception, or the one that Java's client would throw.
pub(crate) fn exception_for(error: &Error) -> Exception {
    match error {
        Error::Refused { class, message, .. } => Exception::new(class.clone(), message.clone()),
        Error::NotFound { .. } | Error::IsDirectory { .. } => {
            Exception::new("java.io.FileNotFoundException", error.to_string())
        }
        Error::SeekBeyondEnd { .. } => Exception::new("java.io.EOFException", error.to_string()),
        Error::Unsupported { .. } => Exception::unsupported(error.to_string()),
        Error::InvalidPath { .. } => Exception::new(INVALID_PATH, error.to_string()),
        // A request that names no NameNode ends in one of these errors.
        Error::InvalidUri { .. } | Error::Configuration(_) => Exception::illegal_argument(message_with_sources(error)),
        _ => Exception::io(message_with_sources(error)),
    }
}

/// Returns the error's message followed by its causes.
fn message_with_sources(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use hearth_client::{Exception as Known, FileSystem};
    use hearth_config::Configuration;

    use super::*;

    #[test]
    fn namenode_exceptions_are_passed_on() {
        let class = "org.apache.hadoop.security.AccessControlException";
        let refused = Error::Refused {
            method: "create",
            exception: Known::from_class(class),
            class: class.to_owned(),
            message: "Permission denied: user=ann".to_owned(),
        };
        assert_eq!(exception_for(&refused), Exception::new(class, "Permission denied: user=ann"));
        assert_eq!(exception_for(&refused).status().as_u16(), 403);
    }

    #[test]
    fn other_errors_map_to_java_exceptions() {
        let path = || "/a".to_owned();
        for (error, name, status) in [
            (Error::NotFound { path: path() }, "FileNotFoundException", 404),
            (Error::SeekBeyondEnd { path: path(), position: 2, length: 1 }, "EOFException", 403),
            (Error::Unsupported { path: path() }, "UnsupportedOperationException", 400),
            (Error::InvalidPath { path: path(), why: "a NUL character" }, "InvalidPathException", 400),
            (Error::LeaseLost { path: path() }, "IOException", 403),
        ] {
            let refused = exception_for(&error);
            assert_eq!((refused.simple_name(), refused.status().as_u16()), (name, status), "{error}");
        }
        let error = FileSystem::connect(&Configuration::empty(), Some("s3://b"), "ann").unwrap_err();
        assert_eq!(exception_for(&error).simple_name(), "IllegalArgumentException");
    }
}
