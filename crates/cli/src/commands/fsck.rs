//! `hearth fsck PATH`: the report of `hdfs fsck`.
//!
//! The NameNode makes the report. This command requests it over HTTP (`/fsck`), as Apache's tool does, and prints the
//! answer unchanged. If the web port cannot be reached, the command prints a message to standard error and makes a
//! plain report from RPC answers ([`mod@walk`]). It then rejects options that only the NameNode can carry out.

pub(super) mod ask;
mod http;
mod replicas;
mod report;
mod request;
mod walk;

use std::process::ExitCode;

use anyhow::Context;
use hearth_client::{ErrorKind, FileSystem};
use hearth_config::Configuration;

use super::generic_options::with_generic_options;
use super::tool::split;
use crate::configuration::Identity;
use ask::{NamenodeHttp, ask};
use report::Report;
pub use request::USAGE;
use request::{Request, RequestError};
use walk::walk;

const USAGE_ERROR: u8 = 255;

#[derive(clap::Args)]
pub struct FsckArguments {
    /// Generic options (-fs URI, -D key=value, -conf FILE), the path, and options of `hdfs fsck`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    arguments: Vec<String>,
}

pub fn run(arguments: FsckArguments) -> anyhow::Result<ExitCode> {
    crate::logging::start("error");
    super::end_with_closed_output();
    let (configuration, words) = with_generic_options(arguments.arguments)?;
    let request = match Request::parse(words) {
        Ok(request) => request,
        Err(RequestError::Help) => {
            print!("{USAGE}");
            return Ok(ExitCode::SUCCESS);
        }
        Err(RequestError::Usage(what)) => {
            if !what.is_empty() {
                eprintln!("fsck: {what}");
            }
            eprint!("{USAGE}");
            return Ok(ExitCode::from(USAGE_ERROR));
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let code = runtime.block_on(check(&configuration, request));
    runtime.shutdown_background();
    Ok(ExitCode::from(code?))
}

/// Runs the check. Returns the exit code.
async fn check(configuration: &Configuration, mut request: Request) -> anyhow::Result<u8> {
    let caller = Identity::of_process()?;
    let (uri, path) = split(&request.path);
    let fs = crate::configuration::connect(configuration, uri.as_deref())?;
    request.path = fs.absolute(path)?;
    // This call also finds out which of several NameNodes is active.
    match fs.status(&request.path).await {
        Ok(_) => {}
        // A block is looked up even if the path does not exist.
        Err(_) if !request.block_ids.is_empty() => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {
            eprintln!(
                "FileSystem is inaccessible due to:\njava.io.FileNotFoundException: File does not exist: {}",
                request.path
            );
            eprintln!("DFSck exiting.");
            return Ok(0);
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
        Err(error) => return Err(error.into()),
    }
    let namenode = fs.namenode_address();
    match NamenodeHttp::find(configuration, fs.uri(), &namenode).await {
        Ok(web) => ask(&web, &request, &caller).await,
        Err(why) => {
            let advice = "set dfs.namenode.http-address to that of the NameNode, for example by -D";
            if let Some(option) = request.needs_namenode() {
                anyhow::bail!(
                    "{option} needs the NameNode at {namenode} over HTTP, but the request failed: {why:#}; {advice}"
                );
            }
            if caller.real_user.is_some() {
                let other = &caller.user;
                anyhow::bail!(
                    "only the NameNode at {namenode} can check files for {other}, but the request failed: {why:#}; {advice}"
                );
            }
            eprintln!(
                "fsck: the NameNode at {namenode} cannot be asked over HTTP: {why:#}; {advice}. This report is made from the answers \
                 to clients: it does not show replicas in maintenance and misplaced ones."
            );
            by_walking(&fs, &request).await
        }
    }
}

async fn by_walking(fs: &FileSystem, request: &Request) -> anyhow::Result<u8> {
    let mut report = Report::start(fs, request.path.clone(), !request.list_corrupt);
    walk(fs, &request.path, &request.shown, &mut report).await.context("cannot walk over the files")?;
    Ok(if request.list_corrupt { report.list_corrupt() } else { report.print(fs).await? })
}
