//! Which subcommand there is, and nothing else.

use std::process::ExitCode;

use clap::Parser;

mod datanode;
mod fs;
mod generic_options;
mod namenode;

#[derive(Parser)]
#[command(name = "hearth", version, about = "An in-memory, RDMA-enabled HDFS that every HDFS client can use unchanged")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Run a DataNode, configured by HADOOP_CONF_DIR.
    Datanode(datanode::Arguments),
    /// Run a NameNode, configured by HADOOP_CONF_DIR.
    Namenode(namenode::Arguments),
    /// Work with files: -ls, -put, -get and what else `hdfs dfs` knows.
    #[command(disable_help_flag = true)]
    Fs(fs::FsArguments),
    /// Print the version and what this build contains.
    Version,
}

/// Runs the subcommand named on the command line; its exit code is the process's.
pub fn run() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.command {
        Command::Datanode(arguments) => datanode::run(&arguments),
        Command::Namenode(arguments) => namenode::run(&arguments),
        Command::Fs(arguments) => fs::run(arguments),
        Command::Version => version(),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("hearth: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn version() -> anyhow::Result<ExitCode> {
    println!("hearth {} (Hadoop wire version 9, data transfer version 28)", env!("CARGO_PKG_VERSION"));
    Ok(ExitCode::SUCCESS)
}
