//! `hearth storagepolicies`: the commands, output and exit codes of `hdfs storagepolicies`. Source:
//! StoragePolicyAdmin.java of Hadoop 3.4.

use std::process::ExitCode;

use hearth_client::StoragePolicy;
use hearth_types::StorageType;

use super::admin_helper::{HelperCommand, dispatch};
use super::tool::{self, Rebuilt, Tool, ToolArguments, pop_value, prettified};

/// Exit code if a call fails.
const CALL_FAILED: u8 = 2;

/// Exceptions of these calls that Java's client rebuilds.
const REBUILT: Rebuilt<'_> = Rebuilt::Only(&[
    "AccessControlException",
    "FileNotFoundException",
    "SafeModeException",
    "NSQuotaExceededException",
    "UnresolvedPathException",
    "SnapshotAccessControlException",
]);

const COMMANDS: &[HelperCommand] = &[
    HelperCommand {
        name: "-listPolicies",
        takes: "",
        about: "List all the existing block storage policies.",
        arguments: &[],
    },
    HelperCommand {
        name: "-setStoragePolicy",
        takes: " -path <path> -policy <policy>",
        about: "Set the storage policy to a file/directory.",
        arguments: &[
            ("<path>", "The path of the file/directory to set storage policy"),
            ("<policy>", "The name of the block storage policy"),
        ],
    },
    HelperCommand {
        name: "-getStoragePolicy",
        takes: " -path <path>",
        about: "Get the storage policy of a file/directory.",
        arguments: &[("<path>", "The path of the file/directory for getting the storage policy")],
    },
    HelperCommand {
        name: "-unsetStoragePolicy",
        takes: " -path <path>",
        about: "Unset the storage policy set for a file/directory.",
        arguments: &[("<path>", "The path of the file/directory from which the storage policy will be unset.")],
    },
    HelperCommand {
        name: "-satisfyStoragePolicy",
        takes: " -path <path>",
        about: "Schedule blocks to move based on file/directory policy.",
        arguments: &[("<path>", "The path of the file/directory to satisfy storage policy")],
    },
];

/// Returns a line for each command, for manual pages.
pub fn reference() -> String {
    super::admin_helper::reference(COMMANDS)
}

pub fn run(arguments: ToolArguments) -> anyhow::Result<ExitCode> {
    tool::run("storagepolicies", arguments, async |tool: &Tool, words: Vec<String>| {
        dispatch(tool, "storagepolicies", COMMANDS, words, call).await
    })
}

async fn call(tool: &Tool, command: &'static HelperCommand, mut words: Vec<String>) -> anyhow::Result<u8> {
    if command.name == "-listPolicies" {
        return Ok(reported(list(tool).await));
    }
    let Some(path) = pop_value("-path", &mut words)? else {
        let missing = match command.name {
            "-getStoragePolicy" => "Please specify the path with -path.",
            "-unsetStoragePolicy" => "Please specify the path from which the storage policy will be unset.",
            _ => "Please specify the path for setting the storage policy.",
        };
        eprintln!("{missing}\nUsage: {}", command.long_usage());
        return Ok(1);
    };
    Ok(reported(match command.name {
        "-setStoragePolicy" => {
            let Some(policy) = pop_value("-policy", &mut words)? else {
                eprintln!("Please specify the policy name.\nUsage: {}", command.long_usage());
                return Ok(1);
            };
            set(tool, &path, &policy).await
        }
        "-getStoragePolicy" => get(tool, &path).await,
        "-unsetStoragePolicy" => unset(tool, &path).await,
        "-satisfyStoragePolicy" => satisfy(tool, &path).await,
        name => unreachable!("command {name} is in the table but not dispatched"),
    }))
}

/// Reports a failed call. Returns the exit code.
fn reported(outcome: anyhow::Result<u8>) -> u8 {
    outcome.unwrap_or_else(|error| {
        eprintln!("{}", prettified(&error, REBUILT));
        CALL_FAILED
    })
}

async fn list(tool: &Tool) -> anyhow::Result<u8> {
    let policies = tool.fs()?.storage_policies().await?;
    println!("Block Storage Policies:");
    policies.iter().for_each(|policy| println!("\t{}", shown(policy)));
    Ok(0)
}

async fn set(tool: &Tool, path: &str, policy: &str) -> anyhow::Result<u8> {
    let (fs, there) = tool.fs_of(path)?;
    fs.set_storage_policy(there, policy).await?;
    println!("Set storage policy {policy} on {path}");
    Ok(0)
}

async fn get(tool: &Tool, path: &str) -> anyhow::Result<u8> {
    let (fs, there) = tool.fs_of(path)?;
    let Ok(status) = fs.status(there).await else {
        // Apache's tool says this for every failure.
        eprintln!("File/Directory does not exist: {path}");
        return Ok(CALL_FAILED);
    };
    if status.storage_policy == 0 {
        println!("The storage policy of {path} is unspecified");
        return Ok(0);
    }
    match fs.storage_policies().await?.iter().find(|policy| policy.id == status.storage_policy) {
        Some(policy) => {
            println!("The storage policy of {path}:\n{}", shown(policy));
            Ok(0)
        }
        None => {
            eprintln!("-getStoragePolicy is not supported for filesystem hdfs on path {path}");
            Ok(CALL_FAILED)
        }
    }
}

async fn unset(tool: &Tool, path: &str) -> anyhow::Result<u8> {
    let (fs, there) = tool.fs_of(path)?;
    fs.unset_storage_policy(there).await?;
    println!("Unset storage policy from {path}");
    Ok(0)
}

async fn satisfy(tool: &Tool, path: &str) -> anyhow::Result<u8> {
    let (fs, there) = tool.fs_of(path)?;
    fs.satisfy_storage_policy(there).await?;
    println!("Scheduled blocks to move based on the current storage policy on {path}");
    Ok(0)
}

/// Returns a policy as Java's `toString` shows it.
fn shown(policy: &StoragePolicy) -> String {
    let types = |types: &[StorageType]| types.iter().map(|of| of.name()).collect::<Vec<_>>().join(", ");
    format!(
        "BlockStoragePolicy{{{}:{}, storageTypes=[{}], creationFallbacks=[{}], replicationFallbacks=[{}]}}",
        policy.name,
        policy.id,
        types(&policy.storage_types),
        types(&policy.creation_fallbacks),
        types(&policy.replication_fallbacks)
    )
}
