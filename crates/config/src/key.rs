use crate::{ConfigError, Configuration};

/// Parser of a trimmed, expanded, non-empty value. The error describes a valid value.
pub type Parser<T> = fn(&str) -> Result<T, String>;

/// A key with a default value.
pub struct Key<T: 'static> {
    pub name: &'static str,
    /// The default as it would be written in a file. It may contain `${...}`.
    pub default: &'static str,
    pub parse: Parser<T>,
}

/// A key without a default.
pub struct OptionalKey<T: 'static> {
    pub name: &'static str,
    pub parse: Parser<T>,
}

// Implemented by hand: derived implementations would require `T: Clone`.
impl<T> Clone for Key<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Key<T> {}
impl<T> Clone for OptionalKey<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for OptionalKey<T> {}

/// Argument of [`Configuration::get`].
pub trait ConfigKey {
    type Value;
    fn read(&self, configuration: &Configuration) -> Result<Self::Value, ConfigError>;
}

impl<T> ConfigKey for Key<T> {
    type Value = T;

    fn read(&self, configuration: &Configuration) -> Result<T, ConfigError> {
        match configuration.get_as(self.name, self.parse)? {
            Some(value) => Ok(value),
            None => configuration.parse_default(self.name, self.default, self.parse),
        }
    }
}

impl<T> ConfigKey for OptionalKey<T> {
    type Value = Option<T>;

    fn read(&self, configuration: &Configuration) -> Result<Option<T>, ConfigError> {
        configuration.get_as(self.name, self.parse)
    }
}

/// A row of [`crate::keys::ALL`].
#[derive(Clone, Copy, Debug)]
pub struct KeyInfo {
    pub name: &'static str,
    /// `None` for keys that may be unset.
    pub default: Option<&'static str>,
    /// Description of the key.
    pub about: &'static str,
}

impl KeyInfo {
    /// Returns true if the key belongs in `core-site.xml` rather than `hdfs-site.xml`.
    pub fn is_core(name: &str) -> bool {
        ["fs.", "hadoop.", "io.", "ipc.", "net."].iter().any(|prefix| name.starts_with(prefix))
    }
}
