//! `hearth config`: checks the configuration without starting anything, and shows values with their source.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, Subcommand, ValueEnum};
use hearth_config::{
    Allowed, Configuration, Entry, HadoopKey, Handling, KeyInfo, Program, Source, current_name, suggestion,
};

use super::up::setting;

#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check values and names of keys. Exits with 0 if there is no fault, else with 1.
    ///
    /// A fault is a value with which a server or client does not start. Warnings are of keys that are probably
    /// misspelled or have no effect.
    Check {
        /// Program that will read the configuration; default: all. May be given several times.
        #[arg(long = "role", value_enum, value_name = "ROLE")]
        roles: Vec<Role>,
        #[command(flatten)]
        changes: Changes,
    },
    /// Show values and where they come from. Secrets are hidden.
    Show {
        /// Key to describe; default: all keys that are set.
        #[arg(value_name = "KEY", conflicts_with = "all")]
        key: Option<String>,
        /// Also show the keys that have their defaults.
        #[arg(long)]
        all: bool,
        /// Show only the keys that this program reads.
        #[arg(long, value_enum, value_name = "ROLE", conflicts_with = "key")]
        role: Option<Role>,
        #[command(flatten)]
        changes: Changes,
    },
}

/// Changes to the values of the files.
#[derive(Args)]
struct Changes {
    /// Set a key, for example `dfs.blocksize=32m`. May be given several times.
    #[arg(short = 'D', value_name = "KEY=VALUE", value_parser = setting)]
    settings: Vec<(String, String)>,
    /// Read one more file.
    #[arg(long, value_name = "FILE")]
    conf: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Role {
    Namenode,
    Datanode,
    Client,
}

impl Role {
    fn program(self) -> Program {
        match self {
            Self::Namenode => Program::Namenode,
            Self::Datanode => Program::Datanode,
            Self::Client => Program::Client,
        }
    }
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    super::end_with_closed_output();
    match arguments.command {
        Command::Check { roles, changes } => Ok(check(&changes.configuration()?, &roles)),
        Command::Show { key: Some(key), changes, .. } => {
            print!("{}", description(&changes.configuration()?, &key)?);
            Ok(ExitCode::SUCCESS)
        }
        Command::Show { key: None, all, role, changes } => {
            print!("{}", listing(&changes.configuration()?, all, role.map(Role::program))?);
            Ok(ExitCode::SUCCESS)
        }
    }
}

impl Changes {
    /// Loads the configuration with these changes.
    fn configuration(self) -> anyhow::Result<Configuration> {
        let mut configuration = crate::configuration::load()?;
        if let Some(file) = &self.conf {
            configuration.add_file(file)?;
        }
        for (key, value) in self.settings {
            configuration.set(&key, value);
        }
        Ok(configuration)
    }
}

/// Prints everything that is found, and a summary.
fn check(configuration: &Configuration, roles: &[Role]) -> ExitCode {
    let programs: Vec<Program> = match roles {
        [] => Program::ALL.to_vec(),
        roles => roles.iter().map(|role| role.program()).collect(),
    };
    let report = configuration.check(&programs);
    for fault in &report.faults {
        println!("fault ({}): {fault}", names_of(&fault.programs));
    }
    for warning in &report.warnings {
        println!("warning: {warning}");
    }
    for setting in &report.ineffective {
        println!("warning: {} = {:?} ({}): no effect: {}", setting.key, setting.value, setting.source, setting.why);
    }
    let files: Vec<String> = configuration.files().map(|file| file.display().to_string()).collect();
    let checked = if files.is_empty() { "no files".to_owned() } else { files.join(", ") };
    let warnings = report.warnings.len() + report.ineffective.len();
    println!(
        "{}, {} (read: {checked}; checked for: {})",
        counted(report.faults.len(), "fault"),
        counted(warnings, "warning"),
        names_of(&programs)
    );
    if report.faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns `no faults`, `1 fault` or `2 faults`.
fn counted(count: usize, what: &str) -> String {
    match count {
        0 => format!("no {what}s"),
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}

fn names_of(programs: &[Program]) -> String {
    programs.iter().map(|program| program.name()).collect::<Vec<_>>().join(", ")
}

/// Returns one line for each key. `all`: also for keys with their defaults. `program`: only for keys that it reads,
/// with the values of its own nameservice.
fn listing(configuration: &Configuration, all: bool, program: Option<Program>) -> anyhow::Result<String> {
    let own = match program {
        Some(Program::Namenode) => configuration.for_namenode(|_| false)?,
        _ => configuration.clone(),
    };
    let mut text = String::new();
    for entry in own.redacted_entries() {
        let is_default = matches!(entry.source, Source::Default(_));
        if is_default && !all || program.is_some_and(|program| !is_read_by(entry.name, program)) {
            continue;
        }
        let mut source = source_of(configuration, &entry);
        if let Some(default) = default_of(entry.name).filter(|default| !is_default && *default != entry.value) {
            source.push_str(&format!("; default {default}"));
        }
        text.push_str(&format!("{} = {}  ({source})\n", entry.name, shown_value(&own, &entry)));
    }
    if text.is_empty() {
        text.push_str("nothing is set: every key has its default; --all lists them\n");
    }
    Ok(text)
}

/// Returns whether a program reads the key. Keys that are unknown are read by none.
fn is_read_by(name: &str, program: Program) -> bool {
    match KeyInfo::of(name) {
        Some(key) => key.programs().contains(&program),
        None => HadoopKey::of(name).is_some_and(|row| row.is_for(program)),
    }
}

/// Returns the value with its variables expanded. Secrets stay hidden.
fn shown_value(configuration: &Configuration, entry: &Entry<'_>) -> String {
    let expanded = || configuration.text(entry.name).ok().flatten();
    match entry.value.contains("${") {
        true => expanded().unwrap_or_else(|| entry.value.to_owned()),
        false => entry.value.trim().to_owned(),
    }
}

/// `configuration`: as it was read, before the values of one NameNode were chosen.
fn source_of(configuration: &Configuration, entry: &Entry<'_>) -> String {
    match &entry.source {
        Source::Default(_) => "default".to_owned(),
        Source::Set if configuration.is_set(entry.name) => "-D".to_owned(),
        Source::Set => "from dfs.nameservices".to_owned(),
        Source::File(_) => entry.place(),
    }
}

fn default_of(name: &str) -> Option<&'static str> {
    let of_hearth = KeyInfo::of(name).map(|key| key.default);
    let default = of_hearth.unwrap_or_else(|| HadoopKey::of(name).map(|row| row.default));
    default.filter(|default| !default.is_empty())
}

/// Describes one key: value, source, default, allowed values, readers.
///
/// Errors: no such key is known or set. The message has a suggestion.
fn description(configuration: &Configuration, name: &str) -> anyhow::Result<String> {
    let current = current_name(name);
    let (key, row) = (KeyInfo::of(current), HadoopKey::of(current));
    if key.is_none() && row.is_none() && !configuration.is_set(current) {
        match suggestion(current) {
            Some(meant) => bail!("{name} is not a known key, and is not set; did you mean {meant}?"),
            None => bail!("{name} is not a known key, and is not set; `hearth config show --all` lists all keys"),
        }
    }
    let entries = configuration.redacted_entries();
    let entry = entries.iter().find(|entry| entry.name == current);
    let default = default_of(current);
    let mut text = match (entry, default) {
        (Some(entry), _) => format!("{current} = {}\n", shown_value(configuration, entry)),
        (None, Some(default)) => format!("{current} = {default}\n"),
        (None, None) => format!("{current} is not set\n"),
    };
    let mut line = |title: &str, value: &str| {
        let title = format!("{title}:");
        text.push_str(&format!("  {title:<10}{value}\n"));
    };
    if current != name {
        line("name", &format!("{name} is deprecated; write {current}"));
    }
    match entry {
        Some(entry) => line("source", &source_of(configuration, entry)),
        None if default.is_some() => line("source", "default"),
        None => {}
    }
    line("default", default.unwrap_or("none"));
    if let Some(key) = key {
        let allowed = match key.allowed {
            Allowed::Any => key.form().to_owned(),
            Allowed::Range { .. } => format!("{} ({})", key.allowed, key.form()),
            Allowed::Names { .. } => key.allowed.to_string(),
        };
        line("allowed", &allowed);
        line("read by", &names_of(key.programs()));
        line("meaning", key.about.trim());
    } else if let Some(row) = row {
        let effect = match row.handling {
            Handling::Done => "as in Hadoop",
            Handling::Warned => "none; a program that would read it warns at start",
            Handling::Refused => "none; a program that would read it does not start with another value",
            Handling::NotApplicable => "none",
        };
        line("effect", effect);
        if !row.why.is_empty() {
            line("reason", row.why);
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use hearth_config::Environment;

    use super::*;

    fn configuration() -> (tempfile::TempDir, Configuration) {
        let directory = tempfile::tempdir().unwrap();
        let text = "<configuration>
            <property><name>dfs.block.size</name><value>64m</value></property>
            <property><name>dfs.datanode.data.dir</name><value>${data}/1</value></property>
            <property><name>data</name><value>/data</value></property>
            <property><name>my.password</name><value>hidden</value></property>
            <property><name>dfs.namenode.plugins</name><value>com.example.Plugin</value></property>
            </configuration>";
        std::fs::write(directory.path().join("hdfs-site.xml"), text).unwrap();
        let mut configuration = Configuration::load_dir(directory.path(), Environment::empty()).unwrap();
        configuration.set("dfs.replication", "2");
        (directory, configuration)
    }

    #[test]
    fn listing_has_value_and_source() {
        let (directory, configuration) = configuration();
        let file = directory.path().join("hdfs-site.xml").display().to_string();
        let text = listing(&configuration, false, None).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let wanted = [
            format!("data = /data  ({file} line 4)"),
            format!("dfs.blocksize = 64m  ({file} line 2; default 134217728)"),
            format!("dfs.datanode.data.dir = /data/1  ({file} line 3; default file://${{hadoop.tmp.dir}}/dfs/data)"),
            format!("dfs.namenode.plugins = com.example.Plugin  ({file} line 6)"),
            "dfs.replication = 2  (-D; default 3)".to_owned(),
            format!("my.password = <redacted>  ({file} line 5)"),
        ];
        assert_eq!(lines, wanted);
        assert!(listing(&Configuration::empty(), false, None).unwrap().starts_with("nothing is set"));
    }

    #[test]
    fn listing_can_be_of_one_program() {
        let (_directory, configuration) = configuration();
        let names = |all, program| {
            let text = listing(&configuration, all, Some(program)).unwrap();
            text.lines().map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names(false, Program::Datanode), ["dfs.blocksize", "dfs.datanode.data.dir"]);
        assert_eq!(names(false, Program::Namenode), ["dfs.blocksize", "dfs.namenode.plugins", "dfs.replication"]);
        let all = names(true, Program::Client);
        assert!(all.contains(&"dfs.client.failover.max.attempts".to_owned()), "{all:?}");
        assert!(!all.contains(&"dfs.namenode.acls.enabled".to_owned()), "{all:?}");
        // Values of the NameNode's own nameservice count.
        let own = Configuration::empty()
            .with("dfs.nameservices", "ns")
            .with("dfs.namenode.name.dir.ns", "/ns")
            .with("dfs.namenode.name.dir", "/all");
        let text = listing(&own, false, Some(Program::Namenode)).unwrap();
        assert!(text.contains("dfs.namenode.name.dir = /ns  (-D;"), "{text}");
        assert!(text.contains("dfs.nameservice.id = ns  (from dfs.nameservices)"), "{text}");
    }

    #[test]
    fn description_has_everything_about_a_key() {
        let (directory, configuration) = configuration();
        let file = directory.path().join("hdfs-site.xml").display().to_string();
        let text = description(&configuration, "dfs.block.size").unwrap();
        let source = format!("source:   {file} line 2\n");
        for part in [
            "dfs.blocksize = 64m\n",
            "name:     dfs.block.size is deprecated; write dfs.blocksize\n",
            source.as_str(),
            "default:  134217728\n",
            "allowed:  1 or more (bytes; suffixes k, m, g, t)\n",
            "read by:  namenode, datanode, client\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text = description(&configuration, "dfs.replication.max").unwrap();
        assert!(text.starts_with("dfs.replication.max = 512\n") && text.contains("source:   default\n"), "{text}");
        let text = description(&configuration, "dfs.namenode.plugins").unwrap();
        assert!(text.contains("effect:   none; ") && text.contains("reason:   Hearth loads no Java"), "{text}");
        let text = description(&configuration, "hearth.memory.dir").unwrap();
        assert!(text.starts_with("hearth.memory.dir is not set\n"), "{text}");
        assert!(description(&configuration, "my.password").unwrap().contains("<redacted>"));
        let wrong = description(&configuration, "dfs.replicaton").unwrap_err().to_string();
        assert!(wrong.ends_with("did you mean dfs.replication?"), "{wrong}");
    }
}
