//! The list of subcommands, and nothing else.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

mod admin;
mod admin_helper;
mod balancer;
mod cacheadmin;
mod config;
mod datanode;
mod debug;
mod demo;
mod documents;
mod fs;
mod fsck;
mod generic_options;
mod getconf;
mod groups;
mod haadmin;
mod host_name;
mod namenode;
mod snapshots;
mod storagepolicies;
mod tool;
mod unsupported;
mod up;
mod version;

/// Variables that every subcommand reads, for `--help` and the manual.
const ENVIRONMENT: &str = "\
HADOOP_CONF_DIR    directory of core-site.xml and hdfs-site.xml
HADOOP_HOME        without HADOOP_CONF_DIR: the directory is etc/hadoop in it; without both: /etc/hearth
HADOOP_USER_NAME   user to act as; default: the user of the process
HADOOP_PROXY_USER  user to act for, if the NameNode allows it
HEARTH_LOG         level of the log: error, warn, info, debug";

/// Longest time that the end of a command waits for the collector of traces.
const TRACE_PATIENCE: Duration = Duration::from_secs(2);

#[derive(Parser)]
#[command(
    name = "hearth",
    version,
    about = "An in-memory, RDMA-enabled HDFS that every HDFS client can use unchanged",
    after_help = ENVIRONMENT
)]
struct Arguments {
    /// Directory with core-site.xml and hdfs-site.xml, instead of HADOOP_CONF_DIR
    #[arg(long, global = true, value_name = "DIR")]
    config: Option<PathBuf>,
    /// Level of log messages on standard error (WARN, INFO, DEBUG), instead of HEARTH_LOG
    #[arg(long, global = true, value_name = "LEVEL", value_parser = crate::logging::level)]
    loglevel: Option<&'static str>,
    /// Form of log messages; default: hearth.log.format
    #[arg(long, global = true, value_enum, value_name = "FORMAT")]
    log_format: Option<crate::logging::Format>,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Run a DataNode, configured by HADOOP_CONF_DIR.
    Datanode(datanode::Arguments),
    /// Run a NameNode, configured by HADOOP_CONF_DIR.
    Namenode(namenode::Arguments),
    /// Administer a cluster: -report, -safemode and the other commands of `hdfs dfsadmin`.
    #[command(disable_help_flag = true, visible_alias = "dfsadmin")]
    Admin(tool::ToolArguments),
    /// Move blocks between DataNodes until all are used alike, like `hdfs balancer`.
    #[command(disable_help_flag = true)]
    Balancer(tool::ToolArguments),
    /// Manage cache pools and directives, like `hdfs cacheadmin`.
    #[command(disable_help_flag = true)]
    Cacheadmin(tool::ToolArguments),
    /// Verify and compute checksum files of blocks, and recover leases, like `hdfs debug`.
    #[command(disable_help_flag = true)]
    Debug(tool::ToolArguments),
    /// Check the blocks of files, like `hdfs fsck`.
    #[command(disable_help_flag = true)]
    Fsck(fsck::FsckArguments),
    /// Work with files: -ls, -put, -get and the other commands of `hdfs dfs`.
    #[command(disable_help_flag = true, visible_alias = "dfs")]
    Fs(fs::FsArguments),
    /// Check the configuration, or show its values and where they come from.
    #[command(disable_help_subcommand = true)]
    Config(config::Arguments),
    /// Print values of the configuration, like `hdfs getconf`.
    #[command(disable_help_flag = true)]
    Getconf(tool::ToolArguments),
    /// Print the groups of users as the NameNode knows them, like `hdfs groups`.
    #[command(disable_help_flag = true)]
    Groups(tool::ToolArguments),
    /// Show and change the state of NameNodes with high availability, like `hdfs haadmin`.
    #[command(disable_help_flag = true)]
    Haadmin(tool::ToolArguments),
    /// List the snapshots of a directory, like `hdfs lsSnapshot`.
    #[command(name = "lsSnapshot", disable_help_flag = true)]
    LsSnapshot(tool::ToolArguments),
    /// List the directories that may have snapshots, like `hdfs lsSnapshottableDir`.
    #[command(name = "lsSnapshottableDir", disable_help_flag = true)]
    LsSnapshottableDir(tool::ToolArguments),
    /// Print the differences between snapshots, like `hdfs snapshotDiff`.
    #[command(name = "snapshotDiff", disable_help_flag = true)]
    SnapshotDiff(tool::ToolArguments),
    /// Show and set storage policies, like `hdfs storagepolicies`.
    #[command(disable_help_flag = true)]
    Storagepolicies(tool::ToolArguments),
    /// Demonstrate Hearth: store a file three times in memory and read it back over every path.
    Demo(demo::DemoArguments),
    /// Run a complete file system on this machine.
    Up(up::UpArguments),
    /// Print the version, the commit, the target and the features of this build.
    Version,
    /// Print completions for a shell.
    Completions(documents::CompletionsArguments),
    /// Write manual pages and completions for packages.
    #[command(hide = true)]
    Documents(documents::DocumentsArguments),
}

impl Command {
    fn is_server(&self) -> bool {
        matches!(self, Self::Datanode(_) | Self::Namenode(_) | Self::Up(_) | Self::Demo(_))
    }
}

/// Runs the subcommand named on the command line. Returns the exit code of the process.
pub fn run() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return unsupported::refuse(&error),
    };
    version::report_to_metrics();
    if let Some(directory) = arguments.config {
        crate::configuration::load_from(directory);
    }
    if let Some(level) = arguments.loglevel {
        crate::logging::set_level(level);
    }
    if let Some(format) = arguments.log_format {
        crate::logging::set_format(format);
    }
    let is_server = arguments.command.is_server();
    if !is_server {
        crate::notices::start();
    }
    let outcome = match arguments.command {
        Command::Datanode(arguments) => datanode::run(&arguments),
        Command::Namenode(arguments) => namenode::run(&arguments),
        Command::Admin(arguments) => admin::run(arguments),
        Command::Balancer(arguments) => balancer::run(arguments),
        Command::Cacheadmin(arguments) => cacheadmin::run(arguments),
        Command::Config(arguments) => config::run(arguments),
        Command::Debug(arguments) => debug::run(arguments),
        Command::Getconf(arguments) => getconf::run(arguments),
        Command::Groups(arguments) => groups::run(arguments),
        Command::Haadmin(arguments) => haadmin::run(arguments),
        Command::LsSnapshot(arguments) => snapshots::list(arguments),
        Command::LsSnapshottableDir(arguments) => snapshots::list_directories(arguments),
        Command::SnapshotDiff(arguments) => snapshots::differences(arguments),
        Command::Storagepolicies(arguments) => storagepolicies::run(arguments),
        Command::Fsck(arguments) => fsck::run(arguments),
        Command::Fs(arguments) => fs::run(arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Up(arguments) => up::run(arguments),
        Command::Version => version::run(),
        Command::Completions(arguments) => documents::completions(&arguments),
        Command::Documents(arguments) => documents::write(&arguments),
    };
    // A client sends all its spans here. Servers have sent theirs, except those of the last second.
    hearth_client::trace::flush(TRACE_PATIENCE);
    match outcome {
        Ok(code) => match crate::output::lost() {
            // A server prints only that it is ready, and goes on.
            Some(error) if !is_server => {
                eprintln!("hearth: cannot write the output: {error}");
                ExitCode::FAILURE
            }
            _ => code,
        },
        Err(error) => {
            eprintln!("hearth: {error:#}");
            ExitCode::FAILURE
        }
    }
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
