//! Path arguments: how Hadoop's `Path` parses them, how they are printed, and how they are sorted in listings.

use super::failure::Failure;

/// Scheme, authority and path of an argument. The path is as typed. It is empty after a bare `hdfs://host`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParsedArgument<'a> {
    pub scheme: Option<&'a str>,
    pub authority: Option<&'a str>,
    pub path: &'a str,
}

impl<'a> ParsedArgument<'a> {
    /// Splits an argument. A colon before the first slash ends a scheme.
    ///
    /// Errors: `Usage`, in Hadoop's words. Source: Path.java.
    pub fn parse(text: &'a str) -> Result<Self, Failure> {
        if text.is_empty() {
            return Err(Failure::Usage("Can not create a Path from an empty string".to_owned()));
        }
        let wrong = |what: String| Failure::Usage(format!("java.net.URISyntaxException: {what}: {text}"));
        let (mut scheme, mut rest) = (None, text);
        if let Some(colon) = text.find(':')
            && text.find('/').is_none_or(|slash| colon < slash)
        {
            scheme = Some(&text[..colon]);
            rest = &text[colon + 1..];
            match wrong_letter(&text[..colon]) {
                None => {}
                Some(0) if colon == 0 => return Err(wrong("Expected scheme name at index 0".to_owned())),
                Some(at) => return Err(wrong(format!("Illegal character in scheme name at index {at}"))),
            }
        }
        let mut authority = None;
        let mut path = rest;
        if let Some(behind) = rest.strip_prefix("//")
            && !behind.is_empty()
        {
            let end = behind.find('/').unwrap_or(behind.len());
            authority = Some(&behind[..end]).filter(|authority| !authority.is_empty());
            path = &behind[end..];
        }
        if scheme.is_some() && authority.is_none() && path.is_empty() {
            return Err(wrong(format!("Expected scheme-specific part at index {}", text.len())));
        }
        if scheme.is_some() && !path.is_empty() && !path.starts_with('/') {
            return Err(wrong("Relative path in absolute URI".to_owned()));
        }
        Ok(Self { scheme, authority, path })
    }

    /// Returns the path, or the working directory if the argument has only a host.
    pub fn path_or_home(&self) -> &'a str {
        if self.path.is_empty() { "." } else { self.path }
    }

    /// Returns the style in which paths that this argument names are printed.
    pub fn naming(&self, working_directory: &str) -> PathStyle {
        match self.scheme {
            Some(scheme) => PathStyle::Uri(format!("{scheme}://{}", self.authority.unwrap_or_default())),
            None if self.path.starts_with('/') => PathStyle::Absolute,
            None => PathStyle::Relative(working_directory.to_owned()),
        }
    }
}

/// Returns the position of an invalid letter in a scheme.
fn wrong_letter(scheme: &str) -> Option<usize> {
    if scheme.is_empty() {
        return Some(0);
    }
    let allowed = |at: usize, letter: u8| {
        letter.is_ascii_alphabetic() || at > 0 && (letter.is_ascii_digit() || b"+-.".contains(&letter))
    };
    scheme.bytes().enumerate().find(|(at, letter)| !allowed(*at, *letter)).map(|(at, _)| at)
}

/// Print style of the paths that an argument names: as a URI, as an absolute path, or relative to the working
/// directory, like the argument.
///
/// Source: PathData.java, `expandAsGlob`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PathStyle {
    /// Scheme and authority, for example `hdfs://host:8020`.
    Uri(String),
    Absolute,
    /// Relative to this working directory.
    Relative(String),
}

impl PathStyle {
    /// Returns `path`, which is absolute, in this style.
    pub fn shown(&self, path: &str, is_directory: bool) -> String {
        match self {
            Self::Uri(prefix) => format!("{prefix}{path}"),
            Self::Absolute => path.to_owned(),
            Self::Relative(from) => relative(from, path, is_directory),
        }
    }
}

/// Returns `path` as seen from `from`. Source: PathData.java, `relativize`.
fn relative(from: &str, path: &str, is_directory: bool) -> String {
    if from == path {
        return ".".to_owned();
    }
    let with_slash = |text: &str, wanted: bool| {
        if wanted && !text.ends_with('/') { format!("{text}/") } else { text.to_owned() }
    };
    let (above, below) = (with_slash(from, true), with_slash(path, is_directory));
    let common = above.bytes().zip(below.bytes()).enumerate().take_while(|(_, (one, other))| one == other);
    let Some(slash) = common.filter(|(_, (letter, _))| *letter == b'/').map(|(at, _)| at).last() else {
        return path.to_owned();
    };
    let mut out = path.get(slash + 1..).unwrap_or_default().to_owned();
    let mut left = (slash < from.len()).then_some(slash);
    while let Some(at) = left {
        out = if out.is_empty() { "..".to_owned() } else { format!("../{out}") };
        left = from[at + 1..].find('/').map(|next| at + 1 + next);
    }
    out
}

/// Resolves `path` against `base` and removes empty components, `.` and `..`. A `..` above the root stays in front.
pub fn absolute(path: &str, base: &str) -> String {
    let bases: [&str; 2] = if path.starts_with('/') { ["", path] } else { [base, path] };
    let mut parts: Vec<&str> = Vec::new();
    for part in bases.iter().flat_map(|base| base.split('/')) {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    format!("/{}", parts.join("/"))
}

/// Returns whether HDFS can have a file with this absolute path. Source: DFSUtilClient.java, `isValidName`.
pub fn is_valid_in_hdfs(path: &str) -> bool {
    path.starts_with('/') && !path.split('/').any(|part| matches!(part, "." | "..") || part.contains([':', '\0']))
}

/// Key by which Hadoop's shell sorts paths: the letters of the path in a URI, where many are written `%XX`, as UTF-16.
///
/// Source: PathData.java, `compareTo`; java.net.URI.
pub fn sort_key(path: &str) -> Vec<u16> {
    let mut key = Vec::with_capacity(path.len());
    let mut units = [0; 2];
    for letter in path.chars() {
        if is_plain_in_uri(letter) {
            key.extend_from_slice(letter.encode_utf16(&mut units));
        } else {
            let mut bytes = [0; 4];
            for byte in letter.encode_utf8(&mut bytes).bytes() {
                key.extend(format!("%{byte:02X}").encode_utf16());
            }
        }
    }
    key
}

fn is_plain_in_uri(letter: char) -> bool {
    match letter {
        'a'..='z' | 'A'..='Z' | '0'..='9' => true,
        letter if letter.is_ascii() => "-_.!~*'():@&=+$,;/".contains(letter),
        // Java's space characters and control characters.
        '\u{80}'..='\u{9f}' | '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' => false,
        '\u{2028}' | '\u{2029}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(text: &str) -> Result<(Option<&str>, Option<&str>, &str), String> {
        let typed = ParsedArgument::parse(text).map_err(|failure| failure.to_string())?;
        Ok((typed.scheme, typed.authority, typed.path))
    }

    #[test]
    fn arguments_are_split_like_hadoop() {
        for (given, wanted) in [
            ("hdfs://h:1/a:/b", (Some("hdfs"), Some("h:1"), "/a:/b")),
            ("hdfs://h:1", (Some("hdfs"), Some("h:1"), "")),
            ("hdfs:///a//b", (Some("hdfs"), None, "/a//b")),
            ("hdfs:/a", (Some("hdfs"), None, "/a")),
            ("hdfs://", (Some("hdfs"), None, "//")),
            ("//h/a", (None, Some("h"), "/a")),
            ("//", (None, None, "//")),
            ("/a:/b", (None, None, "/a:/b")),
            ("./a:b", (None, None, "./a:b")),
            ("a", (None, None, "a")),
        ] {
            assert_eq!(typed(given).unwrap(), wanted, "{given}");
        }
        for (given, why) in [
            ("", "Can not create a Path from an empty string"),
            ("a:b", "java.net.URISyntaxException: Relative path in absolute URI: a:b"),
            ("file:a", "java.net.URISyntaxException: Relative path in absolute URI: file:a"),
            ("a b:/x", "java.net.URISyntaxException: Illegal character in scheme name at index 1: a b:/x"),
            (":/x", "java.net.URISyntaxException: Expected scheme name at index 0: :/x"),
            ("hdfs:", "java.net.URISyntaxException: Expected scheme-specific part at index 5: hdfs:"),
        ] {
            assert_eq!(typed(given).unwrap_err(), why, "{given}");
        }
    }

    #[test]
    fn found_paths_keep_the_typed_form() {
        let shown =
            |typed: &str, path: &str| ParsedArgument::parse(typed).unwrap().naming("/user/ada").shown(path, false);
        assert_eq!(shown("/c//d/*", "/c/d/x"), "/c/d/x");
        assert_eq!(shown("hdfs://h/c*", "/c1"), "hdfs://h/c1");
        assert_eq!(shown("hdfs:/c*", "/c1"), "hdfs:///c1");
        assert_eq!(shown("file:/c*", "/c1"), "file:///c1");
        assert_eq!(shown("x*", "/user/ada/x1"), "x1");
        assert_eq!(shown("./d/../x", "/user/ada/x"), "x");
        assert_eq!(shown("../bob/x", "/user/bob/x"), "../bob/x");
        assert_eq!(shown("../../x", "/x"), "../../x");
        assert_eq!(shown(".", "/user/ada"), ".");
        assert_eq!(PathStyle::Relative("/user/ada".to_owned()).shown("/user", true), "..");
    }

    #[test]
    fn nothing_is_above_the_root() {
        for (given, wanted) in [
            ("/", "/"),
            ("//a//b/", "/a/b"),
            (".", "/user/ada"),
            ("../x", "/user/x"),
            ("/a/../../x", "/../x"),
            ("../../../x", "/../x"),
        ] {
            assert_eq!(absolute(given, "/user/ada"), wanted, "{given}");
            assert_eq!(is_valid_in_hdfs(wanted), !wanted.contains(".."), "{given}");
        }
        assert!(!is_valid_in_hdfs("/a:b") && is_valid_in_hdfs("/a.b/..c"));
    }

    #[test]
    fn paths_are_sorted_as_uris() {
        let mut names = ["a", "a b", "a%", "a-b", "a0", "aé", "a\u{3000}", "a{", "a\u{10000}", "a\u{ff00}", "a|"];
        names.sort_by_cached_key(|name| sort_key(name));
        // Sorted by `a%20b`, `a%25`, `a%7B`, `a%7C`, `a%E3..`. A letter beyond the first plane begins with D8 in
        // UTF-16.
        assert_eq!(names, ["a", "a b", "a%", "a{", "a|", "a\u{3000}", "a-b", "a0", "aé", "a\u{10000}", "a\u{ff00}"]);
    }
}
