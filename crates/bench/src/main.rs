//! Benchmarks of Hearth beside Apache Hadoop, interleaved in one run: `hearth-bench WORKLOAD`. `cargo xtask bench
//! WORKLOAD` builds this program and `hearth`, fetches Apache Hadoop, and runs the RDMA workloads in the virtual
//! machine.
//!
//! This is a separate program, so that `hearth` contains no code that is only needed for measuring.
//!
//! Every figure is appended to `bench/record.jsonl`, and charts are written to `docs/benchmarks/`. Outside of the
//! project's directory both go to the current directory ([`output_paths`]).

#![expect(clippy::disallowed_methods, reason = "benchmarks measure real time")]

mod amounts;
mod bench_client;
mod chart;
mod datanode;
mod engine;
mod image;
mod java;
mod load;
mod local_cluster;
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
mod python;
mod random;
mod rdma;
mod rdma_files;
mod record;
mod rereplication;
mod small_files;
mod stream;
mod thesis_figures;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use hearth_config::Configuration;

// The allocator of `hearth`, because clients are measured inside this process too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measure Hearth, beside Apache Hadoop if that is available
#[derive(Parser)]
#[command(name = "hearth-bench", version)]
struct Arguments {
    /// Write flame graphs of all participating processes, made with perf, to this directory; no figure is recorded
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
    /// Apache's DataNode and Hearth's under one Apache NameNode, with Apache's client: CPU per GB, many readers, small
    /// reads, re-replication
    Datanode(datanode::Arguments),
    /// Random reads through the storage engines, with data sets that fit in memory and that do not
    Engine(engine::Arguments),
    /// Reads on the DataNode's machine: whole files, views, at random; beside memcpy and Apache's client
    LocalRead(local_read::Arguments),
    /// Reads of Java programs on the DataNode's machine: Apache's client as it is, and with Hearth's jar
    Java(java::Arguments),
    /// Reads of Python programs on the DataNode's machine: the package `hearth`, PyArrow without Java, hdfs-native, PyArrow with
    /// Apache's libhdfs and a JVM
    Python(python::Arguments),
    /// One file stored by a client on the DataNode's machine: Apache's client, Hearth's by packets, Hearth's into the
    /// DataNode's memory
    LocalWrite(local_write::Arguments),
    /// The RDMA transport beside a probe in C and perftest: throughput, and latency of single reads
    Rdma(rdma::Arguments),
    /// Load for any cluster: sequential writes of files. Without --fs: for a small Hearth cluster and an Apache HDFS
    /// cluster started here
    Write(load::Whole),
    /// Load for any cluster: sequential reads of files
    Read(load::Whole),
    /// Load for any cluster: short random reads
    Pread(load::Pread),
    /// Load for any cluster: 1, 2, 4 .. 32 concurrent readers; their total throughput, and the DataNode's CPU
    Saturate(load::Saturate),
    /// The first 32 KiB of 17,836 files read by 1, 8, 60 threads, over every path; beside Apache's client
    SmallFiles(small_files::Arguments),
    /// Many replicas sent from one process to another: Hearth's streams, gRPC, plain sendfile; CPU, and memory with a
    /// slow receiver
    Stream(stream::Arguments),
    #[command(hide = true)]
    StreamEnd(stream::end::Arguments),
    #[command(hide = true)]
    HoldMemory,
    /// The measurements of the thesis that Hearth is based on: CPU and latency of whole files, many concurrent clients,
    /// beside Apache Hadoop
    Thesis(thesis_figures::Arguments),
    /// Run all comparisons with Apache Hadoop, one workload after the other (an hour), and write the page
    Mission(mission::Arguments),
    /// Write docs/benchmarks/mission.md from the record: each requirement of the project beside the measured value
    Page,
    /// Names created, looked up, renamed and deleted by many concurrent clients: operations per second and the
    /// NameNode's CPU per operation, beside Apache's
    Metadata(metadata::Arguments),
    /// The NameNode's memory per file and per block, beside Apache's
    NamenodeMemory(namenode_memory::Arguments),
    /// The namespace written as an image of Apache's format, imported, and started: time and memory
    Image(image::Arguments),
    /// A Hearth DataNode dies under a Hearth NameNode: time until all blocks have their replicas again, and the
    /// throughput of readers during it
    Rereplication(rereplication::Arguments),
    /// A remote client over RDMA and with packets: a file written, read sequentially and at random
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

/// Returns the configuration of this machine's clients and the user's name, for workloads on a given cluster.
fn config_and_user() -> Result<(Configuration, String)> {
    Ok((hearth_client::from_env::configuration()?, hearth_client::from_env::user_name()))
}

/// Runs one workload. Its servers run the `hearth` program in this program's directory.
fn run(arguments: &Arguments) -> Result<()> {
    // Each workload of the mission decides this for itself.
    if !matches!(arguments.workload, Workload::Mission(_)) && arguments.pages.run_elsewhere()? {
        return Ok(());
    }
    let name = arguments.workload.name();
    if !name.is_empty() && !arguments.workload.is_part() {
        // Called before any measurement, because the checked-out commit may change during it.
        machine::commit();
    }
    match (&arguments.profile, &arguments.workload) {
        // The mission's workloads run in processes of their own.
        (profile, Workload::Mission(mission)) => mission::run(mission, profile.as_deref(), arguments.pages.huge_pages),
        (Some(folder), workload) if !name.is_empty() => profile::profiled(folder, name, || workload.run()),
        (_, workload) => workload.run(),
    }
}

impl Workload {
    /// Returns the workload's name on the command line, or an empty string if it measures nothing itself.
    fn name(&self) -> &'static str {
        match self {
            Self::PutGet(_) => "put-get",
            Self::Datanode(_) => "datanode",
            Self::Engine(_) => "engine",
            Self::LocalRead(_) => "local-read",
            Self::Java(_) => "java",
            Self::Python(_) => "python",
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
            Self::Image(_) => "image",
            Self::Rereplication(_) => "rereplication",
            Self::RdmaFiles(_) => "rdma-files",
            Self::StreamEnd(_) | Self::HoldMemory | Self::Mission(_) | Self::Page => "",
        }
    }

    /// Returns whether this process is one that a workload of the same name has started for itself.
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
            Self::Java(arguments) => java::run(arguments),
            Self::Python(arguments) => python::run(arguments),
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
            Self::Thesis(arguments) => thesis_figures::run(arguments),
            Self::Mission(arguments) => mission::run(arguments, None, false),
            Self::Page => page::write(),
            Self::Metadata(arguments) => metadata::run(arguments),
            Self::NamenodeMemory(arguments) => namenode_memory::run(arguments),
            Self::Image(arguments) => image::run(arguments),
            Self::Rereplication(arguments) => rereplication::run(arguments),
            Self::RdmaFiles(arguments) => rdma_files::run(arguments),
        }
    }
}
