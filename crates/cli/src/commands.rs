//! The list of subcommands, and nothing else.

use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

mod admin;
mod datanode;
mod demo;
mod fs;
mod fsck;
mod generic_options;
mod namenode;
mod up;

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
    /// Administer a cluster: -report, -safemode, -printTopology.
    #[command(disable_help_flag = true)]
    Admin(admin::AdminArguments),
    /// Check the blocks of files, like `hdfs fsck`.
    #[command(disable_help_flag = true)]
    Fsck(fsck::FsckArguments),
    /// Work with files: -ls, -put, -get and the other commands of `hdfs dfs`.
    #[command(disable_help_flag = true)]
    Fs(fs::FsArguments),
    /// Demonstrate Hearth: store a file three times in memory and read it back over every path.
    Demo(demo::DemoArguments),
    /// Run a complete file system on this machine.
    Up(up::UpArguments),
    /// Print the version and the features of this build.
    Version,
}

/// Runs the subcommand named on the command line. Returns the exit code of the process.
pub fn run() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.command {
        Command::Datanode(arguments) => datanode::run(&arguments),
        Command::Namenode(arguments) => namenode::run(&arguments),
        Command::Admin(arguments) => admin::run(arguments),
        Command::Fsck(arguments) => fsck::run(arguments),
        Command::Fs(arguments) => fs::run(arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Up(arguments) => up::run(arguments),
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

/// Waits for SIGINT or SIGTERM.
async fn stop_requested() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

/// Lets a closed standard output (`| head`) end the process as it ends other tools, instead of a panic in `println!`.
/// Only for commands that just print. Sockets are written with MSG_NOSIGNAL and do not raise SIGPIPE.
fn end_with_closed_output() {
    // SAFETY: sets the default action of one signal, before any other thread of this process is started.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}
