//! Check of a whole configuration before a program starts: all faults together, and settings that are probably not
//! what was meant.

use std::collections::BTreeMap;
use std::fmt;

use crate::configuration::redacted;
use crate::namenode_specific::NAMENODE_SPECIFIC_KEYS;
use crate::unknown::{Questionable, question};
use crate::{ConfigError, Configuration, IneffectiveSetting, KeyInfo, Program, keys};

/// Result of [`Configuration::check`]. Each list is sorted by key.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Values with which a program does not start.
    pub faults: Vec<Finding>,
    /// Settings that are probably not what was meant.
    pub warnings: Vec<Finding>,
    /// Values of Hadoop's keys that have no effect. Servers log them when they read their settings.
    pub ineffective: Vec<IneffectiveSetting>,
}

/// A setting that is refused or questioned. Displayed: key, value, origin, problem and what to do, on one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    pub key: String,
    /// The value, expanded if possible. Secrets are redacted.
    pub value: String,
    /// The file and line, or another origin of the value.
    pub place: String,
    pub problem: String,
    /// Imperative sentence without a period. Empty if the problem says it.
    pub cure: String,
    /// Programs that refuse the value. Empty for warnings.
    pub programs: Vec<Program>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, value, place, problem, cure, .. } = self;
        write!(f, "{key} = {value:?} ({place}): {problem}")?;
        if cure.is_empty() { Ok(()) } else { write!(f, "; {cure}") }
    }
}

impl Finding {
    /// Logs a warning. Each server does so at start.
    pub fn warn(&self) {
        let Self { key, value, place, problem, cure, .. } = self;
        tracing::warn!(key, value, from = place, "{problem}; {cure}");
    }
}

impl Configuration {
    /// Checks all values that `programs` read, and the names of all keys that are set.
    pub fn check(&self, programs: &[Program]) -> CheckReport {
        let mut faults = BTreeMap::new();
        let mut ineffective = BTreeMap::new();
        for program in programs {
            let (without_effect, unsupported) = self.unsupported_settings(*program);
            ineffective.extend(without_effect.into_iter().map(|setting| (setting.key.clone(), setting)));
            let values = self.invalid_values(false, |key| key.programs().contains(program));
            let protection: Vec<ConfigError> = match program {
                Program::Client => self.refuse_client_authentication().err().into_iter().collect(),
                Program::Namenode | Program::Datanode => self.missing_protection(),
            };
            let all = values.into_iter().chain(protection).chain(unsupported).chain(self.contradictions(*program));
            let all = all.chain(self.check_addresses(*program).err());
            // The first fault of a key is the most basic one.
            for fault in all.map(|error| self.fault(error)) {
                let known = faults.entry(fault.key.clone()).or_insert(fault);
                if !known.programs.contains(program) {
                    known.programs.push(*program);
                }
            }
        }
        let mut warnings = self.questionable_names();
        // A program refuses the values of its own nameservice when it reads them. Others may be for other machines.
        let of_one_service =
            self.invalid_values(true, |key| key.programs().iter().any(|program| programs.contains(program)));
        warnings.extend(of_one_service.into_iter().map(|error| self.warning_for_others(error)));
        let is_of_others = |key: &KeyInfo| key.programs().iter().all(|program| !programs.contains(program));
        let of_others = [false, true].into_iter().flat_map(|suffixed| self.invalid_values(suffixed, is_of_others));
        warnings.extend(of_others.into_iter().map(|error| self.warning_for_others(error)));
        warnings.sort_by(|left, right| left.key.cmp(&right.key));
        CheckReport {
            faults: faults.into_values().collect(),
            warnings,
            ineffective: ineffective.into_values().collect(),
        }
    }

    /// Checks that the program finds the address that it needs to start.
    fn check_addresses(&self, program: Program) -> Result<(), ConfigError> {
        match program {
            Program::Namenode => {
                // Of several nameservices, the one of this NameNode follows from the machine's addresses.
                let own = self.for_namenode(|_| false)?;
                if own.own_nameservice()?.is_some() || own.nameservices_here()?.is_empty() {
                    own.single_namenode()?;
                }
            }
            Program::Datanode => {
                self.datanode_nameservices()?;
            }
            Program::Client => {
                let default_fs = self.get(keys::FS_DEFAULT_FS)?;
                if let Some(authority) = default_fs.strip_prefix("hdfs://") {
                    self.client_nameservice(authority.split('/').next().unwrap_or(authority))?;
                }
            }
        }
        Ok(())
    }

    /// Returns an error for each invalid value of the chosen keys. `suffixed`: of the names with a nameservice or
    /// NameNode behind the key, instead of the plain ones.
    fn invalid_values(&self, suffixed: bool, is_chosen: impl Fn(&KeyInfo) -> bool) -> Vec<ConfigError> {
        let all: Vec<(&str, &KeyInfo)> = match suffixed {
            false => keys::ALL.iter().map(|key| (key.name, key)).collect(),
            true => self.names().filter_map(|name| Some((name, base_of(name)?))).collect(),
        };
        let chosen = all.into_iter().filter(|(_, key)| is_chosen(key));
        chosen.filter_map(|(name, key)| self.check_value(name, key).err()).collect()
    }

    fn fault(&self, error: ConfigError) -> Finding {
        let (key, value, problem) = match error {
            ConfigError::Value { key, value, wanted, .. } => (key, value, wanted),
            ConfigError::ExpansionDepth { key, value } => (key, value, "its variables refer to each other".to_owned()),
            ConfigError::Missing { key, why } => {
                (key, String::new(), format!("missing; {}", why.trim_start_matches("and ")))
            }
            // Files were read before.
            other => (String::new(), String::new(), other.to_string()),
        };
        let place = match self.is_set(&key) || KeyInfo::of(&key).is_some_and(|row| row.default.is_some()) {
            true => self.place(&key),
            false => "not set".to_owned(),
        };
        let default = KeyInfo::of(&key).and_then(|row| row.default).filter(|default| !default.is_empty());
        let cure = match (self.is_set(&key), default) {
            _ if problem.ends_with("remove the key") => String::new(),
            (true, Some(default)) => format!("correct it there, or remove it for the default {default}"),
            (true, None) => "correct it there, or remove it".to_owned(),
            (false, _) => "set it".to_owned(),
        };
        let value = redacted(&key, &value).to_owned();
        Finding { key, value, place, problem, cure, programs: Vec::new() }
    }

    fn warning_for_others(&self, error: ConfigError) -> Finding {
        let fault = self.fault(error);
        let row = KeyInfo::of(&fault.key).or_else(|| base_of(&fault.key));
        let readers = row.map_or(Program::ALL, KeyInfo::programs);
        let names: Vec<_> = readers.iter().map(|program| program.name()).collect();
        Finding { problem: format!("{} (read by: {})", fault.problem, names.join(", ")), ..fault }
    }

    /// Returns a warning for each deprecated name, and each name that is probably wrong.
    fn questionable_names(&self) -> Vec<Finding> {
        let names_of = |key: &str| self.get_as(key, crate::parse::list).ok().flatten().unwrap_or_default();
        let known_names: Vec<String> =
            ["dfs.nameservices", "dfs.nameservice.id", "dfs.ha.namenode.id"].into_iter().flat_map(names_of).collect();
        let mut found = Vec::new();
        for entry in self.entries_set() {
            let mut warn = |key: &str, problem: String, cure: String| {
                found.push(Finding {
                    key: key.to_owned(),
                    value: redacted(entry.name, entry.value).to_owned(),
                    place: entry.place(),
                    problem,
                    cure,
                    programs: Vec::new(),
                });
            };
            if let Some(deprecated) = entry.deprecated {
                warn(deprecated, "the name is deprecated".to_owned(), format!("write {}", entry.name));
            }
            match question(entry.name, &known_names) {
                None => {}
                Some(Questionable::Unknown { suggestion: Some(meant) }) => {
                    warn(entry.name, "unknown key without effect".to_owned(), format!("did you mean {meant}?"));
                }
                Some(Questionable::Unknown { suggestion: None }) => {
                    let cure = "remove it; `hearth config show --all` lists all keys";
                    warn(entry.name, "unknown key without effect".to_owned(), cure.to_owned());
                }
                Some(Questionable::Nameservice { name }) => {
                    let cure = format!("add {name} to dfs.nameservices, or correct the name");
                    warn(entry.name, format!("{name} is not a nameservice of dfs.nameservices"), cure);
                }
            }
        }
        found
    }
}

/// Returns the row of the key that `name` sets for one nameservice or NameNode.
fn base_of(name: &str) -> Option<&'static KeyInfo> {
    let is_base = |key: &&&str| name.strip_prefix(**key).is_some_and(|rest| rest.starts_with('.'));
    let base = NAMENODE_SPECIFIC_KEYS.iter().find(is_base)?;
    // `dfs.namenode.name.dir.restore` is a key of its own.
    if crate::HadoopKey::of(name).is_some() { None } else { KeyInfo::of(base) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Environment;

    /// Needed by servers.
    const NAMENODE: (&str, &str) = ("fs.defaultFS", "hdfs://nn:8020");

    fn with(settings: &[(&str, &str)]) -> Configuration {
        settings.iter().fold(Configuration::empty(), |conf, (key, value)| conf.with(key, *value))
    }

    fn keys_of(findings: &[Finding]) -> Vec<&str> {
        findings.iter().map(|finding| finding.key.as_str()).collect()
    }

    #[test]
    fn defaults_are_clean() {
        let conf = Configuration::empty().with_environment(Environment::empty().with_property("user.name", "ada"));
        let report = conf.clone().with(NAMENODE.0, NAMENODE.1).check(Program::ALL);
        assert!(report.faults.is_empty() && report.warnings.is_empty(), "{report:?}");
        assert!(report.ineffective.is_empty());
        // Servers need an address.
        let report = conf.check(Program::ALL);
        assert_eq!(keys_of(&report.faults), ["dfs.namenode.rpc-address"]);
        assert_eq!(report.faults[0].programs, [Program::Namenode, Program::Datanode]);
        let said = report.faults[0].to_string();
        assert!(said.contains("(not set): missing; fs.defaultFS") && said.ends_with("set it"), "{said}");
    }

    #[test]
    fn addresses_are_found_by_each_program() {
        let check = |settings: &[(&str, &str)], program| with(settings).check(&[program]).faults;
        for program in Program::ALL {
            let faults = check(&[("fs.defaultFS", "hdfs://nn:port")], *program);
            assert_eq!(keys_of(&faults), ["fs.defaultFS"], "{program:?}");
        }
        let of_namenode = [("dfs.nameservices", "ns"), ("dfs.namenode.rpc-address.ns", "nn:1")];
        assert!(check(&of_namenode, Program::Namenode).is_empty());
        assert!(check(&of_namenode, Program::Datanode).is_empty());
        assert_eq!(keys_of(&check(&of_namenode[..1], Program::Datanode)), ["dfs.namenode.rpc-address.ns"]);
        // Which of two nameservices it serves depends on the machine.
        let two = [("dfs.nameservices", "a,b"), ("dfs.namenode.rpc-address.a", "nn:1")];
        assert!(check(&two, Program::Namenode).is_empty());
    }

    #[test]
    fn all_faults_are_reported_with_file_and_line() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("hdfs-site.xml");
        let text = "<configuration>
            <property><name>dfs.replication.max</name><value>0</value></property>
            <property><name>dfs.heartbeat.interval</name><value>3 parsecs</value></property>
            <property><name>hearth.one-sided.transport</name><value>pigeon</value></property>
            <property><name>dfs.encrypt.data.transfer</name><value>true</value></property>
            <property><name>dfs.namenode.rpc-address.ns.a</name><value>nn:lots</value></property>
            <property><name>dfs.nameservices</name><value>ns</value></property>
            <property><name>fs.defaultFS</name><value>hdfs://nn:8020</value></property>
            </configuration>";
        std::fs::write(&file, text).unwrap();
        let conf = Configuration::load_dir(dir.path(), Environment::empty()).unwrap();
        let report = conf.check(&[Program::Namenode, Program::Datanode]);
        let keys = [
            "dfs.encrypt.data.transfer",
            "dfs.heartbeat.interval",
            "dfs.replication.max",
            "hearth.one-sided.transport",
        ];
        assert_eq!(keys_of(&report.faults), keys);
        let lines: Vec<String> = report.faults.iter().map(Finding::to_string).collect();
        for (line, number) in lines.iter().zip([5, 3, 2, 4]) {
            assert!(line.contains(&format!("({} line {number})", file.display())), "{line}");
        }
        assert!(lines[2].contains("dfs.replication.max = \"0\"") && lines[2].contains("1 to 32767"), "{}", lines[2]);
        assert!(lines[2].ends_with("correct it there, or remove it for the default 512"), "{}", lines[2]);
        assert!(lines[1].contains("wanted a duration") && lines[1].contains("1ms to 1d"), "{}", lines[1]);
        assert!(lines[3].contains("wanted rdma, tcp or none"), "{}", lines[3]);
        assert_eq!(report.faults[1].programs, [Program::Namenode, Program::Datanode]);
        assert_eq!(report.faults[2].programs, [Program::Namenode]);
        assert_eq!(report.faults[3].programs, [Program::Datanode]);
        // It may be the address of another machine's NameNode, which this program does not read.
        assert!(keys_of(&report.warnings).contains(&"dfs.namenode.rpc-address.ns.a"), "{report:?}");
    }

    #[test]
    fn faults_of_other_programs_are_warnings() {
        let conf =
            with(&[NAMENODE, ("dfs.client.failover.max.attempts", "many"), ("dfs.datanode.data.dir", "relative")]);
        let report = conf.check(&[Program::Namenode]);
        assert!(report.faults.is_empty(), "{report:?}");
        assert_eq!(keys_of(&report.warnings), ["dfs.client.failover.max.attempts", "dfs.datanode.data.dir"]);
        assert!(report.warnings[0].problem.ends_with("(read by: client)"), "{}", report.warnings[0]);
        assert_eq!(keys_of(&conf.check(&[Program::Datanode]).faults), ["dfs.datanode.data.dir"]);
        assert_eq!(conf.check(Program::ALL).faults.len(), 2);
        // Values of one nameservice have the readers of their key.
        let conf = with(&[NAMENODE, ("dfs.nameservices", "ns"), ("dfs.namenode.http-address.ns", "nn:port")]);
        let report = conf.check(&[Program::Datanode]);
        assert!(report.warnings[0].problem.ends_with("(read by: namenode, client)"), "{report:?}");
    }

    #[test]
    fn names_are_questioned_once_each() {
        let conf = with(&[
            NAMENODE,
            ("hearth.memroy.limit", "1g"),
            ("hearth.no.such.key", "1"),
            ("dfs.replicaton", "2"),
            ("dfs.block.size", "1m"),
            ("dfs.namenode.rpc-address.ns2", "nn:1"),
            ("my.own", "x"),
        ]);
        let report = conf.check(Program::ALL);
        assert!(report.faults.is_empty(), "{report:?}");
        let said: Vec<String> = report.warnings.iter().map(Finding::to_string).collect();
        let parts = [
            ("dfs.block.size", "write dfs.blocksize"),
            ("dfs.namenode.rpc-address.ns2", "ns2 is not a nameservice"),
            ("dfs.replicaton", "did you mean dfs.replication?"),
            ("hearth.memroy.limit", "did you mean hearth.memory.limit?"),
            ("hearth.no.such.key", "unknown key"),
        ];
        assert_eq!(said.len(), parts.len(), "{said:?}");
        for (line, (key, part)) in said.iter().zip(parts) {
            assert!(line.starts_with(key) && line.contains(part), "{line}");
        }
    }

    #[test]
    fn unsupported_values_are_faults_of_their_programs() {
        let conf = with(&[
            NAMENODE,
            ("hadoop.security.authentication", "kerberos"),
            ("dfs.namenode.inode.attributes.provider.class", "org.apache.ranger.Authorizer"),
            ("dfs.namenode.plugins", "com.example.Plugin"),
        ]);
        let report = conf.check(&[Program::Namenode]);
        let refused = ["dfs.namenode.inode.attributes.provider.class", "hadoop.security.authentication"];
        assert_eq!(keys_of(&report.faults), refused);
        assert_eq!(report.ineffective.len(), 1);
        let of_client = conf.check(&[Program::Client]);
        assert_eq!(keys_of(&of_client.faults), ["hadoop.security.authentication"]);
        assert!(of_client.faults[0].problem.contains("Apache's client"), "{}", of_client.faults[0]);
    }

    #[test]
    fn circular_variables_are_faults_and_secrets_are_hidden() {
        let conf = with(&[
            NAMENODE,
            ("dfs.domain.socket.path", "${a.first}"),
            ("a.first", "${a.second}"),
            ("a.second", "${a.first}"),
            ("hearth.my.secret", "hidden"),
        ]);
        let report = conf.check(&[Program::Datanode]);
        assert_eq!(keys_of(&report.faults), ["dfs.domain.socket.path"]);
        assert!(report.faults[0].problem.contains("variables"), "{}", report.faults[0]);
        assert!(!format!("{report:?}").contains("hidden"), "{report:?}");
    }
}
