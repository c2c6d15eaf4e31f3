//! Options as Hadoop's shell takes them: single-dash words in front of the arguments, some with a value.

use std::collections::BTreeMap;

use super::failure::Failure;

/// What a command takes.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// Fewest and most arguments behind the options.
    pub arguments: (usize, usize),
    /// Words without a value, without their dash.
    pub flags: &'static [&'static str],
    /// Words with a value.
    pub values: &'static [&'static str],
    /// Flags whose letters may be written together behind the first (`-ptop` for `p`).
    pub lettered: Option<&'static str>,
    /// Unknown words are arguments (modes of chmod look like options).
    pub unknown_are_arguments: bool,
}

impl Format {
    pub const fn new(least: usize, most: usize, flags: &'static [&'static str]) -> Self {
        Self { arguments: (least, most), flags, values: &[], lettered: None, unknown_are_arguments: false }
    }

    pub const fn with_values(mut self, values: &'static [&'static str]) -> Self {
        self.values = values;
        self
    }

    pub const fn with_letters(mut self, flag: &'static str) -> Self {
        self.lettered = Some(flag);
        self
    }

    pub const fn with_unknown(mut self) -> Self {
        self.unknown_are_arguments = true;
        self
    }
}

/// A parsed command line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Arguments {
    flags: Vec<&'static str>,
    values: BTreeMap<&'static str, String>,
    /// What stood behind the lettered flag; empty when it stood alone.
    pub letters: Option<String>,
    pub rest: Vec<String>,
}

impl Arguments {
    pub fn has(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    /// `None` when the option was not given (or given without a value).
    pub fn value(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }
}

/// As many arguments as anybody likes.
pub const ANY: usize = usize::MAX;

impl Format {
    /// Errors: `Usage`, in Hadoop's words.
    pub fn parse(&self, words: Vec<String>) -> Result<Arguments, Failure> {
        let mut parsed = Arguments::default();
        let mut words = words.into_iter().peekable();
        while let Some(word) = words.peek() {
            if !word.starts_with('-') || word == "-" {
                break;
            }
            let Some(word) = words.next() else { break };
            if word == "--" {
                break;
            }
            let name = &word[1..];
            if let Some(flag) = self.flags.iter().find(|flag| **flag == name) {
                parsed.flags.push(flag);
            } else if let Some(option) = self.values.iter().find(|option| **option == name) {
                let value = words.next_if(|value| !value.starts_with('-') || value == "-");
                parsed.values.insert(option, value.unwrap_or_default());
            } else if let Some(letters) = self.lettered.and_then(|flag| name.strip_prefix(flag)) {
                parsed.letters = Some(letters.to_owned());
            } else if self.unknown_are_arguments {
                parsed.rest.push(word);
                // Options behind it still count, as in Hadoop.
            } else {
                return Err(Failure::Usage(format!("Illegal option {word}")));
            }
        }
        parsed.rest.extend(words);
        let (least, most) = self.arguments;
        let count = parsed.rest.len();
        if count < least {
            return Err(Failure::Usage(format!("Not enough arguments: expected {least} but got {count}")));
        }
        if count > most {
            return Err(Failure::Usage(format!("Too many arguments: expected {most} but got {count}")));
        }
        Ok(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(format: Format, line: &str) -> Result<Arguments, String> {
        format.parse(line.split_whitespace().map(str::to_owned).collect()).map_err(|failure| failure.to_string())
    }

    #[test]
    fn options_end_at_the_first_argument() {
        let format = Format::new(1, 2, &["f", "R"]).with_values(&["t"]).with_letters("p");
        let parsed = parse(format, "-f -t 5 -ptop a -R").unwrap();
        assert!(parsed.has("f") && !parsed.has("R"));
        assert_eq!(parsed.value("t"), Some("5"));
        assert_eq!(parsed.letters.as_deref(), Some("top"));
        assert_eq!(parsed.rest, ["a", "-R"]);
        assert_eq!(parse(format, "-- -f").unwrap().rest, ["-f"]);
        assert_eq!(parse(format, "-f -").unwrap().rest, ["-"]);
    }

    #[test]
    fn wrong_lines_are_told_in_hadoops_words() {
        let format = Format::new(1, 1, &["f"]);
        assert_eq!(parse(format, "-z a").unwrap_err(), "Illegal option -z");
        assert_eq!(parse(format, "-f").unwrap_err(), "Not enough arguments: expected 1 but got 0");
        assert_eq!(parse(format, "a b").unwrap_err(), "Too many arguments: expected 1 but got 2");
        assert_eq!(parse(format.with_unknown(), "-f -rwx").unwrap().rest, ["-rwx"]);
    }
}
