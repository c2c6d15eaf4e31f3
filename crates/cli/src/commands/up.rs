//! `hearth up`: a complete file system on this machine, in one process or with one process for each role.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use hearth_config::{Configuration, Program, keys};
use hearth_datanode::Datanode;
use hearth_namenode::{FormatPolicy, Namenode, NamenodeOptions};
use hearth_types::SystemClock;

use crate::local_cluster::{LocalCluster, LocalClusterOptions, ProcessCluster};
use crate::salvage::ClientCopier;
use crate::{configuration, invocation, logging, supervisor};

#[derive(Args)]
pub struct UpArguments {
    /// Number of DataNodes.
    #[arg(long, default_value_t = 1)]
    datanodes: usize,
    /// Directory of the namespace and the replicas. A later run with the same directory finds its files again.
    #[arg(long, default_value = "hearth-data")]
    dir: PathBuf,
    /// Run each role in its own process.
    #[arg(long)]
    processes: bool,
    /// Write a core-site.xml and hdfs-site.xml for Hadoop clients to this directory.
    #[arg(long, value_name = "DIR")]
    write_conf: Option<PathBuf>,
    /// Port of the NameNode's RPC; 0 picks a free one. The last of several counts.
    #[arg(long, default_value_t = 8020, overrides_with = "port")]
    port: u16,
    /// Port of the NameNode's web pages; 0 picks a free one. The last of several counts.
    #[arg(long, default_value_t = 9870, overrides_with = "http_port")]
    http_port: u16,
    /// The tmpfs for the replicas in memory.
    #[arg(long, default_value = "/dev/shm")]
    memory: PathBuf,
    /// Set a configuration key for all roles, for example `dfs.blocksize=32m`. May be given several times.
    #[arg(short = 'D', value_name = "KEY=VALUE", value_parser = setting)]
    settings: Vec<(String, String)>,
}

pub fn run(arguments: UpArguments) -> anyhow::Result<ExitCode> {
    check(&arguments.settings)?;
    check_port(arguments.port, "--port")?;
    check_port(arguments.http_port, "--http-port")?;
    let cluster = LocalCluster::prepare(LocalClusterOptions {
        dir: arguments.dir,
        memory_root: arguments.memory,
        datanodes: arguments.datanodes,
        port: arguments.port,
        http_port: arguments.http_port,
        settings: arguments.settings,
    })?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if arguments.processes {
        // Started by this thread, because the children end with the thread that starts them.
        let say = |what: &str| eprintln!("hearth: {what}");
        let mut processes = runtime.block_on(ProcessCluster::start(&cluster, say))?;
        announce(&cluster, processes.rpc()?, processes.http()?, arguments.write_conf.as_deref())?;
        let outcome = runtime.block_on(async {
            // One listener for all rounds, so that a signal between two rounds is not lost.
            let mut stopped = std::pin::pin!(super::stop_requested());
            loop {
                // Ctrl-C reaches the children, too. A child that ended by it must not be restarted.
                tokio::select! {
                    biased;
                    stopped = &mut stopped => return stopped,
                    () = tokio::time::sleep(Duration::from_secs(1)) => {}
                }
                tokio::select! {
                    biased;
                    stopped = &mut stopped => return stopped,
                    looked = processes.supervise(&cluster, say) => looked?,
                }
            }
        });
        if let Err(ended) = &outcome {
            // Printed now, because stopping the other processes takes time and may print messages, too.
            eprintln!("hearth: {ended:#}");
        }
        eprintln!("hearth: stopping; writing replicas that are only in memory to disk");
        let is_one_lost = processes.is_datanode_lost();
        let stopped = processes.stop(say);
        say_what_stays(&cluster, stopped.is_ok() && !is_one_lost);
        stopped?;
        // The removal of the package relies on it: all data is on disk.
        return Ok(if outcome.is_ok() && !is_one_lost { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    logging::start("warn");
    runtime.block_on(serve(&cluster, arguments.write_conf.as_deref()))
}

/// Checks that a port is free, before anything is made or started. `option`: the one that sets it.
fn check_port(port: u16, option: &str) -> anyhow::Result<()> {
    let is_taken = |error: &std::io::Error| error.kind() == std::io::ErrorKind::AddrInUse;
    if port != 0 && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_err_and(|error| is_taken(&error)) {
        bail!(
            "port {port} is in use, perhaps by another `hearth up`: choose another with {option}, or a free one with 0"
        );
    }
    Ok(())
}

/// Serves in this process until the user stops it.
async fn serve(cluster: &LocalCluster, write_conf: Option<&Path>) -> anyhow::Result<ExitCode> {
    let (user, host_name) = (configuration::user(), configuration::host_name());
    hearth_client::trace::start(&cluster.namenode(), "hearth", &host_name)?;
    let namenode = Namenode::start(NamenodeOptions {
        configuration: cluster.namenode(),
        user: user.clone(),
        host_name: host_name.clone(),
        clock: Arc::new(SystemClock::new()),
        format: FormatPolicy::IfEmpty,
        directory: None,
        rpc_address: None,
        http_address: None,
        copier: Some(Arc::new(ClientCopier::new(&cluster.namenode()))),
    })
    .await?;
    let mut datanodes = Vec::new();
    for number in 1..=cluster.datanodes() {
        let configuration = Arc::new(cluster.datanode(number, namenode.rpc_address()));
        let options = super::datanode::options(configuration, &user, &host_name)?;
        datanodes.push(Datanode::start(options).await?);
    }
    for datanode in &datanodes {
        datanode.registered().await;
    }
    announce(cluster, namenode.rpc_address(), namenode.http_address(), write_conf)?;
    let outcome = tokio::select! {
        stopped = super::stop_requested() => stopped,
        failed = namenode.failed() => Err(failed.into()),
    };
    if let Err(ended) = &outcome {
        eprintln!("hearth: {ended:#}");
    }
    eprintln!("hearth: stopping; writing replicas that are only in memory to disk");
    let mut all_on_disk = true;
    for datanode in datanodes {
        let left = datanode.shutdown(true).await;
        if left.replicas_left > 0 || left.failures > 0 {
            all_on_disk = false;
            eprintln!(
                "hearth: {} replicas could not be written to disk, and stay in memory; the reasons are logged above",
                left.replicas_left.max(left.failures)
            );
        }
    }
    say_what_stays(cluster, all_on_disk);
    Ok(if all_on_disk && outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Bytes that are not worth a line, for example the lock files of DataNodes that were killed.
const NEGLIGIBLE_BYTES: u64 = 1 << 20;

/// Removes what the DataNodes have left of their directories in memory, and says what stays there and why.
fn say_what_stays(cluster: &LocalCluster, all_on_disk: bool) {
    let left = cluster.remove_memory();
    let (memory, mib) = (cluster.memory_dir().display(), left >> 20);
    if !all_on_disk {
        eprintln!("hearth: stopped. {mib} MiB stay in {memory}: start it again with the same --dir to find them");
    } else if left > NEGLIGIBLE_BYTES {
        eprintln!("hearth: stopped; everything is on disk. {mib} MiB stay in {memory} for the next start");
    } else {
        eprintln!("hearth: stopped; everything is on disk, and the memory is free");
    }
}

/// Prints the URI on the first line, for users and scripts. The other lines explain it.
fn announce(
    cluster: &LocalCluster,
    rpc: SocketAddr,
    http: SocketAddr,
    write_conf: Option<&Path>,
) -> anyhow::Result<()> {
    if let Some(dir) = write_conf {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make the directory {}", dir.display()))?;
        cluster.client(rpc, http).write_dir(dir)?;
    }
    println!("hdfs://{rpc}");
    let count = cluster.datanodes();
    let datanodes = if count == 1 { "1 DataNode".to_string() } else { format!("{count} DataNodes") };
    println!("A NameNode and {datanodes}; web pages at http://{http}/");
    println!("Disk: {}   Memory: {}", cluster.dir().display(), cluster.memory_dir().display());
    if let Some(dir) = write_conf {
        println!("For Hadoop clients: export HADOOP_CONF_DIR={}", dir.display());
    }
    supervisor::ready("serving clients");
    println!("Try: {} fs -fs hdfs://{rpc} -ls /      Stop: Ctrl-C", invocation::program());
    Ok(())
}

/// Parses `KEY=VALUE`.
pub fn setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_string(), value.to_string())),
        _ => Err("wanted KEY=VALUE".to_string()),
    }
}

/// Prints what is questionable about the settings of `-D`; the others are this program's own. With `--processes` each
/// server also checks them, and logs to a file of its own.
///
/// Errors: all values with which a server would not start.
fn check(settings: &[(String, String)]) -> anyhow::Result<()> {
    // Servers need an address, which the cluster chooses.
    let address = Configuration::empty().with(keys::FS_DEFAULT_FS.name, "hdfs://127.0.0.1:8020");
    let configuration = settings.iter().fold(address, |all, (key, value)| all.with(key, value.clone()));
    let report = configuration.check(Program::ALL);
    report.warnings.iter().for_each(|warning| eprintln!("hearth: warning: {warning}"));
    logging::use_format_of(&configuration);
    configuration::refuse(&report.faults)
}
