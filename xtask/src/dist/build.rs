//! The program for old systems: linked with zig against the symbols of an old glibc, with its debug symbols in a file of their own, where gdb,
//! perf and addr2line find them.
//!
//! It is not a static program: musl cannot load libibverbs at run time, which RDMA needs.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Machine, Source, output};
use crate::{root, run};

/// The oldest glibc that the program runs with: that of RHEL 8 and Debian 10.
const GLIBC: (u32, u32) = (2, 28);
/// Largest size of the installed program. The build fails above it, so that growth is a decision.
const PROGRAM_BYTES_MAX: u64 = 25 << 20;
/// zig links for any glibc, and cargo-zigbuild lets cargo use it. Both are programs in packages of PyPI.
const TOOLS: [&str; 2] = ["ziglang==0.15.2", "cargo-zigbuild==0.24.1"];

/// Builds the program. Returns the one without symbols, in `out`; beside it is `hearth.debug`.
pub fn program(source: &Source, machine: Machine, out: &Path) -> Result<PathBuf> {
    let objcopy_program = machine.binutil("objcopy");
    let package =
        if machine.is_this() { "binutils".to_owned() } else { format!("binutils-{}-linux-gnu", machine.name()) };
    run::require(&[(&objcopy_program, "--version")], &[&package.replace('_', "-")])?;
    let target = format!("{}-unknown-linux-gnu", machine.name());
    let tools = crate::python::tools(&root().join(".cache/dist/tools"), &TOOLS)?;
    let path = std::env::var("PATH").unwrap_or_default();
    let mut build = Command::new(tools.join("cargo-zigbuild"));
    build
        .current_dir(root())
        .args(["zigbuild", "--locked", "--profile", "dist", "--package", "hearth", "--target"])
        .arg(format!("{target}.{}.{}", GLIBC.0, GLIBC.1))
        // cargo-zigbuild starts this Python to find zig.
        .env("PATH", format!("{}:{path}", tools.display()))
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
    let built = root().join("target").join(&target).join("dist/hearth");
    needs_no_newer_glibc(machine, &built)?;
    let (program, symbols) = (out.join("hearth"), out.join("hearth.debug"));
    objcopy(machine, &["--only-keep-debug"], &built, &symbols)?;
    // Debuggers look for a file of this name beside the program, and check that it is of the same build.
    let link = format!("--add-gnu-debuglink={}", symbols.display());
    objcopy(machine, &["--strip-all", &link], &built, &program)?;
    for path in [&program, &symbols] {
        println!("{} {:.1} MiB", path.display(), size(path)? as f64 / f64::from(1 << 20));
    }
    let bytes = size(&program)?;
    ensure!(bytes <= PROGRAM_BYTES_MAX, "the program has {bytes} bytes, more than {PROGRAM_BYTES_MAX}");
    Ok(program)
}

/// Checks the versions of glibc's symbols that the program asks for.
fn needs_no_newer_glibc(machine: Machine, program: &Path) -> Result<()> {
    let symbols = output(Command::new(machine.binutil("objdump")).arg("-T").arg(program))?;
    let newest = newest_glibc(&symbols).with_context(|| format!("{} asks for no glibc", program.display()))?;
    println!("{} needs glibc {}.{}", program.display(), newest.0, newest.1);
    ensure!(newest <= GLIBC, "the program needs glibc {}.{}, newer than {}.{}", newest.0, newest.1, GLIBC.0, GLIBC.1);
    Ok(())
}

fn newest_glibc(symbols: &str) -> Option<(u32, u32)> {
    let versions = symbols.split("GLIBC_").skip(1).filter_map(|rest| {
        let version = rest.split(|letter: char| !letter.is_ascii_digit() && letter != '.').next()?;
        let mut parts = version.split('.').map(|part| part.parse().ok());
        Some((parts.next()??, parts.next()??))
    });
    versions.max()
}

pub fn objcopy(machine: Machine, flags: &[&str], from: &Path, to: &Path) -> Result<()> {
    run::run_or_fail(Command::new(machine.binutil("objcopy")).args(flags).arg(from).arg(to))
}

fn size(path: &Path) -> Result<u64> {
    Ok(std::fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?.len())
}

#[cfg(test)]
mod tests {
    use super::newest_glibc;

    #[test]
    fn newest_glibc_is_compared_by_number() {
        let symbols =
            "0000 DF *UND* 0000 (GLIBC_2.4) a\n0000 DF *UND* (GLIBC_2.17)  b\n0000 (GLIBC_2.2.5) c\n0000 (OTHER_9.9) d";
        assert_eq!(newest_glibc(symbols), Some((2, 17)));
        assert_eq!(newest_glibc("no symbols"), None);
    }
}
