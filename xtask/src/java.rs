//! `cargo xtask java`: the jar of the Java binding, with native libraries for every platform that can be built here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{old_glibc, root, run};

/// Version in `bindings/java/pom.xml`, which a test compares.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Architectures that the jar has libraries for.
const ARCHITECTURES: [&str; 2] = ["x86_64", "aarch64"];

/// Largest size of a library. The build fails above it, so that growth is a decision.
const LIBRARY_BYTES_MAX: u64 = 6 << 20;

/// Builds the jar as users get it. Returns its path.
pub fn release() -> Result<PathBuf> {
    let mut libraries = Vec::new();
    for architecture in ARCHITECTURES {
        let target = old_glibc::triple(architecture);
        if architecture != std::env::consts::ARCH && !has_target(&target) {
            println!("no library for {architecture}: rustup target add {target}");
            continue;
        }
        run::run_or_fail(old_glibc::cargo(architecture)?.args(["--release", "--package", "hearth-java"]))?;
        let library = old_glibc::built(architecture, "release").join("libhearth_java.so");
        check(&library)?;
        libraries.push((architecture, library));
    }
    jar(&libraries, &crate::target().join("java"))
}

/// Returns whether Rust's standard library for `target` is installed.
fn has_target(target: &str) -> bool {
    let output = Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output();
    output.is_ok_and(|output| {
        let directory = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success() && fs::read_dir(directory).is_ok_and(|mut files| files.next().is_some())
    })
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
