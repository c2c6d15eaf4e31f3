//! Benchmarks of Hearth beside Apache Hadoop, interleaved in one run: `hearth-bench WORKLOAD`. `cargo xtask bench WORKLOAD` builds this program
//! and `hearth`, fetches Apache Hadoop, and runs the RDMA workloads in the virtual machine.
//!
//! A program of its own, so that `hearth` has none of what only measuring needs.
//!
//! Every figure is appended to `bench/record.jsonl`; charts go to `docs/benchmarks/`. Away from the project's own
//! folder both go to the current one ([`places`]).

mod amounts;
mod bench_client;
mod chart;
mod datanode;
mod engine;
mod load;
mod local_read;
mod local_write;
mod machine;
mod measure;
mod memory;
mod metadata;
mod minimal;
mod mission;
mod namenode_memory;
mod namenodes;
mod output_paths;
mod page;
mod profile;
mod put_get;
mod random;
mod rdma;
mod rdma_files;
mod record;
mod rereplication;
mod small_files;
mod stream;
mod thesis;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use hearth_config::Configuration;

// The allocator that `hearth` has: clients are measured inside this process too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measure Hearth, beside Apache Hadoop where that is at hand
#[derive(Parser)]
#[command(name = "hearth-bench", version)]
struct Arguments {
    /// Flame graphs of all processes that take part, by perf, into this folder; no figure is recorded
    #[arg(long, global = true, value_name = "FOLDER", num_args = 0..=1, require_equals = true, default_missing_value = "target/profile")]
    profile: Option<PathBuf>,
    #[command(flatten)]
    pages: memory::Pages,
    #[command(subcommand)]
    workload: Workload,
}

#[derive(Subcommand)]
enum Workload {
    /// One large file stored and fetched by every client: CPU of client and DataNode, wall time, idle memory
    PutGet(put_get::Arguments),
    /// Apache's DataNode and ours under one NameNode of Apache's, with Apache's client: CPU per GB, many readers, small reads, re-replication
    Datanode(datanode::Arguments),
    /// Short gets through the storage engines, of sets that fit memory and of sets that do not
    Engine(engine::Arguments),
    /// Reads on the datanode's machine: whole files, views, at random; beside memcpy and Apache's client
    LocalRead(local_read::Arguments),
    /// One file stored by a client on the DataNode's machine: Apache's, ours by packets, ours in the DataNode's memory
    LocalWrite(local_write::Arguments),
    /// The RDMA transport beside a probe in C and perftest: throughput, and time of single reads
    Rdma(rdma::Arguments),
    /// Load for any cluster: files written, a piece at a time. Without --fs: for a small Hearth of its own and, beside it, Apache HDFS
    Write(load::Whole),
    /// Load for any cluster: files read from their beginning to their end
    Read(load::Whole),
    /// Load for any cluster: short reads at random places
    Pread(load::Pread),
    /// Load for any cluster: 1, 2, 4 .. 32 clients read at once; what they get together, and what the DataNode takes for it
    Saturate(load::Saturate),
    /// The first 32 KiB of 17,836 files by 1, 8, 60 threads, over every path; beside Apache's client
    SmallFiles(small_files::Arguments),
    /// Many replicas from one process to another: Hearth's streams, gRPC, a bare sendfile; CPU, and memory with a slow receiver
    Stream(stream::Arguments),
    #[command(hide = true)]
    StreamEnd(stream::end::Arguments),
    #[command(hide = true)]
    HoldMemory,
    /// The measurements of the thesis that Hearth began from: CPU and latency of whole files, many clients at once, beside Apache Hadoop
    Thesis(thesis::Arguments),
    /// Everything that is measured beside Apache Hadoop, one workload after the other (an hour), and the page
    Mission(mission::Arguments),
    /// Writes docs/benchmarks/mission.md from the record: each demand of the project beside what was measured
    Page,
    /// Names made, looked up, moved and deleted by many clients at once: operations a second and the NameNode's CPU for each, beside Apache's
    Metadata(metadata::Arguments),
    /// What a file and a block take of the NameNode's memory, beside Apache's
    NamenodeMemory(namenode_memory::Arguments),
    /// A DataNode of ours dies under our NameNode: time until all blocks have their replicas again, and what readers get meanwhile
    Rereplication(rereplication::Arguments),
    /// A remote client over RDMA and in packets: a file written, read whole and at random
    RdmaFiles(rdma_files::Arguments),
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hearth-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The configuration of this machine's clients, and the user's name: for workloads that are given a cluster.
fn config_and_user() -> Result<(Configuration, String)> {
    Ok((hearth_client::from_env::configuration()?, hearth_client::from_env::user_name()))
}

/// Runs one workload. Its servers are the `hearth` that lies beside this program.
fn run(arguments: &Arguments) -> Result<()> {
    // Each workload of the mission says for itself.
    if !matches!(arguments.workload, Workload::Mission(_)) && arguments.pages.run_elsewhere()? {
        return Ok(());
    }
    let name = arguments.workload.name();
    if !name.is_empty() && !arguments.workload.is_part() {
        // Before anything is measured: what is checked out may change meanwhile.
        machine::commit();
    }
    match (&arguments.profile, &arguments.workload) {
        // Its workloads are processes of their own.
        (profile, Workload::Mission(mission)) => mission::run(mission, profile.as_deref(), arguments.pages.huge_pages),
        (Some(folder), workload) if !name.is_empty() => profile::profiled(folder, name, || workload.run()),
        (_, workload) => workload.run(),
    }
}

impl Workload {
    /// As it is called on the command line; nothing for what measures nothing itself.
    fn name(&self) -> &'static str {
        match self {
            Self::PutGet(_) => "put-get",
            Self::Datanode(_) => "datanode",
            Self::Engine(_) => "engine",
            Self::LocalRead(_) => "local-read",
            Self::LocalWrite(_) => "local-write",
            Self::Rdma(_) => "rdma",
            Self::Write(_) => "write",
            Self::Read(_) => "read",
            Self::Pread(_) => "pread",
            Self::Saturate(_) => "saturate",
            Self::SmallFiles(_) => "small-files",
            Self::Stream(_) => "stream",
            Self::Thesis(_) => "thesis",
            Self::Metadata(_) => "metadata",
            Self::NamenodeMemory(_) => "namenode-memory",
            Self::Rereplication(_) => "rereplication",
            Self::RdmaFiles(_) => "rdma-files",
            Self::StreamEnd(_) | Self::HoldMemory | Self::Mission(_) | Self::Page => "",
        }
    }

    /// Whether this process is one that a workload of the same name has started for itself.
    fn is_part(&self) -> bool {
        match self {
            Self::Engine(arguments) => arguments.one.is_some(),
            Self::Rdma(arguments) => arguments.far,
            _ => false,
        }
    }

    fn run(&self) -> Result<()> {
        match self {
            Self::PutGet(arguments) => put_get::run(arguments),
            Self::Datanode(arguments) => datanode::run(arguments),
            Self::Engine(arguments) => engine::run(arguments),
            Self::LocalRead(arguments) => local_read::run(arguments),
            Self::LocalWrite(arguments) => local_write::run(arguments),
            Self::Rdma(arguments) => rdma::run(arguments),
            Self::Write(arguments) => arguments.write(),
            Self::Read(arguments) => arguments.read(),
            Self::Pread(arguments) => arguments.run(),
            Self::Saturate(arguments) => arguments.run(),
            Self::SmallFiles(arguments) => small_files::run(arguments),
            Self::Stream(arguments) => stream::run(arguments),
            Self::StreamEnd(arguments) => stream::end::run(arguments),
            Self::HoldMemory => memory::hold::run(),
            Self::Thesis(arguments) => thesis::run(arguments),
            Self::Mission(arguments) => mission::run(arguments, None, false),
            Self::Page => page::write(),
            Self::Metadata(arguments) => metadata::run(arguments),
            Self::NamenodeMemory(arguments) => namenode_memory::run(arguments),
            Self::Rereplication(arguments) => rereplication::run(arguments),
            Self::RdmaFiles(arguments) => rdma_files::run(arguments),
        }
    }
}
