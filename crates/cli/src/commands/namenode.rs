//! `hearth namenode`: serves a namespace until it is stopped. With `-format` it instead makes a new namespace, with
//! `-importCheckpoint` the one of an image. With `-recover` it examines a namespace that does not start.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use hearth_config::Program;
use hearth_namenode::{
    FormatPolicy, Namenode, NamenodeOptions, RecoveryReport, format_directory, import_directory, recover_directory,
};
use hearth_types::SystemClock;
use tokio::signal::unix::{SignalKind, signal};

use crate::announce::Announcement;
use crate::salvage::ClientCopier;
use crate::{configuration, logging, supervisor};

#[derive(clap::Args)]
pub struct Arguments {
    /// -format makes a new namespace in dfs.namenode.name.dir and exits; -force replaces an existing one.
    /// -format-if-empty makes one if the directory is set and empty, and then serves it. -recover reports what can be
    /// recovered of a namespace that does not start, and changes nothing; with -force it keeps that part and drops the
    /// rest. -recover takes an optional directory instead of dfs.namenode.name.dir, for example `D/name` of `hearth up
    /// --dir D`. -importCheckpoint PATH makes the namespace of an image in dfs.namenode.name.dir, which must be empty,
    /// and exits. PATH is an fsimage, or a directory with one: a backup, or the name directory of Apache's NameNode.
    #[arg(allow_hyphen_values = true, value_name = "OPTION")]
    options: Vec<String>,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let (mut format, mut force, mut if_empty, mut recover, mut import) = (false, false, false, false, false);
    let mut directory = None;
    for option in &arguments.options {
        // Hadoop writes one dash, Hearth two.
        match option.trim_start_matches('-') {
            "format" => format = true,
            "force" => force = true,
            "format-if-empty" => if_empty = true,
            "recover" => recover = true,
            "importCheckpoint" => import = true,
            // No command asks for confirmation.
            "nonInteractive" | "noninteractive" => {}
            path if path == option && directory.is_none() => directory = Some(PathBuf::from(path)),
            _ => {
                bail!(
                    "unknown option {option}: expected -format, -force, -nonInteractive, -format-if-empty, -recover or -importCheckpoint"
                )
            }
        }
    }
    if recover && (format || if_empty) {
        bail!("-recover and -format cannot be combined: -recover keeps a namespace, -format makes a new one");
    }
    if import && (format || if_empty || recover || force) {
        bail!("-importCheckpoint cannot be combined with other options: it needs an empty dfs.namenode.name.dir");
    }
    if let Some(directory) = directory.as_ref().filter(|_| !recover && !import) {
        bail!(
            "unexpected {}: only -recover and -importCheckpoint take a path; set dfs.namenode.name.dir",
            directory.display()
        );
    }
    let image = if import { directory.take() } else { None };
    let configuration = configuration::load()?;
    logging::use_format_of(&configuration);
    logging::start("info");
    if !format && !recover {
        configuration::check(&configuration, Program::Namenode)?;
    }
    hearth_client::trace::start(&configuration, "hearth-namenode", &configuration::host_name())?;
    let copier = ClientCopier::new(&configuration);
    let options = NamenodeOptions {
        configuration,
        user: configuration::user(),
        host_name: configuration::host_name(),
        clock: Arc::new(SystemClock::new()),
        format: if if_empty { FormatPolicy::IfEmpty } else { FormatPolicy::Never },
        directory,
        rpc_address: None,
        http_address: None,
        copier: Some(Arc::new(copier)),
    };
    if format {
        let identity = format_directory(&options, force)?;
        println!("formatted: cluster {}, block pool {}", identity.cluster_id, identity.pool);
        return Ok(ExitCode::SUCCESS);
    }
    if import {
        let image = image.context("-importCheckpoint needs the path of an fsimage, or of a directory with one")?;
        return import_image(&options, &image);
    }
    if recover {
        return Ok(tell(&recover_directory(&options, force)?, force));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the threads of the runtime")?;
    runtime.block_on(serve(options))
}

fn import_image(options: &NamenodeOptions, image: &Path) -> anyhow::Result<ExitCode> {
    let imported = import_directory(options, image)?;
    println!("imported: cluster {}, block pool {}", imported.identity.cluster_id, imported.identity.pool);
    println!(
        "{} files and directories, {} blocks, {} open files, {} snapshots, up to change {}",
        imported.inodes, imported.blocks, imported.open_files, imported.snapshots, imported.txid
    );
    Ok(ExitCode::SUCCESS)
}

/// Prints the report. Returns exit code 1 if there is something to recover and nothing was changed.
fn tell(recovery: &RecoveryReport, force: bool) -> ExitCode {
    let identity = &recovery.identity;
    println!("cluster {}, block pool {}", identity.cluster_id, identity.pool);
    if recovery.problems.is_empty() {
        println!("nothing is missing: the NameNode starts with this directory, and nothing was changed");
        return ExitCode::SUCCESS;
    }
    recovery.problems.iter().for_each(|problem| println!("problem: {problem}"));
    let (kept, known) = (recovery.kept, recovery.known);
    println!("kept: all changes up to group {kept} of the journal");
    if known > kept {
        println!("lost: changes from group {} to group {known}, and perhaps later ones", kept + 1);
    } else {
        println!("lost: no known changes; unknown changes after group {kept} cannot be ruled out");
    }
    if !force {
        println!(
            "nothing was changed. If possible, restore a good copy of the directory; without one, run: hearth namenode -recover -force"
        );
        return ExitCode::FAILURE;
    }
    recovery.copies.iter().for_each(|copy| println!("copied before the change: {}", copy.display()));
    println!(
        "recovered: start the NameNode. Before any write, run `hearth fsck /` and compare its result with the expected files. DataNodes keep the blocks of lost changes until `hdfs dfsadmin -safemode forceExit`"
    );
    ExitCode::SUCCESS
}

async fn serve(options: NamenodeOptions) -> anyhow::Result<ExitCode> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let handle = Namenode::start(options).await?;
    Announcement::new("namenode", [("rpc", handle.rpc_address()), ("http", handle.http_address())]).print();
    supervisor::ready("serving clients");
    tokio::select! {
        failed = handle.failed() => bail!("shutting down: {failed}"),
        _ = terminate.recv() => tracing::info!("shutting down: SIGTERM"),
        _ = interrupt.recv() => tracing::info!("shutting down: SIGINT"),
    }
    Ok(ExitCode::SUCCESS)
}
