//! Values that a key allows, beyond what its parser accepts.

use std::fmt;

/// Restriction of a key's values. Displayed, it is the end of a sentence that begins with "wanted".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allowed {
    /// Whatever the parser accepts.
    Any,
    /// Bounds, both included, as they would be written in a file.
    Range { least: &'static str, most: Option<&'static str> },
    /// One of these names.
    Names { names: &'static [&'static str], form: NameForm },
}

/// Comparison of a value with the allowed names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NameForm {
    Exact,
    AnyCase,
    /// Simple name of a Java class; packages and outer classes may stand before it.
    Class,
    /// Comma-separated list of names in any case, each at most once.
    List,
}

impl Allowed {
    /// Checks names. Ranges are checked by [`in_range`], which knows the type.
    ///
    /// Errors: a description of the allowed values.
    pub(crate) fn check_names(&self, value: &str) -> Result<(), String> {
        let Self::Names { names, form } = self else { return Ok(()) };
        let is_name = |value: &str| names.iter().any(|name| name.eq_ignore_ascii_case(value));
        let is_allowed = match form {
            NameForm::Exact => names.contains(&value),
            NameForm::AnyCase => is_name(value),
            NameForm::Class => names.contains(&value.rsplit(['.', '$']).next().unwrap_or_default()),
            NameForm::List => {
                let given: Vec<String> = value
                    .split([',', '\n'])
                    .map(|name| name.trim().to_ascii_lowercase())
                    .filter(|name| !name.is_empty())
                    .collect();
                let is_unique = |(at, name): (usize, &String)| !given[..at].contains(name);
                !given.is_empty() && given.iter().all(|name| is_name(name)) && given.iter().enumerate().all(is_unique)
            }
        };
        if is_allowed { Ok(()) } else { Err(format!("wanted {self}")) }
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any value"),
            Self::Range { least, most: Some(most) } => write!(f, "{least} to {most}"),
            Self::Range { least, most: None } => write!(f, "{least} or more"),
            Self::Names { names, form } => {
                if *form == NameForm::List {
                    return write!(f, "one or more of {}, each at most once", names.join(", "));
                }
                match names.split_last() {
                    Some((last, rest)) if !rest.is_empty() => write!(f, "{} or {last}", rest.join(", ")),
                    _ => f.write_str(&names.join("")),
                }
            }
        }
    }
}

/// Parses `value` and checks its bounds, which are parsed in the same way, so that they have the key's unit.
///
/// Errors: a description of the allowed values.
pub(crate) fn in_range<T: PartialOrd>(
    value: &str,
    parse: fn(&str) -> Result<T, String>,
    least: &'static str,
    most: Option<&'static str>,
) -> Result<(), String> {
    let allowed = Allowed::Range { least, most };
    let found = parse(value).map_err(|wanted| format!("{wanted}, {allowed}"))?;
    let is_low = found < parse(least)?;
    let is_high = match most {
        Some(most) => found > parse(most)?,
        None => false,
    };
    if is_low || is_high { Err(format!("wanted {allowed}")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    #[test]
    fn bounds_have_the_unit_of_the_key() {
        let wait = |value| in_range(value, parse::duration_s, "100ms", Some("1h"));
        assert_eq!(wait("1"), Ok(()));
        assert_eq!(wait("3600"), Ok(()));
        assert_eq!(wait("100ms"), Ok(()));
        assert_eq!(wait("99ms").unwrap_err(), "wanted 100ms to 1h");
        assert_eq!(wait("61m").unwrap_err(), "wanted 100ms to 1h");
        let said = wait("10 parsecs").unwrap_err();
        assert!(said.starts_with("wanted a duration") && said.ends_with("100ms to 1h"), "{said}");
        let count = |value| in_range(value, parse::int_i32, "-1", None);
        assert_eq!((count("-1"), count("7")), (Ok(()), Ok(())));
        assert_eq!(count("-2").unwrap_err(), "wanted -1 or more");
    }

    #[test]
    fn names_are_compared_in_their_form() {
        let names = &["local", "packets"][..];
        let of = |form| Allowed::Names { names, form };
        assert_eq!(of(NameForm::Exact).check_names("local"), Ok(()));
        assert_eq!(of(NameForm::Exact).check_names("Local").unwrap_err(), "wanted local or packets");
        assert_eq!(of(NameForm::AnyCase).check_names("Local"), Ok(()));
        assert_eq!(of(NameForm::Class).check_names("org.example.Outer$packets"), Ok(()));
        assert!(of(NameForm::Class).check_names("org.packets.Other").is_err());
        assert_eq!(of(NameForm::List).check_names(" packets, LOCAL,"), Ok(()));
        for wrong in ["", "local,remote", "local, Local"] {
            let said = of(NameForm::List).check_names(wrong).unwrap_err();
            assert_eq!(said, "wanted one or more of local, packets, each at most once", "{wrong:?}");
        }
        assert_eq!(Allowed::Any.check_names("x"), Ok(()));
    }
}
