//! Hadoop's globs: `*`, `?`, `[a-c]`, `[^a]`, `{a,b}` (which may contain slashes), and `\` before a literal character.
//!
//! A pattern never matches paths with fewer components than it has. A component that an empty alternative or an escape
//! makes empty, `.` or `..` matches nothing, because the path would otherwise be that of a directory above.

use hearth_types::{FileKind, FileStatus};

use super::failure::Failure;
use super::paths;
use super::store::Store;

/// Path that matches a pattern.
#[derive(Clone, Debug)]
pub struct Found {
    pub store: Store,
    pub path: String,
    /// Path as the pattern names it: from the root of its own file system, whatever is mounted there.
    pub named: String,
    pub status: FileStatus,
}

/// Returns the alternatives of `{a,b}`, also of nested groups. Without braces: the pattern itself.
///
/// Errors: a group is not closed.
pub fn alternatives(pattern: &str) -> Result<Vec<String>, String> {
    let unclosed = || format!("error parsing regexp: Unclosed group at pos {}: `{pattern}`", pattern.len());
    let Some(group) = first_group(pattern, |_| true).map_err(|()| unclosed())? else {
        return Ok(vec![pattern.to_owned()]);
    };
    let mut out = Vec::new();
    for alternative in &group.alternatives {
        out.extend(alternatives(&format!("{}{alternative}{}", group.before, group.behind))?);
    }
    Ok(out)
}

/// First outermost `{...}` that the caller's condition accepts.
struct Group<'a> {
    before: &'a str,
    alternatives: Vec<&'a str>,
    behind: &'a str,
}

/// Finds the first such group. Errors: a group is not closed.
fn first_group(pattern: &str, wanted: impl Fn(&str) -> bool) -> Result<Option<Group<'_>>, ()> {
    let bytes = pattern.as_bytes();
    let (mut depth, mut start, mut at) = (0, 0, 0);
    let mut cuts = Vec::new();
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            b'{' => {
                if depth == 0 {
                    start = at;
                    cuts.clear();
                }
                depth += 1;
            }
            b',' if depth == 1 => cuts.push(at),
            b'}' if depth > 0 => {
                depth -= 1;
                if depth == 0 && wanted(&pattern[start + 1..at]) {
                    let ends = cuts.iter().copied().chain([at]);
                    let starts = [start].into_iter().chain(cuts.iter().copied());
                    return Ok(Some(Group {
                        before: &pattern[..start],
                        alternatives: starts.zip(ends).map(|(from, to)| &pattern[from + 1..to]).collect(),
                        behind: &pattern[at + 1..],
                    }));
                }
            }
            _ => {}
        }
        at += 1;
    }
    if depth > 0 { Err(()) } else { Ok(None) }
}

/// One of the paths that a pattern whose groups contain slashes expands to. `None`: the alternative matches nothing.
type Flat = Option<String>;

/// Expands groups that contain a slash, so that the result can be matched component by component.
///
/// Source: GlobExpander.java; there an alternative loses its escapes, and an empty one its component.
fn flatten(pattern: &str) -> Vec<Flat> {
    let Ok(Some(group)) = first_group(pattern, |inside| inside.contains('/')) else {
        // An unclosed group is reported when the component is parsed.
        return vec![Some(pattern.to_owned())];
    };
    let stands_alone = (group.before.is_empty() || group.before.ends_with('/'))
        && (group.behind.is_empty() || group.behind.starts_with('/'));
    let mut out = Vec::new();
    for alternative in &group.alternatives {
        let names_nothing = alternative.split('/').all(|part| matches!(part, "" | "." | ".."));
        if stands_alone && names_nothing {
            out.push(None);
        } else {
            out.extend(flatten(&format!("{}{alternative}{}", group.before, group.behind)));
        }
    }
    out
}

/// One component of a pattern.
#[derive(PartialEq, Eq, Debug)]
enum Component {
    /// Literal name, without escapes.
    Name(String),
    /// Patterns without groups. A name must match one of them.
    Pattern(Vec<String>),
}

impl Component {
    /// Parses a component. Errors: what is wrong with the pattern, in Hadoop's words.
    fn parse(text: &str) -> Result<Self, Failure> {
        let illegal = |why: String| Failure::Message(format!("Illegal file pattern: {why}"));
        let malformed = |what: &str, at: usize| illegal(format!("error parsing regexp: {what} at pos {at}: `{text}`"));
        let bytes = text.as_bytes();
        let (mut at, mut class, mut wild) = (0, None, false);
        while at < bytes.len() {
            match bytes[at] {
                b'\\' if at + 1 == bytes.len() => return Err(malformed("Missing escaped character", at + 1)),
                b'\\' => at += 1,
                b'*' | b'?' | b'{' => wild = true,
                b'[' if class.is_none() => (class, wild) = (Some(at), true),
                b'[' if !bytes[..at].ends_with(b"]") => return Err(malformed("Unclosed character class", at)),
                // A bracket that comes first is a member of the class.
                b']' if class.is_some_and(|start| !is_class_start(&bytes[start..at])) => class = None,
                _ => {}
            }
            at += 1;
        }
        if class.is_some() {
            return Err(malformed("Unclosed character class", bytes.len()));
        }
        if !wild {
            let name = unescaped(text);
            if matches!(name.as_str(), "" | "." | "..") || name.contains('/') {
                return Err(illegal(format!(
                    "`{text}' would stand for another directory: write that directory's path"
                )));
            }
            return Ok(Self::Name(name));
        }
        Ok(Self::Pattern(alternatives(text).map_err(illegal)?))
    }

    fn matches(&self, name: &str) -> bool {
        match self {
            Self::Name(wanted) => wanted == name,
            Self::Pattern(patterns) => patterns.iter().any(|pattern| matches(pattern, name)),
        }
    }
}

/// Returns whether the class is still empty: `[`, `[^`, `[!`.
fn is_class_start(class: &[u8]) -> bool {
    matches!(class, b"[" | b"[^" | b"[!")
}

/// Returns whether `name` matches one component of a pattern without braces.
pub fn matches(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    matches_from(&pattern, &name)
}

fn matches_from(mut pattern: &[char], mut name: &[char]) -> bool {
    // Position to continue from if the part after the last star does not match: one character later.
    let mut star: Option<(&[char], &[char])> = None;
    loop {
        if let [first, rest @ ..] = pattern {
            if *first == '*' {
                star = Some((rest, name));
                pattern = rest;
                continue;
            }
            if let Some((next, after)) = one(pattern, name) {
                pattern = next;
                name = after;
                continue;
            }
        } else if name.is_empty() {
            return true;
        }
        match star {
            Some((after_star, [_, later @ ..])) => {
                star = Some((after_star, later));
                pattern = after_star;
                name = later;
            }
            _ => return false,
        }
    }
}

/// Matches one element of the pattern with one character. Returns the rest of both.
fn one<'p, 'n>(pattern: &'p [char], name: &'n [char]) -> Option<(&'p [char], &'n [char])> {
    let [letter, after @ ..] = name else { return None };
    match pattern {
        ['?', rest @ ..] => Some((rest, after)),
        ['\\', escaped, rest @ ..] => (escaped == letter).then_some((rest, after)),
        ['[', class @ ..] => {
            let (negated, mut class) = match class {
                ['^' | '!', rest @ ..] => (true, rest),
                rest => (false, rest),
            };
            let mut found = false;
            let mut first = true;
            loop {
                match class {
                    [']', rest @ ..] if !first => {
                        return (found != negated).then_some((rest, after));
                    }
                    [low, '-', high, rest @ ..] if *high != ']' => {
                        found |= low <= letter && letter <= high;
                        class = rest;
                    }
                    ['\\', escaped, rest @ ..] => {
                        found |= escaped == letter;
                        class = rest;
                    }
                    [single, rest @ ..] => {
                        found |= single == letter;
                        class = rest;
                    }
                    // An unclosed class matches nothing.
                    [] => return None,
                }
                first = false;
            }
        }
        [plain, rest @ ..] => (plain == letter).then_some((rest, after)),
        [] => None,
    }
}

/// Removes the escapes of a path that is otherwise not a pattern.
pub fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => out.extend(letters.next()),
            letter => out.push(letter),
        }
    }
    out
}

/// Returns the paths that `pattern` (absolute, or relative to `home`) matches, sorted as Hadoop sorts paths. `None`: it
/// is not a pattern, and the path does not exist.
///
/// Source: Globber.java.
pub async fn expand(store: &Store, pattern: &str) -> Result<Option<Vec<Found>>, Failure> {
    refuse_open_escape(pattern)?;
    let flattened = flatten(pattern);
    let mut wild = flattened.len() > 1;
    let mut all = Vec::new();
    for flat in &flattened {
        match flat {
            Some(flat) => all.extend(expand_one(store, flat, &mut wild).await?),
            None => wild = true,
        }
    }
    if all.is_empty() && !wild {
        return Ok(None);
    }
    all.sort_by_cached_key(|found| paths::sort_key(&found.named));
    Ok(Some(all))
}

/// Path that may lead to a match.
struct Candidate {
    store: Store,
    path: String,
    named: String,
    /// `None`: not yet requested.
    status: Option<FileStatus>,
}

impl Candidate {
    fn below(&self, name: &str, status: Option<FileStatus>) -> Self {
        let (store, path) = self.store.below(&self.path, name);
        let named = format!("{}/{name}", self.named.trim_end_matches('/'));
        Self { store, path, named, status }
    }
}

async fn expand_one(store: &Store, pattern: &str, wild: &mut bool) -> Result<Vec<Found>, Failure> {
    refuse_up_from_pattern(pattern)?;
    let whole = store.plain(pattern)?;
    let parts: Vec<&str> = whole.split('/').filter(|part| !part.is_empty()).collect();
    let (root, path) = store.root();
    let mut level = vec![Candidate { store: root, path, named: "/".to_owned(), status: None }];
    for (index, part) in parts.iter().enumerate() {
        let last = index + 1 == parts.len();
        let component = Component::parse(part)?;
        let mut next = Vec::new();
        match &component {
            Component::Name(name) => {
                store.check_name(name)?;
                for candidate in &level {
                    let mut child = candidate.below(name, None);
                    // Intermediate components must exist: otherwise nothing below them is found.
                    if last {
                        child.status = child.store.status(&child.path, &child.path).await?;
                    }
                    if !last || child.status.is_some() {
                        next.push(child);
                    }
                }
            }
            Component::Pattern(_) => {
                *wild = true;
                for candidate in &level {
                    let listed = children(candidate).await?;
                    let wanted = listed.into_iter().filter(|(name, status)| {
                        (last || status.kind == FileKind::Directory) && component.matches(name)
                    });
                    next.extend(wanted.map(|(name, status)| candidate.below(&name, Some(status))));
                }
            }
        }
        level = next;
    }
    let mut found = Vec::new();
    for candidate in level {
        let status = match candidate.status {
            Some(status) => Some(status),
            None => candidate.store.status(&candidate.path, &candidate.path).await?,
        };
        if let Some(status) = status {
            let Candidate { store, path, named, .. } = candidate;
            found.push(Found { store, path, named, status });
        }
    }
    Ok(found)
}

/// Errors: the pattern ends with an escape character that escapes nothing.
fn refuse_open_escape(pattern: &str) -> Result<(), Failure> {
    let escapes = pattern.bytes().rev().take_while(|byte| *byte == b'\\').count();
    if escapes % 2 == 0 {
        return Ok(());
    }
    let why = format!("An escaped character does not present for glob {pattern} at {}", pattern.encode_utf16().count());
    Err(Failure::Message(format!("Illegal file pattern: {why}")))
}

/// Errors: a `..` follows a component that is a pattern. It would remove that component together with its conditions.
pub fn refuse_up_from_pattern(pattern: &str) -> Result<(), Failure> {
    let mut parts = Vec::new();
    for part in pattern.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                if parts.pop().is_some_and(|part: &str| part.contains(['*', '?', '[', '{', '\\'])) {
                    let why = "`..' goes up from a component that is a pattern: write the directory's path";
                    return Err(Failure::Message(format!("Illegal file pattern: {why}: {pattern}")));
                }
            }
            part => parts.push(part),
        }
    }
    Ok(())
}

/// Returns the entries of a directory by name. A file or a missing path has none.
async fn children(candidate: &Candidate) -> Result<Vec<(String, FileStatus)>, Failure> {
    let Some(entries) = candidate.store.list_if_there(&candidate.path).await? else { return Ok(Vec::new()) };
    // The listing of a file contains only that file.
    if entries.len() == 1 {
        let status = candidate.store.status(&candidate.path, &candidate.path).await?;
        if status.is_none_or(|status| status.kind != FileKind::Directory) {
            return Ok(Vec::new());
        }
    }
    Ok(entries.into_iter().map(|status| (super::shown_name(&status.local_name), status)).collect())
}

#[cfg(test)]
mod tests {
    use hearth_types::FileKind;

    use super::*;

    fn flat(pattern: &str) -> Vec<Flat> {
        flatten(pattern)
    }

    #[test]
    fn names_match_patterns() {
        for (pattern, name) in [
            ("*", "anything"),
            ("a*c", "abbc"),
            ("a*b*c", "axxbyybzc"),
            ("?", "é"),
            ("[a-c]x", "bx"),
            ("[^a-c]x", "dx"),
            ("[]]", "]"),
            ("\\*", "*"),
            ("a[\\]]", "a]"),
            ("*.gz", "x.tar.gz"),
            ("", ""),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("a*c", "abcd"),
            ("?", ""),
            ("?", "ab"),
            ("[a-c]", "d"),
            ("[^a]", "a"),
            ("\\*", "x"),
            ("[abc", "a"),
            ("a", ""),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn braces_become_alternatives() {
        assert_eq!(alternatives("{a,b{1,2}}c").unwrap(), ["ac", "b1c", "b2c"]);
        assert_eq!(alternatives("a\\{b").unwrap(), ["a\\{b"]);
        assert_eq!(alternatives("{}").unwrap(), [""]);
        assert!(alternatives("{a,b").is_err());
    }

    #[test]
    fn groups_with_slashes_are_expanded() {
        let all = |pattern: &str| flat(pattern).into_iter().flatten().collect::<Vec<_>>();
        assert_eq!(all("/{a/b,c}*"), ["/a/b*", "/c*"]);
        assert_eq!(all("/{a,b}/{b,{c/d,e/f}}"), ["/{a,b}/b", "/{a,b}/c/d", "/{a,b}/e/f"]);
        assert_eq!(all("/p{a/b,c\\*}s"), ["/pa/bs", "/pc\\*s"]);
        assert_eq!(all("/d{,/x}"), ["/d", "/d/x"]);
    }

    #[test]
    fn empty_alternatives_do_not_match_parent_paths() {
        for pattern in
            ["/d/{,a/b}", "/d/{/,a}", "{,a/b}", "/d/{.,a/b}/x", "/d/{..,a/b}", "/d/{./..,a/b}", "/d/{x/{,a/b},y}"]
        {
            let none = flat(pattern).iter().filter(|flat| flat.is_none()).count();
            // An inner group is found only after the outer one was expanded.
            assert_eq!(none, 1, "{pattern}: {:?}", flat(pattern));
        }
        assert!(flat("/d/{a/,b/}").iter().all(Option::is_some));
        assert!(flat("/d/{../x,a/b}").iter().all(Option::is_some));
    }

    #[test]
    fn components_that_become_empty_are_rejected() {
        let why = |text: &str| Component::parse(text).unwrap_err().to_string();
        let missing = "Illegal file pattern: error parsing regexp: Missing escaped character at pos 1: `\\`";
        assert_eq!(why("\\"), missing);
        assert!(why("\\.").contains("another directory") && why("\\.\\.").contains("another directory"));
        assert!(why("a[").contains("Unclosed character class at pos 2"));
        assert!(why("{a").contains("Unclosed group at pos 2"));
        assert_eq!(Component::parse("a\\*").unwrap(), Component::Name("a*".to_owned()));
        let empty = Component::parse("{}").unwrap();
        assert!(!["a", "."].into_iter().any(|name| empty.matches(name)));
    }

    /// Checks that any pattern names only paths with its own number of components: here none that exist, and never `d`
    /// itself.
    #[tokio::test]
    async fn patterns_never_match_parent_directories() {
        let directory = tempfile::tempdir().unwrap();
        let d = directory.path().join("d");
        std::fs::create_dir_all(d.join("a/x")).unwrap();
        std::fs::write(d.join("f"), "bytes").unwrap();
        let d = d.to_str().unwrap();
        for end in [
            "{}", "{,}", "{,f1}", "{}{}", "{}/x", "a/{}/x", "{,a/y}", "{/,y}", "{.,y}", "{..,y}", "{.,a/y}",
            "{..,a/y}", "\\", "\\.", "\\..", "[.]", "[.][.]", "?/..{}", "{}/..", "*/..", "a/{}/..", "a/[.]", "{\\,y}",
            "f/*", "f/{a,b}", "f*/x", "*/y",
        ] {
            let found = expand(&Store::Local, &format!("{d}/{end}")).await;
            let found: Vec<String> =
                found.ok().flatten().unwrap_or_default().into_iter().map(|found| found.path).collect();
            assert!(found.is_empty(), "{end}: {found:?}");
        }
        for (end, wanted) in
            [("{,f}", "f"), ("{a,b}/x", "a/x"), ("*/x", "a/x"), ("{a/x,b}", "a/x"), ("a/../f", "f"), ("\\f", "f")]
        {
            let found = expand(&Store::Local, &format!("{d}/{end}")).await.unwrap().unwrap();
            let found: Vec<_> = found.iter().map(|found| (found.path.as_str(), found.status.kind)).collect();
            let kind = if wanted == "f" { FileKind::File } else { FileKind::Directory };
            assert_eq!(found, [(format!("{d}/{wanted}").as_str(), kind)], "{end}");
        }
        assert!(expand(&Store::Local, &format!("{d}/none")).await.unwrap().is_none());
    }

    #[test]
    fn escapes_are_removed() {
        assert_eq!(unescaped("a\\*b\\\\"), "a*b\\");
    }
}
