//! Location of the files that tests need from outside of cargo, and the behaviour if they are missing.

use std::fmt::Display;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};

/// Error: something that `cargo xtask test` would have fetched is missing.
#[derive(Debug)]
pub struct Missing {
    pub what: &'static str,
    /// Command that fetches it.
    pub cure: &'static str,
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} is missing; run `{}`", self.what, self.cure)
    }
}

impl std::error::Error for Missing {}

/// Reports that `test` is skipped because of `why`, which can be changed: something is not installed, or not permitted.
/// With `CI=true` it fails instead.
pub fn skip_or_fail(test: &str, why: impl Display) {
    assert!(!std::env::var("CI").is_ok_and(|value| value == "true"), "{test}: {why:#}");
    skip(test, why);
}

/// Reports that `test` is skipped because of `why`, which is a property of the machine. For all other reasons there is
/// [`skip_or_fail`].
pub fn skip(test: &str, why: impl Display) {
    // Bypasses libtest's capture of print!, so that `cargo xtask test` can report the skip.
    let _ = writeln!(std::io::stdout(), "\nSKIPPED {test}: {why:#}");
}

/// Reports that `test` does nothing here because of `why`: the suite in the virtual machine runs it, so it is not counted
/// as skipped.
pub fn left_to_virtual_machine(test: &str, why: impl Display) {
    let _ = writeln!(std::io::stdout(), "\nELSEWHERE {test}: {why:#}; cargo xtask test runs it in its virtual machine");
}

pub fn workspace_root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        here.ancestors().nth(2).expect("testkit lies two levels below the workspace's root").to_owned()
    })
}

/// Returns a directory that, like its ancestors, only root and this user can write to: Java's DataNode opens a socket
/// nowhere else. This is the workspace's `target`, unless the workspace is below a directory that every user can write
/// to, such as /tmp.
pub fn unshared_directory() -> PathBuf {
    let unshared = |path: &Path| {
        let ours = |path: &Path| std::fs::metadata(path).is_ok_and(|data| data.is_dir() && data.mode() & 0o022 == 0);
        path.ancestors().all(ours)
    };
    let writable = |path: &Path| rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok();
    let target = target();
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let candidates = [Some(target.clone()), home, runtime, Some("/run".into())];
    candidates.into_iter().flatten().find(|path| unshared(path) && writable(path)).unwrap_or(target)
}

/// Default version of Apache Hadoop in tests.
pub(crate) const APACHE_VERSION: &str = "3.4.2";

/// Returns the directory of Apache Hadoop's jars.
pub(crate) fn apache_lib(version: &str) -> Result<PathBuf> {
    let lib = workspace_root().join(format!(".cache/apache-{version}/lib"));
    if !lib.is_dir() {
        let cure = if version == APACHE_VERSION { "cargo xtask apache" } else { "cargo xtask test --cluster" };
        bail!(Missing { what: "Apache Hadoop", cure });
    }
    Ok(lib)
}

/// Returns the directory of the jars with Apache's jobs.
pub(crate) fn apache_jobs_lib() -> Result<PathBuf> {
    let lib = workspace_root().join(format!(".cache/apache-{APACHE_VERSION}-jobs/lib"));
    if !lib.is_dir() {
        bail!(Missing { what: "Apache Hadoop's MapReduce", cure: "cargo xtask test --cluster" });
    }
    Ok(lib)
}

/// Returns the directory of the jars with Apache's contract tests.
pub(crate) fn apache_contract_lib() -> Result<PathBuf> {
    let lib = workspace_root().join(format!(".cache/apache-{APACHE_VERSION}-contract/lib"));
    if !lib.is_dir() {
        bail!(Missing { what: "Apache Hadoop's contract tests", cure: "cargo xtask apache" });
    }
    Ok(lib)
}

/// Returns the jar of Hearth's Java binding: `HEARTH_JAR` if set, else the one of `cargo xtask java`.
pub fn hearth_jar() -> Result<PathBuf> {
    let built = || target().join(concat!("java/hearth-hdfs-", env!("CARGO_PKG_VERSION"), ".jar"));
    let jar = std::env::var_os("HEARTH_JAR").map_or_else(built, PathBuf::from);
    if !jar.exists() {
        bail!(Missing { what: "Hearth's jar", cure: "cargo xtask java" });
    }
    Ok(jar)
}

/// Returns a Python that can import `hdfs_native`.
pub fn python_with_hdfs_native() -> Result<PathBuf> {
    let python = workspace_root().join(".cache/venv/bin/python");
    if !python.exists() {
        bail!(Missing { what: "hdfs-native", cure: "cargo xtask python" });
    }
    Ok(python)
}

/// Returns a Python that can import PyArrow, fsspec and pytest.
pub fn python_with_libraries() -> Result<PathBuf> {
    let python = workspace_root().join(".cache/venv-libraries/bin/python");
    if !python.exists() {
        bail!(Missing { what: "PyArrow", cure: "cargo xtask python" });
    }
    Ok(python)
}

/// Returns a Python that can import PyTorch.
pub fn python_with_torch() -> Result<PathBuf> {
    let python = workspace_root().join(".cache/venv-torch/bin/python");
    if !python.exists() {
        bail!(Missing { what: "PyTorch", cure: "cargo xtask test --ecosystem" });
    }
    Ok(python)
}

/// Returns the directory of Debian's Prometheus, with `usr/bin/promtool` and `usr/bin/prometheus`.
pub fn prometheus() -> Result<PathBuf> {
    let home = workspace_root().join(".cache/prometheus");
    if !home.join("usr/bin/promtool").exists() || !home.join("usr/bin/prometheus").exists() {
        bail!(Missing { what: "Debian's Prometheus", cure: "cargo xtask prometheus" });
    }
    Ok(home)
}

/// Returns a command that starts `logrotate`: the installed one, else Debian's.
pub fn logrotate() -> Result<Command> {
    let installed = Command::new("logrotate").arg("--version").output();
    if installed.is_ok_and(|output| output.status.success()) {
        return Ok(Command::new("logrotate"));
    }
    let home = workspace_root().join(".cache/logrotate");
    let program = home.join("usr/sbin/logrotate");
    if !program.exists() {
        bail!(Missing { what: "logrotate", cure: "cargo xtask logrotate" });
    }
    // libpopt is beside it, in one of two places, which depends on the distribution.
    let triple = format!("{}-linux-gnu", std::env::consts::ARCH);
    let libraries = ["usr/lib", "lib"].map(|directory| home.join(directory).join(&triple));
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", std::env::join_paths(libraries).context("the workspace's path has a colon")?);
    Ok(command)
}

/// Returns the directory of Apache's `hdfs.h`.
pub fn apache_libhdfs_headers() -> Result<PathBuf> {
    let directory = workspace_root().join(".cache/hdfs-sys/include");
    if !directory.join("hdfs.h").exists() {
        bail!(Missing { what: "Apache's hdfs.h", cure: "cargo xtask python" });
    }
    Ok(directory)
}

/// Returns the directory with Apache's own `libhdfs.so`, and `java`, a link to the JDK that it starts.
pub fn apache_libhdfs() -> Result<PathBuf> {
    let directory = workspace_root().join(".cache/hdfs-sys/apache");
    if !directory.join("libhdfs.so").exists() {
        bail!(Missing { what: "Apache's libhdfs", cure: "cargo xtask bench python" });
    }
    Ok(directory)
}

/// Returns the directory with `lib/libhdfs.so` and `include` of this build: `HEARTH_LIBHDFS` if set, else built now.
pub fn libhdfs() -> Result<PathBuf> {
    static LIBHDFS: OnceLock<()> = OnceLock::new();
    if let Some(prefix) = std::env::var_os("HEARTH_LIBHDFS") {
        return Ok(prefix.into());
    }
    built(&LIBHDFS, "libhdfs")?;
    Ok(target().join("libhdfs/debug"))
}

/// Returns the wheel of the Python package of this build: `HEARTH_WHEEL` if set, else built now.
pub fn python_wheel() -> Result<PathBuf> {
    static WHEEL: OnceLock<()> = OnceLock::new();
    if let Some(wheel) = std::env::var_os("HEARTH_WHEEL") {
        return Ok(wheel.into());
    }
    built(&WHEEL, "wheel")?;
    let directory = target().join("wheel/debug");
    let files = std::fs::read_dir(&directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let mut wheels = files.filter_map(|entry| Some(entry.ok()?.path()));
    let wheel = wheels.find(|path| path.extension().is_some_and(|extension| extension == "whl"));
    wheel.with_context(|| format!("no wheel in {}", directory.display()))
}

/// Returns cargo's target directory: `CARGO_TARGET_DIR` if set, which may be relative to the workspace's root, else `target` there.
fn target() -> PathBuf {
    workspace_root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// Runs `cargo xtask CHORE` once in this process, for a debug build.
fn built(once: &OnceLock<()>, chore: &str) -> Result<()> {
    if once.get().is_some() {
        return Ok(());
    }
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["xtask", chore, "--profile", "debug"])
        .current_dir(workspace_root())
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("cargo xtask {chore} ended with {status}");
    }
    once.get_or_init(|| ());
    Ok(())
}

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Makes clusters run this program from now on. Has no effect after the first cluster was started.
pub fn use_program(program: PathBuf) {
    let _ = PROGRAM.set(program);
}

/// Returns the `hearth` program of this build: `HEARTH_PROGRAM` if set, else the one beside the running test. The
/// latter is built first, so that it is never stale.
pub fn hearth_program() -> Result<PathBuf> {
    if let Some(program) = std::env::var_os("HEARTH_PROGRAM") {
        return Ok(program.into());
    }
    if let Some(program) = PROGRAM.get() {
        return Ok(program.clone());
    }
    let us = std::env::current_exe().context("finding the running program")?;
    // target/PROFILE/deps/test or target/PROFILE/program
    let profile = us
        .ancestors()
        .skip(1)
        .find(|directory| directory.file_name().is_some_and(|name| name != "deps"))
        .context("the running program lies in no target directory")?;
    let program = profile.join("hearth");
    // Nothing is built in the virtual machine: the host has just built it.
    let builds = !in_virtual_machine();
    if builds && profile.file_name().is_some_and(|name| name == "debug") {
        let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["build", "--quiet", "--package", "hearth"])
            .current_dir(workspace_root())
            .status()
            .context("cannot start cargo")?;
        if !status.success() {
            bail!("building hearth ended with {status}");
        }
    }
    if !program.exists() {
        bail!("{} does not exist; build it with cargo build --release --package hearth", program.display());
    }
    Ok(PROGRAM.get_or_init(|| program).clone())
}

/// Returns whether this runs in the virtual machine that `cargo xtask` starts, which has RDMA.
pub fn in_virtual_machine() -> bool {
    std::env::var_os("HEARTH_VM").is_some()
}

/// Returns all files in and below `directory`. Files that are removed during the walk are ignored.
pub fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => directories.push(entry.path()),
                Ok(_) => files.push(entry.path()),
                Err(_) => {}
            }
        }
    }
    files
}
