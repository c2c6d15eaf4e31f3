//! Options in the form of Hadoop's shell: single-dash words in front of the arguments, some with a value.

use std::collections::BTreeMap;

use super::failure::Failure;

/// Options and arguments that a command accepts.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// Minimum and maximum number of arguments after the options.
    pub arguments: (usize, usize),
    /// Options without a value, without their dash.
    pub flags: &'static [&'static str],
    /// Options whose value may be omitted.
    pub values: &'static [&'static str],
    /// Options with a value, anywhere on the line.
    pub values_anywhere: &'static [&'static str],
    /// Options without a value, anywhere on the line.
    pub flags_anywhere: &'static [&'static str],
    /// Flag, anywhere on the line, that letters may follow (`-ptop` for `p`).
    pub lettered: Option<&'static str>,
    /// Unknown words are arguments (modes of chmod look like options).
    pub unknown_are_arguments: bool,
}

impl Format {
    pub const fn new(least: usize, most: usize, flags: &'static [&'static str]) -> Self {
        Self {
            arguments: (least, most),
            flags,
            values: &[],
            values_anywhere: &[],
            flags_anywhere: &[],
            lettered: None,
            unknown_are_arguments: false,
        }
    }

    pub const fn with_values(mut self, values: &'static [&'static str]) -> Self {
        self.values = values;
        self
    }

    pub const fn with_values_anywhere(mut self, values: &'static [&'static str]) -> Self {
        self.values_anywhere = values;
        self
    }

    pub const fn with_flags_anywhere(mut self, flags: &'static [&'static str]) -> Self {
        self.flags_anywhere = flags;
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
    /// Letters after the lettered flag. Empty if it had none.
    pub letters: Option<String>,
    pub rest: Vec<String>,
}

impl Arguments {
    pub fn has(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    /// Returns the value of an option. `None` if the option was not given, or given without a value.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.given(name).filter(|value| !value.is_empty())
    }

    /// Like `value`, but empty if the option was given without a value.
    pub fn given(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// Takes the options that may stand anywhere before a `--` off the line. Source: StringUtils.java, `popOption`;
    /// CopyCommands.java.
    fn take_from_anywhere(&mut self, format: &Format, words: &mut Vec<String>) -> Result<(), Failure> {
        let find = |words: &[String], wanted: &dyn Fn(&str) -> bool| {
            words.iter().take_while(|word| *word != "--").position(|word| word.strip_prefix('-').is_some_and(wanted))
        };
        for name in format.values_anywhere {
            if let Some(at) = find(words, &|word| word == *name) {
                words.remove(at);
                if at == words.len() {
                    return Err(Failure::Usage(format!("option -{name} requires 1 argument.")));
                }
                self.values.insert(name, words.remove(at));
            }
        }
        for name in format.flags_anywhere {
            if let Some(at) = find(words, &|word| word == *name) {
                words.remove(at);
                self.flags.push(name);
            }
        }
        if let Some(name) = format.lettered
            && let Some(at) = find(words, &|word| word.starts_with(name))
        {
            self.letters = Some(words.remove(at)[1 + name.len()..].to_owned());
        }
        Ok(())
    }
}

/// Any number of arguments.
pub const ANY: usize = usize::MAX;

impl Format {
    /// Parses a command line. Errors: `Usage`, in Hadoop's words. Source: CommandFormat.java.
    pub fn parse(&self, mut words: Vec<String>) -> Result<Arguments, Failure> {
        let (least, most) = self.arguments;
        let mut parsed = Arguments::default();
        parsed.take_from_anywhere(self, &mut words)?;
        // Index after the words that are arguments although they look like options.
        let mut at = 0;
        while let Some(word) = words.get(at) {
            if !word.starts_with('-') || word == "-" {
                break;
            }
            if word == "--" {
                words.remove(at);
                break;
            }
            let name = &word[1..];
            if let Some(flag) = self.flags.iter().find(|flag| **flag == name) {
                parsed.flags.push(flag);
                words.remove(at);
            } else if let Some(option) = self.values.iter().find(|option| **option == name) {
                words.remove(at);
                // A value counts as omitted if the command would otherwise have too few arguments.
                let has_value = words.len() > least && words.get(at).is_some_and(|value| !value.starts_with('-'));
                parsed.values.insert(option, if has_value { words.remove(at) } else { String::new() });
            } else if self.unknown_are_arguments {
                // Options after it still count.
                at += 1;
            } else {
                return Err(Failure::Usage(format!("Illegal option {word}")));
            }
        }
        parsed.rest = words;
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
    fn value_may_be_omitted() {
        let format = Format::new(1, 2, &["f"]).with_values(&["t"]);
        for (line, value, rest) in [
            ("-t 5 a", Some("5"), &["a"][..]),
            // One argument is required, so `a` is not the value.
            ("-t a", Some(""), &["a"]),
            ("-t -f a", Some(""), &["a"]),
            ("-t a b", Some("a"), &["b"]),
            ("a -t", None, &["a", "-t"]),
            ("-t - a", Some(""), &["-", "a"]),
        ] {
            let parsed = parse(format, line).unwrap();
            assert_eq!(
                (parsed.given("t"), parsed.rest.as_slice()),
                (value, &rest.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()[..]),
                "{line}"
            );
            assert_eq!(parsed.value("t"), value.filter(|value| !value.is_empty()), "{line}");
        }
        assert_eq!(parse(format, "-t").unwrap_err(), "Not enough arguments: expected 1 but got 0");
    }

    #[test]
    fn some_options_are_accepted_anywhere() {
        let format =
            Format::new(0, ANY, &[]).with_values_anywhere(&["n"]).with_flags_anywhere(&["R"]).with_letters("p");
        let parsed = parse(format, "a -n -v b -R -px").unwrap();
        assert_eq!((parsed.given("n"), parsed.has("R"), parsed.letters.as_deref()), (Some("-v"), true, Some("x")));
        assert_eq!(parsed.rest, ["a", "b"]);
        assert_eq!(parse(format, "a -n").unwrap_err(), "option -n requires 1 argument.");
        assert_eq!(parse(format, "-- -n x -R").unwrap().rest, ["-n", "x", "-R"]);
    }

    #[test]
    fn errors_use_hadoops_wording() {
        let format = Format::new(1, 1, &["f"]);
        assert_eq!(parse(format, "-z a").unwrap_err(), "Illegal option -z");
        assert_eq!(parse(format, "-f").unwrap_err(), "Not enough arguments: expected 1 but got 0");
        assert_eq!(parse(format, "a b").unwrap_err(), "Too many arguments: expected 1 but got 2");
        assert_eq!(parse(format.with_unknown(), "-f -rwx").unwrap().rest, ["-rwx"]);
    }
}
