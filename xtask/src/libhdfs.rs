//! `cargo xtask libhdfs`: links `libhdfs.so` from the static library of `bindings/c`, and puts it with its headers into
//! `target/libhdfs/PROFILE`.
//!
//! Rust can link a shared library itself, but passes the linker a version script of its own, to which GNU ld allows no
//! second one. Symbols then have no versions. Rust also depends on `libgcc_s.so`; linked here, only libc is needed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::run;

const PACKAGE: &str = "hearth-libhdfs";
const ARCHIVE: &str = "libhearth_libhdfs.a";

/// As Apache's.
const FILE: &str = "libhdfs.so.0.0.0";

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Profile {
    Debug,
    Release,
}

impl Profile {
    fn name(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Release => "release",
        }
    }
}

/// Builds and links the library. Returns the directory with `lib` and `include`.
pub fn build(profile: Profile) -> Result<PathBuf> {
    let mut build = run::cargo();
    build.args(["build", "--package", PACKAGE]);
    if profile == Profile::Release {
        build.arg("--release");
    }
    run::run_or_fail(&mut build)?;
    link(&target().join(profile.name()).join(ARCHIVE), profile)
}

/// Links the library from the archive that was built with the programs of tests.
pub fn link_for_tests(archive: &Path) -> Result<PathBuf> {
    link(archive, Profile::Debug)
}

/// Crate that has Apache's `hdfs.h` of several versions; no registry has that of 3.4.
const HEADERS: (&str, &str) = ("hdfs-sys", "0.3.1");

/// Fetches Apache's header from crates.io into `.cache/hdfs-sys/include`. Returns that directory.
pub fn fetch_headers() -> Result<PathBuf> {
    let home = crate::root().join(".cache/hdfs-sys");
    let include = home.join("include");
    if include.join("hdfs.h").exists() {
        return Ok(include);
    }
    let (name, version) = HEADERS;
    // Nothing of the crate is compiled: a package that depends on it lets cargo fetch and verify it.
    fs::create_dir_all(home.join("src")).with_context(|| format!("cannot make {}", home.display()))?;
    let manifest = format!(
        "[package]\nname = \"headers\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[dependencies]\n{name} = \"={version}\"\n\n[workspace]\n"
    );
    fs::write(home.join("Cargo.toml"), manifest)?;
    fs::write(home.join("src/lib.rs"), "")?;
    let output = run::cargo().args(["metadata", "--format-version", "1"]).current_dir(&home).output()?;
    ensure!(output.status.success(), "fetching {name}: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).context("cargo's metadata")?;
    let packages = metadata["packages"].as_array().context("packages")?;
    let package = packages.iter().find(|package| package["name"] == name).with_context(|| format!("no {name}"))?;
    let manifest = Path::new(package["manifest_path"].as_str().context("its manifest")?);
    let header = manifest.with_file_name("libhdfs/hdfs_3_3/include/hdfs/hdfs.h");
    fs::create_dir_all(&include)?;
    fs::copy(&header, include.join("hdfs.h")).with_context(|| format!("cannot copy {}", header.display()))?;
    Ok(include)
}

/// Returns whether cargo names this file as the archive.
pub fn is_archive(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "a")
        && file.file_stem().is_some_and(|stem| stem.to_string_lossy().starts_with("libhearth_libhdfs"))
}

fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| crate::root().join("target"), PathBuf::from)
}

fn link(archive: &Path, profile: Profile) -> Result<PathBuf> {
    run::require(&[("cc", "--version")], &["gcc", "libc6-dev"])?;
    let source = crate::root().join("bindings/c");
    let prefix = target().join("libhdfs").join(profile.name());
    let [lib, server, pkgconfig, include] =
        ["lib", "lib/server", "lib/pkgconfig", "include"].map(|directory| prefix.join(directory));
    for directory in [&server, &pkgconfig, &include] {
        fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    }
    let mut command = Command::new("cc");
    command
        .args(["-shared", "-static-libgcc", "-fPIC"])
        .arg(format!("-Wl,-soname,{FILE}"))
        .arg(format!("-Wl,--version-script={}", source.join("libhdfs.map").display()))
        // The runtime's threads run in the library to the end of the process: it must not be unmapped by dlclose.
        .args(["-Wl,-z,nodelete", "-Wl,-z,relro", "-Wl,-z,now", "-Wl,-z,defs", "-Wl,--gc-sections", "-Wl,--as-needed"]);
    if profile == Profile::Release {
        command.arg("-Wl,--strip-all");
    }
    // Everything of the archive is offered to the linker; what no exported function reaches is left out.
    command.arg("-Wl,--whole-archive").arg(archive).arg("-Wl,--no-whole-archive");
    command.args(["-lpthread", "-ldl", "-lm", "-lrt", "-lc", "-o"]).arg(replaced(&lib, FILE)?);
    run::run_or_fail(&mut command)?;
    finish(&lib, FILE)?;
    let plain = lib.join("libhdfs.so");
    let _ = fs::remove_file(&plain);
    std::os::unix::fs::symlink(FILE, &plain).with_context(|| format!("cannot make {}", plain.display()))?;
    // PyArrow loads a libjvm.so before libhdfs.so, and uses none of its symbols.
    let mut empty = Command::new("cc");
    empty.args(["-shared", "-nostdlib", "-Wl,-soname,libjvm.so", "-x", "c", "/dev/null", "-o"]);
    run::run_or_fail(empty.arg(replaced(&server, "libjvm.so")?))?;
    finish(&server, "libjvm.so")?;
    for header in ["hdfs.h", "hearth.h"] {
        let from = source.join("include").join(header);
        fs::copy(&from, include.join(header)).with_context(|| format!("cannot copy {}", from.display()))?;
    }
    let template = fs::read_to_string(source.join("libhdfs.pc.in")).context("bindings/c/libhdfs.pc.in")?;
    fs::write(pkgconfig.join("libhdfs.pc"), template.replace("@VERSION@", env!("CARGO_PKG_VERSION")))?;
    only_libc_is_needed(&lib.join(FILE))?;
    Ok(prefix)
}

/// Returns the path of a new file that replaces `name`. Processes that use the old one keep it.
fn replaced(directory: &Path, name: &str) -> Result<PathBuf> {
    let new = directory.join(format!("{name}.new"));
    if new.exists() {
        fs::remove_file(&new).with_context(|| format!("cannot remove {}", new.display()))?;
    }
    Ok(new)
}

fn finish(directory: &Path, name: &str) -> Result<()> {
    let new = directory.join(format!("{name}.new"));
    fs::rename(&new, directory.join(name)).with_context(|| format!("cannot rename {}", new.display()))
}

/// Parts of the C library, in versions of glibc that have them apart.
const LIBC: [&str; 6] = ["libc.so", "libm.so", "libpthread.so", "libdl.so", "librt.so", "ld-linux"];

fn only_libc_is_needed(library: &Path) -> Result<()> {
    let output = Command::new("readelf").arg("-d").arg(library).output().context("cannot start readelf")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let needed: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .filter_map(|line| line.split(['[', ']']).nth(1))
        .collect();
    ensure!(!needed.is_empty(), "readelf names no libraries for {}", library.display());
    let others: Vec<_> = needed.iter().filter(|name| !LIBC.iter().any(|part| name.starts_with(part))).collect();
    ensure!(others.is_empty(), "{} needs {others:?}, but only libc is allowed", library.display());
    Ok(())
}
