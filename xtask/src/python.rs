//! Packages of PyPI, in virtual environments: hdfs-native, the fastest client that is not a JVM and the second real client beside Apache's; and
//! tools.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::run;

const HDFS_NATIVE: &str = "hdfs-native==0.14.7";

/// Returns the Python of a virtual environment that has hdfs-native. The environment is made if it does not exist.
pub fn environment() -> Result<PathBuf> {
    let home = crate::root().join(".cache/venv");
    let python = home.join("bin/python");
    let importable = || {
        Command::new(&python).args(["-c", "import hdfs_native"]).output().is_ok_and(|output| output.status.success())
    };
    if importable() {
        return Ok(python);
    }
    install(&home, &[HDFS_NATIVE])?;
    Ok(python)
}

/// Returns the directory of the programs of a virtual environment that has `packages`. The environment is made if it does not exist or has others.
pub fn tools(home: &Path, packages: &[&str]) -> Result<PathBuf> {
    let (done, wanted) = (home.join("packages"), packages.join("\n"));
    if !std::fs::read_to_string(&done).is_ok_and(|text| text == wanted) {
        install(home, packages)?;
        std::fs::write(&done, wanted).with_context(|| format!("cannot write {}", done.display()))?;
    }
    Ok(home.join("bin"))
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
