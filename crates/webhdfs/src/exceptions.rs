//! Conversion of the client's errors to the exceptions that WebHDFS answers.

use std::error::Error as _;

use hearth_client::{Error, ErrorKind};
use hearth_web::webhdfs::Exception;

pub(crate) const INVALID_PATH: &str = "org.apache.hadoop.fs.InvalidPathException";

/// Returns the NameNode's exception, or the one that Java's client would throw.
pub(crate) fn exception_for(error: &Error) -> Exception {
    if let Some(class) = error.exception_class() {
        return Exception::new(class, error.to_string());
    }
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::IsADirectory => {
            Exception::new("java.io.FileNotFoundException", error.to_string())
        }
        ErrorKind::BeyondEnd => Exception::new("java.io.EOFException", error.to_string()),
        ErrorKind::Unsupported => Exception::unsupported(error.to_string()),
        ErrorKind::InvalidPath => Exception::new(INVALID_PATH, error.to_string()),
        // A request that names no NameNode ends in this error.
        ErrorKind::InvalidConfiguration => Exception::illegal_argument(message_with_sources(error)),
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
    use hearth_client::FileSystem;
    use hearth_config::Configuration;

    use super::*;

    #[test]
    fn namenode_exceptions_are_passed_on() {
        let class = "org.apache.hadoop.security.AccessControlException";
        let refused = Error::from_exception(class, "Permission denied: user=ann");
        assert_eq!(exception_for(&refused), Exception::new(class, "Permission denied: user=ann"));
        assert_eq!(exception_for(&refused).status().as_u16(), 403);
    }

    #[test]
    fn other_errors_map_to_java_exceptions() {
        for (kind, name, status) in [
            (ErrorKind::NotFound, "FileNotFoundException", 404),
            (ErrorKind::BeyondEnd, "EOFException", 403),
            (ErrorKind::Unsupported, "UnsupportedOperationException", 400),
            (ErrorKind::InvalidPath, "InvalidPathException", 400),
            (ErrorKind::LeaseLost, "IOException", 403),
        ] {
            let refused = exception_for(&Error::new(kind, "/a: why"));
            assert_eq!((refused.simple_name(), refused.status().as_u16()), (name, status), "{kind:?}");
        }
        let error = FileSystem::connect(&Configuration::empty(), Some("s3://b"), "ann").unwrap_err();
        assert_eq!(exception_for(&error).simple_name(), "IllegalArgumentException");
    }
}
