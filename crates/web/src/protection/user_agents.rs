//! Patterns of the User-Agent header: the part of Java's regular expressions that Hadoop's default uses.

/// A pattern that must match the whole text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Pattern(Vec<Token>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Token {
    Literal(char),
    AnyCharacter,
    AnyText,
}

impl Pattern {
    /// The pattern that matches every text.
    pub fn any() -> Self {
        Self(vec![Token::AnyText])
    }

    /// Parses text in which `.` is any character, `.*` any text, and a backslash makes the next character ordinary. `^`
    /// at the start and `$` at the end mean nothing, because the whole text must match. `None` for other operators.
    pub fn parse(pattern: &str) -> Option<Self> {
        let pattern = pattern.strip_prefix('^').unwrap_or(pattern);
        let pattern = pattern.strip_suffix('$').filter(|rest| !rest.ends_with('\\')).unwrap_or(pattern);
        let mut tokens = Vec::new();
        let mut characters = pattern.chars().peekable();
        while let Some(character) = characters.next() {
            tokens.push(match character {
                // A backslash before a letter or digit has a meaning of its own in Java.
                '\\' => Token::Literal(characters.next().filter(|next| !next.is_alphanumeric())?),
                '.' => match characters.next_if_eq(&'*') {
                    Some(_) => Token::AnyText,
                    None => Token::AnyCharacter,
                },
                '[' | ']' | '(' | ')' | '{' | '}' | '|' | '*' | '+' | '?' | '^' | '$' => return None,
                character => Token::Literal(character),
            });
        }
        Some(Self(tokens))
    }

    /// Returns true if the whole text matches. Takes time in proportion to the product of both lengths.
    pub fn matches(&self, text: &str) -> bool {
        let text: Vec<char> = text.chars().collect();
        let (mut token, mut at) = (0, 0);
        // The last `.*`, and the end of the text that it matches for now.
        let mut wide: Option<(usize, usize)> = None;
        loop {
            match self.0.get(token) {
                Some(Token::AnyText) => {
                    wide = Some((token, at));
                    token += 1;
                    continue;
                }
                Some(Token::AnyCharacter) if at < text.len() => {}
                Some(Token::Literal(wanted)) if text.get(at) == Some(wanted) => {}
                None if at == text.len() => return true,
                _ => {
                    // Let the last `.*` match one character more.
                    let Some((place, end)) = wide.filter(|(_, end)| *end < text.len()) else { return false };
                    wide = Some((place, end + 1));
                    (token, at) = (place + 1, end + 1);
                    continue;
                }
            }
            (token, at) = (token + 1, at + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_like_javas() {
        for (pattern, text, matches) in [
            ("^Mozilla.*", "Mozilla/5.0 (X11)", true),
            ("^Mozilla.*", "Mozilla", true),
            ("^Mozilla.*", "curl Mozilla", false),
            ("Mozilla", "Mozilla/5.0", false),
            (".*Firefox.*", "Mozilla Firefox/9", true),
            (".*a.*b$", "xxaxxbxxb", true),
            (".*a.*b", "xxbxxa", false),
            ("a.c", "abc", true),
            ("a.c", "ac", false),
            (r"a\.c", "abc", false),
            (r"a\.c", "a.c", true),
            (r"a\$", "a$", true),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(Pattern::parse(pattern).unwrap().matches(text), matches, "{pattern} {text}");
        }
        for pattern in ["(a|b)", "a+", "a?", "[ab]", "a{2}", r"\d", "a^b", "*", r"a\"] {
            assert_eq!(Pattern::parse(pattern), None, "{pattern}");
        }
    }
}
