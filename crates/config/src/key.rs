use crate::{Allowed, ConfigError, Configuration, Program};

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
    /// Description of the key. It begins with a space.
    pub about: &'static str,
    /// Allowed values, if the parser accepts more.
    pub allowed: Allowed,
    /// Name of the parser, a function of [`crate::parse`].
    pub(crate) parser: &'static str,
    /// `None`: see [`KeyInfo::programs`].
    pub(crate) programs: Option<&'static [Program]>,
    /// Parses a value and checks its bounds.
    pub(crate) parsed: fn(&str) -> Result<(), String>,
}

impl KeyInfo {
    /// Returns the row of a key, or `None` if it is not one of those that Hearth reads.
    pub fn of(name: &str) -> Option<&'static Self> {
        crate::keys::ALL.iter().find(|key| key.name == name)
    }

    /// Returns true if the key belongs in `core-site.xml` rather than `hdfs-site.xml`.
    pub fn is_core(name: &str) -> bool {
        ["fs.", "hadoop.", "io.", "ipc.", "net."].iter().any(|prefix| name.starts_with(prefix))
    }

    /// Returns the programs that read the key: those that its row names, else the one that the second part of its name
    /// stands for, else all.
    pub fn programs(&self) -> &'static [Program] {
        if let Some(programs) = self.programs {
            return programs;
        }
        let own = self.name.strip_prefix("dfs.").or_else(|| self.name.strip_prefix("hearth."));
        let part = own.and_then(|rest| rest.split(['.', '-']).next());
        match Program::ALL.iter().position(|program| part == Some(program.name())) {
            Some(at) => &Program::ALL[at..=at],
            None => Program::ALL,
        }
    }

    /// Checks a trimmed, expanded, non-empty value.
    ///
    /// Errors: a description of valid values.
    pub fn check(&self, value: &str) -> Result<(), String> {
        (self.parsed)(value)?;
        self.allowed.check_names(value)
    }

    /// Returns a description of the form of values, with their unit.
    pub fn form(&self) -> &'static str {
        match self.parser {
            "boolean" => "true or false",
            "int_u16" | "int_u32" | "int_u64" | "int_i32" | "int_i64" => "whole number",
            "float" => "number",
            "percent" => "percentage, 0 to 100",
            "bytes" => "bytes; suffixes k, m, g, t",
            "duration_ms" => "duration; a bare number is in milliseconds; suffixes ms, s, m, h, d",
            "duration_s" => "duration; a bare number is in seconds; suffixes ms, s, m, h, d",
            "duration_minutes" => "duration; a bare number is in minutes; suffixes ms, s, m, h, d",
            "signed_hours" => "whole number of hours",
            "address" => "host:port",
            "rpc_address" => "host:port, or host for port 8020",
            "list" => "list, separated by commas",
            "directories" => "list of absolute directories, separated by commas",
            "storage_directories" => "list of absolute directories, separated by commas, with types such as [SSD]",
            "path" => "path",
            "umask" => "umask, octal or symbolic",
            "engine" => "memory, mmap or file",
            "collector_url" => "http://host:port",
            _ => "text",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys;

    #[test]
    fn defaults_are_allowed_and_bounds_are_valid() {
        for key in keys::ALL {
            if let Some(default) = key.default.filter(|default| !default.is_empty() && !default.contains("${")) {
                assert_eq!(key.check(default), Ok(()), "{} = {default}", key.name);
            }
            if let Allowed::Range { least, most } = key.allowed {
                for bound in [Some(least), most].into_iter().flatten() {
                    assert_eq!(key.check(bound), Ok(()), "{}: bound {bound}", key.name);
                }
            }
            assert!(key.form() != "text" || key.parser == "text", "{}: no form for {}", key.name, key.parser);
            let programs = key.programs();
            assert!(programs.is_sorted() && !programs.is_empty(), "{}: {programs:?}", key.name);
        }
    }

    #[test]
    fn programs_follow_from_the_name() {
        let of = |name| KeyInfo::of(name).unwrap().programs();
        assert_eq!(of("dfs.namenode.name.dir"), [Program::Namenode]);
        assert_eq!(of("hearth.datanode.stream.nice"), [Program::Datanode]);
        assert_eq!(of("dfs.client.failover.max.attempts"), [Program::Client]);
        assert_eq!(of("dfs.client-write-packet-size"), [Program::Namenode, Program::Client]);
        assert_eq!(of("dfs.heartbeat.interval"), [Program::Namenode, Program::Datanode]);
        assert_eq!(of("dfs.blocksize"), Program::ALL);
        assert!(KeyInfo::of("no.such.key").is_none());
    }

    #[test]
    fn values_are_checked_by_key() {
        let check = |name: &str, value: &str| KeyInfo::of(name).unwrap().check(value);
        assert_eq!(check("dfs.replication.max", "0").unwrap_err(), "wanted 1 to 32767");
        assert_eq!(check("dfs.checksum.type", "MD5").unwrap_err(), "wanted CRC32C, CRC32 or NULL");
        assert!(check("dfs.replication.max", "3s").unwrap_err().ends_with("1 to 32767"));
        assert!(check("hearth.memory.limit", "1 hour").unwrap_err().contains("bytes"));
        assert_eq!(check("hearth.client.paths", "packets,local"), Ok(()));
        let calculator = "org.example.ReservedSpaceCalculator$ReservedSpaceCalculatorPercentage";
        assert_eq!(check("dfs.datanode.du.reserved.calculator", calculator), Ok(()));
        assert!(check("dfs.datanode.du.reserved.calculator", "org.example.Mine").is_err());
    }
}
