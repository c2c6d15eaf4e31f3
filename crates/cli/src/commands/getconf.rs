//! `hearth getconf`: the commands, output and exit codes of `hdfs getconf`. Source: GetConf.java of Hadoop 3.4.

use std::process::ExitCode;

use hearth_config::{Configuration, HostPort, hadoop_keys, parse};

use super::generic_options::GENERIC_USAGE;
use super::host_name::host_name_of;
use super::tool::{self, FAILED, Tool, ToolArguments};

/// Commands and what they print.
const COMMANDS: [(&str, &str); 8] = [
    ("-namenodes", "gets list of namenodes in the cluster."),
    ("-secondaryNameNodes", "gets list of secondary namenodes in the cluster."),
    ("-backupNodes", "gets list of backup nodes in the cluster."),
    ("-journalNodes", "gets list of journal nodes in the cluster."),
    ("-includeFile", "gets the include file path that defines the datanodes that can join the cluster."),
    ("-excludeFile", "gets the exclude file path that defines the datanodes that need to decommissioned."),
    ("-nnRpcAddresses", "gets the namenode rpc addresses"),
    ("-confKey [key]", "gets a specific key from the configuration"),
];

pub fn run(arguments: ToolArguments) -> anyhow::Result<ExitCode> {
    tool::run("getconf", arguments, async |tool: &Tool, words: Vec<String>| match words.split_first() {
        Some((command, words)) => dispatch(&tool.configuration, command, words),
        None => wrong_usage(),
    })
}

/// Returns a line for each command, for manual pages: a tab, its synopsis, a tab, its description.
pub fn reference() -> String {
    COMMANDS.iter().map(|(command, about)| format!("\t{command}\t{about}\n")).collect()
}

fn usage() -> String {
    let lines: String = COMMANDS.iter().map(|(command, about)| format!("\t[{command}]\t\t\t{about}\n")).collect();
    format!(
        "hdfs getconf is utility for getting configuration information from the config file.\n\nhadoop getconf \n{lines}"
    )
}

fn wrong_usage() -> u8 {
    eprintln!("{}", usage());
    FAILED
}

fn dispatch(configuration: &Configuration, command: &str, words: &[String]) -> u8 {
    if ["-h", "-help", "--help"].contains(&command) {
        println!("{}", usage());
        print!("{GENERIC_USAGE}");
        return 0;
    }
    let mut known = COMMANDS.iter().map(|(known, _)| known.split(' ').next().unwrap_or(known));
    let Some(command) = known.find(|known| known.eq_ignore_ascii_case(command)) else {
        return wrong_usage();
    };
    match (command, words) {
        ("-confKey", [key]) => printed(value(configuration, key)),
        ("-confKey", _) => printed(Err("usage: -confKey [key]".to_owned())),
        (_, [word, ..]) => printed(Err(format!("Did not expect argument: {word}"))),
        ("-includeFile", []) => printed(value(configuration, "dfs.hosts")),
        ("-excludeFile", []) => printed(value(configuration, "dfs.hosts.exclude")),
        ("-namenodes", []) => printed(namenodes(configuration).map(|found| joined(&found))),
        ("-nnRpcAddresses", []) => printed(namenodes(configuration).map(|found| {
            let shown = |address: &HostPort| format!("{}:{}", host_name_of(&address.host), address.port);
            let lines: Vec<_> = found.iter().map(shown).collect();
            lines.join("\n")
        })),
        ("-secondaryNameNodes", []) => printed(secondary_namenodes(configuration).map(|found| joined(&found))),
        ("-backupNodes", []) => printed(backup_nodes(configuration).map(|found| joined(&found))),
        (_, []) => printed(journal_nodes(configuration)),
    }
}

fn printed(outcome: Result<String, String>) -> u8 {
    match outcome {
        Ok(line) => {
            println!("{line}");
            0
        }
        Err(line) => {
            eprintln!("{line}");
            FAILED
        }
    }
}

/// Returns the host names, separated by spaces.
fn joined(addresses: &[HostPort]) -> String {
    addresses.iter().map(|address| host_name_of(&address.host)).collect::<Vec<_>>().join(" ")
}

/// Returns the value of a key: as set, or else Hearth's default, or else the default in Hadoop's files.
fn value(configuration: &Configuration, key: &str) -> Result<String, String> {
    let found = configuration.text(key).map_err(|error| error.to_string())?;
    let of_hadoop = || {
        let row = hadoop_keys().iter().find(|row| row.name == key)?;
        // A scratch configuration expands the variables of the default. An empty default is none.
        configuration.clone().with(key, row.default).text(key).ok().flatten()
    };
    found.or_else(of_hadoop).ok_or_else(|| format!("Configuration {key} is missing."))
}

/// Returns the addresses of a key in each nameservice, or without one. `keys`: the first that has a value counts.
/// Source: DFSUtilClient.java, `getAddresses`.
fn addresses(configuration: &Configuration, keys: &[&str]) -> Result<Vec<HostPort>, String> {
    let text = |error: hearth_config::ConfigError| error.to_string();
    let list = |key: &str| Ok::<_, String>(configuration.get_as(key, parse::list).map_err(text)?.unwrap_or_default());
    let internal = list("dfs.internal.nameservices")?;
    let nameservices = if internal.is_empty() { list("dfs.nameservices")? } else { internal };
    let mut suffixes = Vec::new();
    for nameservice in &nameservices {
        let ids = configuration.namenode_ids(nameservice).map_err(text)?;
        match ids.is_empty() {
            true => suffixes.push(format!(".{nameservice}")),
            false => suffixes.extend(ids.iter().map(|id| format!(".{nameservice}.{id}"))),
        }
    }
    if suffixes.is_empty() {
        suffixes.push(String::new());
    }
    let mut found = Vec::new();
    for suffix in suffixes {
        for key in keys {
            if let Some(address) = configuration.get_as(&format!("{key}{suffix}"), parse::rpc_address).map_err(text)? {
                found.push(address);
                break;
            }
        }
    }
    Ok(found)
}

/// Source: DFSUtil.java, `getNNServiceRpcAddressesForCluster`.
fn namenodes(configuration: &Configuration) -> Result<Vec<HostPort>, String> {
    let service = "dfs.namenode.servicerpc-address";
    let found = addresses(configuration, &[service, "dfs.namenode.rpc-address"])?;
    if !found.is_empty() {
        return Ok(found);
    }
    configuration.single_namenode().map(|address| vec![address]).map_err(|_| {
        format!(
            "Incorrect configuration: namenode address {service}.[] or dfs.namenode.rpc-address.[] is not configured."
        )
    })
}

/// Source: DFSUtil.java, `getSecondaryNameNodeAddresses`. Hadoop's default is port 9868 of all addresses.
fn secondary_namenodes(configuration: &Configuration) -> Result<Vec<HostPort>, String> {
    let found = addresses(configuration, &["dfs.namenode.secondary.http-address"])?;
    Ok(match found.is_empty() {
        true => vec![HostPort { host: "0.0.0.0".to_owned(), port: 9868 }],
        false => found,
    })
}

/// Source: DFSUtil.java, `getBackupNodeAddresses`. Hadoop's default is port 50100 of all addresses.
fn backup_nodes(configuration: &Configuration) -> Result<Vec<HostPort>, String> {
    let found = addresses(configuration, &["dfs.namenode.backup.address"])?;
    Ok(match found.is_empty() {
        true => vec![HostPort { host: "0.0.0.0".to_owned(), port: 50_100 }],
        false => found,
    })
}

/// Returns the hosts in `qjournal://host:port;host:port/name`. Source: DFSUtil.java, `getJournalNodeAddresses`.
fn journal_nodes(configuration: &Configuration) -> Result<String, String> {
    const KEY: &str = "dfs.namenode.shared.edits.dir";
    let text = |key: &str| configuration.get_as(key, parse::text).map_err(|error| error.to_string());
    let mut edits: Vec<String> = text(KEY)?.into_iter().collect();
    if edits.is_empty() {
        let names = configuration.get_as("dfs.nameservices", parse::list).map_err(|error| error.to_string())?;
        for nameservice in names.unwrap_or_default() {
            edits.extend(text(&format!("{KEY}.{nameservice}"))?);
        }
    }
    let mut hosts = Vec::new();
    for uri in edits {
        let Some(rest) = uri.strip_prefix("qjournal://") else { break };
        let authority = rest.split('/').next().unwrap_or_default();
        for address in authority.split(';') {
            let host = address.split(':').next().unwrap_or_default().to_owned();
            if !hosts.contains(&host) {
                hosts.push(host);
            }
        }
    }
    Ok(hosts.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(settings: &[(&str, &str)]) -> Configuration {
        settings.iter().fold(Configuration::empty(), |conf, (key, value)| conf.with(key, *value))
    }

    #[test]
    fn namenodes_of_all_nameservices() {
        let conf = with(&[
            ("dfs.nameservices", "a,b"),
            ("dfs.ha.namenodes.a", "x,y"),
            ("dfs.namenode.rpc-address.a.x", "ax:1"),
            ("dfs.namenode.rpc-address.a.y", "ay:2"),
            ("dfs.namenode.servicerpc-address.a.y", "ay:3"),
            ("dfs.namenode.rpc-address.b", "b:4"),
        ]);
        let shown: Vec<_> = namenodes(&conf).unwrap().iter().map(HostPort::to_string).collect();
        assert_eq!(shown, ["ax:1", "ay:3", "b:4"]);
        let single = with(&[("fs.defaultFS", "hdfs://h:9")]);
        assert_eq!(joined(&namenodes(&single).unwrap()), "h");
        assert!(namenodes(&Configuration::empty()).unwrap_err().starts_with("Incorrect configuration: namenode"));
    }

    #[test]
    fn values_have_hadoops_defaults() {
        assert_eq!(value(&Configuration::empty(), "dfs.replication").unwrap(), "3");
        assert_eq!(value(&with(&[("my.own", " x ")]), "my.own").unwrap(), "x");
        assert!(value(&Configuration::empty(), "dfs.hosts").is_err());
        let missing = "Configuration no.such.key is missing.";
        assert_eq!(value(&Configuration::empty(), "no.such.key").unwrap_err(), missing);
    }

    #[test]
    fn journal_nodes_are_hosts() {
        let conf = with(&[("dfs.namenode.shared.edits.dir", "qjournal://a:1;b:2;a:3/ns")]);
        assert_eq!(journal_nodes(&conf).unwrap(), "a b");
        assert_eq!(journal_nodes(&with(&[("dfs.namenode.shared.edits.dir", "file:///x")])).unwrap(), "");
    }
}
