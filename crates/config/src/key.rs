use crate::{ConfigError, Configuration};

/// Turns a trimmed, expanded, non-empty value into its type; the error says what was wanted.
pub type Parser<T> = fn(&str) -> Result<T, String>;

/// A key whose absence has a meaning of its own: a default value.
pub struct Key<T: 'static> {
    pub name: &'static str,
    /// As it would stand in a file; may hold `${...}`.
    pub default: &'static str,
    pub parse: Parser<T>,
}

/// A key that may be unset.
pub struct OptionalKey<T: 'static> {
    pub name: &'static str,
    pub parse: Parser<T>,
}

// By hand: derived ones would ask the same of T.
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

/// What [`Configuration::get`] takes.
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
    /// One sentence.
    pub about: &'static str,
}

impl KeyInfo {
    /// Which of Hadoop's two files the key belongs in.
    pub fn is_core(name: &str) -> bool {
        ["fs.", "hadoop.", "io.", "ipc.", "net."].iter().any(|prefix| name.starts_with(prefix))
    }
}
