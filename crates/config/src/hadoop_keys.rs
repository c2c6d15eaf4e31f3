//! Handling of each of Hadoop's keys: `hadoop-keys.tsv`, one row per key.
//!
//! If a key changes something that users rely on, Hearth either implements it, or a program logs a warning at start, or
//! refuses to start. The remaining keys have no meaning here; the table gives the reason.

use std::sync::LazyLock;

use crate::configuration::redacted;
use crate::{ConfigError, Configuration};

/// Text of the table. `docs/compatibility/configuration.md` explains it to operators.
const TABLE: &str = include_str!("../hadoop-keys.tsv");

/// A program that reads the configuration.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Program {
    Namenode,
    Datanode,
    Client,
}

impl Program {
    pub const ALL: &'static [Self] = &[Self::Namenode, Self::Datanode, Self::Client];

    /// Returns the name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Namenode => "namenode",
            Self::Datanode => "datanode",
            Self::Client => "client",
        }
    }

    /// Returns true if a row of the table with these `programs` applies to this program.
    fn is_one_of(self, programs: &str) -> bool {
        match self {
            Self::Namenode => matches!(programs, "namenode" | "servers" | "all"),
            Self::Datanode => matches!(programs, "datanode" | "servers" | "all"),
            Self::Client => matches!(programs, "client" | "all"),
        }
    }
}

/// Handling of a value other than the default.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Handling {
    /// Hearth implements it.
    Done,
    /// It has no effect, and the program logs a warning at start.
    Warned,
    /// The program refuses to start.
    Refused,
    /// It has no meaning for Hearth.
    NotApplicable,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct HadoopKey {
    /// Name of the key. A part in brackets, as in `ipc.[port_number].backoff.enable`, matches any single part.
    pub name: &'static str,
    /// Value in Hadoop's file of defaults, not expanded.
    pub default: &'static str,
    pub handling: Handling,
    /// Programs that the row applies to.
    programs: &'static str,
    /// Values that are accepted in addition to the default, separated by commas.
    accepted: &'static str,
    /// Reason why a value has no effect, or a description of what Hearth does instead. Empty for keys that are
    /// implemented.
    pub why: &'static str,
}

impl HadoopKey {
    /// Returns true if the row applies to this program.
    pub fn is_for(&self, program: Program) -> bool {
        program.is_one_of(self.programs)
    }

    /// Returns the row of a key: an exact match, else a row whose bracketed parts match.
    pub fn of(name: &str) -> Option<&'static Self> {
        match ROWS.binary_search_by(|row| row.name.cmp(name)) {
            Ok(at) => ROWS.get(at),
            Err(_) => ROWS.iter().find(|row| row.matches(name)),
        }
    }

    fn parse(line: &'static str) -> Option<Self> {
        let mut columns = line.split('\t');
        let mut next = || columns.next().unwrap_or_default();
        let (name, default) = (next(), next());
        let handling = match next() {
            "done" => Handling::Done,
            "warned" => Handling::Warned,
            "refused" => Handling::Refused,
            "none" => Handling::NotApplicable,
            _ => return None,
        };
        Some(Self { name, default, handling, programs: next(), accepted: next(), why: next() })
    }

    fn matches(&self, name: &str) -> bool {
        if !self.name.contains('[') {
            return self.name == name;
        }
        let (mut own, mut other) = (self.name.split('.'), name.split('.'));
        loop {
            match (own.next(), other.next()) {
                (None, None) => return true,
                (Some(part), Some(_)) if part.starts_with('[') => {}
                (Some(part), Some(other)) if part == other => {}
                _ => return false,
            }
        }
    }

    /// Returns true if a value requires nothing beyond what Hearth does anyway.
    fn accepts(&self, value: &str) -> bool {
        let is_usual = |value: &str| value == self.default || self.accepted.split(',').any(|other| other == value);
        value.is_empty() || is_usual(value) || value.split(',').all(|part| is_usual(part.trim()))
    }
}

static ROWS: LazyLock<Vec<HadoopKey>> =
    LazyLock::new(|| TABLE.lines().filter(|line| !line.starts_with('#')).filter_map(HadoopKey::parse).collect());

/// Returns all rows of the table, sorted by name.
pub fn hadoop_keys() -> &'static [HadoopKey] {
    &ROWS
}

/// A value that was set and has no effect.
#[derive(Clone, Debug)]
pub struct IneffectiveSetting {
    pub key: String,
    /// Secrets are redacted.
    pub value: String,
    /// The file, or another origin of the value.
    pub source: String,
    pub why: &'static str,
}

impl IneffectiveSetting {
    /// Logs a warning. Each program does so at start.
    pub fn warn(&self) {
        let Self { key, value, source, why } = self;
        tracing::warn!(key, value, from = source, "key has no effect: {why}");
    }
}

impl Configuration {
    /// Returns the values of Hadoop's keys that have no effect in `program` and require a warning.
    ///
    /// Errors: a value that `program` must refuse, because a user would otherwise rely on a missing feature. The error
    /// names the key.
    pub fn ineffective_settings(&self, program: Program) -> Result<Vec<IneffectiveSetting>, ConfigError> {
        let (ineffective, refused) = self.unsupported_settings(program);
        match refused.into_iter().next() {
            Some(error) => Err(error),
            None => Ok(ineffective),
        }
    }

    /// Returns the values of Hadoop's keys that have no effect in `program`, and errors for those that it must refuse.
    pub(crate) fn unsupported_settings(&self, program: Program) -> (Vec<IneffectiveSetting>, Vec<ConfigError>) {
        let (mut ineffective, mut refused) = (Vec::new(), Vec::new());
        for entry in self.entries_set() {
            let Some(row) = HadoopKey::of(entry.name) else { continue };
            let handled = matches!(row.handling, Handling::Done | Handling::NotApplicable);
            if handled || !row.is_for(program) {
                continue;
            }
            let value = match self.text(entry.name) {
                Ok(value) => value.unwrap_or_default(),
                Err(error) => {
                    refused.push(error);
                    continue;
                }
            };
            if row.accepts(&value) {
                continue;
            }
            if row.handling == Handling::Refused {
                let wanted = format!("not supported: {}; remove the key", row.why);
                refused.push(self.value_error(entry.name, &value, wanted));
                continue;
            }
            let (key, value, source) = (entry.name.to_owned(), redacted(entry.name, &value).to_owned(), entry.place());
            ineffective.push(IneffectiveSetting { key, value, source, why: row.why });
        }
        (ineffective, refused)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::keys;

    #[test]
    fn rows_are_well_formed_and_unique() {
        let lines = TABLE.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(ROWS.len(), lines, "a row has an unknown handling");
        let names: BTreeSet<_> = ROWS.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), lines, "a key has two rows");
        assert!(ROWS.is_sorted_by_key(|row| row.name));
        for row in ROWS.iter() {
            assert!(
                matches!(row.programs, "namenode" | "datanode" | "client" | "servers" | "all" | "-"),
                "{}: {}",
                row.name,
                row.programs
            );
            let said_why = !row.why.is_empty();
            assert_eq!(
                said_why,
                row.handling != Handling::Done,
                "{}: a key must have a reason if and only if it is not implemented",
                row.name
            );
            let somebody_says = row.programs != "-" || matches!(row.handling, Handling::Done | Handling::NotApplicable);
            assert!(somebody_says, "{}: no program warns of it", row.name);
        }
    }

    #[test]
    fn exactly_the_implemented_keys_are_declared() {
        // Keys whose names are built at run time, that are deprecated, or that are not read as a single value.
        let elsewhere = [
            "dfs.client.failover.proxy.provider",
            "dfs.client.fsck.connect.timeout",
            "dfs.client.fsck.read.timeout",
            "dfs.namenode.safemode.replication.min",
            "dfs.ha.namenodes.EXAMPLENAMESERVICE",
            "fs.default.name",
            "io.bytes.per.checksum",
        ];
        for row in ROWS.iter() {
            let declared = keys::ALL.iter().any(|key| key.name == row.name) || elsewhere.contains(&row.name);
            assert_eq!(declared, row.handling == Handling::Done, "{}", row.name);
        }
    }

    #[test]
    fn ineffective_values_are_reported_per_program() {
        let conf = Configuration::empty()
            .with("dfs.namenode.plugins", "com.example.Plugin")
            .with("dfs.datanode.plugins", "")
            .with("ipc.8020.backoff.enable", "true")
            .with("dfs.client.hedged.read.threadpool.size", "4")
            .with("dfs.datanode.fsdataset.volume.choosing.policy", "org.example.Other")
            .with("hadoop.zk.address", "zk:2181");
        let named = |program| -> Vec<String> {
            conf.ineffective_settings(program).unwrap().into_iter().map(|found| found.key).collect()
        };
        assert_eq!(named(Program::Namenode), ["dfs.namenode.plugins", "ipc.8020.backoff.enable"]);
        assert_eq!(
            named(Program::Datanode),
            ["dfs.datanode.fsdataset.volume.choosing.policy", "ipc.8020.backoff.enable"]
        );
        assert_eq!(named(Program::Client), ["dfs.client.hedged.read.threadpool.size"]);
    }

    #[test]
    fn defaults_of_hadoop_are_accepted_everywhere() {
        let conf = ROWS
            .iter()
            .filter(|row| !row.name.contains('[') && !row.default.contains("${"))
            .fold(Configuration::empty(), |conf, row| conf.with(row.name, row.default));
        for program in [Program::Namenode, Program::Datanode, Program::Client] {
            let found = conf.ineffective_settings(program).unwrap();
            assert!(found.is_empty(), "{found:?}");
        }
    }

    #[test]
    fn unsupported_authorizer_is_refused() {
        for (key, value) in [
            ("dfs.namenode.inode.attributes.provider.class", "org.apache.ranger.Authorizer"),
            ("hadoop.security.group.mapping", "org.apache.hadoop.security.LdapGroupsMapping"),
            ("hadoop.http.authentication.type", "kerberos"),
        ] {
            let conf = Configuration::empty().with(key, value);
            let said = conf.ineffective_settings(Program::Namenode).unwrap_err().to_string();
            assert!(said.contains(key) && said.contains(value), "{said}");
            conf.ineffective_settings(Program::Client).unwrap();
        }
        let shell = "org.apache.hadoop.security.ShellBasedUnixGroupsMapping";
        Configuration::empty()
            .with("hadoop.security.group.mapping", shell)
            .ineffective_settings(Program::Namenode)
            .unwrap();
    }
}
