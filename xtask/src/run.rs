//! Running other programs, with clear errors.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Returns the cargo that runs this program, in the workspace's root.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(crate::root());
    command
}

/// Runs a command to its end. It shares this program's output. The error names the command.
pub fn run_or_fail(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", spelled(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", spelled(command));
    }
    Ok(())
}

/// Returns what a command prints, without the last line end.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {}", spelled(command)))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("{} ended with {}: {}", spelled(command), output.status, errors.trim());
    }
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}

/// Returns what `cargo metadata` prints about a package of the workspace.
pub fn package(name: &str) -> Result<serde_json::Value> {
    let metadata = output(cargo().args(["metadata", "--offline", "--no-deps", "--format-version", "1"]))?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata).context("cargo's metadata")?;
    let packages = metadata["packages"].as_array().context("cargo's metadata has packages")?;
    packages.iter().find(|package| package["name"] == name).cloned().with_context(|| format!("no package {name}"))
}

/// Returns whether the program exists and can be started with `argument` (a version flag).
pub fn exists(program: impl AsRef<OsStr>, argument: &str) -> bool {
    Command::new(program)
        .arg(argument)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Checks that `programs` (name and version flag) exist. As root on Debian it installs `packages`; otherwise the error
/// names the packages to install.
pub fn require(programs: &[(&str, &str)], packages: &[&str]) -> Result<()> {
    if programs.iter().all(|(name, flag)| exists(name, flag)) {
        return Ok(());
    }
    install(packages)?;
    match programs.iter().find(|(name, flag)| !exists(name, flag)) {
        Some((name, _)) => bail!("{name} is still missing after installing {}", packages.join(" ")),
        None => Ok(()),
    }
}

/// Installs Debian packages if permitted, else returns an error that says how.
pub fn install(packages: &[&str]) -> Result<()> {
    // The virtual machine is prepared concurrently with the rest, and apt cannot run twice at a time.
    static ONCE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _turn = ONCE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let line = format!("apt-get install -y --no-install-recommends {}", packages.join(" "));
    if !is_root() || !exists("apt-get", "--version") {
        bail!("{} missing; on Debian or Ubuntu: sudo {line}", packages.join(", "));
    }
    println!("{line}");
    let attempt = || run_or_fail(Command::new("sh").arg("-c").arg(&line).env("DEBIAN_FRONTEND", "noninteractive"));
    if attempt().is_err() {
        // A stale package list is the usual cause of a failed first attempt.
        run_or_fail(Command::new("apt-get").args(["update", "-q"]))?;
        attempt()?;
    }
    Ok(())
}

fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| {
        status
            .lines()
            .any(|line| line.strip_prefix("Uid:").is_some_and(|ids| ids.split_whitespace().nth(1) == Some("0")))
    })
}

/// Returns the command as typed in a shell.
pub fn spelled(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}
