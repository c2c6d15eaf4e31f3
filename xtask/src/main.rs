//! Developer tasks: `cargo xtask test` is what CI runs, and what a developer runs before pushing.

#![expect(clippy::disallowed_methods, reason = "chores wait for other processes, in real time")]

mod apache;
mod debian;
mod dist;
mod java;
mod libhdfs;
mod logrotate;
mod old_glibc;
mod prometheus;
mod python;
mod qemu;
mod run;
mod stress;
mod test;
mod vm;
mod wheel;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Hearth's chores")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Run formatting, lints, all tests, then the suites against real Apache Hadoop and hdfs-native
    Test(TestArguments),
    /// Fetch Apache Hadoop's jars from Maven Central into .cache/
    Apache,
    /// Make the Python environments with hdfs-native and with PyArrow in .cache/, and fetch Apache's hdfs.h
    Python,
    /// Build the jar of the Java binding, with native libraries for old and new Linux systems, and what is published with it: target/java
    Java(java::JavaArguments),
    /// Run a command of this machine in a virtual machine with RDMA verbs, e.g. `cargo xtask vm -- ibv_devinfo`
    Vm(vm::VmArguments),
    /// Build the release binary, fetch Apache Hadoop and run one benchmark, e.g. `cargo xtask bench put-get`
    #[command(disable_help_flag = true)]
    Bench {
        /// Arguments of `hearth-bench`; `--help` lists the workloads
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Make the packages in target/package: an archive, a .deb, a .rpm and a container image
    Dist(dist::DistArguments),
    /// Build the C library: target/libhdfs/release has libhdfs.so, its headers, and libjvm.so for PyArrow
    Libhdfs {
        /// `debug` is for tests
        #[arg(long, value_enum, default_value = "release")]
        profile: libhdfs::Profile,
    },
    /// Build the Python package with the C library in it: a wheel in target/wheel/release
    Wheel {
        /// `debug` is for tests
        #[arg(long, value_enum, default_value = "release")]
        profile: libhdfs::Profile,
    },
    /// Fetch Debian's Prometheus into .cache/, for the test of the dashboard and the alert rules
    Prometheus,
    /// Fetch Debian's logrotate into .cache/, for the test of the packages' rotation of logs
    Logrotate,
    /// Run the tests of traces, which need a build with the feature `opentelemetry`
    Tracing,
    /// Run readers on every path while files change under them, for a long time
    Stress(stress::StressArguments),
}

#[derive(Args)]
pub struct TestArguments {
    /// Only formatting, lints and the tests that need nothing but Rust
    #[arg(long, conflicts_with_all = ["interop", "vm"])]
    unit: bool,
    /// Only the suites against real Apache Hadoop and hdfs-native
    #[arg(long)]
    interop: bool,
    /// Also run slow tests (minutes): clusters with every combination of daemons, high availability, jobs
    #[arg(long, conflicts_with = "unit")]
    cluster: bool,
    /// Only the suites over RDMA, in a virtual machine with RDMA
    #[arg(long)]
    vm: bool,
    /// Only the engines that store their data on HDFS: HBase, Spark and PyTorch, which are fetched first and take minutes
    #[arg(long, conflicts_with_all = ["unit", "interop", "cluster", "vm"])]
    ecosystem: bool,
    /// Only tests whose name contains this
    filter: Option<String>,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().chore {
        Chore::Test(arguments) => test::run(&arguments),
        Chore::Apache => apache::fetch().map(|lib| {
            println!("Apache Hadoop {} is in {}", apache::VERSION, lib.display());
            ExitCode::SUCCESS
        }),
        Chore::Python => prepare_python().map(|()| ExitCode::SUCCESS),
        Chore::Java(arguments) => java::run(&arguments).map(|()| ExitCode::SUCCESS),
        Chore::Vm(arguments) => vm::run(&arguments),
        Chore::Bench { arguments } => bench(&arguments),
        Chore::Dist(arguments) => dist::run(&arguments).map(|()| ExitCode::SUCCESS),
        Chore::Libhdfs { profile } => libhdfs::build(profile).map(|prefix| {
            println!("libhdfs.so is in {}", prefix.join("lib").display());
            ExitCode::SUCCESS
        }),
        Chore::Wheel { profile } => wheel::build(profile).map(|wheel| {
            println!("{}", wheel.display());
            ExitCode::SUCCESS
        }),
        Chore::Prometheus => prometheus::fetch().map(|home| {
            println!("Prometheus is in {}", home.join("usr/bin").display());
            ExitCode::SUCCESS
        }),
        Chore::Logrotate => logrotate::fetch().map(|program| {
            println!("logrotate is {}", program.display());
            ExitCode::SUCCESS
        }),
        Chore::Tracing => test::tracing(),
        Chore::Stress(arguments) => stress::run(&arguments),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn prepare_python() -> anyhow::Result<()> {
    println!("hdfs-native is importable by {}", python::environment()?.display());
    println!("PyArrow is importable by {}", python::libraries()?.display());
    println!("Apache's hdfs.h is in {}", libhdfs::fetch_headers()?.display());
    Ok(())
}

/// Returns the workspace's root, independent of the current directory.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_owned()
}

/// Returns cargo's target directory: `CARGO_TARGET_DIR` if set, else `target` in the workspace. As for the cargo that [`run::cargo`] starts, a
/// relative path starts at the workspace's root.
pub fn target() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// Builds the benchmarks, and the servers that they measure, in release mode. Returns the path of the benchmarks'
/// program.
pub fn bench_program() -> anyhow::Result<PathBuf> {
    run::run_or_fail(run::cargo().args(["build", "--release", "--package", "hearth", "--package", "hearth-bench"]))?;
    Ok(target().join("release/hearth-bench"))
}

/// Workloads of the mission that need the virtual machine.
const IN_THE_MACHINE: [&[&str]; 3] =
    [&["rdma"], &["rdma-files"], &["small-files", "--files", "4000", "--network", "delay 10ms loss 0.1%"]];

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn bench(arguments: &[String]) -> anyhow::Result<ExitCode> {
    if arguments.first().is_some_and(|workload| workload.starts_with("rdma")) {
        return vm::bench(arguments).map(ExitCode::from);
    }
    apache::fetch()?;
    if arguments.iter().any(|argument| argument == "--network" || argument.starts_with("--network=")) {
        return vm::bench(arguments).map(ExitCode::from);
    }
    let workload = arguments.first().map_or("", String::as_str);
    if workload == "java" {
        java::release(&[std::env::consts::ARCH])?;
        if arguments.iter().any(|argument| argument == "--jobs") {
            apache::fetch_more()?;
            apache::fetch_hbase()?;
            apache::fetch_spark()?;
        }
    }
    if let Err(error) = python::environment() {
        eprintln!("skipping hdfs-native: {error:#}");
    }
    if ["python", "mission"].contains(&workload) {
        wheel::build(libhdfs::Profile::Release)?;
        if let Err(error) = libhdfs::build_apaches() {
            eprintln!("skipping Apache's libhdfs: {error:#}");
        }
    }
    let program = bench_program()?;
    let benchmark = |arguments: &[String]| {
        run::run_or_fail(std::process::Command::new(&program).args(arguments).current_dir(root()))
    };
    let mut outcomes = vec![benchmark(arguments)];
    if *arguments == ["mission"] {
        // Also runs if some of the earlier workloads have failed, to keep an hour's results.
        for words in IN_THE_MACHINE {
            outcomes.push(vm::bench(&strings(words)).and_then(|status| {
                anyhow::ensure!(status == 0, "{} ended with {status} in the virtual machine", words.join(" "));
                Ok(())
            }));
        }
        outcomes.push(benchmark(&["page".to_owned()]));
    }
    let failed: Vec<String> = outcomes.into_iter().filter_map(Result::err).map(|error| format!("{error:#}")).collect();
    anyhow::ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(ExitCode::SUCCESS)
}
