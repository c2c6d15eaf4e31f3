//! `cargo xtask java`: the jar of the Java binding, with native libraries for every platform that Hearth supports.

mod jdks;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

pub use jdks::{native as native_jdks, variable as jdks_variable};

use crate::{apache, old_glibc, root, run};

/// Version in `bindings/java/pom.xml`, which a test compares.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Architectures that the jar has libraries for.
const ARCHITECTURES: [&str; 2] = ["x86_64", "aarch64"];

/// Largest size of a library. The build fails above it, so that growth is a decision.
const LIBRARY_BYTES_MAX: u64 = 6 << 20;

#[derive(Args)]
pub struct JavaArguments {
    /// Only the library for this architecture. Can be repeated
    #[arg(long, value_name = "ARCHITECTURE", value_parser = ARCHITECTURES)]
    architecture: Vec<String>,
    /// Then write and read by the jar with Java 11, 17, 21 and 25, with Java 8 if it is installed, and with aarch64's under qemu.
    /// What is missing is fetched, up to 300 MB
    #[arg(long)]
    check_jdks: bool,
}

pub fn run(arguments: &JavaArguments) -> Result<()> {
    let mut architectures: Vec<&str> = arguments.architecture.iter().map(String::as_str).collect();
    if architectures.is_empty() {
        architectures.extend(ARCHITECTURES);
    }
    let jar = release(&architectures)?;
    if arguments.check_jdks {
        check_jdks(&jar, &architectures)?;
    }
    println!("{}", jar.display());
    Ok(())
}

/// Builds the jar as users get it, with a library for each architecture. Returns its path.
pub fn release(architectures: &[&str]) -> Result<PathBuf> {
    let mut libraries = Vec::new();
    for architecture in architectures {
        add_target(architecture)?;
        run::run_or_fail(old_glibc::cargo(architecture)?.args(["--release", "--package", "hearth-java"]))?;
        let library = old_glibc::built(architecture, "release").join("libhearth_java.so");
        check(&library)?;
        libraries.push((*architecture, library));
    }
    jar(&libraries, &crate::target().join("java"))
}

/// Runs a program with the jar on every Java that can be had: `tests/interop/tests/jdks.rs`.
fn check_jdks(jar: &Path, architectures: &[&str]) -> Result<()> {
    apache::fetch()?;
    let mut runtimes = Vec::new();
    for architecture in architectures {
        if *architecture == std::env::consts::ARCH {
            runtimes.extend(jdks::native()?);
        } else {
            ensure!(*architecture == "aarch64", "no Java of {architecture} can be emulated here");
            runtimes.push(jdks::emulated()?);
        }
    }
    let mut test = run::cargo();
    test.args(["test", "--package", "hearth-interop", "--test", "jdks"]);
    run::run_or_fail(test.env("HEARTH_JAR", jar).env("HEARTH_TEST_JDKS", jdks::variable(&runtimes)))
}

/// Installs Rust's standard library for an architecture, if it is missing.
fn add_target(architecture: &str) -> Result<()> {
    if old_glibc::has_standard_library(architecture)? {
        return Ok(());
    }
    let target = old_glibc::triple(architecture);
    let without = "or leave this library out: cargo xtask java --architecture";
    if !run::exists("rustup", "--version") {
        bail!(
            "Rust's standard library for {target} is missing, and so is rustup, which adds it; install it as your Rust \
             was installed, {without} {}",
            std::env::consts::ARCH
        );
    }
    println!("rustup target add {target}");
    let mut add = Command::new("rustup");
    run::run_or_fail(add.args(["target", "add", &target]).current_dir(root()))
        .with_context(|| format!("cannot add {target}; try again, {without} {}", std::env::consts::ARCH))
}

/// Checks that a library is small, and needs glibc alone and no newer one than every system has.
fn check(library: &Path) -> Result<()> {
    let bytes = fs::metadata(library).with_context(|| format!("cannot read {}", library.display()))?.len();
    ensure!(bytes <= LIBRARY_BYTES_MAX, "{} has {bytes} bytes, more than {LIBRARY_BYTES_MAX}", library.display());
    println!("{}: {:.1} MiB", library.display(), bytes as f64 / f64::from(1 << 20));
    old_glibc::needs_only_libc(library)?;
    old_glibc::check(library)
}

/// Builds the jar in `directory`, with a library for each architecture.
pub fn jar(libraries: &[(&str, PathBuf)], directory: &Path) -> Result<PathBuf> {
    run::require(&[("mvn", "--version"), ("javac", "-version")], &["maven", "openjdk-17-jdk-headless"])?;
    let natives = directory.join("natives");
    if natives.exists() {
        fs::remove_dir_all(&natives).with_context(|| format!("cannot remove {}", natives.display()))?;
    }
    for (architecture, library) in libraries {
        let platform = natives.join(format!("linux-{architecture}"));
        fs::create_dir_all(&platform).with_context(|| format!("cannot make {}", platform.display()))?;
        fs::copy(library, platform.join("libhearth_java.so"))
            .with_context(|| format!("cannot copy {}", library.display()))?;
    }
    let maven = |offline: &[&str]| {
        let mut command = Command::new("mvn");
        command.args(["--batch-mode", "--quiet"]).args(offline).arg("--file").arg(root().join("bindings/java/pom.xml"));
        command.arg(format!("-Dhearth.build={}", directory.display())).arg("package");
        command
    };
    // Without the network if an earlier build has fetched what Maven needs.
    let offline = maven(&["--offline"]).output().context("cannot start mvn")?;
    if !offline.status.success() {
        run::run_or_fail(&mut maven(&[]))?;
    }
    Ok(directory.join(format!("hearth-hdfs-{VERSION}.jar")))
}
