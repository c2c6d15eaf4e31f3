//! `hearth namenode`: serves a namespace until it is told to stop; `-format` instead makes a new one.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use hearth_namenode::{FormatPolicy, Namenode, NamenodeOptions, format_directory};
use hearth_types::SystemClock;
use tokio::signal::unix::{SignalKind, signal};

use crate::announce::Announcement;
use crate::{configuration, logging};

#[derive(clap::Args)]
pub struct Arguments {
    /// -format makes a new namespace in dfs.namenode.name.dir and exits; with -force also where there is one already.
    /// -format-if-empty makes one if there is none, and serves.
    #[arg(allow_hyphen_values = true, value_name = "OPTION")]
    options: Vec<String>,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let (mut format, mut force, mut if_empty) = (false, false, false);
    for option in &arguments.options {
        // Hadoop's spelling has one dash; ours, two.
        match option.trim_start_matches('-') {
            "format" => format = true,
            "force" => force = true,
            "format-if-empty" => if_empty = true,
            // Nothing is ever asked.
            "nonInteractive" | "noninteractive" => {}
            _ => bail!("unknown option {option}: wanted -format, -force, -nonInteractive or -format-if-empty"),
        }
    }
    logging::start("info");
    let options = NamenodeOptions {
        configuration: configuration::load()?,
        user: configuration::user(),
        host_name: configuration::host_name(),
        clock: Arc::new(SystemClock::new()),
        format: if if_empty { FormatPolicy::IfEmpty } else { FormatPolicy::Never },
        directory: None,
        rpc_address: None,
        http_address: None,
    };
    if format {
        let identity = format_directory(&options, force)?;
        println!("formatted: cluster {}, block pool {}", identity.cluster_id, identity.pool);
        return Ok(ExitCode::SUCCESS);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting threads")?;
    runtime.block_on(serve(options))
}

async fn serve(options: NamenodeOptions) -> anyhow::Result<ExitCode> {
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    let handle = Namenode::start(options).await?;
    Announcement::new("namenode", [("rpc", handle.rpc_address()), ("http", handle.http_address())]).print();
    tokio::select! {
        failed = handle.failed() => bail!("ending: {failed}"),
        _ = terminate.recv() => tracing::info!("ending: SIGTERM"),
        _ = interrupt.recv() => tracing::info!("ending: SIGINT"),
    }
    Ok(ExitCode::SUCCESS)
}
