//! `hearth groups`: the output and exit codes of `hdfs groups`. Source: GetGroupsBase.java of Hadoop 3.4.

use std::process::ExitCode;

use super::generic_options::GENERIC_USAGE;
use super::tool::{self, FAILED, Tool, ToolArguments, first_line};
use crate::configuration::Identity;

const USAGE: &str = "Usage: hdfs groups [username ...]";

pub fn run(arguments: ToolArguments) -> anyhow::Result<ExitCode> {
    tool::run("groups", arguments, async |tool: &Tool, words: Vec<String>| match groups(tool, words).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("groups: {}", first_line(&error));
            FAILED
        }
    })
}

async fn groups(tool: &Tool, mut users: Vec<String>) -> anyhow::Result<u8> {
    if let [only] = users.as_slice()
        && ["-h", "-help", "--help"].contains(&only.as_str())
    {
        println!("{USAGE}");
        print!("{GENERIC_USAGE}");
        return Ok(0);
    }
    if users.is_empty() {
        users.push(Identity::of_process()?.user);
    }
    let fs = tool.fs()?;
    let administration = tool.administration()?;
    if let Some(namenodes) = tool.namenodes(&fs).await? {
        // Any call to the file system follows it to its active namenode.
        anyhow::ensure!(!namenodes.is_empty(), "the nameservice has no namenodes");
        fs.usage().await?;
    }
    let namenode = tool.namenode_address(&fs)?;
    for user in users {
        let groups = administration.groups(&namenode, &user).await?;
        let groups: String = groups.iter().map(|group| format!(" {group}")).collect();
        println!("{user} :{groups}");
    }
    Ok(0)
}
