//! Debian's package `prometheus`, unpacked into `.cache/prometheus` without an installation: promtool checks metrics and
//! rules in `crates/cli/tests/monitoring`, and prometheus itself scrapes the servers there.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::run;

const PACKAGE: &str = "prometheus";

/// Returns the directory with `usr/bin/promtool` and `usr/bin/prometheus`, which is fetched once.
pub fn fetch() -> Result<PathBuf> {
    let home = crate::root().join(".cache/prometheus");
    if is_there(&home) {
        return Ok(home);
    }
    ensure!(
        run::exists("apt-get", "--version") && run::exists("dpkg-deb", "--version"),
        "Debian's package {PACKAGE} is fetched by apt-get; elsewhere put promtool and prometheus into {}",
        home.join("usr/bin").display()
    );
    std::fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
    let mut download = Command::new("apt-get");
    // apt would change to a user who cannot write here.
    download.args(["-o", "APT::Sandbox::User=root", "download", PACKAGE]).current_dir(&home);
    if run::run_or_fail(&mut download).is_err() {
        run::run_or_fail(Command::new("apt-get").args(["update", "-q"]))?;
        run::run_or_fail(&mut download)?;
    }
    let entries = std::fs::read_dir(&home)?.collect::<std::io::Result<Vec<_>>>()?;
    let mut packages = entries.into_iter().map(|entry| entry.path());
    let package = packages.find(|path| path.extension().is_some_and(|extension| extension == "deb"));
    let package = package.with_context(|| format!("no package in {}", home.display()))?;
    run::run_or_fail(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(&home))?;
    ensure!(is_there(&home), "{} has no promtool or prometheus", package.display());
    Ok(home)
}

fn is_there(home: &Path) -> bool {
    ["promtool", "prometheus"].iter().all(|program| home.join("usr/bin").join(program).exists())
}
