//! Programs and libraries for old Linux systems: linked with zig against the symbols of an old glibc, and checked.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{python, root, run};

/// The oldest glibc that released programs and libraries run with: that of RHEL 8 and Debian 10.
pub const GLIBC: (u32, u32) = (2, 28);

/// zig links for any glibc, and cargo-zigbuild lets cargo use it. Both are programs in packages of PyPI.
const TOOLS: [&str; 2] = ["ziglang==0.15.2", "cargo-zigbuild==0.24.1"];

/// Returns the directory of the tools' programs. They are installed if they are missing.
fn tools() -> Result<PathBuf> {
    python::tools(&root().join(".cache/zig"), &TOOLS)
}

/// Returns Rust's name for an architecture: `x86_64-unknown-linux-gnu`.
pub fn triple(architecture: &str) -> String {
    format!("{architecture}-unknown-linux-gnu")
}

/// Returns whether the workspace's toolchain has Rust's standard library for an architecture.
pub fn has_standard_library(architecture: &str) -> Result<bool> {
    let sysroot = run::output(Command::new("rustc").args(["--print", "sysroot"]).current_dir(root()))?;
    let library = Path::new(&sysroot).join("lib/rustlib").join(triple(architecture)).join("lib");
    // A directory may be left of a library that was removed.
    Ok(std::fs::read_dir(library).is_ok_and(|mut files| files.next().is_some()))
}

/// Returns a command that builds like `cargo build`, for an architecture and [`GLIBC`]. The caller adds the package and the profile.
pub fn cargo(architecture: &str) -> Result<Command> {
    let triple = triple(architecture);
    ensure!(
        has_standard_library(architecture)?,
        "Rust's standard library for {triple} is missing: run `rustup target add {triple}`"
    );
    let tools = tools()?;
    let path = std::env::var("PATH").unwrap_or_default();
    let mut build = Command::new(tools.join("cargo-zigbuild"));
    build.current_dir(root()).args(["zigbuild", "--locked", "--target"]);
    build.arg(format!("{triple}.{}.{}", GLIBC.0, GLIBC.1));
    // cargo-zigbuild starts this Python to find zig.
    build.env("PATH", format!("{}:{path}", tools.display()));
    Ok(build)
}

/// Returns the directory of what [`cargo`] has built. `profile`: as the directory is named, such as `release`.
pub fn built(architecture: &str, profile: &str) -> PathBuf {
    crate::target().join(triple(architecture)).join(profile)
}

/// Returns a C compiler and linker for an architecture and [`GLIBC`]. The caller adds its arguments.
pub fn cc(architecture: &str) -> Result<Command> {
    let mut command = Command::new(tools()?.join("python"));
    command.args(["-m", "ziglang", "cc", "-target"]);
    command.arg(format!("{architecture}-linux-gnu.{}.{}", GLIBC.0, GLIBC.1));
    Ok(command)
}

/// Checks that a program or library asks for no symbols of a newer glibc than [`GLIBC`].
pub fn check(file: &Path) -> Result<()> {
    let newest = newest_glibc(&described(file)?).with_context(|| format!("{} needs no glibc", file.display()))?;
    println!("{} needs glibc {}.{}", file.display(), newest.0, newest.1);
    let ((major, minor), (old_major, old_minor)) = (newest, GLIBC);
    ensure!(newest <= GLIBC, "{} needs glibc {major}.{minor}, newer than {old_major}.{old_minor}", file.display());
    Ok(())
}

/// Checks that a library needs glibc and no other library.
pub fn needs_only_libc(library: &Path) -> Result<()> {
    let text = described(library)?;
    let needed = libraries(&text);
    ensure!(!needed.is_empty(), "readelf names no libraries for {}", library.display());
    let others: Vec<_> = needed.iter().filter(|name| !LIBC.iter().any(|part| name.starts_with(part))).collect();
    ensure!(others.is_empty(), "{} needs {others:?}, but only libc is allowed", library.display());
    Ok(())
}

/// Parts of the C library, in versions of glibc that have them apart.
const LIBC: [&str; 6] = ["libc.so", "libm.so", "libpthread.so", "libdl.so", "librt.so", "ld-linux"];

/// Returns what readelf prints of the libraries and versions of symbols that a file needs. It reads the files of every architecture, which
/// objdump does not.
fn described(file: &Path) -> Result<String> {
    run::require(&[("readelf", "--version")], &["binutils"])?;
    let mut command = Command::new("readelf");
    // Without translations.
    command.env("LC_ALL", "C").args(["--wide", "--dynamic", "--version-info"]).arg(file);
    let output = command.output().context("cannot start readelf")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "readelf cannot read {}: {errors}", file.display());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the names of the needed libraries in the output of readelf.
fn libraries(text: &str) -> Vec<&str> {
    let needed = text.lines().filter(|line| line.contains("(NEEDED)"));
    needed.filter_map(|line| line.split(['[', ']']).nth(1)).collect()
}

/// Returns the newest version of glibc in the output of readelf.
fn newest_glibc(text: &str) -> Option<(u32, u32)> {
    text.split("GLIBC_").skip(1).filter_map(version).max()
}

/// Parses the version at the start of `text`: `2.17`, `2.2.5`.
fn version(text: &str) -> Option<(u32, u32)> {
    // A feature of the dynamic linker that glibc has since 2.36.
    if text.starts_with("ABI_DT_RELR") {
        return Some((2, 36));
    }
    let version = text.split(|letter: char| !letter.is_ascii_digit() && letter != '.').next()?;
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]
 0x0000000000000001 (NEEDED)             Shared library: [libdl.so.2]
 0x000000000000000e (SONAME)             Library soname: [libhdfs.so.0.0.0]
  0x0010:   Name: GLIBC_2.2.5  Flags: none  Version: 9
  0x0020:   Name: GLIBC_2.17  Flags: none  Version: 8
  0x0030:   Name: GLIBC_2.4  Flags: none  Version: 7
  0x0040:   Name: GLIBC_PRIVATE  Flags: none  Version: 6
  0x0050:   Name: OTHER_9.9  Flags: none  Version: 5
";

    #[test]
    fn newest_glibc_is_compared_by_number() {
        assert_eq!(newest_glibc(TEXT), Some((2, 17)));
        assert_eq!(newest_glibc("no symbols"), None);
        assert_eq!(newest_glibc(&format!("{TEXT}  Name: GLIBC_ABI_DT_RELR")), Some((2, 36)));
    }

    #[test]
    fn needed_libraries_are_named() {
        assert_eq!(libraries(TEXT), ["libc.so.6", "libdl.so.2"]);
    }

    #[test]
    fn needs_of_this_program_are_read() {
        let text = described(&std::env::current_exe().unwrap()).unwrap();
        assert!(newest_glibc(&text).is_some() && libraries(&text).iter().any(|name| name.starts_with("libc.so")));
        assert!(described(&root().join("Cargo.toml")).is_err());
    }
}
