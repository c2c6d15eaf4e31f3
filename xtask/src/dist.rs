//! `cargo xtask dist`: the program as it is installed, with its debug symbols in a file of their own, where gdb, perf and addr2line find them.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{root, run};

/// Largest size of the installed program. The build fails above it, so that growth is a decision.
const PROGRAM_BYTES_MAX: u64 = 25 << 20;

pub fn run() -> Result<()> {
    run::require(&[("objcopy", "--version")], &["binutils"])?;
    run::run_or_fail(run::cargo().args(["build", "--profile", "dist", "--package", "hearth"]))?;
    // Cargo's own file stays as it is: it shares it between builds, and would not write it again.
    let built = root().join("target/dist/hearth");
    let folder = root().join("target/package");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let (program, symbols) = (folder.join("hearth"), folder.join("hearth.debug"));
    objcopy(&["--only-keep-debug"], &built, &symbols)?;
    // Debuggers look for a file of this name beside the program, and check that it is of the same build.
    let link = format!("--add-gnu-debuglink={}", symbols.display());
    objcopy(&["--strip-all", &link], &built, &program)?;
    for path in [&program, &symbols] {
        println!("{} {:.1} MiB", path.display(), size(path)? as f64 / f64::from(1 << 20));
    }
    let bytes = size(&program)?;
    anyhow::ensure!(bytes <= PROGRAM_BYTES_MAX, "the program has {bytes} bytes, more than {PROGRAM_BYTES_MAX}");
    Ok(())
}

fn objcopy(flags: &[&str], from: &Path, to: &Path) -> Result<()> {
    run::run_or_fail(Command::new("objcopy").args(flags).arg(from).arg(to))
}

fn size(path: &Path) -> Result<u64> {
    Ok(std::fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?.len())
}
