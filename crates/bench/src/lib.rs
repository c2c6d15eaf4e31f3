//! Workloads that measure Hearth beside Apache Hadoop, one run, interleaved: `hearth bench WORKLOAD`, and `cargo xtask
//! bench WORKLOAD`, which fetches Apache Hadoop first and runs those over RDMA in the virtual machine.
//!
//! Every figure is appended to `bench/record.jsonl`; charts go to `docs/benchmarks/`. Away from the project's own
//! folder both go to the current one ([`places`]).

mod chart;
mod datanode;
mod engine;
mod local_read;
mod local_write;
mod machine;
mod measure;
mod memory;
mod metadata;
mod minimal;
mod mission;
mod page;
mod places;
mod put_get;
mod rdma;
mod rdma_files;
mod record;
mod rereplication;
mod small_files;
mod stream;
mod thesis;

use anyhow::{Context, Result};
use clap::Subcommand;

#[derive(clap::Args)]
pub struct Arguments {
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
    /// One file written by a client on the DataNode's machine: Apache's, ours by packets, ours in the DataNode's memory
    LocalWrite(local_write::Arguments),
    /// The RDMA transport beside a probe in C and perftest: throughput, and time of single reads
    Rdma(rdma::Arguments),
    /// The first 32 KiB of 17,836 files by 1, 8, 60 threads, over every path; beside Apache's client
    SmallFiles(small_files::Arguments),
    /// Many replicas from one process to another: Hearth's streams, gRPC, a bare sendfile; CPU, and memory with a slow receiver
    Stream(stream::Arguments),
    #[command(hide = true)]
    StreamEnd(stream::end::Arguments),
    /// The measurements of the thesis that Hearth began from: CPU and latency of whole files, many clients at once, beside Apache Hadoop
    Thesis(thesis::Arguments),
    /// Everything that is measured beside Apache Hadoop, one workload after the other (an hour), and the page
    Mission(mission::Arguments),
    /// Writes docs/benchmarks/mission.md from the record: each demand of the project beside what was measured
    Page,
    /// Names made, looked up, moved and deleted by many clients at once: operations a second and the NameNode's CPU for each, beside Apache's
    Metadata(metadata::Arguments),
    /// A DataNode of ours dies under our NameNode: time until all blocks have their replicas again, and what readers get meanwhile
    Rereplication(rereplication::Arguments),
    /// A remote client over RDMA and in packets: a file written, read whole and at random
    RdmaFiles(rdma_files::Arguments),
}

/// Runs one workload. Its servers are this very program.
pub fn run(arguments: &Arguments) -> Result<()> {
    hearth_testkit::use_program(std::env::current_exe().context("finding the running program")?);
    match &arguments.workload {
        Workload::PutGet(arguments) => put_get::run(arguments),
        Workload::Datanode(arguments) => datanode::run(arguments),
        Workload::Engine(arguments) => engine::run(arguments),
        Workload::LocalRead(arguments) => local_read::run(arguments),
        Workload::LocalWrite(arguments) => local_write::run(arguments),
        Workload::Rdma(arguments) => rdma::run(arguments),
        Workload::SmallFiles(arguments) => small_files::run(arguments),
        Workload::Stream(arguments) => stream::run(arguments),
        Workload::StreamEnd(arguments) => stream::end::run(arguments),
        Workload::Thesis(arguments) => thesis::run(arguments),
        Workload::Mission(arguments) => mission::run(arguments),
        Workload::Page => page::write(),
        Workload::Metadata(arguments) => metadata::run(arguments),
        Workload::Rereplication(arguments) => rereplication::run(arguments),
        Workload::RdmaFiles(arguments) => rdma_files::run(arguments),
    }
}
