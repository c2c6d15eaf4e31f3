//! Gives the program what `hearth version` prints: the target, and the commit of its sources.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=HEARTH_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    println!("cargo::rustc-env=HEARTH_TARGET={}", variable("TARGET"));
    println!("cargo::rustc-env=HEARTH_PROFILE={}", variable("PROFILE"));
    // `cargo xtask dist` sets it. Debug builds have none: they would be compiled again after every commit.
    let commit = match (std::env::var("HEARTH_COMMIT"), variable("PROFILE").as_str()) {
        (Ok(commit), _) => Some(commit),
        (Err(_), "release") => {
            if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
                println!("cargo::rerun-if-changed={log}");
            }
            git(&["rev-parse", "--short=12", "HEAD"])
        }
        _ => None,
    };
    println!("cargo::rustc-env=HEARTH_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
}

/// Returns what git prints. `None`: the sources are not in a repository, or there is no git.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
