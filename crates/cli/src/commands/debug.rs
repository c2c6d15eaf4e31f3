//! `hearth debug`: the commands, output and exit codes of `hdfs debug`. Source: DebugAdmin.java of Hadoop 3.4.

mod block_files;
mod recover_lease;

use std::process::ExitCode;

use super::generic_options::GENERIC_USAGE;
use super::tool::{self, Tool, ToolArguments, prettified};

/// A command.
struct Command {
    name: &'static str,
    takes: &'static str,
    about: &'static [&'static str],
}

const COMMANDS: &[Command] = &[
    Command {
        name: "verifyMeta",
        takes: "-meta <metadata-file> [-block <block-file>]",
        about: &["Prints the checksum type of a metadata file. With a block file: verifies that its bytes match."],
    },
    Command {
        name: "computeMeta",
        takes: "-block <block-file> -out <output-metadata-file>",
        about: &[
            "Computes the metadata file of a block file.",
            "A damaged block file then looks healthy to HDFS: use this only for a file that is known to be right.",
        ],
    },
    Command {
        name: "recoverLease",
        takes: "-path <path> [-retries <num-retries>]",
        about: &["Makes the NameNode close a file whose writer is gone. Default: 1 try."],
    },
    Command {
        name: "verifyEC",
        takes: "-file <file> [-blockId <blk_Id>] [-skipFailureBlocks]",
        about: &["Verifies an erasure-coded file. This client reads none, so it only refuses."],
    },
    Command { name: "help", takes: "[command-name]", about: &["Prints the help of a command."] },
];

/// Returns a line for each command, for manual pages: a tab, its synopsis, a tab, its description.
pub fn reference() -> String {
    COMMANDS.iter().map(|command| format!("\t{}\t{}\n", command.usage(), command.about.join(" "))).collect()
}

impl Command {
    fn usage(&self) -> String {
        format!("{} {}", self.name, self.takes)
    }

    fn print_help(&self) {
        println!("{}", self.usage());
        self.about.iter().for_each(|line| println!("  {line}"));
        println!();
    }
}

pub fn run(arguments: ToolArguments) -> anyhow::Result<ExitCode> {
    tool::run("debug", arguments, async |tool: &Tool, mut words: Vec<String>| {
        let Some(command) = popped(&mut words) else {
            print_usage();
            return 0;
        };
        match call(tool, command, words).await {
            Ok(code) => code,
            Err(error) => {
                eprintln!("RuntimeException: java.lang.{}", prettified(&error, tool::Rebuilt::All));
                1
            }
        }
    })
}

/// Takes the name of a command, with or without a dash, off the words.
fn popped(words: &mut Vec<String>) -> Option<&'static Command> {
    let name = words.first()?;
    let name = name.strip_prefix('-').unwrap_or(name);
    let command = COMMANDS.iter().find(|command| command.name == name)?;
    words.remove(0);
    Some(command)
}

fn print_usage() {
    println!("Usage: hdfs debug <command> [arguments]\n");
    println!("These commands are for advanced users only.\n");
    println!("Incorrect usages may result in data loss. Use at your own risk.\n");
    COMMANDS.iter().filter(|command| command.name != "help").for_each(|command| println!("{}", command.usage()));
    println!();
    print!("{GENERIC_USAGE}");
}

async fn call(tool: &Tool, command: &'static Command, mut words: Vec<String>) -> anyhow::Result<u8> {
    let least = if command.name == "verifyEC" { 2 } else { 1 };
    if words.len() < least && command.name != "help" {
        command.print_help();
        return Ok(1);
    }
    match command.name {
        "verifyMeta" => block_files::verify(words),
        "computeMeta" => block_files::compute(&tool.configuration, words),
        "recoverLease" => recover_lease::recover(tool, words).await,
        "verifyEC" => recover_lease::verify_erasure_coding(tool, words).await,
        "help" => {
            match popped(&mut words) {
                Some(command) => command.print_help(),
                None => print_usage(),
            }
            Ok(0)
        }
        name => unreachable!("command {name} is in the table but not dispatched"),
    }
}
