//! `hearth datanode`: serves blocks until it is stopped. With `--flush` it instead writes to disk the replicas that a
//! killed DataNode left in memory.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use hearth_config::{Configuration, Program};
use hearth_datanode::{Datanode, DatanodeOptions, EndReason};
use hearth_types::SystemClock;
use hearth_webhdfs::WebHdfs;
use tokio::signal::unix::{SignalKind, signal};

use crate::announce::Announcement;
use crate::{configuration, logging, supervisor};

#[derive(clap::Args)]
pub struct Arguments {
    /// Write the replicas that a killed DataNode left in memory to its storage directories, then exit. Run this before
    /// you give the directories to another DataNode.
    #[arg(long)]
    flush: bool,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let configuration = configuration::load()?;
    logging::use_format_of(&configuration);
    logging::start("info");
    configuration::check(&configuration, Program::Datanode)?;
    hearth_client::trace::start(&configuration, "hearth-datanode", &configuration::host_name())?;
    let options = options(Arc::new(configuration), &configuration::user(), &configuration::host_name())?;
    if arguments.flush {
        return flush(options);
    }
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.max_blocking_threads(options.blocking_threads_max());
    let runtime = runtime.enable_all().build().context("cannot start the threads of the runtime")?;
    runtime.block_on(serve(options))
}

/// Options to start a DataNode: its configuration, and the client that serves WebHDFS for it.
pub fn options(configuration: Arc<Configuration>, user: &str, host_name: &str) -> anyhow::Result<DatanodeOptions> {
    let webhdfs = WebHdfs::new(&configuration)?;
    let options = DatanodeOptions::from_configuration(configuration, user, host_name, Arc::new(SystemClock::new()))?;
    Ok(DatanodeOptions { webhdfs: Some(Arc::new(webhdfs)), ..options })
}

async fn serve(options: DatanodeOptions) -> anyhow::Result<ExitCode> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let handle = Datanode::start(options).await?;
    let addresses = handle.addresses();
    // A machine's start does not wait for a NameNode that is on another one.
    supervisor::ready("waiting for a NameNode");
    let announce = async {
        handle.registered().await;
        Announcement::new(
            "datanode",
            [("transfer", addresses.transfer), ("ipc", addresses.ipc), ("http", addresses.http)],
        )
        .print();
        supervisor::ready("serving clients");
        std::future::pending::<()>().await;
    };
    let (mut unwanted, mut disks_failed) = (false, false);
    tokio::select! {
        () = announce => {}
        reason = handle.ended() => match reason {
            EndReason::ShutdownRequested => tracing::info!("shutting down: requested by an administrator"),
            EndReason::NoNamenode => unwanted = true,
            EndReason::VolumesFailed => disks_failed = true,
        },
        _ = terminate.recv() => tracing::info!("shutting down: SIGTERM"),
        _ = interrupt.recv() => tracing::info!("shutting down: SIGINT"),
    }
    let left = handle.shutdown(true).await;
    if left.replicas_left > 0 || left.failures > 0 {
        tracing::error!(
            replicas = left.replicas_left,
            bytes = left.bytes_left,
            failures = left.failures,
            "not everything could be written to disk; it stays in memory"
        );
        return Ok(ExitCode::FAILURE);
    }
    tracing::info!(replicas = left.replicas_done, bytes = left.bytes_done, "everything is on disk");
    // Apache's DataNode exits with 0 here, and a supervisor then takes that for success.
    ensure!(!disks_failed, "too many storage directories have failed; which and why is logged above");
    ensure!(!unwanted, "no NameNode serves this DataNode; the reasons are logged above");
    Ok(ExitCode::SUCCESS)
}

fn flush(options: DatanodeOptions) -> anyhow::Result<ExitCode> {
    let mut told = Instant::now();
    let done = hearth_datanode::flush_offline(&options, &mut |progress| {
        if told.elapsed() > Duration::from_secs(1) {
            told = Instant::now();
            eprintln!("{} replicas, {} bytes left", progress.replicas_left, progress.bytes_left);
        }
        true
    })?;
    println!("{} replicas, {} bytes written to disk", done.replicas_done, done.bytes_done);
    if done.failures > 0 {
        eprintln!("{} replicas could not be written and stay in memory", done.failures);
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}
