use std::collections::BTreeMap;

use super::BlockFileError;

/// Parses a Java properties file: comments, continued lines, escapes (`\:`, `\u00e9`) as `java.util.Properties.load`
/// accepts them. If a key occurs twice, the last value counts.
pub fn parse_properties(text: &str) -> Result<BTreeMap<String, String>, BlockFileError> {
    let mut properties = BTreeMap::new();
    let mut lines = text.split(['\n', '\r']).enumerate();
    while let Some((number, line)) = lines.next() {
        let line = line.trim_start_matches([' ', '\t', '\x0c']);
        if line.is_empty() || line.starts_with(['#', '!']) {
            continue;
        }
        let mut logical = line.to_owned();
        while is_continued(&logical) {
            logical.pop();
            match lines.next() {
                // "\r\n" splits into a line and an empty line.
                Some((_, "")) => match lines.next() {
                    Some((_, next)) => logical.push_str(next.trim_start_matches([' ', '\t', '\x0c'])),
                    None => break,
                },
                Some((_, next)) => logical.push_str(next.trim_start_matches([' ', '\t', '\x0c'])),
                None => break,
            }
        }
        let (key, value) = split_pair(&logical);
        let fail = |why| BlockFileError::Properties { line: number + 1, why };
        properties.insert(unescape(key).map_err(fail)?, unescape(value).map_err(fail)?);
    }
    Ok(properties)
}

/// Prints `pairs` in their order, escaped as `java.util.Properties.store` does, below one comment line.
pub fn print_properties(comment: &str, pairs: &[(&str, &str)]) -> String {
    let mut text = String::from("#");
    text.extend(comment.chars().map(|c| if c.is_control() { ' ' } else { c }));
    text.push('\n');
    for (key, value) in pairs {
        escape(key, true, &mut text);
        text.push('=');
        escape(value, false, &mut text);
        text.push('\n');
    }
    text
}

/// An odd number of backslashes at the end joins the next line.
fn is_continued(line: &str) -> bool {
    line.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

/// Splits at the first unescaped `=`, `:` or blank. Blanks around the separator belong to neither half.
fn split_pair(line: &str) -> (&str, &str) {
    let mut escaped = false;
    for (at, c) in line.char_indices() {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if matches!(c, '=' | ':' | ' ' | '\t' | '\x0c') {
            let rest = line[at..].trim_start_matches([' ', '\t', '\x0c']);
            let rest = rest.strip_prefix(['=', ':']).unwrap_or(rest);
            return (&line[..at], rest.trim_start_matches([' ', '\t', '\x0c']));
        }
    }
    (line, "")
}

fn unescape(text: &str) -> Result<String, &'static str> {
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut chars = text.chars();
    let mut buffer = [0; 2];
    while let Some(c) = chars.next() {
        if c != '\\' {
            units.extend_from_slice(c.encode_utf16(&mut buffer));
            continue;
        }
        match chars.next() {
            None => {}
            Some('t') => units.push(u16::from(b'\t')),
            Some('n') => units.push(u16::from(b'\n')),
            Some('r') => units.push(u16::from(b'\r')),
            Some('f') => units.push(0x0c),
            Some('u') => {
                let digits: String = chars.by_ref().take(4).collect();
                let valid = digits.len() == 4 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                let unit = if valid { u16::from_str_radix(&digits, 16).ok() } else { None };
                units.push(unit.ok_or("\\u is not followed by four hexadecimal digits")?);
            }
            Some(other) => units.extend_from_slice(other.encode_utf16(&mut buffer)),
        }
    }
    String::from_utf16(&units).map_err(|_| "half of a surrogate pair")
}

fn escape(text: &str, is_key: bool, into: &mut String) {
    for (at, c) in text.char_indices() {
        match c {
            ' ' if is_key || at == 0 => into.push_str("\\ "),
            '\t' => into.push_str("\\t"),
            '\n' => into.push_str("\\n"),
            '\r' => into.push_str("\\r"),
            '\x0c' => into.push_str("\\f"),
            '\\' | '=' | ':' | '#' | '!' => {
                into.push('\\');
                into.push(c);
            }
            ' '..='~' => into.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    into.push_str(&format!("\\u{unit:04X}"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn java_properties_are_parsed() {
        let text = "#Tue Nov 21 10:00:00 UTC 2026\r\nstorageID=DS-1\r\n  cTime: 0\n! note\nkey\\ one = a\\:b\\u00e9\n\
                    long=ab\\\r\n   cd\nempty\n";
        let properties = parse_properties(text).unwrap();
        assert_eq!(properties["storageID"], "DS-1");
        assert_eq!(properties["cTime"], "0");
        assert_eq!(properties["key one"], "a:bé");
        assert_eq!(properties["long"], "abcd");
        assert_eq!(properties["empty"], "");
        assert_eq!(properties.len(), 5);
    }

    #[test]
    fn bad_escapes_are_errors() {
        assert!(matches!(parse_properties("a=b\nc=\\u12x4"), Err(BlockFileError::Properties { line: 2, .. })));
        assert!(matches!(parse_properties("c=\\ud800"), Err(BlockFileError::Properties { line: 1, .. })));
    }

    proptest! {
        #[test]
        fn printed_properties_round_trip(key in ".{1,20}", value in ".{0,40}", comment in ".{0,10}") {
            let text = print_properties(&comment, &[(&key, &value)]);
            let read = parse_properties(&text).unwrap();
            prop_assert_eq!(read.len(), 1);
            prop_assert_eq!(read.get(&key), Some(&value));
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in "\\PC{0,200}|[\\\\=: u0-9a\n\r]{0,200}") {
            let _ = parse_properties(&text);
        }
    }
}
