//! Packages of Debian, unpacked into a directory without an installation.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::run;

/// Returns `home`, where `packages` are unpacked unless it has all of `files` already.
pub fn unpacked(packages: &[&str], home: PathBuf, files: &[&str]) -> Result<PathBuf> {
    if has(&home, files) {
        return Ok(home);
    }
    ensure!(
        run::exists("apt-get", "--version") && run::exists("dpkg-deb", "--version"),
        "apt-get and dpkg-deb are missing, which fetch Debian's {}; put {} into {}",
        packages.join(" and "),
        files.join(" and "),
        home.display()
    );
    std::fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
    let mut download = Command::new("apt-get");
    // apt would change to a user who cannot write here.
    download.args(["-o", "APT::Sandbox::User=root", "download"]).args(packages).current_dir(&home);
    if run::run_or_fail(&mut download).is_err() {
        run::run_or_fail(Command::new("apt-get").args(["update", "-q"]))?;
        run::run_or_fail(&mut download)?;
    }
    let entries = std::fs::read_dir(&home)?.collect::<std::io::Result<Vec<_>>>()?;
    for archive in entries.into_iter().map(|entry| entry.path()) {
        if archive.extension().is_some_and(|extension| extension == "deb") {
            run::run_or_fail(Command::new("dpkg-deb").arg("--extract").arg(&archive).arg(&home))?;
            std::fs::remove_file(&archive).with_context(|| format!("cannot remove {}", archive.display()))?;
        }
    }
    ensure!(has(&home, files), "{} have not all of {}", packages.join(" and "), files.join(", "));
    Ok(home)
}

fn has(home: &Path, files: &[&str]) -> bool {
    files.iter().all(|file| home.join(file).exists())
}
