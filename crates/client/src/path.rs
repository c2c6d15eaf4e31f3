//! Conversion of paths to the absolute form that the namenode accepts.

use crate::Error;
use crate::error::Failure;

/// Makes `path` absolute and canonical. A relative path starts at `home`; `.` and repeated or trailing slashes are
/// removed; `..` goes up.
///
/// Errors: `InvalidPath` for a path that is empty, contains a NUL, or goes above the root. Stopping at the root instead
/// would name a different file.
pub(crate) fn absolute(path: &str, home: &str) -> Result<String, Error> {
    let wrong = |why: &'static str| Failure::InvalidPath { path: path.to_owned(), why }.into();
    if path.is_empty() {
        return Err(wrong("the path is empty"));
    }
    if path.contains('\0') {
        return Err(wrong("a NUL character"));
    }
    let mut parts: Vec<&str> = Vec::new();
    let bases: [&str; 2] = if path.starts_with('/') { ["", path] } else { [home, path] };
    for part in bases.iter().flat_map(|base| base.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop().ok_or_else(|| wrong("the path goes above the root"))?;
            }
            name => parts.push(name),
        }
    }
    if parts.is_empty() {
        return Ok("/".to_owned());
    }
    let mut out = String::with_capacity(path.len() + 1);
    for part in parts {
        out.push('/');
        out.push_str(part);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_absolute_and_canonical() {
        let cases = [
            ("/", "/"),
            ("//a//b/", "/a/b"),
            ("a", "/user/ada/a"),
            (".", "/user/ada"),
            ("../x", "/user/x"),
            ("/a/b/../../x/./y", "/x/y"),
        ];
        for (given, wanted) in cases {
            assert_eq!(absolute(given, "/user/ada").unwrap(), wanted, "{given}");
        }
        for above in ["/..", "/../x", "/a/../../x", "../../../x"] {
            assert!(absolute(above, "/user/ada").is_err(), "{above}");
        }
        assert!(absolute("", "/").is_err());
        assert!(absolute("/a\0", "/").is_err());
    }
}
