//! The program for old systems ([`old_glibc`]), with its debug symbols in a file of their own, where gdb, perf and addr2line find them.
//!
//! It is not a static program: musl cannot load libibverbs at run time, which RDMA needs.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Machine, Source};
use crate::{old_glibc, root, run};

/// Largest size of the installed program. The build fails above it, so that growth is a decision.
const PROGRAM_BYTES_MAX: u64 = 25 << 20;

/// Builds the program. Returns the one without symbols, in `out`; beside it is `hearth.debug`.
pub fn program(source: &Source, machine: Machine, out: &Path) -> Result<PathBuf> {
    let objcopy_program = machine.binutil("objcopy");
    let package =
        if machine.is_this() { "binutils".to_owned() } else { format!("binutils-{}-linux-gnu", machine.name()) };
    run::require(&[(&objcopy_program, "--version")], &[&package.replace('_', "-")])?;
    let mut build = old_glibc::cargo(machine.name())?;
    build
        .args(["--profile", "dist", "--package", "hearth"])
        .env("HEARTH_COMMIT", &source.commit)
        .env("SOURCE_DATE_EPOCH", source.time.to_string())
        .env("CARGO_INCREMENTAL", "0");
    // The same program from every directory.
    let home = std::env::var("CARGO_HOME").or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cargo")));
    let places = [(root().display().to_string(), "/hearth"), (home.context("HOME is not set")?, "/cargo")];
    let flags: Vec<String> = places.iter().map(|(from, to)| format!("--remap-path-prefix={from}={to}")).collect();
    build.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    let flags: Vec<String> = places.iter().map(|(from, to)| format!("-ffile-prefix-map={from}={to}")).collect();
    build.env("CFLAGS", flags.join(" "));
    run::run_or_fail(&mut build)?;

    // Cargo's own file stays as it is: it shares it between builds, and would not write it again.
    let built = old_glibc::built(machine.name(), "dist").join("hearth");
    old_glibc::check(&built)?;
    let (program, symbols) = (out.join("hearth"), out.join("hearth.debug"));
    objcopy(machine, &["--only-keep-debug"], &built, &symbols)?;
    // Debuggers look for a file of this name beside the program, and check that it is of the same build.
    let link = format!("--add-gnu-debuglink={}", symbols.display());
    objcopy(machine, &["--strip-all", &link], &built, &program)?;
    for path in [&program, &symbols] {
        println!("{} {:.1} MiB", path.display(), size(path)? as f64 / f64::from(1 << 20));
    }
    if machine.is_this() {
        check_version(&mut Command::new(&program), machine, &source.commit)?;
    }
    let bytes = size(&program)?;
    ensure!(bytes <= PROGRAM_BYTES_MAX, "the program has {bytes} bytes, more than {PROGRAM_BYTES_MAX}");
    Ok(program)
}

/// Checks what a program of Hearth says of itself. `program`: a command that runs it. `id`: the commit that it is built of, or its version.
pub fn check_version(program: &mut Command, machine: Machine, id: &str) -> Result<()> {
    let said = run::output(program.arg("version"))?;
    let triple = old_glibc::triple(machine.name());
    ensure!(
        said.starts_with("hearth ") && said.contains(id) && said.contains(&triple) && said.contains("features:"),
        "`hearth version` lacks {id}, the target {triple} or the features: {said}"
    );
    Ok(())
}

pub fn objcopy(machine: Machine, flags: &[&str], from: &Path, to: &Path) -> Result<()> {
    run::run_or_fail(Command::new(machine.binutil("objcopy")).args(flags).arg(from).arg(to))
}

fn size(path: &Path) -> Result<u64> {
    Ok(std::fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?.len())
}
