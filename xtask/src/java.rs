//! `cargo xtask java`: the jar of the Java binding, with native libraries for every platform that can be built here.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::{root, run};

/// Version in `bindings/java/pom.xml`, which a test compares.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Oldest glibc that the libraries work with: Debian 10, RHEL 8, Ubuntu 18.10.
const GLIBC: (u32, u32) = (2, 28);

/// A C compiler with the symbols of every glibc, from PyPI. The libraries are linked with it, so that they do not need
/// this machine's glibc.
const ZIG: &str = "ziglang==0.13.0";

/// Architectures that the jar has libraries for.
const ARCHITECTURES: [&str; 2] = ["x86_64", "aarch64"];

/// Largest size of a library. The build fails above it, so that growth is a decision.
const LIBRARY_BYTES_MAX: u64 = 6 << 20;

/// Builds the jar as users get it. Returns its path.
pub fn release() -> Result<PathBuf> {
    let directory = root().join("target/java");
    let mut libraries = Vec::new();
    for architecture in ARCHITECTURES {
        let target = format!("{architecture}-unknown-linux-gnu");
        if architecture != std::env::consts::ARCH && !has_target(&target) {
            println!("no library for {architecture}: rustup target add {target}");
            continue;
        }
        let linker = linker(&directory, architecture)?;
        let variable = format!("CARGO_TARGET_{}_LINKER", target.to_uppercase().replace('-', "_"));
        run::run_or_fail(
            run::cargo()
                .args(["build", "--release", "--package", "hearth-java", "--target", &target])
                .env(variable, linker),
        )?;
        let library = root().join("target").join(&target).join("release/libhearth_java.so");
        check(&library)?;
        libraries.push((architecture, library));
    }
    jar(&libraries, &directory)
}

/// Returns whether Rust's standard library for `target` is installed.
fn has_target(target: &str) -> bool {
    let output = Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output();
    output.is_ok_and(|output| {
        let directory = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success() && fs::read_dir(directory).is_ok_and(|mut files| files.next().is_some())
    })
}

/// Returns a linker for `architecture`: a script that calls zig.
fn linker(directory: &Path, architecture: &str) -> Result<PathBuf> {
    let home = root().join(".cache/zig");
    let python = home.join("bin/python");
    let works = || {
        let version = Command::new(&python).args(["-m", "ziglang", "version"]).stderr(Stdio::null()).output();
        version.is_ok_and(|version| {
            let number = ZIG.rsplit('=').next().unwrap_or_default();
            version.status.success() && String::from_utf8_lossy(&version.stdout).trim() == number
        })
    };
    if !works() {
        run::require(&[("python3", "--version")], &["python3", "python3-venv"])?;
        println!("installing {ZIG} from PyPI into {}", home.display());
        run::run_or_fail(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&home))?;
        run::run_or_fail(Command::new(&python).args(["-m", "pip", "install", "--quiet", ZIG]))?;
        ensure!(works(), "{ZIG} does not start");
    }
    fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let script = directory.join(format!("link-{architecture}"));
    // The stack unwinder: zig has LLVM's, and rustc asks for GCC's. zig is a linker of its own, and knows fewer options.
    let text = format!(
        r#"#!/bin/bash
arguments=()
for argument in "$@"; do
  case "$argument" in
    -lgcc_s) arguments+=(-lunwind) ;;
    -fuse-ld=*|-B*|-Wl,--no-undefined-version|-Wl,-z,nostart-stop-gc) ;;
    *) arguments+=("$argument") ;;
  esac
done
exec "{}" -m ziglang cc -target {architecture}-linux-gnu.{}.{} "${{arguments[@]}}"
"#,
        python.display(),
        GLIBC.0,
        GLIBC.1,
    );
    fs::write(&script, text).with_context(|| format!("cannot write {}", script.display()))?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    Ok(script)
}

/// Checks that a library is small, and needs glibc alone and no newer one than `GLIBC`.
fn check(library: &Path) -> Result<()> {
    let bytes = fs::metadata(library).with_context(|| format!("cannot read {}", library.display()))?.len();
    ensure!(bytes <= LIBRARY_BYTES_MAX, "{} has {bytes} bytes, more than {LIBRARY_BYTES_MAX}", library.display());
    run::require(&[("objdump", "--version")], &["binutils"])?;
    let output = Command::new("objdump").arg("-p").arg(library).output().context("cannot start objdump")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let needed = text.lines().filter_map(|line| line.trim().strip_prefix("NEEDED"));
    for name in needed.map(str::trim) {
        let is_glibc = ["libc.so", "libm.so", "libdl.so", "libpthread.so", "librt.so", "ld-linux"];
        ensure!(is_glibc.iter().any(|start| name.starts_with(start)), "{} needs {name}", library.display());
    }
    let versions = text.split_whitespace().filter_map(|word| word.strip_prefix("GLIBC_"));
    match versions.filter_map(version).max() {
        Some(newest) if newest <= GLIBC => {
            println!("{}: {:.1} MiB, glibc {}.{}", library.display(), bytes as f64 / 1048576.0, newest.0, newest.1);
            Ok(())
        }
        newest => bail!("{} needs glibc {newest:?}, newer than {GLIBC:?}", library.display()),
    }
}

/// Parses `2.17` or `2.2.5`.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glibc_versions_are_ordered_by_number() {
        let newest = ["2.2.5", "2.17", "2.3.4", "2.9", "PRIVATE"].into_iter().filter_map(version).max();
        assert_eq!(newest, Some((2, 17)));
    }
}
