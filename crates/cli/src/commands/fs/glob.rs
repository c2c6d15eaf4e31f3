//! Hadoop's globs: `*`, `?`, `[a-c]`, `[^a]`, `{a,b}` (which may hold slashes), and `\` before a character taken as it is.

use super::failure::Failure;
use super::item::Item;
use super::store::Store;

/// Whether `text` holds anything but plain characters.
pub fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '[', '{', '\\'])
}

/// Alternatives of `{a,b}`, innermost included. Without braces, the pattern itself.
///
/// Errors: an unclosed brace.
pub fn alternatives(pattern: &str) -> Result<Vec<String>, String> {
    let bytes = pattern.as_bytes();
    let mut depth = 0;
    let mut open = None;
    let mut cuts = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            b'{' => {
                if depth == 0 {
                    open = Some(at);
                    cuts.clear();
                }
                depth += 1;
            }
            b',' if depth == 1 => cuts.push(at),
            b'}' if depth > 0 => {
                depth -= 1;
                if let (0, Some(start)) = (depth, open) {
                    let mut out = Vec::new();
                    let mut from = start + 1;
                    for end in cuts.iter().copied().chain([at]) {
                        let whole = format!("{}{}{}", &pattern[..start], &pattern[from..end], &pattern[at + 1..]);
                        out.extend(alternatives(&whole)?);
                        from = end + 1;
                    }
                    return Ok(out);
                }
            }
            _ => {}
        }
        at += 1;
    }
    if depth > 0 { Err(format!("Unclosed group near index {}", pattern.len())) } else { Ok(vec![pattern.to_owned()]) }
}

/// Whether `name` matches one component of a pattern without braces.
pub fn matches(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    matches_from(&pattern, &name)
}

fn matches_from(mut pattern: &[char], mut name: &[char]) -> bool {
    // Where to go on when what follows the last star did not match: one character later.
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

/// Matches one element of the pattern with one character; what is left of both.
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
                    // Not closed: matches nothing.
                    [] => return None,
                }
                first = false;
            }
        }
        [plain, rest @ ..] => (plain == letter).then_some((rest, after)),
        [] => None,
    }
}

/// The pattern without its escapes, for a path that is no pattern otherwise.
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

/// What matches `path` (absolute), with names shown as `shown` has them. Sorted by path.
pub async fn expand(store: &Store, path: &str, shown: &str) -> Result<Vec<Item>, Failure> {
    let wrong = |why| Failure::Message(format!("Illegal file pattern: {why} {shown}"));
    let mut found: Vec<Item> = Vec::new();
    // Path and shown text have the same alternatives: one is the end of the other.
    let paths = alternatives(path).map_err(wrong)?;
    let shapes = alternatives(shown).map_err(wrong)?;
    for (path, shown) in paths.iter().zip(&shapes) {
        found.extend(expand_one(store, path, shown).await?);
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    found.dedup_by(|one, other| one.path == other.path);
    Ok(found)
}

async fn expand_one(store: &Store, path: &str, shown: &str) -> Result<Vec<Item>, Failure> {
    let components: Vec<&str> = path.split('/').filter(|component| !component.is_empty()).collect();
    // What the user wrote ends with the last components of the path; what stands before them stays as written.
    let (head, written) = split_written(shown, components.len());
    let implied = components.len() - written;
    let root = Item::look(store.clone(), "/".to_owned(), head.to_owned()).await?;
    let mut level = vec![root];
    for (index, component) in components.iter().enumerate() {
        let last = index + 1 == components.len();
        let mut next = Vec::new();
        for item in level {
            if is_pattern(component) && component.contains(['*', '?', '[']) {
                if !item.is_directory() {
                    continue;
                }
                let children = match item.children().await {
                    Ok(children) => children,
                    Err(Failure::Path { .. }) => continue,
                    Err(failure) => return Err(failure),
                };
                next.extend(children.into_iter().filter(|child| matches(component, child.name())));
            } else {
                let name = unescaped(component);
                let mut child = item.child_unlooked(&name);
                if index < implied {
                    child.shown = head.to_owned();
                }
                // Only what is listed next, or is the answer, needs to be looked at.
                let listed_next = components.get(index + 1).is_some_and(|next| is_pattern(next));
                if last || listed_next {
                    child.refresh().await?;
                    if !child.exists() {
                        continue;
                    }
                }
                next.push(child);
            }
        }
        level = next;
    }
    Ok(level)
}

/// Splits `shown` in front of its last components, at most `count` of them; also how many those are.
fn split_written(shown: &str, count: usize) -> (&str, usize) {
    let mut head = shown.trim_end_matches('/');
    let mut written = 0;
    while written < count && !head.is_empty() && !head.ends_with('/') {
        let (above, last) = head.split_at(head.rfind('/').map_or(0, |slash| slash + 1));
        // The path has no such components any more.
        if matches!(last, "." | "..") {
            break;
        }
        head = above;
        written += 1;
        if written < count {
            // The authority of a URI is no component.
            let trimmed = head.trim_end_matches('/');
            if head.len() - trimmed.len() > 1 || trimmed.is_empty() {
                break;
            }
            head = trimmed;
        }
    }
    (&shown[..head.len().max(usize::from(head.is_empty() && shown.starts_with('/')))], written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_kept() {
        assert_eq!(split_written("/a/b*", 2), ("/", 2));
        assert_eq!(split_written("b*", 3), ("", 1));
        assert_eq!(split_written("x/b*", 4), ("", 2));
        assert_eq!(split_written("hdfs://ha:1/a/b*", 2), ("hdfs://ha:1/", 2));
        assert_eq!(split_written("/*", 1), ("/", 1));
        assert_eq!(split_written("./b*", 3), (".", 1));
        assert_eq!(split_written("../x/b*", 4), ("..", 2));
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
        assert_eq!(alternatives("/{a,b{1,2}}/c").unwrap(), ["/a/c", "/b1/c", "/b2/c"]);
        assert_eq!(alternatives("{a/b,c}*").unwrap(), ["a/b*", "c*"]);
        assert_eq!(alternatives("a\\{b").unwrap(), ["a\\{b"]);
        assert!(alternatives("{a,b").is_err());
    }

    #[test]
    fn escapes_vanish() {
        assert_eq!(unescaped("a\\*b\\\\"), "a*b\\");
    }
}
