//! The parameters of a request: their defaults, and the refusal of invalid values in Hadoop's words.
//!
//! Source: the classes of `org.apache.hadoop.hdfs.web.resources`.

use super::Exception;

/// Text that stands for an absent number.
const NULL: &str = "null";
/// Java's name of the create flags.
const CREATE_FLAG: &str = "org.apache.hadoop.fs.CreateFlag";
/// The create flags, in Java's order.
const CREATE_FLAGS: [&str; 10] = [
    "CREATE",
    "OVERWRITE",
    "APPEND",
    "SYNC_BLOCK",
    "LAZY_PERSIST",
    "NEW_BLOCK",
    "NO_LOCAL_WRITE",
    "SHOULD_REPLICATE",
    "IGNORE_CLIENT_LOCALITY",
    "NO_LOCAL_RACK",
];
/// Name of the parameter with the user.
pub const USER_NAME: &str = "user.name";
/// Pattern of user names: the default of `dfs.webhdfs.user.provider.user.pattern`.
const USER_DOMAIN: &str = "^[A-Za-z_][A-Za-z0-9._-]*[$]?$";
/// The valid bits of a mode.
const MODE_MAX: i64 = 0o1777;

/// Decoded parameters in their original order, with names in lower case.
#[derive(Clone, Default, Debug)]
pub struct Parameters(Vec<(String, String)>);

/// Kind of a number, with Java's name and range.
struct Kind {
    name: &'static str,
    radix: u32,
    least: i64,
    most: i64,
}

const LONG: Kind = Kind { name: "long integer", radix: 10, least: i64::MIN, most: i64::MAX };
const INTEGER: Kind = Kind { name: "integer", radix: 10, least: i32::MIN as i64, most: i32::MAX as i64 };
const SHORT: Kind = Kind { name: "short integer", radix: 10, least: i16::MIN as i64, most: i16::MAX as i64 };
const OCTAL: Kind = Kind { radix: 8, ..SHORT };

impl Kind {
    fn shown(&self, value: i64) -> String {
        if self.radix != 8 {
            return value.to_string();
        }
        let sign = if value < 0 { "-" } else { "" };
        format!("{sign}{:o}", value.unsigned_abs())
    }
}

/// Returns the user that a request names, if it has the form of a user's name.
pub fn checked_user(named: Option<&str>) -> Result<Option<&str>, Exception> {
    let is_name = |user: &str| {
        let user = user.strip_suffix('$').unwrap_or(user);
        user.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && user.chars().all(|character| character.is_ascii_alphanumeric() || "._-".contains(character))
    };
    match named {
        Some(user) if !is_name(user) => Err(not_of(USER_NAME, user, USER_DOMAIN)),
        user => Ok(user),
    }
}

/// Returns the refusal of a parameter's value.
pub fn refused(name: &str, why: &str) -> Exception {
    Exception::illegal_argument(format!("Invalid value for webhdfs parameter \"{name}\": {why}"))
}

/// Returns the refusal of a value that does not match its pattern.
pub fn not_of(name: &str, value: &str, domain: &str) -> Exception {
    refused(name, &format!("Invalid value: \"{value}\" does not belong to the domain {domain}"))
}

impl Parameters {
    /// Creates the parameters from decoded names and values.
    pub(super) fn new(given: Vec<(String, String)>) -> Self {
        Self(given.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect())
    }

    /// Returns the user that the client claims to be. As in RPC without Kerberos, the claim is not verified.
    pub fn user(&self) -> Result<Option<&str>, Exception> {
        checked_user(self.text(USER_NAME))
    }

    /// Returns the create flags (`createflag`).
    pub fn create_flags(&self) -> Result<Vec<&'static str>, Exception> {
        self.set("createflag", CREATE_FLAG, &CREATE_FLAGS)
    }

    /// Returns the first value, unmodified.
    pub fn given(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// Returns all values, unmodified.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// Returns the first value unless it is empty.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.given(name).filter(|value| !value.is_empty())
    }

    /// Like [`Parameters::text`], but treats `null` as absent.
    pub fn text_or_null(&self, name: &str) -> Option<&str> {
        self.text(name).filter(|value| *value != NULL)
    }

    /// Returns a required value.
    ///
    /// Errors: the value is absent. `operation`: the operation that requires it.
    pub fn needed(&self, name: &str, operation: &str) -> Result<&str, Exception> {
        self.text(name).ok_or_else(|| needed(name, operation))
    }

    /// Returns a Boolean, or `unless_given` if it is absent. As for numbers, an empty value counts as absent.
    pub fn flag(&self, name: &str, unless_given: bool) -> Result<bool, Exception> {
        match self.text(name) {
            None => Ok(unless_given),
            Some(value) if value.eq_ignore_ascii_case("true") => Ok(true),
            Some(value) if value.eq_ignore_ascii_case("false") => Ok(false),
            Some(value) => Err(refused(name, &format!("Failed to parse \"{value}\" to Boolean."))),
        }
    }

    /// Returns a number that must be at least `least`.
    pub fn long(&self, name: &str, least: i64) -> Result<Option<i64>, Exception> {
        self.number(name, &LONG, least, i64::MAX)
    }

    /// Like [`Parameters::long`].
    pub fn integer(&self, name: &str, least: i32) -> Result<Option<i32>, Exception> {
        let value = self.number(name, &INTEGER, i64::from(least), i64::MAX)?;
        Ok(value.map(|value| value as i32))
    }

    /// Like [`Parameters::long`]. Never negative.
    pub fn short(&self, name: &str, least: u16) -> Result<Option<u16>, Exception> {
        let value = self.number(name, &SHORT, i64::from(least), i64::MAX)?;
        Ok(value.map(|value| value as u16))
    }

    /// Returns permissions given in octal digits.
    pub fn mode(&self, name: &str) -> Result<Option<u32>, Exception> {
        let value = self.number(name, &OCTAL, 0, MODE_MAX)?;
        Ok(value.map(|value| value as u32))
    }

    fn number(&self, name: &str, kind: &Kind, least: i64, most: i64) -> Result<Option<i64>, Exception> {
        let Some(text) = self.text_or_null(name) else { return Ok(None) };
        let value = i64::from_str_radix(text, kind.radix).ok().filter(|value| (kind.least..=kind.most).contains(value));
        let unreadable = || format!("Failed to parse \"{text}\" as a radix-{} {}.", kind.radix, kind.name);
        let value = value.ok_or_else(|| refused(name, &unreadable()))?;
        let outside = |sign: char, bound: i64| {
            let (value, bound) = (kind.shown(value), kind.shown(bound));
            Err(refused(name, &format!("Invalid parameter range: {name} = {value} {sign} {bound}")))
        };
        match value {
            value if value < least => outside('<', least),
            value if value > most => outside('>', most),
            value => Ok(Some(value)),
        }
    }

    /// Returns those of the `known` names that are in the comma-separated value, ignoring case. `class`: Java's name of
    /// their enum.
    pub fn set(&self, name: &str, class: &str, known: &[&'static str]) -> Result<Vec<&'static str>, Exception> {
        let given: Vec<String> = match self.text(name) {
            Some(value) => value.split(',').map(|one| one.trim().to_uppercase()).collect(),
            None => Vec::new(),
        };
        match given.iter().find(|one| !known.contains(&one.as_str())) {
            Some(unknown) => Err(refused(name, &format!("No enum constant {class}.{unknown}"))),
            None => Ok(known.iter().copied().filter(|one| given.iter().any(|given| given == one)).collect()),
        }
    }
}

/// Returns the refusal of an operation that lacks a required parameter.
pub fn needed(name: &str, operation: &str) -> Exception {
    Exception::illegal_argument(format!("Required param {name} for op: {operation} is null or empty"))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::super::Request;
    use super::*;

    fn parameters(query: &str) -> Parameters {
        let uri = format!("/webhdfs/v1/f?{query}");
        let request = axum::extract::Request::builder().uri(uri).body(Body::empty()).unwrap();
        Request::parse(request, [127, 0, 0, 1].into()).unwrap().parameters
    }

    #[test]
    fn invalid_user_names_are_refused() {
        assert_eq!(parameters("User.Name=ann_1$").user(), Ok(Some("ann_1$")));
        assert_eq!((parameters("").user(), parameters("user.name=").user()), (Ok(None), Ok(None)));
        for name in ["a/b", "1a", "a$b", "%20"] {
            assert!(parameters(&format!("user.name={name}")).user().is_err(), "{name}");
        }
    }

    #[test]
    fn omitted_parameters_have_hadoops_defaults() {
        let given = parameters("a=&b=null&Offset=7&flag=TRUE&mode=1755&x=1&x=2");
        assert_eq!((given.text("a"), given.text("b"), given.text("c")), (None, Some("null"), None));
        assert_eq!((given.text_or_null("b"), given.all("x").collect::<Vec<_>>()), (None, vec!["1", "2"]));
        assert_eq!(given.long("offset", 0), Ok(Some(7)));
        assert_eq!((given.long("b", 0), given.long("c", 0)), (Ok(None), Ok(None)));
        assert_eq!((given.long("a", 0), given.flag("a", true), given.mode("a")), (Ok(None), Ok(true), Ok(None)));
        assert_eq!((given.flag("flag", false), given.flag("c", true)), (Ok(true), Ok(true)));
        assert_eq!((given.mode("mode"), given.short("x", 1)), (Ok(Some(0o1755)), Ok(Some(1))));
    }

    #[test]
    fn refusals_are_in_hadoops_words() {
        let given = parameters("n=x&low=-1&wide=40000&mode=2000&not=888&flag=yes&set=CREATE,drop&empty=");
        let said = |refused: Exception| {
            assert_eq!(refused.class, "java.lang.IllegalArgumentException");
            refused.message
        };
        let of = |name: &str, why: &str| format!("Invalid value for webhdfs parameter \"{name}\": {why}");
        let asked = said(given.long("n", 0).unwrap_err());
        assert_eq!(asked, of("n", "Failed to parse \"x\" as a radix-10 long integer."));
        let asked = said(given.long("low", 0).unwrap_err());
        assert_eq!(asked, of("low", "Invalid parameter range: low = -1 < 0"));
        let asked = said(given.short("wide", 1).unwrap_err());
        assert_eq!(asked, of("wide", "Failed to parse \"40000\" as a radix-10 short integer."));
        let asked = said(given.mode("mode").unwrap_err());
        assert_eq!(asked, of("mode", "Invalid parameter range: mode = 2000 > 1777"));
        let asked = said(given.mode("not").unwrap_err());
        assert_eq!(asked, of("not", "Failed to parse \"888\" as a radix-8 short integer."));
        assert_eq!(said(given.flag("flag", false).unwrap_err()), of("flag", "Failed to parse \"yes\" to Boolean."));
        let asked = said(given.set("set", "org.X", &["CREATE", "REPLACE"]).unwrap_err());
        assert_eq!(asked, of("set", "No enum constant org.X.DROP"));
        let asked = said(given.needed("empty", "OPEN").unwrap_err());
        assert_eq!(asked, "Required param empty for op: OPEN is null or empty");
    }

    #[test]
    fn sets_are_deduplicated_in_known_order() {
        let given = parameters("set=replace,%20Create,REPLACE");
        assert_eq!(given.set("set", "org.X", &["CREATE", "REPLACE", "APPEND"]), Ok(vec!["CREATE", "REPLACE"]));
        assert_eq!(given.set("none", "org.X", &["CREATE"]), Ok(vec![]));
    }
}
