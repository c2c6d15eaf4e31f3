//! `hearth fs -COMMAND ...`: the file system shell, with the commands, options, output and exit codes of `hdfs dfs`.
//!
//! Each command is a function of [`Shell`] in its own file (or the file of its family). [`commands`] is the table of
//! them. Options are Hadoop's single-dash words, which [`options`] parses. If one argument fails, a command continues
//! with the others and the exit code is 1. A wrong command line gives 255.

mod acl;
mod archive;
mod attributes;
mod cat;
mod checksum;
mod commands;
mod concat;
mod copy;
mod count;
mod du;
mod failure;
mod find;
mod glob;
mod item;
mod list;
mod local_checksums;
mod make;
mod merge;
mod moving;
mod options;
mod paths;
mod progress;
mod remote;
mod remove;
mod replication;
mod shell;
mod size;
mod snapshots;
mod stat;
mod store;
mod table;
mod test;
mod text;
pub(super) mod time;
mod trash;
mod truncate;
mod view;
mod walk;
mod xattrs;

use std::process::ExitCode;

use hearth_client::FileSystem;
use hearth_config::Configuration;

use super::tool::IllegalArgument;
pub use commands::reference;
use commands::{COMMANDS, Command};
use failure::Failure;
use item::Item;
use options::Arguments;
use remote::Remote;
use shell::Shell;
use store::Store;

/// Exit code of a wrong command line: Java's -1.
const USAGE_ERROR: u8 = 255;

#[derive(clap::Args)]
pub struct FsArguments {
    /// Generic options (-fs URI, -D key=value, -conf FILE), then -COMMAND and its arguments; see `hearth fs -help`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    arguments: Vec<String>,
}

pub fn run(arguments: FsArguments) -> anyhow::Result<ExitCode> {
    crate::logging::start("error");
    let (configuration, words) = match super::generic_options::with_generic_options(arguments.arguments) {
        Ok(parsed) => parsed,
        Err(error) => {
            eprintln!("hearth fs: {error:#}");
            return Ok(ExitCode::from(USAGE_ERROR));
        }
    };
    // The commands run on this thread and may block it on local files. Connections and writers use the worker threads.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut shell = Shell::new(configuration);
    let code = runtime.block_on(dispatch(&mut shell, words));
    let finished = shell.finish();
    // A read of standard input that never returns must not keep the process alive.
    runtime.shutdown_background();
    Ok(match finished {
        Ok(()) => ExitCode::from(code),
        Err(why) => {
            eprintln!("hearth fs: {why}");
            ExitCode::from(code.max(1))
        }
    })
}

/// Resolves a path of another tool as `hdfs dfs` does: a pattern may name several paths, or none. Returns the file
/// systems and the paths there.
///
/// Errors: the file system is not HDFS, or another failure, in Hadoop's words.
pub(super) async fn hdfs_paths(
    configuration: &Configuration,
    argument: &str,
) -> anyhow::Result<Vec<(FileSystem, String)>> {
    let mut shell = Shell::new(configuration.clone());
    let items = match shell.items(argument).await {
        Ok(items) => items,
        // A pattern without matches. A path that does not exist is an item.
        Err(Failure::Path { .. }) => Vec::new(),
        Err(failure) => anyhow::bail!("{failure}"),
    };
    let hdfs = |item: Item| match item.store {
        Store::Hdfs(Remote::Native(fs)) => Ok((fs, item.path)),
        _ => Err(IllegalArgument::new(format!("FileSystem {} is not an HDFS file system", item.uri())).into()),
    };
    items.into_iter().map(hdfs).collect()
}

/// Converts a file name to text.
pub(super) fn shown_name(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

async fn dispatch(shell: &mut Shell, mut words: Vec<String>) -> u8 {
    if words.is_empty() {
        eprint!("{}", commands::usage_of_all());
        return USAGE_ERROR;
    }
    let name = words.remove(0);
    let Some(command) = name.strip_prefix('-').and_then(commands::find) else {
        eprintln!("{name}: Unknown command");
        if commands::find(&name).is_some() {
            eprintln!("Did you mean -{name}?  This command begins with a dash.");
        }
        eprint!("{}", commands::usage_of_all());
        return USAGE_ERROR;
    };
    shell.start(command);
    if let Some(instead) = command.deprecated_for {
        eprintln!("{}: DEPRECATED: Please use '{instead}' instead.", command.name);
    }
    let outcome = match command.format.parse(words) {
        Ok(arguments) => {
            shell.ignore_checksums(arguments.has("ignoreCrc"));
            run_command(shell, command, arguments).await
        }
        Err(failure) => Err(failure),
    };
    match outcome {
        Ok(()) => shell.exit_code(),
        Err(Failure::Usage(message)) => {
            eprintln!("-{}: {message}", command.name);
            // Prints the usage of all commands, then of this one, as Hadoop does.
            eprint!("{}", commands::usage_of_all());
            eprintln!("Usage: hadoop fs [generic options] {}", command.usage());
            USAGE_ERROR
        }
        Err(Failure::Exit(code)) => code,
        Err(Failure::OutputEnded) => shell.exit_code(),
        Err(failure) => {
            shell.report(&failure);
            shell.exit_code()
        }
    }
}

/// Runs a command: the one place that maps names to functions.
async fn run_command(shell: &mut Shell, command: &Command, arguments: Arguments) -> Result<(), Failure> {
    debug_assert!(COMMANDS.iter().any(|known| known.name == command.name));
    match command.name {
        "appendToFile" => copy::append_to_file(shell, arguments).await,
        "cat" => cat::cat(shell, arguments).await,
        "checksum" => checksum::checksum(shell, arguments).await,
        "chgrp" => attributes::chgrp(shell, arguments).await,
        "chmod" => attributes::chmod(shell, arguments).await,
        "chown" => attributes::chown(shell, arguments).await,
        "concat" => concat::concat(shell, arguments).await,
        "copyFromLocal" | "put" => copy::put(shell, arguments).await,
        "copyToLocal" | "get" => copy::get(shell, arguments).await,
        "count" => count::count(shell, arguments).await,
        "cp" => copy::cp(shell, arguments).await,
        "createSnapshot" => snapshots::create(shell, arguments).await,
        "deleteSnapshot" => snapshots::delete(shell, arguments).await,
        "df" => du::df(shell, arguments).await,
        "du" | "dus" => du::du(shell, arguments, command.name == "dus").await,
        "expunge" => trash::expunge(shell, arguments).await,
        "find" => find::find(shell, arguments).await,
        "getfacl" => acl::getfacl(shell, arguments).await,
        "getfattr" => xattrs::getfattr(shell, arguments).await,
        "getmerge" => merge::getmerge(shell, arguments).await,
        "head" => cat::head(shell, arguments).await,
        "help" => commands::help(shell, arguments),
        "ls" | "lsr" => list::ls(shell, arguments, command.name == "lsr").await,
        "mkdir" => make::mkdir(shell, arguments).await,
        "moveFromLocal" => copy::move_from_local(shell, arguments).await,
        "moveToLocal" => copy::move_to_local(shell, arguments).await,
        "mv" => moving::mv(shell, arguments).await,
        "renameSnapshot" => snapshots::rename(shell, arguments).await,
        "rm" | "rmr" => remove::rm(shell, arguments, command.name == "rmr").await,
        "rmdir" => remove::rmdir(shell, arguments).await,
        "setfacl" => acl::setfacl(shell, arguments).await,
        "setfattr" => xattrs::setfattr(shell, arguments).await,
        "setrep" => replication::setrep(shell, arguments).await,
        "stat" => stat::stat(shell, arguments).await,
        "tail" => cat::tail(shell, arguments).await,
        "test" => test::test(shell, arguments).await,
        "text" => text::text(shell, arguments).await,
        "touch" => make::touch(shell, arguments).await,
        "touchz" => make::touchz(shell, arguments).await,
        "truncate" => truncate::truncate(shell, arguments).await,
        "usage" => commands::usage(shell, arguments),
        name => unreachable!("command {name} is in the table but not dispatched"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that every name of the table is dispatched, because the `unreachable` above relies on it.
    #[test]
    fn every_command_is_dispatched() {
        let source = include_str!("fs.rs");
        for command in COMMANDS {
            assert!(source.contains(&format!("\"{}\"", command.name)), "{} is not dispatched", command.name);
        }
    }
}
