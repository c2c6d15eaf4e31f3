//! `hearth admin -VERB ...` (also `hearth dfsadmin`): the verbs, output and exit codes of `hdfs dfsadmin`.
//!
//! [`VERBS`] is the table of them, from which usage and help are made. A verb is a function in the file of its family.
//! Source: DFSAdmin.java of Hadoop 3.4.

mod backup;
mod datanodes;
mod fetch_image;
mod namespace;
mod open_files;
mod quotas;
mod reconfigure;
mod refresh;
mod report;
mod safe_mode;
mod snapshots;
mod upgrade;

use std::process::ExitCode;

use super::generic_options::GENERIC_USAGE;
use super::tool::{self, FAILED, IllegalArgument, Tool, ToolArguments, first_line};

/// Any number of arguments.
const ANY: usize = usize::MAX;

/// A verb of the table.
struct Verb {
    name: &'static str,
    /// Line of the list of all verbs, without brackets.
    synopsis: &'static str,
    /// Text of the verb's own usage line, if it is not the synopsis in brackets.
    usage: Option<&'static str>,
    /// Least and greatest number of arguments. A wrong number gives the usage line before anything is called.
    takes: (usize, usize),
    /// Description for `-help`.
    about: &'static str,
}

impl Verb {
    const fn new(name: &'static str, synopsis: &'static str, takes: (usize, usize), about: &'static str) -> Self {
        Self { name, synopsis, usage: None, takes, about }
    }

    const fn with_usage(mut self, usage: &'static str) -> Self {
        self.usage = Some(usage);
        self
    }

    fn usage(&self) -> String {
        match self.usage {
            Some(usage) => format!("Usage: hdfs dfsadmin {usage}\n"),
            None => format!("Usage: hdfs dfsadmin [{}]\n", self.synopsis),
        }
    }

    /// Returns whether `word`, without its dash, names this verb. Apache's tool ignores case for three of them.
    fn is_named(&self, word: &str) -> bool {
        match self.name {
            "allowSnapshot" | "disallowSnapshot" | "provisionSnapshotTrash" => self.name.eq_ignore_ascii_case(word),
            name => name == word,
        }
    }
}

/// The verb that Apache's tool does not have. Only the help shows it.
const OWN_VERB: &str = "backup";

/// All verbs, in the order of the help of `hdfs dfsadmin`.
const VERBS: &[Verb] = &[
    Verb::new(
        "report",
        "-report [-live] [-dead] [-decommissioning] [-enteringmaintenance] [-inmaintenance] [-slownodes]",
        (0, 6),
        "Prints capacity, blocks that need attention, and the DataNodes. The options select groups of DataNodes.",
    )
    .with_usage("[-report] [-live] [-dead] [-decommissioning] [-enteringmaintenance] [-inmaintenance] [-slownodes]"),
    Verb::new(
        "safemode",
        "-safemode <enter | leave | get | wait | forceExit>",
        (1, 1),
        "Changes or prints safe mode, in which the namespace cannot change and no block is copied or deleted. wait: returns \
         when it is off. forceExit: leaves it even if blocks are lost by that.",
    )
    .with_usage("[-safemode enter | leave | get | wait | forceExit]"),
    Verb::new(
        "saveNamespace",
        "-saveNamespace [-beforeShutdown]",
        (0, 1),
        "Writes an image of the namespace; requires safe mode. -beforeShutdown: only if the last one is old.",
    ),
    Verb::new("rollEdits", "-rollEdits", (0, 0), "Starts a new segment of the edit log."),
    Verb::new(
        "restoreFailedStorage",
        "-restoreFailedStorage true|false|check",
        (1, 1),
        "Sets or prints whether failed storage directories of the NameNode are used again when they work.",
    )
    .with_usage("[-restoreFailedStorage true|false|check ]"),
    Verb::new(
        "refreshNodes",
        "-refreshNodes",
        (0, 0),
        "Makes the NameNode read the files of dfs.hosts and dfs.hosts.exclude again, which admit and decommission DataNodes.",
    ),
    Verb::new(
        "setQuota",
        "-setQuota <quota> <dirname>...<dirname>",
        (0, ANY),
        "Limits the number of files and directories in a tree, itself included.",
    ),
    Verb::new("clrQuota", "-clrQuota <dirname>...<dirname>", (0, ANY), "Removes the limit of files and directories."),
    Verb::new(
        "setSpaceQuota",
        "-setSpaceQuota <quota> [-storageType <storagetype>] <dirname>...<dirname>",
        (0, ANY),
        "Limits the bytes of all replicas in a tree: 5m is 5 MiB, 50t is 50 TiB. -storageType: of the replicas on DISK, SSD, \
         ARCHIVE, PROVIDED or NVDIMM.",
    ),
    Verb::new(
        "clrSpaceQuota",
        "-clrSpaceQuota [-storageType <storagetype>] <dirname>...<dirname>",
        (0, ANY),
        "Removes the limit of bytes, or the one of a type of storage.",
    ),
    Verb::new("finalizeUpgrade", "-finalizeUpgrade", (0, 0), "Deletes what a rollback of an upgrade would need."),
    Verb::new(
        "rollingUpgrade",
        "-rollingUpgrade [<query|prepare|finalize>]",
        (0, 1),
        "Prints the state of a rolling upgrade (query), or begins or ends one.",
    ),
    Verb::new(
        "upgrade",
        "-upgrade <query | finalize>",
        (1, 1),
        "Prints whether an upgrade waits to be finalized, or finalizes it.",
    )
    .with_usage("[-upgrade query | finalize]"),
    Verb::new(
        "refreshServiceAcl",
        "-refreshServiceAcl",
        (0, 0),
        "Makes the NameNode read the policy for the use of its protocols again.",
    ),
    Verb::new(
        "refreshUserToGroupsMappings",
        "-refreshUserToGroupsMappings",
        (0, 0),
        "Makes the NameNode look up the groups of users again.",
    ),
    Verb::new(
        "refreshSuperUserGroupsConfiguration",
        "-refreshSuperUserGroupsConfiguration",
        (0, ANY),
        "Makes the NameNode read the rules for proxy users again.",
    ),
    Verb::new("refreshCallQueue", "-refreshCallQueue", (0, ANY), "Makes the NameNode replace its queue of calls."),
    Verb::new(
        "refresh",
        "-refresh <host:ipc_port> <key> [arg1..argn",
        (2, ANY),
        "Makes a server refresh what the key names.",
    )
    .with_usage("[-refresh <hostname:ipc_port> <resource_identifier> [arg1..argn]"),
    Verb::new(
        "reconfig",
        "-reconfig <namenode|datanode> <host:ipc_port|livenodes> <start|status|properties>",
        (3, 3),
        "Makes a server apply changes of its configuration (start), prints the progress (status), or the keys that can \
         change while it runs (properties). livenodes: all live DataNodes.",
    ),
    Verb::new("printTopology", "-printTopology", (0, 0), "Prints the racks and their DataNodes."),
    Verb::new(
        "refreshNamenodes",
        "-refreshNamenodes datanode_host:ipc_port",
        (1, 1),
        "Makes a DataNode read its list of NameNodes again.",
    )
    .with_usage("[-refreshNamenodes datanode-host:ipc_port]"),
    Verb::new(
        "getVolumeReport",
        "-getVolumeReport datanode_host:ipc_port",
        (1, 1),
        "Prints the storage directories of a DataNode.",
    )
    .with_usage("[-getVolumeReport datanode-host:ipc_port]"),
    Verb::new(
        "deleteBlockPool",
        "-deleteBlockPool datanode_host:ipc_port blockpoolId [force]",
        (2, 3),
        "Deletes the directories of a block pool that the DataNode no longer serves. force: also if they are not empty.",
    )
    .with_usage("[-deleteBlockPool datanode-host:ipc_port blockpoolId [force]]"),
    Verb::new(
        "setBalancerBandwidth",
        "-setBalancerBandwidth <bandwidth in bytes per second>",
        (1, 1),
        "Sets the bandwidth of each DataNode for balancing until it restarts: 10m is 10 MiB per second.",
    ),
    Verb::new(
        "getBalancerBandwidth",
        "-getBalancerBandwidth <datanode_host:ipc_port>",
        (1, 1),
        "Prints the bandwidth of a DataNode for balancing.",
    ),
    Verb::new(
        "fetchImage",
        "-fetchImage <local directory>",
        (1, 1),
        "Downloads the newest image of the namespace into a local directory.",
    ),
    Verb::new(
        "backup",
        "-backup <local directory>",
        (1, 1),
        "Downloads an image of the namespace of a Hearth NameNode into a new local directory, from which Apache's NameNode \
         starts and which `hearth namenode -importCheckpoint` takes.",
    ),
    Verb::new("allowSnapshot", "-allowSnapshot <snapshotDir>", (1, 1), "Allows snapshots of a directory."),
    Verb::new("disallowSnapshot", "-disallowSnapshot <snapshotDir>", (1, 1), "Disallows snapshots of a directory."),
    Verb::new(
        "provisionSnapshotTrash",
        "-provisionSnapshotTrash <snapshotDir> [-all]",
        (1, 1),
        "Creates the trash of a snapshottable directory with permission rwxrwxrwt. -all: of all of them.",
    ),
    Verb::new(
        "shutdownDatanode",
        "-shutdownDatanode <datanode_host:ipc_port> [upgrade]",
        (1, 2),
        "Shuts a DataNode down. upgrade: clients are told to wait for its restart.",
    ),
    Verb::new(
        "evictWriters",
        "-evictWriters <datanode_host:ipc_port>",
        (1, ANY),
        "Makes a DataNode disconnect all clients that write to it, for example because a decommission waits for them.",
    ),
    Verb::new(
        "getDatanodeInfo",
        "-getDatanodeInfo <datanode_host:ipc_port>",
        (1, 1),
        "Prints uptime and versions of a DataNode.",
    ),
    Verb::new(
        "metasave",
        "-metasave filename",
        (1, 1),
        "Writes DataNodes and blocks that wait for copies or deletion to a file in the NameNode's log directory.",
    ),
    Verb::new(
        "triggerBlockReport",
        "-triggerBlockReport [-incremental] <datanode_host:ipc_port> [-namenode <namenode_host:ipc_port>]",
        (1, 4),
        "Makes a DataNode send a block report. -incremental: only of changes. -namenode: only to this one.",
    ),
    Verb::new(
        "listOpenFiles",
        "-listOpenFiles [-blockingDecommission] [-path <path>]",
        (0, 3),
        "Prints open files and their writers. -blockingDecommission: only those that a decommission waits for. -path: only \
         those below a path.",
    ),
    Verb::new("help", "-help [cmd]", (0, ANY), "Prints the help of a verb, or of all."),
];

pub fn run(arguments: ToolArguments) -> anyhow::Result<ExitCode> {
    tool::run("admin", arguments, async |tool: &Tool, words: Vec<String>| dispatch(tool, words).await)
}

/// Returns the list of Apache's verbs, one a line.
fn synopses() -> String {
    VERBS.iter().filter(|verb| verb.name != OWN_VERB).map(|verb| format!("\t[{}]\n", verb.synopsis)).collect()
}

/// Returns a line for each verb: a tab, its synopsis, a tab, its description.
pub fn reference() -> String {
    VERBS.iter().map(|verb| format!("\t{}\t{}\n", verb.synopsis, verb.about)).collect()
}

fn usage_of_all() -> String {
    format!(
        "Usage: hdfs dfsadmin\nNote: Administrative commands can only be run as the HDFS superuser.\n{}\n{GENERIC_USAGE}",
        synopses()
    )
}

async fn dispatch(tool: &Tool, words: Vec<String>) -> u8 {
    let Some((word, arguments)) = words.split_first() else {
        eprint!("{}", usage_of_all());
        return FAILED;
    };
    let found = word.strip_prefix('-').and_then(|name| VERBS.iter().find(|verb| verb.is_named(name)));
    let Some(verb) = found else {
        // Without a dash, the first letter is missing, as in Apache's tool.
        eprintln!("{}: Unknown command", word.chars().skip(1).collect::<String>());
        eprint!("{}", usage_of_all());
        return FAILED;
    };
    if arguments.len() < verb.takes.0 || arguments.len() > verb.takes.1 {
        eprint!("{}", verb.usage());
        return FAILED;
    }
    match call(tool, verb, arguments.to_vec()).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{}: {}", &word[1..], first_line(&error));
            if error.is::<IllegalArgument>() {
                eprint!("{}", verb.usage());
            }
            FAILED
        }
    }
}

/// Runs a verb: the one place that maps names to functions.
async fn call(tool: &Tool, verb: &Verb, words: Vec<String>) -> anyhow::Result<u8> {
    let first = words.first().map_or("", String::as_str);
    match verb.name {
        "report" => report::report(&tool.fs()?, words).await,
        "safemode" => safe_mode::safe_mode(tool, verb, first).await,
        "saveNamespace" => namespace::save(tool, first == "-beforeShutdown").await,
        "rollEdits" => namespace::roll_edits(tool).await,
        "restoreFailedStorage" => namespace::restore_failed_storage(tool, first).await,
        "refreshNodes" => namespace::refresh_nodes(tool).await,
        "metasave" => namespace::meta_save(tool, first).await,
        "setQuota" => quotas::set(tool, words).await,
        "clrQuota" => quotas::clear(tool, words).await,
        "setSpaceQuota" => quotas::set_space(tool, words).await,
        "clrSpaceQuota" => quotas::clear_space(tool, words).await,
        "finalizeUpgrade" => upgrade::finalize(tool).await,
        "rollingUpgrade" => upgrade::rolling(tool, first).await,
        "upgrade" => upgrade::upgrade(tool, verb, first).await,
        "refreshServiceAcl" => refresh::refresh(tool, refresh::What::ServiceAcl).await,
        "refreshUserToGroupsMappings" => refresh::refresh(tool, refresh::What::UserGroups).await,
        "refreshSuperUserGroupsConfiguration" => refresh::refresh(tool, refresh::What::ProxyUsers).await,
        "refreshCallQueue" => refresh::refresh(tool, refresh::What::CallQueue).await,
        "refresh" => refresh::generic(tool, words).await,
        "reconfig" => reconfigure::reconfigure(tool, &words).await,
        "printTopology" => report::topology(&tool.fs()?).await,
        "refreshNamenodes" => datanodes::refresh_namenodes(tool, first).await,
        "getVolumeReport" => datanodes::volumes(tool, first).await,
        "deleteBlockPool" => datanodes::delete_block_pool(tool, verb, &words).await,
        "setBalancerBandwidth" => datanodes::set_balancer_bandwidth(tool, verb, first).await,
        "getBalancerBandwidth" => datanodes::balancer_bandwidth(tool, first).await,
        "fetchImage" => fetch_image::fetch(tool, first).await,
        "backup" => backup::back_up(tool, first).await,
        "allowSnapshot" => snapshots::allow(tool, first).await,
        "disallowSnapshot" => snapshots::disallow(tool, first).await,
        "provisionSnapshotTrash" => snapshots::provision_trash(tool, first).await,
        "shutdownDatanode" => datanodes::shut_down(tool, verb, &words).await,
        "evictWriters" => datanodes::evict_writers(tool, first).await,
        "getDatanodeInfo" => datanodes::describe(tool, first).await,
        "triggerBlockReport" => datanodes::trigger_block_report(tool, words).await,
        "listOpenFiles" => open_files::list(tool, words).await,
        "help" => Ok(help(first)),
        name => unreachable!("verb {name} is in the table but not dispatched"),
    }
}

/// Prints the help of the verb `name`, or of all.
fn help(name: &str) -> u8 {
    let text = |verb: &Verb| format!("{}:\n\t{}\n", verb.synopsis, verb.about);
    match VERBS.iter().find(|verb| verb.is_named(name)) {
        Some(verb) => println!("{}", text(verb)),
        None => {
            println!("hdfs dfsadmin performs DFS administrative commands.");
            println!("Note: Administrative commands can only be run with superuser permission.");
            println!("The full syntax is: \n\nhdfs dfsadmin\n{}", synopses());
            VERBS.iter().for_each(|verb| println!("{}", text(verb)));
            print!("\n{GENERIC_USAGE}");
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that every name of the table is dispatched, because the `unreachable` above relies on it.
    #[test]
    fn every_verb_is_dispatched() {
        let source = include_str!("admin.rs");
        for verb in VERBS {
            assert!(source.contains(&format!("        \"{}\" => ", verb.name)), "{} is not dispatched", verb.name);
            assert!(verb.synopsis.starts_with(&format!("-{}", verb.name)), "{}", verb.synopsis);
        }
    }

    #[test]
    fn usage_lines_are_apaches() {
        let usage = |name: &str| VERBS.iter().find(|verb| verb.is_named(name)).unwrap().usage();
        assert_eq!(usage("AllowSnapshot"), "Usage: hdfs dfsadmin [-allowSnapshot <snapshotDir>]\n");
        assert_eq!(usage("safemode"), "Usage: hdfs dfsadmin [-safemode enter | leave | get | wait | forceExit]\n");
        assert!(VERBS.iter().all(|verb| !verb.is_named("Report")));
    }
}
