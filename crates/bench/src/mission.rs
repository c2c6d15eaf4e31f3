//! Runs all workloads, one after the other, and writes the page of the project's requirements.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::{machine, page};

#[derive(clap::Args)]
pub struct Arguments {
    /// Run only workloads with this text in their command line, e.g. "thesis"
    #[arg(long)]
    only: Option<String>,
    /// Print the command lines and measure nothing
    #[arg(long)]
    list: bool,
}

/// Command lines of the workloads. Each runs in its own process, so that none inherits memory from another one. They
/// use huge pages, as recommended for production, because the kernel's memory management would otherwise dominate all
/// figures. RDMA workloads need the virtual machine: `cargo xtask bench mission` runs them after these.
const WORKLOADS: &[&[&str]] = &[
    &["put-get", "--huge-pages", "--runs", "3"],
    &["datanode", "--huge-pages", "--runs", "2"],
    &["datanode", "--huge-pages", "--no-transfer-to", "--runs", "2", "--rereplicated-mib", "0"],
    &["local-read"],
    &["local-write", "--huge-pages", "--runs", "3"],
    &["thesis", "--huge-pages"],
    &["saturate", "--huge-pages", "--runs", "5"],
    &["small-files"],
    &["python"],
    &["engine"],
    &["metadata"],
    // Enough calls to keep both NameNodes busy. With 64 open calls, Hearth's waits for the disk a fifth of the time.
    &["metadata", "--open-calls", "8", "--operations", "128000"],
    &["namenode-memory"],
    &["rereplication", "--huge-pages", "--runs", "5"],
    &["stream", "--huge-pages", "--size", "5g", "--runs", "6"],
    &["stream", "--slow-receiver", "1s", "--carriers", "streams,grpc"],
];

/// `profile`: directory for flame graphs of each workload. `huge_pages`: use them for all workloads, not only where the
/// list says so.
pub fn run(arguments: &Arguments, profile: Option<&Path>, huge_pages: bool) -> Result<()> {
    let program = std::env::current_exe().context("cannot find the running program")?;
    let wanted: Vec<_> = WORKLOADS
        .iter()
        .filter(|words| arguments.only.as_ref().is_none_or(|only| words.join(" ").contains(only.as_str())))
        .collect();
    let (mut failed, all) = (Vec::new(), Instant::now());
    for (index, words) in wanted.iter().enumerate() {
        let line = words.join(" ");
        if arguments.list {
            println!("hearth-bench {line}");
            continue;
        }
        println!("=== {} of {}: hearth-bench {line}", index + 1, wanted.len());
        let started = Instant::now();
        let mut command = Command::new(&program);
        command.args(**words).env(machine::COMMIT, machine::commit());
        if let Some(folder) = profile {
            command.arg(format!("--profile={}", folder.display()));
        }
        if huge_pages && !words.contains(&"--huge-pages") {
            command.arg("--huge-pages");
        }
        let status = command.status().context("cannot start hearth-bench")?;
        println!("=== {line}: {:.0} s", started.elapsed().as_secs_f64());
        if !status.success() {
            failed.push(format!("{line} ended with {status}"));
        }
    }
    if arguments.list {
        return Ok(());
    }
    page::write()?;
    println!("{} workloads in {:.0} min", wanted.len(), all.elapsed().as_secs_f64() / 60.0);
    if failed.is_empty() { Ok(()) } else { bail!("{}", failed.join("; ")) }
}
