//! `cargo xtask libhdfs`: links `libhdfs.so` from the static library of `bindings/c`, and puts it with its headers into
//! `target/libhdfs/PROFILE`.
//!
//! Rust can link a shared library itself, but passes the linker a version script of its own, to which GNU ld allows no
//! second one. Symbols then have no versions. Rust also depends on `libgcc_s.so`; linked here, only libc is needed.
//!
//! The release is for old systems ([`old_glibc`]). The library of tests is only for this one.

use std::env::consts::ARCH;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{old_glibc, root, run, target};

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
    pub fn name(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Release => "release",
        }
    }
}

/// Builds and links the library. Returns the directory with `lib` and `include`.
pub fn build(profile: Profile) -> Result<PathBuf> {
    let (mut build, built) = match profile {
        Profile::Debug => {
            let mut build = run::cargo();
            build.arg("build");
            (build, target().join(profile.name()))
        }
        Profile::Release => {
            let mut build = old_glibc::cargo(ARCH)?;
            build.arg("--release");
            (build, old_glibc::built(ARCH, profile.name()))
        }
    };
    run::run_or_fail(build.args(["--package", PACKAGE]))?;
    link(&built.join(ARCHIVE), profile)
}

/// Links the library from the archive that was built with the programs of tests.
pub fn link_for_tests(archive: &Path) -> Result<PathBuf> {
    link(archive, Profile::Debug)
}

/// Crate that has Apache's `hdfs.h` and its sources in several versions; no registry has those of 3.4.
const APACHES: (&str, &str) = ("hdfs-sys", "0.3.1");

/// Newest of its versions.
const APACHES_VERSION: &str = "libhdfs/hdfs_3_3";

/// Fetches Apache's header from crates.io into `.cache/hdfs-sys/include`. Returns that directory.
pub fn fetch_headers() -> Result<PathBuf> {
    let include = root().join(".cache/hdfs-sys/include");
    if !include.join("hdfs.h").exists() {
        let header = fetch_apaches()?.join(APACHES_VERSION).join("include/hdfs/hdfs.h");
        fs::create_dir_all(&include)?;
        fs::copy(&header, include.join("hdfs.h")).with_context(|| format!("cannot copy {}", header.display()))?;
    }
    Ok(include)
}

/// Fetches the crate from crates.io. Returns its directory, in cargo's cache.
fn fetch_apaches() -> Result<PathBuf> {
    let home = root().join(".cache/hdfs-sys");
    let (name, version) = APACHES;
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
    Ok(manifest.parent().context("a manifest lies in a directory")?.to_owned())
}

/// Builds Apache's own library, which starts a JVM, for benchmarks beside it. No registry has it, but a crate has its sources. Returns the
/// directory with `libhdfs.so`, and with `java`, a link to the JDK that the library was linked with.
pub fn build_apaches() -> Result<PathBuf> {
    let home = root().join(".cache/hdfs-sys/apache");
    let (library, java) = (home.join("libhdfs.so"), home.join("java"));
    if library.exists() && java.join("lib/server/libjvm.so").exists() {
        return Ok(home);
    }
    run::require(&[("cc", "--version"), ("javac", "-version")], &["gcc", "libc6-dev", "openjdk-17-jdk-headless"])?;
    fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
    let _ = fs::remove_file(&java);
    symlink(java_home()?, &java).with_context(|| format!("cannot make {}", java.display()))?;
    let sources = fetch_apaches()?;
    let version = sources.join(APACHES_VERSION);
    let mut command = Command::new("cc");
    // As in Apache's own build; its warnings are not ours. Several of its files define one variable, which newer compilers allow only with
    // `-fcommon`.
    command.args(["-shared", "-fPIC", "-O2", "-w", "-fcommon"]);
    for directory in ["", "os", "os/posix", "include"] {
        command.arg("-I").arg(version.join(directory));
    }
    command.arg("-I").arg(sources.join("libhdfs"));
    for directory in ["include", "include/linux"] {
        command.arg("-I").arg(java.join(directory));
    }
    for file in ["exception", "jclasses", "jni_helper", "hdfs", "mutexes", "thread", "thread_local_storage"] {
        let file = format!("{file}.c");
        let place = if version.join(&file).exists() { version.clone() } else { version.join("os/posix") };
        command.arg(place.join(file));
    }
    command.arg("-L").arg(java.join("lib/server")).args(["-ljvm", "-lpthread"]);
    command.arg(format!("-Wl,-soname,{FILE}")).arg("-o").arg(replaced(&home, "libhdfs.so")?);
    run::run_or_fail(&mut command)?;
    finish(&home, "libhdfs.so")?;
    Ok(home)
}

/// Returns the directory of the JDK that the program `java` belongs to.
fn java_home() -> Result<PathBuf> {
    let mut command = Command::new("java");
    let output = command.args(["-XshowSettings:properties", "-version"]).output().context("cannot start java")?;
    let text = String::from_utf8_lossy(&output.stderr);
    let home = text.lines().find_map(|line| line.trim().strip_prefix("java.home = "));
    let home = PathBuf::from(home.context("java names no java.home")?);
    let jvm = home.join("lib/server/libjvm.so");
    ensure!(jvm.exists() && home.join("include/jni.h").exists(), "{} has no jni.h or libjvm.so", home.display());
    Ok(home)
}

/// Returns whether cargo names this file as the archive.
pub fn is_archive(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "a")
        && file.file_stem().is_some_and(|stem| stem.to_string_lossy().starts_with("libhearth_libhdfs"))
}

fn link(archive: &Path, profile: Profile) -> Result<PathBuf> {
    run::require(&[("cc", "--version")], &["gcc", "libc6-dev"])?;
    let source = root().join("bindings/c");
    let prefix = target().join("libhdfs").join(profile.name());
    let [lib, server, pkgconfig, include] =
        ["lib", "lib/server", "lib/pkgconfig", "include"].map(|directory| prefix.join(directory));
    for directory in [&server, &pkgconfig, &include] {
        fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    }
    let mut command = match profile {
        Profile::Debug => Command::new("cc"),
        Profile::Release => old_glibc::cc(ARCH)?,
    };
    command
        .args(["-shared", "-fPIC", "-O2"])
        .arg(format!("-Wl,-soname,{FILE}"))
        .arg(format!("-Wl,--version-script={}", source.join("libhdfs.map").display()))
        // The runtime's threads run in the library to the end of the process: it must not be unmapped by dlclose.
        .args(["-Wl,-z,nodelete", "-Wl,-z,relro", "-Wl,-z,now", "-Wl,-z,defs", "-Wl,--gc-sections", "-Wl,--as-needed"]);
    // Everything of the archive is offered to the linker; what no exported function reaches is left out.
    command.arg("-Wl,--whole-archive").arg(archive).arg("-Wl,--no-whole-archive");
    match profile {
        Profile::Debug => command.arg("-static-libgcc"),
        // zig has no libgcc. Its stack unwinder is LLVM's.
        Profile::Release => command.args(["-lunwind", "-Wl,--strip-all"]),
    };
    command.args(["-lpthread", "-ldl", "-lm", "-lrt", "-lc", "-o"]).arg(replaced(&lib, FILE)?);
    run::run_or_fail(&mut command)?;
    finish(&lib, FILE)?;
    let plain = lib.join("libhdfs.so");
    let _ = fs::remove_file(&plain);
    symlink(FILE, &plain).with_context(|| format!("cannot make {}", plain.display()))?;
    // PyArrow loads a libjvm.so before libhdfs.so, and uses none of its symbols. It needs no library, so any compiler can make it.
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
    old_glibc::needs_only_libc(&lib.join(FILE))?;
    if profile == Profile::Release {
        old_glibc::check(&lib.join(FILE))?;
    }
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
