//! hdfs-native from PyPI, the fastest client that is not a JVM. It is the second real client beside Apache's.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

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
    run::require(&[("python3", "--version")], &["python3", "python3-venv"])?;
    println!("installing {HDFS_NATIVE} from PyPI into {}", home.display());
    // Debian's python3 lacks ensurepip, which `venv` needs.
    if !Command::new("python3").args(["-c", "import ensurepip"]).output().is_ok_and(|output| output.status.success()) {
        run::install(&["python3-venv"])?;
    }
    run::run_or_fail(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&home))?;
    run::run_or_fail(Command::new(&python).args(["-m", "pip", "install", "--quiet", HDFS_NATIVE]))?;
    Ok(python)
}
