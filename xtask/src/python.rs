//! Packages of PyPI, in virtual environments: hdfs-native, the fastest client that is not a JVM and the second real
//! client beside Apache's; the libraries that reach HDFS by libhdfs or fsspec; and tools.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::run;

const HDFS_NATIVE: &str = "hdfs-native==0.14.7";

/// Libraries that use HDFS, in the versions that the tests were seen to pass with.
const LIBRARIES: [&str; 10] = [
    "dask[dataframe]==2026.8.0",
    "duckdb==2.0.1",
    "fsspec==2026.9.0",
    "numpy==2.4.6",
    "pandas==3.1.1",
    "polars==2.1.0",
    "pyarrow==26.0.1",
    "pytest==9.2.0",
    "ray[data]==2.60.0",
    "setuptools==84.2.1",
];

/// Returns the Python of a virtual environment that has hdfs-native. The environment is made if it does not exist.
pub fn environment() -> Result<PathBuf> {
    made("venv", &[HDFS_NATIVE], &["hdfs_native"])
}

/// Returns the Python of a virtual environment with the libraries that use HDFS.
pub fn libraries() -> Result<PathBuf> {
    let modules = ["pyarrow", "fsspec", "pytest", "ray", "setuptools", "pandas", "polars", "duckdb", "dask"];
    made("venv-libraries", &LIBRARIES, &modules)
}

/// Returns the Python of a virtual environment with PyTorch. Its wheel of 514 MB needs CUDA's libraries, which are several times as large.
/// PyPI has none without them for x86_64.
pub fn torch() -> Result<PathBuf> {
    made("venv-torch", &["numpy==2.4.6", "torch==2.15.0"], &["torch"])
}

/// Fails if one of the modules that are named as arguments is not installed. Importing them would take seconds.
const FIND: &str = "import sys, importlib.util as u\nsys.exit(any(u.find_spec(name) is None for name in sys.argv[1:]))";

/// Returns the Python of the environment `.cache/NAME`. It is made if it does not have these packages, or if its Python
/// does not find these modules: the system's Python may have been replaced.
fn made(name: &str, packages: &[&str], modules: &[&str]) -> Result<PathBuf> {
    let home = crate::root().join(".cache").join(name);
    let python = home.join("bin/python");
    let found = Command::new(&python).args(["-c", FIND]).args(modules).output();
    if !found.is_ok_and(|output| output.status.success()) {
        let _ = fs::remove_file(stamp(&home));
    }
    tools(&home, packages)?;
    Ok(python)
}

/// Returns the directory of the programs of a virtual environment that has `packages`. The environment is made if it does not exist or has others.
pub fn tools(home: &Path, packages: &[&str]) -> Result<PathBuf> {
    let (stamp, wanted) = (stamp(home), packages.join("\n"));
    if !fs::read_to_string(&stamp).is_ok_and(|made| made == wanted) {
        install(home, packages)?;
        fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))?;
    }
    Ok(home.join("bin"))
}

/// Returns the file that lists the packages of an environment.
fn stamp(home: &Path) -> PathBuf {
    home.join("packages")
}

/// Makes a virtual environment with `packages` in `home`.
fn install(home: &Path, packages: &[&str]) -> Result<()> {
    run::require(&[("python3", "--version")], &["python3", "python3-venv"])?;
    println!("installing {} from PyPI into {}", packages.join(", "), home.display());
    // Debian's python3 lacks ensurepip, which `venv` needs.
    if !Command::new("python3").args(["-c", "import ensurepip"]).output().is_ok_and(|output| output.status.success()) {
        run::install(&["python3-venv"])?;
    }
    run::run_or_fail(Command::new("python3").args(["-m", "venv", "--clear"]).arg(home))?;
    run::run_or_fail(Command::new(home.join("bin/python")).args(["-m", "pip", "install", "--quiet"]).args(packages))
}
